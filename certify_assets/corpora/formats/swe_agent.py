"""SWE-agent runs (``<instance>.traj``) on SWE-bench or Multi-SWE-bench, with reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Files,
    Reading,
    contents,
    corpus_format,
    excerpt,
)
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.openhands import (
    named_tasks,
    note_other,
    of_openhands,
    openhands,
    read_output,
)
from certify_assets.corpora.formats.swe_reports import (
    Outcomes,
    Unlabelled,
    collect_outcomes,
    issue_text,
    of_multi_swe_bench,
    parents,
    parse_object,
    run_name,
    task_of,
)
from certify_assets.corpora.formats.texts import message_text
from certify_assets.corpora.schema import Step

_HEAD = 1 << 16
_TRAJECTORY = re.compile(rb'"trajectory"\s*:\s*\[')
_MODEL = re.compile(rb'"model_name_or_path"\s*:\s*"([^"\\]+)"')
_PREDICTIONS = ("all_preds.jsonl", "preds.json")


def _is_run(file: SourceFile) -> bool:
    return file.suffix == ".traj" and _TRAJECTORY.search(file.head(_HEAD)) is not None


def _fits(file: SourceFile) -> bool:
    return not of_multi_swe_bench(file.plain_name) and _is_run(file)


def _fits_multi(file: SourceFile) -> bool:
    return of_multi_swe_bench(file.plain_name) and (_is_run(file) or of_openhands(file))


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
    leak_fields=(
        "info",
        "history[].is_demo",
        "replay_config",
        "resolved",
        "resolved_ids",
        "unresolved_ids",
        "empty_patch_ids",
        "error_ids",
        "model_patch",
    ),
)
def swe_agent(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read trajectories, with outcomes from harness reports."""
    outcomes, models = _outcomes(files, reading), _models(files, reading)
    for file in files:
        if file.suffix == ".traj":
            yield from _run(file, outcomes, models, reading)
        elif file.name not in reading.hashes:
            reading.tally.other(
                file.name, f"{file.name} is neither a SWE-agent run nor a report on such runs."
            )


@corpus_format(
    suffixes=swe_agent.suffixes,
    domain="software",
    title="Multi-SWE-bench submissions (SWE-agent .traj or OpenHands output.jsonl, with "
    "results.json)",
    fits=_fits_multi,
    explain=_explain,
    label_source="tests of the instance, run by the Multi-SWE-bench harness on the submitted patch",
    leak_fields=(
        *swe_agent.leak_fields,
        *(field for field in openhands.leak_fields if field not in swe_agent.leak_fields),
    ),
)
def multi_swe_bench(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read trajectories or output files of submissions, with outcomes of named tasks."""
    outcomes, models = _outcomes(files, reading, named_tasks(files)), _models(files, reading)
    for file in files:
        if file.suffix == ".traj":
            yield from _run(file, outcomes, models, reading)
        elif of_openhands(file):
            yield from read_output(file, outcomes, reading)
        elif file.name not in reading.hashes:
            note_other(file, reading)


def _outcomes(files: Files, reading: Reading, others: Iterable[tuple[str, str]] = ()) -> Outcomes:
    runs = ((file.name, _task(file)) for file in files.matching("*.traj", "*.traj.gz"))
    outcomes = collect_outcomes(files, reading, chain(runs, others))
    outcomes.tell(reading)
    return outcomes


def _models(files: Files, reading: Reading) -> dict[str, str]:
    """Return what the predictions of every folder call their agent."""
    patterns = [f"*{name}{end}" for name in _PREDICTIONS for end in ("", ".gz")]
    models: dict[str, str] = {}
    for file in files.matching(*patterns):
        if match := _MODEL.search(file.head(_HEAD)):
            reading.sha256(file)
            models[parents(file.name)[0]] = match[1].decode("utf-8", "replace")
    return models


def _run(
    file: SourceFile, outcomes: Outcomes, models: Mapping[str, str], reading: Reading
) -> Iterator[Draft]:
    task = _task(file)
    for _, data in contents([file], reading):
        record = parse_object(data)
        problem = record if isinstance(record, str) else _problem(record)
        if problem or not isinstance(record, dict):
            reading.tally.drop("unreadable_record", f"{file.name} cannot be used: {problem}.")
            continue
        if not (steps := tuple(_steps(record["trajectory"]))):
            reading.tally.drop("no_trajectory", f"{file.name} holds a run without a step.")
            continue
        outcome = outcomes.of(file.name, task)
        if isinstance(outcome, Unlabelled):
            reading.tally.drop(outcome.reason, f"{file.name} {outcome.words}.")
            continue
        yield Draft(
            task_id=task,
            agent=_agent(file, models),
            instruction=_instruction(record),
            steps=steps,
            outcome=outcome,
            source_file=file.name,
            source_sha256=reading.sha256(file),
            row=1,
        )


def _task(file: SourceFile) -> str:
    return task_of(PurePosixPath(file.plain_name).stem)


def _problem(record: Any) -> str | None:
    trajectory = record.get("trajectory") if isinstance(record, dict) else None
    if not isinstance(trajectory, list):
        return "it is no object with a trajectory"
    return (
        None
        if all(isinstance(step, dict) for step in trajectory)
        else "its trajectory is not a list of steps"
    )


def _steps(trajectory: list[dict[str, Any]]) -> Iterator[Step]:
    for step in trajectory:
        thought, action = (
            message_text(step.get("thought")).strip(),
            message_text(step.get("action")).strip(),
        )
        said = "\n".join(filter(None, (thought, action))) or message_text(step.get("response"))
        seen = message_text(step.get("observation"))
        if said or seen:
            yield Step(excerpt(said), excerpt(seen))


def _instruction(record: Mapping[str, Any]) -> str:
    """Return the issue: what the user wrote first, but for the demonstration of another task."""
    history = record.get("history")
    for message in history if isinstance(history, list) else []:
        if (
            isinstance(message, dict)
            and message.get("role") == "user"
            and not message.get("is_demo")
        ):
            text = message_text(message.get("content"))
            if "--- DEMONSTRATION ---" not in text:
                return issue_text(text)
    return ""


def _agent(file: SourceFile, models: Mapping[str, str]) -> str:
    folders = parents(file.name)
    if model := next((models[folder] for folder in folders if folder in models), None):
        return model
    return run_name(file.plain_name)
