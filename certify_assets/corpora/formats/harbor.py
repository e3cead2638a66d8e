"""Harbor jobs, such as Terminal-Bench 2: trials with result.json and agent/trajectory.json."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    LeftOutError,
    Origin,
    Reading,
    begins_with,
    corpus_format,
    documents,
    words,
)
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.messages import calls_text, message_text
from certify_assets.corpora.formats.records import Record, one_object
from certify_assets.corpora.formats.texts import (
    Conversation,
    inside,
    joined,
    listed,
    mapping,
    name_of,
    objects,
    text_of,
)
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError

_RESULT = begins_with(b'"task_name"', b'"trial_name"', b'"trial_uri"')
_FIRST = ("*/agent/trajectory.json", "*/agent/trajectory.json.gz")
# what an agent writes after its context was summarised
_NEXT = ("*/agent/trajectory.cont-*.json", "*/agent/trajectory.cont-*.json.gz")
_NUMBER = re.compile(r"cont-(\d{1,6})\.json$")
# folders of a trial with results of their own
_INSIDE = frozenset({"agent", "verifier", "artifacts", "steps"})
# A trial that ended with an exception has a valid reward only where the agent itself brought it
# about; all other exceptions are infrastructure errors.
_AGENTS_OWN = frozenset(
    words(
        "AgentTimeoutError ContextWindowExceededError ContextLengthExceededError "
        "OutputTokenExceededError OutputLengthExceededError AgentSafetyRefusalError "
        "ContentPolicyViolationError"
    )
)


def _is_result(file: SourceFile) -> bool:
    path = PurePosixPath(file.plain_name)
    return path.name == "result.json" and _INSIDE.isdisjoint(path.parts[-3:-1])


@corpus_format(
    title="Harbor jobs, such as Terminal-Bench 2 (result.json of trials with ATIF trajectories)",
    suffixes=(".json",),
    fits=lambda file: _is_result(file) and _RESULT(file),
    label_source="verifier of the task, run by the harness in the container after the agent",
    marks={},
    options={"reward": "name of the reward that counts, where a verifier gives several"},
)
def harbor(files: FileSet, reading: Reading) -> Drafts:
    """Read the trials of jobs with their trajectories."""
    trials: dict[str, Record] = {}
    for file, document in documents(filter(_is_result, files), reading):
        record = mapping(document)
        if name_of(record.get("task_name")) and "agent_info" in record:
            trials[str(PurePosixPath(reading.origin(file).file).parent)] = record
        elif record and record.keys().isdisjoint(("n_total_trials", "stats")):
            said = "is not a Harbor trial's result: it lacks task_name or agent_info."
            reading.other(file.name, said)
    draft = partial(_draft, trials=trials, further=_further(files), reading=reading)
    found: set[str] = set()
    for file in files.matching(*_FIRST):
        found.add(_trial(file))
        for _, document in documents([file], reading):
            yield from reading.runs([(reading.origin(file), document)], draft)
    for folder in trials:
        if folder not in found:
            words = "has no agent/trajectory.json; nothing can be judged."
            reading.drop("no_trajectory", f"{folder} {words}")


def _trial(file: SourceFile) -> str:
    return str(PurePosixPath(file.plain_name).parent.parent)


def _further(files: FileSet) -> dict[str, list[Record | str]]:
    """Read the files in which trajectories continue, by trial."""
    found: dict[str, list[tuple[int, Record | str]]] = {}
    for file in files.matching(*_NEXT):
        if match := _NUMBER.search(file.plain_name):
            with suppress(BrokenFileError):
                part = int(match[1]), one_object(file.read())
                found.setdefault(_trial(file), []).append(part)
    return {
        trial: [document for _, document in sorted(parts, key=lambda part: part[0])]
        for trial, parts in found.items()
    }


def _draft(
    document: Any,
    origin: Origin,
    *,
    trials: dict[str, Record],
    further: dict[str, list[Record | str]],
    reading: Reading,
) -> Draft:
    folder = str(PurePosixPath(origin.file).parent.parent)
    written = [document, *further.get(folder, [])]
    if not all(map(_is_atif, written)):
        raise LeftOutError("file_unreadable", "is not a trajectory in the format ATIF")
    if (trial := trials.get(folder)) is None:
        raise LeftOutError("no_label", "has no result.json of its trial")
    if error := _infrastructure_error(trial):
        raise LeftOutError("infrastructure_error", f"ended with {error}; its reward is not valid")
    instruction, steps = _conversation(written, reading)
    agent = _agent(mapping(trial["agent_info"]))
    return Draft(
        task_id=trial["task_name"],
        agent=agent,
        instruction=instruction,
        steps=steps,
        outcome=_reward(trial, folder, reading),
        outcome_name="reward",
        origin=origin,
        trajectory_id=name_of(trial.get("id")),
        repetition=folder,
        named_agent=agent,
    )


def _infrastructure_error(trial: Record) -> str:
    """Return the first exception that the agent did not bring about."""
    found = (
        inside(entry, "exception_info") for entry in (trial, *objects(trial.get("step_results")))
    )
    names = (str(inside(error, "exception_type")) for error in found if error)
    return next((name for name in names if name not in _AGENTS_OWN), "")


def _agent(info: Record) -> str:
    parts = (text_of(inside(info, "model_info", key)) for key in ("provider", "name"))
    names = (name_of(info.get("name")), name_of("/".join(filter(None, parts))))
    return " ".join(filter(None, names)) or "unknown"


def _reward(trial: Record, folder: str, reading: Reading) -> Any:
    rewards = mapping(inside(trial, "verifier_result", "rewards"))
    key = reading.options.get("reward") or ("reward" if "reward" in rewards else None)
    if key is None and len(rewards) > 1:
        raise InputError(
            f"{folder} has the rewards {', '.join(sorted(rewards))}; name the one that counts with "
            "the option reward."
        )
    return rewards.get(key) if key else next(iter(rewards.values()), None)


def _is_atif(document: Any) -> bool:
    is_version = text_of(inside(document, "schema_version")).startswith("ATIF-")
    return is_version and isinstance(inside(document, "steps"), list)


def _conversation(documents: Sequence[Any], reading: Reading) -> tuple[str, tuple[Step, ...]]:
    """Return the instruction and the steps of a run, which may continue in further files."""
    asked: list[str] = []
    run = Conversation()
    for document in documents:
        if subagents := listed(document.get("subagent_trajectories")):
            reading.notes["runs of subagents left out"] += len(subagents)
        for entry in objects(document["steps"]):
            source, said = entry.get("source"), message_text(entry.get("message"))
            if entry.get("is_copied_context"):
                continue
            if source == "agent":
                run.act(_action(entry, said), *_observations(entry))
            elif source == "user" and not run:
                asked.append(said)
            elif source == "user":
                run.see(f"user: {said}")
    return joined(*asked), run.steps()


def _action(entry: Record, said: str) -> str:
    calls = [
        {"name": call.get("function_name"), "arguments": call.get("arguments")}
        for call in objects(entry.get("tool_calls"))
    ]
    return joined(text_of(entry.get("reasoning_content")), said, *calls_text(calls))


def _observations(entry: Record) -> list[str]:
    results = objects(inside(entry, "observation", "results"))
    return [text for result in results if (text := message_text(result.get("content")))]
