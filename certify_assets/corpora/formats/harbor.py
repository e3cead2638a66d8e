"""Harbor jobs, such as Terminal-Bench 2: trials with result.json and agent/trajectory.json."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
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
    calls_text,
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


class _Trial(NamedTuple):
    """What result.json says of a trial."""

    file: str
    record: Record

    @property
    def stages(self) -> list[Record]:
        return objects(self.record.get("step_results"))

    def order(self, step: str | None) -> int:
        """Return the place of a stage, as the result lists them."""
        names = [str(stage.get("step_name")) for stage in self.stages]
        return names.index(step) if step in names else 0

    @property
    def infrastructure_error(self) -> str:
        """The first exception that the agent did not bring about."""
        found = [entry.get("exception_info") for entry in (self.record, *self.stages)]
        names = [str(mapping(error).get("exception_type")) for error in found if error]
        return next((name for name in names if name not in _AGENTS_OWN), "")

    @property
    def agent(self) -> str:
        info = mapping(self.record["agent_info"])
        model = mapping(info.get("model_info"))
        full = "/".join(filter(None, (text_of(model.get(key)) for key in ("provider", "name"))))
        return " ".join(filter(None, map(name_of, (info.get("name"), full)))) or "unknown"

    def reward(self, reading: Reading) -> Any:
        rewards = mapping(mapping(self.record.get("verifier_result")).get("rewards"))
        key = reading.options.get("reward") or ("reward" if "reward" in rewards else None)
        if key is None and len(rewards) > 1:
            raise InputError(
                f"{self.file} has the rewards {', '.join(sorted(rewards))}; name the one "
                "that counts with the option reward."
            )
        return rewards.get(key) if key else next(iter(rewards.values()), None)


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
    named = (_PART_NAME.fullmatch(file.plain_name) for file in files.matching(*_PATTERNS))
    parts = Counter(match["trial"] for match in named if match)
    waiting: dict[str, list[_Part]] = {}
    for file, data in contents(files.matching(*_PATTERNS), reading):
        if not (match := _PART_NAME.fullmatch(file.plain_name)):
            continue
        folder, step = match["trial"], match["step"]
        trial = trials.get(folder)
        order = (trial.order(step) if trial else 0, step or "", int(match["next"] or 0))
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


def _trials(files: FileSet, reading: Reading) -> dict[str, _Trial]:
    trials: dict[str, _Trial] = {}
    for file in files:
        path = PurePosixPath(file.plain_name)
        if path.name != "result.json" or not _INSIDE.isdisjoint(path.parts[-3:-1]):
            continue
        for _, data in contents([file], reading):
            record = mapping(json_document(file, data, reading))
            if name_of(record.get("task_name")) and "agent_info" in record:
                reading.sha256(file)
                trials[str(path.parent)] = _Trial(file.name, record)
            elif record and record.keys().isdisjoint(("n_total_trials", "stats")):
                words = "is not a Harbor trial's result: it lacks task_name or agent_info."
                reading.other(file, words)
    return trials


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
    if error := trial.infrastructure_error:
        reading.drop(
            "infrastructure_error", f"{trial.file} ended with {error}; its reward is not valid."
        )
    elif not steps:
        reading.drop("no_trajectory", f"{first.name} has no step of the agent.")
    else:
        yield Draft(
            task_id=trial.record["task_name"],
            agent=trial.agent,
            instruction=instruction,
            steps=steps,
            outcome=trial.reward(reading),
            outcome_name="reward",
            origin=reading.origin(first),
            trajectory_id=name_of(trial.record.get("id")),
            repetition=folder,
            named_agent=trial.agent,
        )


def is_atif(document: Any) -> bool:
    """Say whether a JSON value is a trajectory: it names a version of the format and has steps."""
    record = mapping(document)
    is_version = text_of(record.get("schema_version")).startswith("ATIF-")
    return is_version and isinstance(record.get("steps"), list)


def run_of_documents(documents: Sequence[Record], reading: Reading) -> tuple[str, tuple[Step, ...]]:
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
    return "\n".join(filter(None, asked)), run.steps()


def _action(entry: Record, said: str) -> str:
    calls = (
        {"name": call.get("function_name"), "arguments": call.get("arguments")}
        for call in objects(entry.get("tool_calls"))
    )
    thought = text_of(entry.get("reasoning_content"))
    return "\n".join(filter(None, (thought, said, *calls_text(list(calls)))))


def _observations(entry: Record) -> list[str]:
    results = objects(mapping(entry.get("observation")).get("results"))
    return [text for result in results if (text := message_text(result.get("content")))]
