"""Harbor jobs, such as Terminal-Bench 2: trials with result.json and agent/trajectory.json."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Files,
    Reading,
    contents,
    corpus_format,
    excerpt,
    json_document,
)
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.texts import arguments_text, mapping, message_text
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError

_HEAD = 1 << 14
_RESULT_KEYS = (b'"task_name"', b'"trial_name"', b'"trial_uri"')
_PATTERNS = ("*/agent/trajectory.json*", "*/agent/trajectory.cont-*.json*")
_PART = re.compile(
    r"(?P<trial>.+?)(?:/steps/(?P<step>[^/]+))?/agent/trajectory(?:\.cont-(?P<next>\d{1,6}))?\.json"
)
_AGENTS_OWN = frozenset(
    {
        "AgentTimeoutError",
        "ContextWindowExceededError",
        "ContextLengthExceededError",
        "OutputTokenExceededError",
        "OutputLengthExceededError",
        "AgentSafetyRefusalError",
        "ContentPolicyViolationError",
    }
)
_ALMOST_ONE = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class _Trial:
    """What a result.json says of its trial."""

    file: str
    identity: str | None
    task: str
    agent: str
    rewards: Mapping[str, Any]
    exceptions: tuple[str, ...]
    steps: tuple[str, ...]


def _fits(file: SourceFile) -> bool:
    if PurePosixPath(file.plain_name).name != "result.json":
        return False
    head = file.head(_HEAD)
    return head.lstrip().startswith(b"{") and all(key in head for key in _RESULT_KEYS)


@corpus_format(
    title="Harbor jobs, such as Terminal-Bench 2 (result.json of trials with ATIF trajectories)",
    suffixes=(".json",),
    fits=_fits,
    label_source="verifier of the task, run by the harness in the container after the agent",
    options={
        "reward": "name of the reward that counts, where a verifier gives several",
        "valid_exceptions": "types of exceptions, separated by commas, after which a reward "
        "counts all the same",
    },
    leak_fields=(
        "verifier_result",
        "exception_info",
        "step_results[].verifier_result",
        "step_results[].exception_info",
        "agent_result",
        "stats",
        "verifier/reward.txt",
        "verifier/reward.json",
        "verifier/test-stdout.txt",
        "verifier/test-stderr.txt",
        "verifier/ctrf.json",
        "agent/trajectory.json steps[].extra",
        "agent/trajectory.json final_metrics",
        "agent/trajectory.json notes",
    ),
)
def harbor(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read the trials of jobs with their trajectories."""
    trials = _trials(files, reading)
    parts = Counter(
        match["trial"]
        for file in files.matching(*_PATTERNS)
        if (match := _PART.fullmatch(file.plain_name))
    )
    waiting: dict[str, list[tuple[tuple[int, str, int], SourceFile, Any]]] = {}
    for file, data in contents(files.matching(*_PATTERNS), reading):
        if not (match := _PART.fullmatch(file.plain_name)):
            continue
        folder, trial = match["trial"], trials.get(match["trial"])
        order = (_position(match["step"], trial), match["step"] or "", int(match["next"] or 0))
        waiting.setdefault(folder, []).append((order, file, _document(file, data, reading)))
        if len(waiting[folder]) == parts[folder]:
            yield from _run(
                folder, trial, sorted(waiting.pop(folder), key=lambda part: part[0]), reading
            )
    for folder, trial in trials.items():
        if folder not in parts:
            reading.tally.drop(
                "no_trajectory",
                f"{trial.file} has no agent/trajectory.json next to it; nothing can be judged.",
            )


def _position(step: str | None, trial: _Trial | None) -> int:
    """Order the stages of a task as its result lists them."""
    return trial.steps.index(step) if trial and step in trial.steps else 0


def _document(file: SourceFile, data: bytes, reading: Reading) -> Any:
    """Return the trajectory, or None, counted, where there is none."""
    document = json_document(file, data, reading)
    if document is not None and not is_atif(document):
        reading.tally.drop(
            "file_unreadable",
            f"{file.name} is not an ATIF trajectory: it lacks schema_version or steps.",
        )
        return None
    return document


def _run(
    folder: str,
    trial: _Trial | None,
    parts: list[tuple[tuple[int, str, int], SourceFile, Any]],
    reading: Reading,
) -> Iterator[Draft]:
    """Join the parts of one trial's trajectory, unless one is missing."""
    first = parts[0][1]
    if any(document is None for *_, document in parts):
        return
    if trial is None:
        reading.tally.drop("no_label", f"{first.name} has no result.json of its trial next to it.")
        return
    instruction, steps = run_of_documents([document for *_, document in parts], reading)
    infrastructure = [
        name for name in trial.exceptions if name not in _AGENTS_OWN | _also_valid(reading)
    ]
    if infrastructure:
        reading.tally.drop(
            "infrastructure_error",
            f"{trial.file} ended with {infrastructure[0]}; its reward is not valid.",
        )
    elif not steps:
        reading.tally.drop("no_trajectory", f"{first.name} has no step of the agent.")
    elif isinstance(outcome := _outcome(trial, reading), str):
        reading.tally.drop("bad_outcome", f"{trial.file} cannot be used: {outcome}.")
    else:
        yield Draft(
            task_id=trial.task,
            agent=trial.agent,
            instruction=instruction,
            steps=steps,
            outcome=outcome,
            source_file=first.name,
            source_sha256=reading.sha256(first),
            row=1,
            trajectory_id=trial.identity,
            repetition=folder,
            named_agent=trial.agent,
        )


