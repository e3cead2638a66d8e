"""SWE-agent (`<instance>.traj`) and mini-swe-agent (`<instance>.traj.json`) runs, with reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    Reading,
    contents,
    corpus_format,
    usable,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.records import HEAD, Record, one_object
from certify_assets.corpora.formats.swe_reports import (
    Reports,
    Unlabelled,
    issue_text,
    parents,
    run_name,
    task_of,
)
from certify_assets.corpora.formats.texts import (
    Message,
    first_prompt,
    from_first,
    is_list_of_objects,
    message_text,
    objects,
    steps_of_messages,
)
from certify_assets.corpora.schema import Step

_RUNS = (".traj", ".traj.json")
_TRAJECTORY = re.compile(rb'"(?:trajectory|messages)"\s*:\s*\[')
_MODEL = re.compile(rb'"model_name_or_path"\s*:\s*"([^"\\]+)"')
_PREDICTIONS = ("all_preds.jsonl", "preds.json")


def _is_run(file: SourceFile) -> bool:
    return file.plain_name.lower().endswith(_RUNS)


def _explain(file: SourceFile) -> str | None:
    if not _is_run(file):
        return None
    return (
        f"{file.name} has no trajectory in it; a SWE-agent run is a JSON object with "
        "trajectory, history and info."
    )


@corpus_format(
    title="SWE-agent and mini-swe-agent runs (.traj, .traj.json) with SWE-bench reports",
    suffixes=(".traj", ".json", ".jsonl"),
    domain="software",
    fits=lambda file: _is_run(file) and bool(_TRAJECTORY.search(file.head(HEAD))),
    explain=_explain,
    label_source="tests of the instance, run by the SWE-bench harness on the submitted patch",
)
def swe_agent(files: FileSet, reading: Reading) -> Drafts:
    """Read trajectories, with outcomes from harness reports."""
    named = files.matching(*(f"*{suffix}{end}" for suffix in _RUNS for end in ("", ".gz")))
    reports = Reports(files, reading, ((file.name, _task(file)) for file in named))
    models = _models(files, reading)
    for file in files:
        if not _is_run(file):
            if file.name not in reading.hashes:
                reading.other(file, "is neither a SWE-agent run nor a report on such runs.")
            continue
        for _, data in contents([file], reading):
            record = usable(one_object(data), file.name, reading, _problem)
            if record is None:
                continue
            instruction, steps = _run(record, reading)
            outcome = reports.outcome(file.name, _task(file))
            if not steps:
                reading.drop("no_trajectory", f"{file.name} holds a run without a step.")
            elif isinstance(outcome, Unlabelled):
                reading.drop(outcome.reason, f"{file.name} {outcome.words}.")
            else:
                # what the predictions next to the runs call it, or else the folder of the runs;
                # folders of one agent are its attempts
                called = (models.get(folder) for folder in parents(file.name))
                agent = next(filter(None, called), None) or run_name(
                    file.plain_name.removesuffix(".json")
                )
                origin = reading.origin(file)
                yield Draft(_task(file), agent, instruction, steps, outcome, origin)


def _task(file: SourceFile) -> str:
    name = PurePosixPath(file.plain_name).name
    return task_of(name.removesuffix(".json").removesuffix(".traj"))


def _models(files: FileSet, reading: Reading) -> dict[str, str]:
    """Return the model of every folder that has predictions."""
    models: dict[str, str] = {}
    for file in files.matching(*(f"*{name}{end}" for name in _PREDICTIONS for end in ("", ".gz"))):
        if match := _MODEL.search(file.head(HEAD)):
            reading.sha256(file)
            models[parents(file.name)[0]] = match[1].decode("utf-8", "replace")
    return models


def _problem(record: Record) -> str | None:
    said = record.get("trajectory", record.get("messages"))
    if not isinstance(said, list):
        return "it is no object with a trajectory"
    return None if is_list_of_objects(said) else "its trajectory is not a list of steps"


def _run(record: Record, reading: Reading) -> tuple[str, tuple[Step, ...]]:
    """Return the issue and the steps of a run, in SWE-agent's form or as a chat."""
    if "trajectory" in record:
        return _instruction(record), tuple(_steps(record["trajectory"]))
    chat = [Message.of(message) for message in record["messages"]]
    steps = steps_of_messages(from_first(chat, "assistant"), reading)
    return issue_text(first_prompt(chat)), steps


def _steps(trajectory: Iterable[Record]) -> Iterator[Step]:
    for step in trajectory:
        texts = (message_text(step.get(name)).strip() for name in ("thought", "action"))
        said = "\n".join(filter(None, texts)) or message_text(step.get("response"))
        seen = message_text(step.get("observation"))
        if said or seen:
            yield Step(said, seen)


def _instruction(record: Record) -> str:
    """Return the issue: what the user wrote first, but for the demonstration of another task."""
    for message in objects(record.get("history")):
        if message.get("role") == "user" and not message.get("is_demo"):
            text = message_text(message.get("content"))
            if "--- DEMONSTRATION ---" not in text:
                return issue_text(text)
    return ""
