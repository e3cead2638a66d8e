"""BrowserGym and AgentLab runs as JSON: folders of summary_info.json and steps_info.json."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import Draft, Drafts, Reading, contents, corpus_format
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import HEAD, Record, begins_json, json_value
from certify_assets.corpora.formats.texts import (
    Turn,
    is_list_of_objects,
    mapping,
    message_text,
    objects,
    page_text,
    steps_of_turns,
    switch,
    text_of,
)

_STEPS, _SUMMARY = "steps_info.json", "summary_info.json"
_SUMMARY_KEYS = frozenset({"n_steps", "cum_reward"})
_DATE = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"
_FOLDER = re.compile(rf"(?:{_DATE}_)?(?P<agent>.+?)_on_(?P<task>.+?)_(?P<seed>\d+)(?:_\d{{1,3}})?")
_EXPORT = (
    "where the harness is installed, load the steps (ExpResult(folder).steps_info) and write "
    "them to steps_info.json in the run's folder: a list of "
    '{"step", "obs": {"goal", "url", "last_action_error", "axtree_txt"}, '
    '"action", "agent_info": {"think"}}'
)


def _fits(file: SourceFile) -> bool:
    name = _path(file).name
    if name == _STEPS:
        head = file.head(HEAD)
        return begins_json(head) and (b'"obs"' in head or b'"action"' in head)
    if name != _SUMMARY:
        return False
    try:
        return mapping(json_value(file.read())).keys() >= _SUMMARY_KEYS
    except ValueError:
        return False


def _explain(file: SourceFile) -> str | None:
    if file.suffix == ".pkl":
        return _refusal(file)
    head = file.head(HEAD)
    if all(key in head for key in (b'"webarena_verified_version"', b'"evaluators_results"')):
        return (
            f"{file.name} is a verdict of WebArena Verified; its runs are network logs "
            "(network.har) without the instruction, the agent's actions "
            "and the pages it saw, so nothing can be judged: run the tasks in AgentLab and "
            "import its steps as JSON (format browsergym), or write a "
            "table with task_id, outcome and text."
        )
    return None


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
    explain=_explain,
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
    rewards: dict[PurePosixPath, Any] = {}
    refused: dict[PurePosixPath, tuple[str, str]] = {}
    for file, data in contents(files.matching(f"*{_SUMMARY}*"), reading):
        folder = _path(file).parent
        if _path(file).name == _SUMMARY:
            reading.sha256(file)
            rewards[folder] = None
            try:
                summary = mapping(json_value(data))
            except ValueError as error:
                refused[folder] = "unreadable_record", f"{file.name} cannot be used: {error}."
                continue
            rewards[folder] = summary.get("cum_reward")
            if problem := _problem(file, summary, reading):
                refused[folder] = problem
    found: set[PurePosixPath] = set()
    for file in files:
        path = _path(file)
        if file.suffix == ".pkl":
            reading.drop("file_pickle_refused", _refusal(file))
        elif path.name == _STEPS:
            found.add(path.parent)
            draft = refused.get(path.parent) or _run(file, rewards.get(path.parent), reading)
            if isinstance(draft, Draft):
                yield draft
            else:
                reading.drop(*draft)
        elif path.name != _SUMMARY:
            reading.other(
                file, f"is neither {_STEPS} nor {_SUMMARY}; this format uses no other JSON file."
            )
    for folder in rewards:
        if folder not in found:
            missing = f"{folder} has no {_STEPS}, so there is no trajectory to judge; {_EXPORT}."
            reading.drop(*refused.get(folder, ("no_trajectory", missing)))


def _problem(file: SourceFile, summary: Record, reading: Reading) -> tuple[str, str] | None:
    folder = _path(file).parent
    if not summary:
        return "unreadable_record", f"{file.name} cannot be used: it is not an object."
    if folder.name.startswith("_"):
        again = "begins with _, as the harness names a run that it has run again."
        return "superseded", f"{folder} {again}"
    if summary.get("err_msg") is not None and not switch(reading.options, "keep_errors"):
        broke = "says that the run broke down (err_msg); see the option keep_errors."
        return "infrastructure_error", f"{file.name} {broke}"
    return None


def _run(file: SourceFile, reward: Any, reading: Reading) -> Draft | tuple[str, str]:
    folder = _path(file).parent.name
    named = _FOLDER.fullmatch(folder.removeprefix("_"))
    try:
        infos = _infos(file)
    except BrokenFileError as error:
        return "file_unreadable", str(error)
    except ValueError as error:
        return "unreadable_record", f"{file.name} cannot be used: {error}."
    if not named:
        return "unreadable_record", (
            f"{file.name} is in no folder named <agent>_on_<task>_<seed>, so its agent and task "
            "are not known; rename the folder."
        )
    steps = steps_of_turns(map(_turn, infos))
    if not steps:
        return "no_trajectory", f"{file.name} has no action of the agent; nothing can be judged."
    return Draft(
        task_id=named["task"],
        agent=named["agent"],
        instruction=next(filter(None, map(_goal, infos)), ""),
        steps=steps,
        outcome=reward,
        outcome_name="cum_reward",
        origin=reading.origin(file),
        trajectory_id=folder,
        repetition=named["seed"],
        named_agent=named["agent"],
    )


def _infos(file: SourceFile) -> list[Record]:
    infos = json_value(file.read())
    if isinstance(infos, dict):
        raise ValueError(
            "it holds one step, as the harness's option save_json leaves it, not the list of "
            f"all; {_EXPORT}"
        )
    if not is_list_of_objects(infos):
        raise ValueError("it is not a list of steps")
    numbers = [info.get("step") for info in infos]
    if any(number != position for position, number in enumerate(numbers)):
        raise ValueError(
            "its steps are not numbered 0, 1, 2 and so on, so some are missing or out of order"
        )
    return objects(infos)


def _turn(info: Record) -> Turn:
    seen = mapping(info.get("obs"))
    trees = (text_of(seen.get(name)) for name in ("axtree_txt", "pruned_html", "dom_txt"))
    tree = next(filter(None, trees), "") or _tree_text(seen.get("axtree_object"))
    page = page_text(seen.get("url"), seen.get("last_action_error"), tree)
    thought = text_of(mapping(info.get("agent_info")).get("think"))
    return Turn(page, thought, text_of(info.get("action")))


def _goal(info: Record) -> str:
    observed = mapping(info.get("obs"))
    return text_of(observed.get("goal")) or message_text(observed.get("goal_object"))


def _tree_text(tree: Any) -> str:
    pairs = (
        [mapping(node.get(part)).get("value") for part in ("role", "name")]
        for node in objects(mapping(tree).get("nodes"))
    )
    return "\n".join(
        f"{role} {name!r}"
        for role, name in pairs
        if isinstance(role, str) and isinstance(name, str) and name
    )