def _also_valid(reading: Reading) -> frozenset[str]:
    return frozenset(
        filter(None, str(reading.options.get("valid_exceptions") or "").replace(" ", "").split(","))
    )


def _outcome(trial: _Trial, reading: Reading) -> int | str | None:
    """Success is a full reward."""
    key = reading.options.get("reward") or ("reward" if "reward" in trial.rewards else None)
    if key is None and len(trial.rewards) > 1:
        raise InputError(
            f"{trial.file} has the rewards {', '.join(sorted(trial.rewards))}; name the one "
            "that counts with the option reward."
        )
    reward = trial.rewards.get(key) if key else next(iter(trial.rewards.values()), None)
    if reward is None or (isinstance(reward, float) and math.isnan(reward)):
        return None
    if not isinstance(reward, int | float) or not 0 <= reward <= 2 - _ALMOST_ONE:
        return f"its reward is {str(reward)[:40]!r}, not a number from 0 to 1"
    if 0 < reward < _ALMOST_ONE:
        reading.tally.notes["rewards between 0 and 1 counted as failures"] += 1
    return int(reward >= _ALMOST_ONE)


def _trials(files: Files, reading: Reading) -> dict[str, _Trial]:
    """Read the result.json of every trial."""
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
    task = record.get("task_name")
    if not isinstance(task, str) or not task.strip() or "agent_info" not in record:
        reading.tally.other(
            file.name,
            f"{file.name} is not a Harbor trial's result: it lacks task_name or agent_info.",
        )
        return
    reading.sha256(file)
    listed = record.get("step_results")
    stages = (
        [stage for stage in listed if isinstance(stage, Mapping)]
        if isinstance(listed, list)
        else []
    )
    errors = [
        mapping(entry.get("exception_info")).get("exception_type")
        for entry in (record, *stages)
        if entry.get("exception_info")
    ]
    identity = record.get("id")
    trials[str(PurePosixPath(file.plain_name).parent)] = _Trial(
        file=file.name,
        identity=identity if isinstance(identity, str) and identity.strip() else None,
        task=task,
        agent=_agent(mapping(record["agent_info"])),
        rewards=mapping(mapping(record.get("verifier_result")).get("rewards")),
        exceptions=tuple(str(name or "an exception") for name in errors),
        steps=tuple(str(stage.get("step_name")) for stage in stages),
    )


def _agent(info: Mapping[str, Any]) -> str:
    model = mapping(info.get("model_info"))
    full = "/".join(
        part
        for part in (model.get("provider"), model.get("name"))
        if isinstance(part, str) and part
    )
    name = info.get("name")
    return (
        " ".join(part for part in (name if isinstance(name, str) else "", full) if part.strip())
        or "unknown"
    )


def is_atif(document: Any) -> bool:
    """Say whether a JSON value is a trajectory: it names a version of the format and has steps."""
    version = mapping(document).get("schema_version")
    return (
        isinstance(version, str)
        and version.startswith("ATIF-")
        and isinstance(document.get("steps"), list)
    )


def run_of_documents(
    documents: Sequence[Mapping[str, Any]], reading: Reading
) -> tuple[str, tuple[Step, ...]]:
    """Return the instruction and the steps of a run, which may continue in further files."""
    asked: list[str] = []
    steps: list[tuple[str, list[str]]] = []
    for entry in _entries(documents, reading):
        source, said = entry.get("source"), message_text(entry.get("message"))
        if source == "agent":
            steps.append((_action(entry, said), _observations(entry)))
        elif source == "user" and not steps:
            asked.append(said)
        elif source == "user":
            steps[-1][1].append(f"user: {said}")
    text = "\n".join(part for part in asked if part)
    return text, tuple(Step(excerpt(action), excerpt("\n".join(seen))) for action, seen in steps)


def _entries(
    documents: Iterable[Mapping[str, Any]], reading: Reading
) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        if (
            isinstance(document.get("subagent_trajectories"), list)
            and document["subagent_trajectories"]
        ):
            reading.tally.notes["runs of subagents left out"] += len(
                document["subagent_trajectories"]
            )
        for entry in document["steps"]:
            if not isinstance(entry, Mapping):
                reading.tally.notes["steps that are not objects left out"] += 1
            elif not entry.get("is_copied_context"):
                yield entry


def _action(entry: Mapping[str, Any], said: str) -> str:
    thought, calls = entry.get("reasoning_content"), entry.get("tool_calls")
    parts = [thought if isinstance(thought, str) else "", said]
    for call in calls if isinstance(calls, list) else []:
        if name := mapping(call).get("function_name"):
            parts.append(f"{name}({arguments_text(call.get('arguments'))})")
    return "\n".join(part for part in parts if part)


def _observations(entry: Mapping[str, Any]) -> list[str]:
    results = mapping(entry.get("observation")).get("results")
    texts = (
        [message_text(mapping(result).get("content")) for result in results]
        if isinstance(results, list)
        else []
    )
    return [text for text in texts if text]
