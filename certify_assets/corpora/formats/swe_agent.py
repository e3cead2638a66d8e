"""SWE-agent runs (``<instance>.traj``) on SWE-bench or Multi-SWE-bench, with reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from certify_assets.corpora.formats.base import Drafts, Reading, contents, corpus_format
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.records import Record, decode, one_object
from certify_assets.corpora.formats.swe_reports import (
    FileRun,
    ReportedOutcomes,
    collect_outcomes,
    draft_of,
    issue_text,
    parents,
    run_name,
    task_of,
)
from certify_assets.corpora.formats.texts import is_list_of_objects, message_text, objects
from certify_assets.corpora.schema import Step

_HEAD = 1 << 16
_TRAJECTORY = re.compile(rb'"trajectory"\s*:\s*\[')
_MODEL = re.compile(rb'"model_name_or_path"\s*:\s*"([^"\\]+)"')
_PREDICTIONS = ("all_preds.jsonl", "preds.json")


def _fits(file: SourceFile) -> bool:
    return file.suffix == ".traj" and _TRAJECTORY.search(file.head(_HEAD)) is not None


def _explain(file: SourceFile) -> str | None:
    if file.suffix == ".traj":
        return (
            f"{file.name} has no trajectory in it; a SWE-agent run is a JSON object with "
            "trajectory, history and info."
        )
    return None


@corpus_format(
    title="SWE-agent runs (.traj) with reports of a SWE-bench harness",
    suffixes=(".traj", ".json", ".jsonl"),
    domain="software",
    fits=_fits,
    explain=_explain,
    label_source="tests of the instance, run by the SWE-bench harness on the submitted patch",
)
def swe_agent(files: FileSet, reading: Reading) -> Drafts:
    """Read trajectories, with outcomes from harness reports."""
    outcomes, models = _outcomes(files, reading), _models(files, reading)
    for file in files:
        if file.suffix == ".traj":
            yield from _read(file, outcomes, models, reading)
        elif file.name not in reading.hashes:
            reading.other(file, "is neither a SWE-agent run nor a report on such runs.")


def _outcomes(files: FileSet, reading: Reading) -> ReportedOutcomes:
    runs = ((file.name, _task(file)) for file in files.matching("*.traj", "*.traj.gz"))
    outcomes = collect_outcomes(files, reading, runs)
    outcomes.note(reading)
    return outcomes


def _models(files: FileSet, reading: Reading) -> dict[str, str]:
    patterns = [f"*{name}{end}" for name in _PREDICTIONS for end in ("", ".gz")]
    models: dict[str, str] = {}
    for file in files.matching(*patterns):
        if match := _MODEL.search(file.head(_HEAD)):
            reading.sha256(file)
            models[parents(file.name)[0]] = match[1].decode("utf-8", "replace")
    return models


def _read(
    file: SourceFile, outcomes: ReportedOutcomes, models: Mapping[str, str], reading: Reading
) -> Drafts:
    for _, data in contents([file], reading):
        run, names = _run(data), (_task(file), _agent(file, models))
        yield from draft_of(file, run, *names, outcomes=outcomes, reading=reading)


def _task(file: SourceFile) -> str:
    return task_of(PurePosixPath(file.plain_name).stem)


def _run(data: bytes) -> FileRun | str:
    record = one_object(decode(data))
    if isinstance(record, str):
        return record
    if not isinstance(record.get("trajectory"), list):
        return "it is no object with a trajectory"
    if not is_list_of_objects(record["trajectory"]):
        return "its trajectory is not a list of steps"
    return FileRun(_instruction(record), tuple(_steps(record["trajectory"])), "without a step")


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


def _agent(file: SourceFile, models: Mapping[str, str]) -> str:
    # what the predictions next to the runs call it, or else the folder of the runs; folders of one
    # agent are its attempts
    folders = parents(file.name)
    if model := next((models[folder] for folder in folders if folder in models), None):
        return model
    return run_name(file.plain_name)
