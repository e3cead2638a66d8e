"""Harbor jobs, such as Terminal-Bench 2: trials with result.json and agent/trajectory.json."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    Judgement,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
    words,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.messages import Conversation, calls_text, joined, message_text
from certify_assets.corpora.formats.records import (
    Record,
    begins,
    inside,
    listed,
    mapping,
    named,
    objects,
    text_of,
)
from certify_assets.corpora.trajectory import Step

# what an agent writes after its context was summarised
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
    return file.path.name == "result.json" and _INSIDE.isdisjoint(file.path.parts[-3:-1])


def _fits(file: SourceFile) -> bool:
    return _is_result(file) and begins(file, b"{", b'"task_name"', b'"trial_name"', b'"trial_uri"')


@corpus_format(
    title="Harbor jobs, such as Terminal-Bench 2 (result.json of trials with ATIF trajectories)",
    suffixes=(".json",),
    fits=_fits,
    label_source="verifier of the task",
    marks={},
    options={"reward": "name of the reward that counts, where a verifier gives several"},
)
def harbor(files: FileSet, reading: Reading) -> Drafts:
    """Read the trials of jobs with their trajectories."""
    trials: dict[str, Record] = {}
    for file, document in reading.documents(filter(_is_result, files)):
        record = mapping(document)
        if named(record.get("task_name")) and "agent_info" in record:
            trials[str(PurePosixPath(reading.origin(file).file).parent)] = record
        elif record and record.keys().isdisjoint(("n_total_trials", "stats")):
            reading.other(file.name)
    # a trajectory may continue in further files
    more: dict[str, list[tuple[int, Any]]] = {}
    for file, document in reading.documents(files.matching("*/agent/trajectory.cont-*.json")):
        if match := _NUMBER.search(file.path.name):
            more.setdefault(_trial(file.name), []).append((int(match[1]), document))

    def draft(document: Record, origin: Origin) -> Draft:
        folder = _trial(origin.file)
        further = sorted(more.get(folder, ()), key=lambda part: part[0])
        written = [document, *(part for _, part in further)]
        if not all(map(_is_atif, written)):
            raise LeftOutError("is not a trajectory in the format ATIF", "file_unreadable")
        if (trial := trials.get(folder)) is None:
            raise LeftOutError("has no result.json of its trial", "no_label")
        if error := _infrastructure_error(trial):
            said = f"ended with {error}; its reward is not valid"
            raise LeftOutError(said, "infrastructure_error")
        instruction, steps = _conversation(written, reading)
        given = mapping(inside(trial, "verifier_result", "rewards"))
        rewards = [Judgement(name, value, "code") for name, value in given.items()]
        default = "reward" if "reward" in given else ""
        agent = _agent(mapping(trial["agent_info"]))
        return Draft(
            task_id=trial["task_name"],
            agent=agent,
            instruction=instruction,
            steps=steps,
            outcome=reading.chosen(folder, rewards, "reward", default)["outcome"],
            outcome_name="reward",
            origin=origin,
            trajectory_id=named(trial.get("id")),
            named_agent=agent,
        )

    found: set[str] = set()
    for file, document in reading.documents(files.matching("*/agent/trajectory.json")):
        found.add(_trial(file.name))
        yield from reading.runs([(reading.origin(file), document)], draft)
    for folder in trials:
        if folder not in found:
            said = f"{folder} has no agent/trajectory.json; nothing can be judged."
            reading.drop("no_trajectory", said)


def _trial(name: str) -> str:
    return str(PurePosixPath(name).parent.parent)


def _infrastructure_error(trial: Record) -> str:
    """Return the first exception that the agent did not cause."""
    found = (
        inside(entry, "exception_info") for entry in (trial, *objects(trial.get("step_results")))
    )
    names = (str(inside(error, "exception_type")) for error in found if error)
    return next((name for name in names if name not in _AGENTS_OWN), "")


def _agent(info: Record) -> str:
    parts = (text_of(inside(info, "model_info", key)) for key in ("provider", "name"))
    names = (named(info.get("name")), named("/".join(filter(None, parts))))
    return " ".join(filter(None, names)) or "unknown"


def _is_atif(document: Any) -> bool:
    is_version = text_of(inside(document, "schema_version")).startswith("ATIF-")
    return is_version and isinstance(inside(document, "steps"), list)


def _conversation(documents: Iterable[Any], reading: Reading) -> tuple[str, tuple[Step, ...]]:
    """Return the instruction and the steps of a run."""
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
                calls = [
                    {"name": call.get("function_name"), "arguments": call.get("arguments")}
                    for call in objects(entry.get("tool_calls"))
                ]
                thought = text_of(entry.get("reasoning_content"))
                results = objects(inside(entry, "observation", "results"))
                seen = (message_text(result.get("content")) for result in results)
                run.act(joined(thought, said, *calls_text(calls)), *filter(None, seen))
            elif source == "user" and not run:
                asked.append(said)
            elif source == "user":
                run.see(f"user: {said}")
    return joined(*asked), run.steps()
