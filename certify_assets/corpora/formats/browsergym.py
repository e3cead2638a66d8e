"""BrowserGym and AgentLab runs as JSON: folders of summary_info.json and steps_info.json."""

from __future__ import annotations

import re
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    LeftOutError,
    Origin,
    Reading,
    contents,
    corpus_format,
    switch,
    unusable,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.messages import message_text
from certify_assets.corpora.formats.records import HEAD, Record, begins_json, json_value, one_object
from certify_assets.corpora.formats.texts import (
    Turn,
    inside,
    is_list_of_objects,
    objects,
    page_text,
    steps_of_turns,
    text_of,
)

_STEPS, _SUMMARY = "steps_info.json", "summary_info.json"
_DATE = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"
_FOLDER = re.compile(rf"(?:{_DATE}_)?(?P<agent>.+?)_on_(?P<task>.+?)_(?P<seed>\d+)(?:_\d{{1,3}})?")
_EXPORT = (
    "where the harness is installed, load the steps (ExpResult(folder).steps_info) and write "
    "them to steps_info.json in the run's folder: a list of "
    '{"step", "obs": {"goal", "url", "last_action_error", "axtree_txt"}, '
    '"action", "agent_info": {"think"}}'
)


def _fits(file: SourceFile) -> bool:
    name, head = _path(file).name, file.head(HEAD) if file.suffix == ".json" else b""
    if name == _STEPS:
        return begins_json(head) and (b'"obs"' in head or b'"action"' in head)
    return name == _SUMMARY and b'"n_steps"' in head and b'"cum_reward"' in head


# Loading a pickle runs code of its author, so those that the harness stores are counted and never
# opened. Its own option save_json overwrites steps_info.json at every step: only the last is left.
def _refusal(file: SourceFile) -> str:
    return (
        f"{file.name} is a pickle, which runs code of its author when it is loaded, and was "
        f"not opened; {_EXPORT}."
    )


def _path(file: SourceFile) -> PurePosixPath:
    return PurePosixPath(file.plain_name)


@corpus_format(
    title="BrowserGym/AgentLab runs as JSON (folders with summary_info.json and steps_info.json)",
    suffixes=(".json", ".pkl"),
    domain="web",
    fits=_fits,
    explain=lambda file: _refusal(file) if file.suffix == ".pkl" else None,
    label_source="reward of the harness (cum_reward)",
    marks={},
    options={
        "keep_errors": (
            "judge runs with an err_msg by their reward (true or false); the harness sets it for "
            "its own and for agents' errors"
        ),
    },
)
def browsergym(files: FileSet, reading: Reading) -> Drafts:
    """Read the run folders that hold a summary and steps."""
    summaries: dict[str, Record | str] = {}
    for file, data in contents(files.matching(f"*/{_SUMMARY}", f"*/{_SUMMARY}.gz"), reading):
        reading.sha256(file)
        summaries[str(_path(file).parent)] = one_object(data)
    draft = partial(_draft, summaries=summaries, reading=reading)
    found: set[str] = set()
    for file in files:
        name = _path(file).name
        if file.suffix == ".pkl":
            reading.drop("file_pickle_refused", _refusal(file))
        elif name == _STEPS:
            found.add(str(_path(file).parent))
            for _, data in contents([file], reading):
                yield from reading.runs([(reading.origin(file), data)], draft)
        elif name != _SUMMARY:
            said = f"is neither {_STEPS} nor {_SUMMARY}; this format uses no other JSON file."
            reading.other(file.name, said)
    # a run without steps may be left out for another reason too
    missing = (Origin(f"{folder}/{_STEPS}", "") for folder in summaries if folder not in found)
    yield from reading.runs(((origin, b"") for origin in missing), draft)


def _draft(
    data: bytes, origin: Origin, *, summaries: dict[str, Record | str], reading: Reading
) -> Draft:
    path = PurePosixPath(origin.file)
    summary = summaries.get(str(path.parent), {})
    if isinstance(summary, str):
        raise unusable(f"in its {_SUMMARY}, {summary}")
    if path.parent.name.startswith("_"):
        raise LeftOutError(
            "superseded", "is in a folder whose name begins with _: the harness ran it again"
        )
    if summary.get("err_msg") is not None and not switch(reading.options, "keep_errors"):
        raise LeftOutError(
            "infrastructure_error",
            f"is of a run that broke down (err_msg in {_SUMMARY}); see the option keep_errors",
        )
    if not data:
        raise LeftOutError("no_trajectory", f"is missing: there is no {_STEPS}; {_EXPORT}")
    infos = _infos(data)
    named = _FOLDER.fullmatch(path.parent.name)
    if not named:
        raise unusable(
            "its folder is not named <agent>_on_<task>_<seed>, so its agent and task are not "
            "known; rename the folder"
        )
    return Draft(
        task_id=named["task"],
        agent=named["agent"],
        instruction=next(filter(None, map(_goal, infos)), ""),
        steps=steps_of_turns(map(_turn, infos)),
        outcome=summary.get("cum_reward"),
        outcome_name="cum_reward",
        origin=origin,
        trajectory_id=path.parent.name,
        repetition=named["seed"],
        named_agent=named["agent"],
    )


def _infos(data: bytes) -> list[Record]:
    try:
        infos = json_value(data)
    except ValueError as error:
        raise unusable(str(error)) from None
    if isinstance(infos, dict):
        raise unusable(
            "it holds one step, as the harness's option save_json leaves it, not the list of "
            f"all; {_EXPORT}"
        )
    if not is_list_of_objects(infos):
        raise unusable("it is not a list of steps")
    if any(info.get("step") != position for position, info in enumerate(infos)):
        raise unusable(
            "its steps are not numbered 0, 1, 2 and so on, so some are missing or out of order"
        )
    return objects(infos)


def _turn(info: Record) -> Turn:
    seen = info.get("obs")
    trees = (text_of(inside(seen, name)) for name in ("axtree_txt", "pruned_html", "dom_txt"))
    tree = next(filter(None, trees), "")
    page = page_text(inside(seen, "url"), inside(seen, "last_action_error"), tree)
    thought = text_of(inside(info, "agent_info", "think"))
    return Turn(page, thought, text_of(info.get("action")))


def _goal(info: Record) -> str:
    goal: Any = inside(info, "obs", "goal")
    return text_of(goal) or message_text(inside(info, "obs", "goal_object"))
