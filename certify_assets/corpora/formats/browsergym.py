"""BrowserGym and AgentLab runs as JSON: folders of summary_info.json and steps_info.json."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.messages import message_text, steps_of_turns, turn_on_page
from certify_assets.corpora.formats.records import (
    Record,
    begins,
    inside,
    is_list_of_objects,
    mapping,
    text_of,
)

_STEPS, _SUMMARY = "steps_info.json", "summary_info.json"
_DATE = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"
_FOLDER = re.compile(rf"(?:{_DATE}_)?(?P<agent>.+?)_on_(?P<task>.+?)_(?P<seed>\d+)(?:_\d{{1,3}})?")
_EXPORT = (
    "where the harness is installed, write ExpResult(folder).steps_info as JSON to "
    "steps_info.json in the run's folder"
)


def _fits(file: SourceFile) -> bool:
    name = file.path.name
    if name == _STEPS:
        return any(begins(file, b"{[", key) for key in (b'"obs"', b'"action"'))
    return name == _SUMMARY and begins(file, b"{", b'"n_steps"', b'"cum_reward"')


# Loading a pickle runs code of its author, so those that the harness stores are counted and never
# opened. Its own option save_json overwrites steps_info.json at every step: only the last is left.
def _refusal(file: SourceFile) -> str:
    return (
        f"{file.name} is a pickle, which runs code when it is loaded, and was not opened; "
        f"{_EXPORT}."
    )


@corpus_format(
    title="BrowserGym/AgentLab runs as JSON (folders with summary_info.json and steps_info.json)",
    suffixes=(".json", ".pkl"),
    domain="web",
    fits=_fits,
    explain=lambda file: _refusal(file) if file.suffix == ".pkl" else None,
    label_source="reward of the harness (cum_reward)",
    marks={},
)
def browsergym(files: FileSet, reading: Reading) -> Drafts:
    """Read the run folders that hold a summary and steps."""
    summaries: dict[str, Record] = {}
    for file, summary in reading.documents(files.matching(f"*/{_SUMMARY}")):
        summaries[str(PurePosixPath(reading.origin(file).file).parent)] = mapping(summary)

    def draft(content: Any, origin: Origin) -> Draft:
        folder = PurePosixPath(origin.file).parent
        summary = summaries.get(str(folder), {})
        if folder.name.startswith("_"):
            said = "is in a folder whose name begins with _: the harness ran it again"
            raise LeftOutError(said, "superseded")
        if summary.get("err_msg") is not None:
            said = f"belongs to a run that crashed (err_msg in {_SUMMARY})"
            raise LeftOutError(said, "infrastructure_error")
        infos = _infos(content)
        called = _FOLDER.fullmatch(folder.name)
        if not called:
            raise LeftOutError(
                "its folder is not named <agent>_on_<task>_<seed>, so its agent and task are not "
                "known; rename the folder"
            )
        return Draft(
            task_id=called["task"],
            agent=called["agent"],
            instruction=next(filter(None, map(_goal, infos)), ""),
            steps=steps_of_turns(map(_turn, infos)),
            outcome=summary.get("cum_reward"),
            outcome_name="cum_reward",
            origin=origin,
            trajectory_id=folder.name,
            named_agent=called["agent"],
        )

    found: set[str] = set()
    for file in files:
        name = file.path.name
        if file.suffix == ".pkl":
            reading.drop("file_pickle_refused", _refusal(file))
        elif name == _STEPS:
            found.add(str(file.path.parent))
            for _, content in reading.documents([file]):
                yield from reading.runs([(reading.origin(file), content)], draft)
        elif name != _SUMMARY:
            reading.other(file.name)
    for folder in sorted(summaries.keys() - found):
        reading.drop("no_trajectory", f"{folder} has no {_STEPS}; {_EXPORT}.")


def _infos(infos: Any) -> list[Record]:
    if isinstance(infos, dict):
        raise LeftOutError(
            "it holds one step, as the harness's option save_json leaves it, not the list of "
            f"all; {_EXPORT}"
        )
    if not isinstance(infos, list) or not is_list_of_objects(infos):
        raise LeftOutError("it is not a list of steps")
    if any(info.get("step") != position for position, info in enumerate(infos)):
        raise LeftOutError("its steps are not numbered 0, 1, 2 and so on; some may be missing")
    return infos


def _turn(info: Record) -> tuple[str, str]:
    seen = info.get("obs")
    trees = (text_of(inside(seen, name)) for name in ("axtree_txt", "pruned_html", "dom_txt"))
    return turn_on_page(
        inside(seen, "url"),
        inside(seen, "last_action_error"),
        next(filter(None, trees), ""),
        text_of(inside(info, "agent_info", "think")),
        text_of(info.get("action")),
    )


def _goal(info: Record) -> str:
    goal = inside(info, "obs", "goal")
    return text_of(goal) or message_text(inside(info, "obs", "goal_object"))
