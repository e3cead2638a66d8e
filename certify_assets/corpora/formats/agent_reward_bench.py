"""AgentRewardBench: cleaned trajectories (JSON) with the verdicts in annotations.csv."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Draft, Drafts, Reading, corpus_format, usable
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import HEAD, Record, is_object_with, json_value
from certify_assets.corpora.formats.table import csv_rows
from certify_assets.corpora.formats.texts import (
    Turn,
    is_list_of_objects,
    message_text,
    page_text,
    steps_of_turns,
    text_of,
)
from certify_assets.errors import InputError

_REQUIRED = frozenset({"benchmark", "goal", "steps"})
_JUDGMENT = frozenset({"judge", "trajectory_info"})
_MARKS = (re.compile(rb'"benchmark"'), re.compile(rb'"goal"'))
_COLUMNS = frozenset(
    {"annotator_name", "benchmark", "task_id", "model_name", "exp_name", "trajectory_success"}
)
_VERDICTS: Mapping[str, int | None] = {"Successful": 1, "Unsuccessful": 0, "Unsure": None}
_VARIANTS = frozenset({"resized", "improved"})
_HEADER = 1 << 12


class _Run(NamedTuple):
    """What names an annotated trajectory."""

    benchmark: str
    task: str
    agent: str
    experiment: str


def _fits(file: SourceFile) -> bool:
    if file.suffix == ".csv":
        return _is_annotations(file)
    try:
        return is_object_with(file.head(HEAD), _MARKS) and _is_run(json_value(file.read()))
    except ValueError:
        return False


def _is_annotations(file: SourceFile) -> bool:
    header = file.head(_HEADER).decode("utf-8", "replace").removeprefix("\ufeff").partition("\n")[0]
    return {name.strip(' "\r') for name in header.split(",")} >= _COLUMNS


def _is_run(value: Any) -> bool:
    known = value.keys() if isinstance(value, dict) else set()
    return known >= _REQUIRED and not known & _JUDGMENT and isinstance(value["steps"], list)


def _explain(file: SourceFile) -> str | None:
    head = file.head(HEAD)
    if file.suffix == ".json" and all(
        key in head for key in (b'"judge"', b'"benchmark"', b'"agent"')
    ):
        return (
            f"{file.name} holds a judge's opinion of a run of AgentRewardBench, not a run; give "
            "the folder cleaned/ and annotations.csv."
        )
    return None


@corpus_format(
    title="AgentRewardBench (cleaned trajectories with annotations.csv)",
    suffixes=(".csv", ".json"),
    domain="web",
    fits=_fits,
    explain=_explain,
    label_source="majority of human annotators",
)
def agent_reward_bench(files: FileSet, reading: Reading) -> Drafts:
    """Read cleaned runs and the labels of their annotators."""
    annotations = _Annotations(files, reading)
    reading.label_facts.update(annotations.facts())
    found: set[_Run] = set()
    taken: dict[_Run, tuple[str, bytes]] = {}
    for file in files:
        if file.suffix == ".csv":
            if file.name not in annotations.files:
                reading.other(
                    file, "has no columns annotator_name, exp_name and trajectory_success."
                )
            continue
        if (record := _record(file, reading)) is None:
            continue
        draft = _draft(file, record, reading)
        run = annotations.of(record, draft)
        found |= {run} if run else set()
        reason, words = _problem(record, draft)
        if run and not reason:
            first, content = taken.setdefault(run, (file.name, draft.content()))
            if content != draft.content():
                reason = "ambiguous_label"
                words = f"and {first} are two runs of one annotation, which went to the latter"
        if not (annotations.verdicts or reason or reading.options.get("keep_unlabelled")):
            reason, words = "no_label", "has no annotations next to it; give annotations.csv too"
        if reason:
            reading.drop(reason, f"{file.name} {words}.")
        else:
            yield replace(draft, outcome=annotations.outcome(run) if run else None)
    for run in annotations.verdicts:
        if run not in found:
            reading.drop("no_trajectory", annotations.missing(run, alone=not found))


def _record(file: SourceFile, reading: Reading) -> Record | None:
    try:
        record = json_value(file.read())
    except BrokenFileError as error:
        reading.drop("file_unreadable", str(error))
    except ValueError as error:
        if is_object_with(file.head(HEAD), _MARKS):
            reading.unusable(file.name, str(error))
        else:
            reading.other(file, f"is no trajectory: {error}.")
    else:
        if _is_run(record):
            return dict(record)
        reading.other(
            file,
            "is no cleaned trajectory; one has benchmark, goal and steps and is no judge's output.",
        )
    return None


def _draft(file: SourceFile, record: Record, reading: Reading) -> Draft:
    path = PurePosixPath(file.plain_name)
    agent = text_of(record.get("agent")) or (path.parts[-3] if len(path.parts) > 2 else "")
    steps = record["steps"] if is_list_of_objects(record["steps"]) else ()
    return Draft(
        task_id=_normalised(path.stem),
        agent=agent,
        instruction=message_text(record["goal"]),
        steps=steps_of_turns(map(_turn, steps)),
        outcome=None,
        origin=reading.origin(file),
        named_agent=agent,
    )


def _turn(step: Record) -> Turn:
    page = page_text(
        step.get("url"),
        step.get("last_action_error"),
        text_of(step.get("axtree")) or text_of(step.get("axtree_pruned")),
    )
    return Turn(page, text_of(step.get("reasoning")), text_of(step.get("action")))


def _problem(record: Record, draft: Draft) -> tuple[str, str]:
    """Return why a run is left out, or nothing twice."""
    if not is_list_of_objects(record["steps"]):
        return "unreadable_record", "cannot be used: one of its steps is not an object"
    if not draft.task_id or not draft.agent:
        return "unreadable_record", "cannot be used: its agent is not known"
    if record.get("valid") is False:
        return "infrastructure_error", "is marked as not valid by its source"
    if not draft.steps:
        return "no_trajectory", "has no action of the agent; nothing can be judged"
    return "", ""


def _normalised(name: str) -> str:
    """Remove the parts of a dotted name that name variants of a benchmark."""
    return ".".join(part for part in name.strip().split(".") if part not in _VARIANTS)


class _Annotations:
    """Verdicts of annotators, by trajectory; None where one was unsure."""

    def __init__(self, files: FileSet, reading: Reading) -> None:
        self.verdicts: dict[_Run, list[int | None]] = {}
        self.files: set[str] = set()
        self._places: dict[_Run, str] = {}
        self._runs: dict[tuple[str, str, str], list[_Run]] = {}
        seen: set[tuple[str, _Run]] = set()
        for file in files.matching("*.csv", "*.csv.gz"):
            if not _is_annotations(file):
                continue
            self.files.add(file.name)
            reading.sha256(file)
            for where, row in _rows(file, reading):
                run = _Run(
                    row["benchmark"].strip(),
                    _normalised(row["task_id"]),
                    row["model_name"].strip(),
                    _normalised(row["exp_name"]),
                )
                annotator = (row["annotator_name"].strip(), run)
                if annotator in seen:
                    words = "repeats an annotation by the same annotator."
                    reading.drop("duplicate", f"{where} {words}")
                    continue
                seen.add(annotator)
                if run not in self.verdicts:
                    self._runs.setdefault(run[:3], []).append(run)
                    self._places[run] = where
                self.verdicts.setdefault(run, []).append(_verdict(row, where))

    def of(self, record: Record, draft: Draft) -> _Run | None:
        """Return the annotated run that a file holds."""
        runs = self._runs.get((text_of(record["benchmark"]), draft.task_id, draft.agent), [])
        # a run of unknown experiment is found where only one of its task and agent was annotated
        named = (text_of(record.get("experiment")), *PurePosixPath(draft.origin.file).parts[-2:-1])
        experiments = [_normalised(name) for name in named if "_on_" in name]
        found = [run for run in runs if run.experiment in experiments] if experiments else runs
        return found[0] if len(found) == 1 else None

    def outcome(self, run: _Run) -> int | None:
        """Return what most of a trajectory's annotators say."""
        decided = [verdict for verdict in self.verdicts[run] if verdict is not None]
        return None if 2 * sum(decided) == len(decided) else int(2 * sum(decided) > len(decided))

    def facts(self) -> dict[str, float]:
        """Count annotations, ties and disagreement."""
        if not self.verdicts:
            return {}
        decided = [
            [verdict for verdict in verdicts if verdict is not None]
            for verdicts in self.verdicts.values()
        ]
        # unsure verdicts aside, disagreement is that of the trajectories with two or more
        several = [len(set(verdicts)) > 1 for verdicts in decided if len(verdicts) > 1]
        return {
            "annotations": sum(map(len, self.verdicts.values())),
            "trajectories_annotated": len(self.verdicts),
            "double_annotated": sum(len(verdicts) > 1 for verdicts in self.verdicts.values()),
            "ties": sum(bool(found) and 2 * sum(found) == len(found) for found in decided),
            "unsure": sum(verdicts.count(None) for verdicts in self.verdicts.values()),
            "disagreement_rate": sum(several) / len(several) if several else 0.0,
        }

    def missing(self, run: _Run, *, alone: bool) -> str:
        """Say of an annotation that its run is not here, or (alone) that no run is."""
        if not alone:
            return (
                f"{self._places[run]} is on {run.task} by {run.agent}, of which there is no "
                "readable trajectory file."
            )
        facts, tasks = self.facts(), {each.task for each in self.verdicts}
        outcomes = [self.outcome(each) for each in self.verdicts]
        decided = [outcome for outcome in outcomes if outcome is not None]
        return (
            f"{', '.join(sorted(self.files))} holds labels alone, {facts['annotations']:,} "
            f"annotations of {len(self.verdicts):,} trajectories of {len(tasks):,} tasks "
            f"({len(decided):,} with a majority, {facts['ties']:,} ties, success rate "
            f"{sum(decided) / max(1, len(decided)):.3f}), and no trajectory to judge; give the "
            "folder of cleaned trajectories "
            "(cleaned/<benchmark>/<agent>/<experiment>/<task>.json) too."
        )


def _rows(file: SourceFile, reading: Reading) -> Iterator[tuple[str, Record]]:
    try:
        for number, found in csv_rows(file, _COLUMNS)[1]:
            where = f"{file.name} row {number}"
            if (row := usable(found, where, reading, _row_problem)) is not None:
                yield where, row
    except BrokenFileError as error:
        reading.drop("file_unreadable", str(error))


def _row_problem(row: Record) -> str | None:
    missing = sorted(name for name in _COLUMNS if not row[name].strip())
    return f"it has no {', '.join(missing)}" if missing else None


def _verdict(row: Record, where: str) -> int | None:
    verdict = row["trajectory_success"].strip()
    if verdict not in _VERDICTS:
        raise InputError(
            f"{where}: trajectory_success is {verdict[:40]!r}. "
            f"Write {', '.join(_VERDICTS)} instead."
        )
    return _VERDICTS[verdict]
