"""AgentRewardBench: cleaned trajectories (JSON) with the verdicts in annotations.csv."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
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
    objects,
    page_text,
    steps_of_turns,
    switch,
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


@dataclass
class _Labels:
    """Annotations, and the runs that they went to."""

    annotations: Annotations
    found: set[AnnotatedRun] = field(default_factory=set)
    taken: dict[AnnotatedRun, tuple[str, bytes]] = field(default_factory=dict)

    def find(self, record: Record, draft: Draft) -> AnnotatedRun | None:
        """Return the annotated run that a file holds, and remember that there is a file of it."""
        experiments = [
            text_of(record.get("experiment")),
            *PurePosixPath(draft.origin.file).parts[-2:-1],
        ]
        run = self.annotations.find(
            text_of(record["benchmark"]), draft.task_id, draft.agent, experiments
        )
        self.found |= {run} if run else set()
        return run


def _fits(file: SourceFile) -> bool:
    if file.suffix == ".csv":
        return is_annotations(file)
    try:
        return is_object_with(file.head(HEAD), _MARKS) and _is_run(json_value(file.read()))
    except ValueError:
        return False


def _is_run(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() >= _REQUIRED
        and not value.keys() & _JUDGMENT
        and isinstance(value["steps"], list)
    )


def _explain(file: SourceFile) -> str | None:
    if file.suffix == ".json" and all(
        f'"{key}"'.encode() in file.head(HEAD) for key in ("judge", "benchmark", "agent")
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
    options={
        "labels_only": (
            "make a corpus of outcomes without trajectories, for its profile alone (true or false)"
        ),
    },
)
def agent_reward_bench(files: FileSet, reading: Reading) -> Drafts:
    """Read cleaned runs and the labels of their annotators."""
    labels_only = switch(reading.options, "labels_only")
    labels = _Labels(read_annotations(files, reading))
    reading.label_facts.update(labels.annotations.facts() if labels.annotations.verdicts else {})
    for file in files:
        if file.suffix == ".csv" and file.name not in labels.annotations.files:
            reading.other(file, "has no columns annotator_name, exp_name and trajectory_success.")
        elif file.suffix == ".json" and labels_only:
            reading.other(file, "was not read, because only labels were asked for (labels_only).")
        elif file.suffix == ".json":
            yield from _run(file, labels, reading)
    if labels_only:
        yield from _labels_alone(labels.annotations, reading)
    else:
        _count_without_trajectory(labels, reading)


# Annotations are published apart from the runs: without runs there is nothing to judge, and only
# the option labels_only makes a corpus (of tasks and outcomes, for a profile) of them.
def _labels_alone(annotations: Annotations, reading: Reading) -> Drafts:
    reading.label_facts["labels_only"] = 1
    for run, (file, row) in annotations.places.items():
        outcome = annotations.outcome(run)
        if outcome is not None or reading.options.get("keep_unlabelled"):
            reading.notes[
                "runs without instruction and steps, from labels alone: nothing to judge"
            ] += 1
        what = f"task {run.task} of {run.benchmark}, experiment {run.experiment}"
        yield Draft(
            task_id=run.task,
            agent=run.agent,
            instruction=f"LABELS ONLY, no trajectory: {what}.",
            steps=(),
            outcome=outcome,
            origin=reading.origin(file, row),
        )


def _count_without_trajectory(labels: _Labels, reading: Reading) -> None:
    annotations = labels.annotations
    without = [run for run in annotations.verdicts if run not in labels.found]
    for run in without:
        file, row = annotations.places[run]
        if labels.found:
            sentence = (
                f"{file.name} row {row} is on {run.task} by {run.agent}, of which there is no "
                "readable trajectory file."
            )
        else:
            sentence = (
                f"{file.name} holds labels alone, {annotations.sentence()}, and no trajectory to "
                "judge; give the folder of cleaned trajectories "
                "(cleaned/<benchmark>/<agent>/<experiment>/<task>.json) too, or make a corpus of "
                "labels for its profile alone with "
                "--format agent_reward_bench --option labels_only=true."
            )
        reading.drop("no_trajectory", sentence)


def _run(file: SourceFile, labels: _Labels, reading: Reading) -> Drafts:
    try:
        record = json_value(file.read())
    except BrokenFileError as error:
        reading.drop("file_unreadable", str(error))
        return
    except ValueError as error:
        if is_object_with(file.head(HEAD), _MARKS):
            reading.unusable(file.name, str(error))
        else:
            reading.other(file, f"is no trajectory: {error}.")
        return
    if not _is_run(record):
        reading.other(
            file,
            "is no cleaned trajectory; one has benchmark, goal and steps and is no judge's output.",
        )
        return
    draft = _draft(file, record, reading)
    run = labels.find(record, draft)
    labelled = _problem(record, draft) or _labelled(record, draft, run, labels, reading)
    if isinstance(labelled, Draft):
        yield labelled
    else:
        reading.drop(*labelled)


def _problem(record: Record, draft: Draft) -> tuple[str, str] | None:
    if not is_list_of_objects(record["steps"]):
        words = "one of its steps is not an object"
    elif not draft.task_id or not draft.agent:
        words = "its agent is not known"
    else:
        return None
    return "unreadable_record", f"{draft.origin.file} cannot be used: {words}."


def _draft(file: SourceFile, record: Record, reading: Reading) -> Draft:
    path = PurePosixPath(file.plain_name)
    agent = text_of(record.get("agent")) or (path.parts[-3] if len(path.parts) > 2 else "")
    return Draft(
        task_id=normalised(path.stem),
        agent=agent,
        instruction=message_text(record["goal"]),
        steps=steps_of_turns(map(_turn, objects(record["steps"]))),
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


def _labelled(
    record: Record,
    draft: Draft,
    run: AnnotatedRun | None,
    labels: _Labels,
    reading: Reading,
) -> Draft | tuple[str, str]:
    name = draft.origin.file
    if record.get("valid") is False:
        return "infrastructure_error", f"{name} is marked as not valid by its source."
    if not draft.steps:
        return "no_trajectory", f"{name} has no action of the agent; nothing can be judged."
    content = draft.content()
    if run and (first := labels.taken.setdefault(run, (name, content)))[1] != content:
        both = f"{name} and {first[0]} are two runs of one annotation, which went to the latter"
        return "ambiguous_label", f"{both}; give one of them."
    outcome = labels.annotations.outcome(run) if run else None
    if (
        outcome is None
        and not labels.annotations.verdicts
        and not reading.options.get("keep_unlabelled")
    ):
        return "no_label", f"{name} has no annotations next to it; give annotations.csv too."
    return replace(draft, outcome=outcome)


class AnnotatedRun(NamedTuple):
    """What names an annotated trajectory."""

    benchmark: str
    task: str
    agent: str
    experiment: str


@dataclass
class Annotations:
    """Verdicts of annotators, by trajectory; None where one was unsure."""

    verdicts: dict[AnnotatedRun, list[int | None]] = field(default_factory=dict)
    places: dict[AnnotatedRun, tuple[SourceFile, int]] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    unclear: list[str] = field(default_factory=list)
    _runs: dict[tuple[str, str, str], list[AnnotatedRun]] = field(default_factory=dict)

    def add(self, run: AnnotatedRun, verdict: int | None, place: tuple[SourceFile, int]) -> None:
        """Add one annotator's verdict."""
        if run not in self.verdicts:
            self._runs.setdefault(run[:3], []).append(run)
            self.places[run] = place
        self.verdicts.setdefault(run, []).append(verdict)

    def outcome(self, run: AnnotatedRun) -> int | None:
        """Return what most of a trajectory's annotators say."""
        decided = [verdict for verdict in self.verdicts[run] if verdict is not None]
        return None if 2 * sum(decided) == len(decided) else int(2 * sum(decided) > len(decided))

    def find(
        self, benchmark: str, task: str, agent: str, experiments: Iterable[str]
    ) -> AnnotatedRun | None:
        """Return the annotated run of that task and agent in one of the experiments."""
        runs = self._runs.get((benchmark, normalised(task), agent), [])
        # a run of unknown experiment is found where only one of its task and agent was annotated
        names = [normalised(name) for name in experiments if "_on_" in name]
        found = [run for run in runs if run.experiment in names] if names else runs
        return found[0] if len(found) == 1 else None

    def facts(self) -> dict[str, float]:
        """Count annotations, ties and disagreement."""
        decided = [
            [verdict for verdict in verdicts if verdict is not None]
            for verdicts in self.verdicts.values()
        ]
        # unsure verdicts aside, disagreement is that of the trajectories with two or more
        several = [verdicts for verdicts in decided if len(verdicts) > 1]
        return {
            "annotations": sum(map(len, self.verdicts.values())),
            "trajectories_annotated": len(self.verdicts),
            "double_annotated": sum(len(verdicts) > 1 for verdicts in self.verdicts.values()),
            "ties": sum(
                bool(verdicts) and 2 * sum(verdicts) == len(verdicts) for verdicts in decided
            ),
            "unsure": sum(verdicts.count(None) for verdicts in self.verdicts.values()),
            "disagreement_rate": sum(len(set(verdicts)) > 1 for verdicts in several) / len(several)
            if several
            else 0.0,
        }

    def sentence(self) -> str:
        """Say how many annotations there are and what their majorities are like."""
        import numpy as np

        from certify_assets.certificates.clustering import summarise_clusters

        facts, tasks = self.facts(), {run.task for run in self.verdicts}
        by_task: dict[str, list[int]] = {}
        for run in self.verdicts:
            if (outcome := self.outcome(run)) is not None:
                by_task.setdefault(run.task, []).append(outcome)
        sizes, successes = (
            np.array([count(outcomes) for outcomes in by_task.values()], dtype=np.int64)
            for count in (len, sum)
        )
        summary = summarise_clusters(sizes, successes)
        return (
            f"{facts['annotations']:,} annotations of {facts['trajectories_annotated']:,} "
            f"trajectories of {len(tasks):,} tasks "
            f"({summary.trajectories:,} with a majority, {facts['ties']:,} ties, success rate "
            f"{summary.success_rate:.3f}, ICC {summary.icc:.3f})"
        )


