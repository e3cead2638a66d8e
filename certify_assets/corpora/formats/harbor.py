"""Harbor jobs, such as Terminal-Bench 2: trials with result.json and agent/trajectory.json."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    Reading,
    contents,
    corpus_format,
    is_json_named,
    json_document,
    words,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.texts import (
    Conversation,
    arguments_text,
    listed,
    mapping,
    message_text,
    name_of,
    objects,
    text_of,
)
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError

_RESULT_KEYS = (b'"task_name"', b'"trial_name"', b'"trial_uri"')
_PATTERNS = ("*/agent/trajectory.json*", "*/agent/trajectory.cont-*.json*")
_PART_NAME = re.compile(
    r"(?P<trial>.+?)(?:/steps/(?P<step>[^/]+))?/agent/trajectory(?:\.cont-(?P<next>\d{1,6}))?\.json"
)
# A trial that ended with an exception has a valid reward only where the agent itself brought it
# about; all other exceptions are infrastructure errors.
_AGENTS_OWN = frozenset(
    words(
        "AgentTimeoutError ContextWindowExceededError ContextLengthExceededError "
        "OutputTokenExceededError OutputLengthExceededError AgentSafetyRefusalError "
        "ContentPolicyViolationError"
    )
)


@dataclass(frozen=True, slots=True)
class _Trial:
    file: str
    identity: str | None
    task: str
    agent: str
    rewards: Record
    exceptions: tuple[str, ...]
    steps: tuple[str, ...]


class _Part(NamedTuple):
    """One file of a trajectory, which may be in stages and continue in further files."""

    order: tuple[int, str, int]
    file: SourceFile
    #: None, counted, where it is no trajectory
    document: Any


@corpus_format(
    title="Harbor jobs, such as Terminal-Bench 2 (result.json of trials with ATIF trajectories)",
    suffixes=(".json",),
    fits=lambda file: is_json_named(file, "result.json", _RESULT_KEYS),
    label_source="verifier of the task, run by the harness in the container after the agent",
    marks={},
    options={"reward": "name of the reward that counts, where a verifier gives several"},
)
def harbor(files: FileSet, reading: Reading) -> Drafts:
    """Read the trials of jobs with their trajectories."""
    trials = _trials(files, reading)
    parts = Counter(
        match["trial"]
        for file in files.matching(*_PATTERNS)
        if (match := _PART_NAME.fullmatch(file.plain_name))
    )
    waiting: dict[str, list[_Part]] = {}
    for file, data in contents(files.matching(*_PATTERNS), reading):
        if not (match := _PART_NAME.fullmatch(file.plain_name)):
            continue
        folder, trial, step = match["trial"], trials.get(match["trial"]), match["step"]
        # the stages of a task as its result lists them
        stage = trial.steps.index(step) if trial and step in trial.steps else 0
        order = (stage, step or "", int(match["next"] or 0))
        waiting.setdefault(folder, []).append(_Part(order, file, _document(file, data, reading)))
        if len(waiting[folder]) == parts[folder]:
            found = sorted(waiting.pop(folder), key=lambda part: part.order)
            yield from _run(folder, trial, found, reading)
    for folder, trial in trials.items():
        if folder not in parts:
            reading.drop(
                "no_trajectory",
                f"{trial.file} has no agent/trajectory.json next to it; nothing can be judged.",
            )


def _document(file: SourceFile, data: bytes, reading: Reading) -> Any:
    document = json_document(file, data, reading)
    if document is not None and not is_atif(document):
        reading.drop(
            "file_unreadable",
            f"{file.name} is not an ATIF trajectory: it lacks schema_version or steps.",
        )
        return None
    return document


def _run(folder: str, trial: _Trial | None, parts: list[_Part], reading: Reading) -> Drafts:
    first = parts[0].file
    if any(part.document is None for part in parts):
        return
    if trial is None:
        reading.drop("no_label", f"{first.name} has no result.json of its trial next to it.")
        return
    instruction, steps = run_of_documents([part.document for part in parts], reading)
    if infrastructure := [name for name in trial.exceptions if name not in _AGENTS_OWN]:
        reading.drop(
            "infrastructure_error",
            f"{trial.file} ended with {infrastructure[0]}; its reward is not valid.",
        )
    elif not steps:
        reading.drop("no_trajectory", f"{first.name} has no step of the agent.")
    else:
        yield Draft(
            task_id=trial.task,
            agent=trial.agent,
            instruction=instruction,
            steps=steps,
            outcome=_reward(trial, reading),
            outcome_name="reward",
            origin=reading.origin(first),
            trajectory_id=trial.identity,
            repetition=folder,
            named_agent=trial.agent,
        )


def _reward(trial: _Trial, reading: Reading) -> Any:
    key = reading.options.get("reward") or ("reward" if "reward" in trial.rewards else None)
    if key is None and len(trial.rewards) > 1:
        raise InputError(
            f"{trial.file} has the rewards {', '.join(sorted(trial.rewards))}; name the one "
            "that counts with the option reward."
        )
    return trial.rewards.get(key) if key else next(iter(trial.rewards.values()), None)


def _trials(files: FileSet, reading: Reading) -> dict[str, _Trial]:
    trials: dict[str, _Trial] = {}
    rest: list[str] = []
    for file in files:
        path = PurePosixPath(file.plain_name)
        if path.name != "result.json" or {"agent", "verifier", "artifacts", "steps"} & set(
            path.parts[-3:-1]
        ):
            rest.append(file.name)
            continue
        for _, data in contents([file], reading):
            if (document := json_document(file, data, reading)) is not None:
                _take(file, document, trials, reading)
    inside = {
        str(parent)
        for folder in trials
        for parent in (PurePosixPath(folder), PurePosixPath(folder).parent)
    }
    for name in rest:
        if not inside & {str(parent) for parent in PurePosixPath(name).parents}:
            reading.tally.other(name, f"{name} is not a file of a Harbor trial.")
    return trials


def _take(file: SourceFile, document: Any, trials: dict[str, _Trial], reading: Reading) -> None:
    record = mapping(document)
    if "n_total_trials" in record or "stats" in record:
        return
    task = name_of(record.get("task_name"))
    if task is None or "agent_info" not in record:
        reading.other(file, "is not a Harbor trial's result: it lacks task_name or agent_info.")
        return
    reading.sha256(file)
    stages = objects(record.get("step_results"))
    errors = [
        mapping(entry.get("exception_info")).get("exception_type")
        for entry in (record, *stages)
        if entry.get("exception_info")
    ]
    trials[str(PurePosixPath(file.plain_name).parent)] = _Trial(
        file=file.name,
        identity=name_of(record.get("id")),
        task=task,
        agent=_agent(mapping(record["agent_info"])),
        rewards=mapping(mapping(record.get("verifier_result")).get("rewards")),
        exceptions=tuple(str(name or "an exception") for name in errors),
        steps=tuple(str(stage.get("step_name")) for stage in stages),
    )


def _agent(info: Record) -> str:
    model = mapping(info.get("model_info"))
    full = "/".join(filter(None, (text_of(model.get(key)) for key in ("provider", "name"))))
    return " ".join(filter(None, map(name_of, (info.get("name"), full)))) or "unknown"


def is_atif(document: Any) -> bool:
    """Say whether a JSON value is a trajectory: it names a version of the format and has steps."""
    record = mapping(document)
    is_version = text_of(record.get("schema_version")).startswith("ATIF-")
    return is_version and isinstance(record.get("steps"), list)


def run_of_documents(documents: Sequence[Record], reading: Reading) -> tuple[str, tuple[Step, ...]]:
    """Return the instruction and the steps of a run, which may continue in further files."""
    asked: list[str] = []
    run = Conversation()
    for entry in _entries(documents, reading):
        source, said = entry.get("source"), message_text(entry.get("message"))
        if source == "agent":
            run.act(_action(entry, said), *_observations(entry))
        elif source == "user" and not run:
            asked.append(said)
        elif source == "user":
            run.see(f"user: {said}")
    return "\n".join(filter(None, asked)), run.steps()


def _entries(documents: Iterable[Record], reading: Reading) -> Iterator[Record]:
    for document in documents:
        if subagents := listed(document.get("subagent_trajectories")):
            reading.notes["runs of subagents left out"] += len(subagents)
        for entry in document["steps"]:
            if not isinstance(entry, dict):
                reading.notes["steps that are not objects left out"] += 1
            elif not entry.get("is_copied_context"):
                yield entry


def _action(entry: Record, said: str) -> str:
    calls = [
        f"{name}({arguments_text(call.get('arguments'))})"
        for call in objects(entry.get("tool_calls"))
        if (name := call.get("function_name"))
    ]
    return "\n".join(filter(None, (text_of(entry.get("reasoning_content")), said, *calls)))


def _observations(entry: Record) -> list[str]:
    results = objects(mapping(entry.get("observation")).get("results"))
    return [text for result in results if (text := message_text(result.get("content")))]