def normalised(name: str) -> str:
    """Remove the parts of a dotted name that name variants of a benchmark."""
    return ".".join(part for part in name.strip().split(".") if part not in _VARIANTS)


def is_annotations(file: SourceFile) -> bool:
    """Say whether a CSV file has the columns of annotations."""
    header = file.head(_HEADER).decode("utf-8", "replace").removeprefix("\ufeff").partition("\n")[0]
    return {name.strip(' "\r') for name in header.split(",")} >= _COLUMNS


def read_annotations(files: FileSet, reading: Reading) -> Annotations:
    """Read every annotation file; unusable and repeated rows are counted."""
    annotations = Annotations()
    rows_seen: set[tuple[str, AnnotatedRun]] = set()
    for file in files.matching("*.csv", "*.csv.gz"):
        try:
            if is_annotations(file):
                annotations.files.add(file.name)
                reading.sha256(file)
                _read_file(file, annotations, rows_seen, reading)
        except InputError as error:
            reading.drop("file_unreadable", str(error))
            annotations.files.add(file.name)
    if annotations.unclear:
        raise InputError(annotations.unclear[0])
    return annotations


def _read_file(
    file: SourceFile,
    annotations: Annotations,
    rows_seen: set[tuple[str, AnnotatedRun]],
    reading: Reading,
) -> None:
    for number, found in csv_rows(file, _COLUMNS)[1]:
        where = f"{file.name} row {number}"
        if (row := usable(found, where, reading, _row_problem)) is None:
            continue
        verdict = row["trajectory_success"].strip()
        if verdict not in _VERDICTS:
            annotations.unclear.append(
                f"{where}: trajectory_success is {verdict[:40]!r}. "
                f"Write {', '.join(_VERDICTS)} instead."
            )
            continue
        run = AnnotatedRun(
            row["benchmark"].strip(),
            normalised(row["task_id"]),
            row["model_name"].strip(),
            normalised(row["exp_name"]),
        )
        if (row["annotator_name"].strip(), run) in rows_seen:
            reading.drop("duplicate", f"{where} repeats an annotation by the same annotator.")
            continue
        rows_seen.add((row["annotator_name"].strip(), run))
        annotations.add(run, _VERDICTS[verdict], (file, number))


def _row_problem(row: Record) -> str | None:
    if missing := sorted(name for name in _COLUMNS if not row[name].strip()):
        return f"it has no {', '.join(missing)}"
    return None
