"""The human verdicts of AgentRewardBench: one row an annotator and trajectory, some trajectories judged by two annotators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Files, Reading
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.table import csv_rows
from certify_assets.errors import InputError

__all__ = ["Annotations", "Run", "is_annotations", "normalised", "read_annotations"]

_COLUMNS = frozenset(
    {"annotator_name", "benchmark", "task_id", "model_name", "exp_name", "trajectory_success"}
)
_VERDICTS: Mapping[str, int | None] = {"Successful": 1, "Unsuccessful": 0, "Unsure": None}
_VARIANTS = frozenset({"resized", "improved"})
_HEAD = 1 << 12


class Run(NamedTuple):
    """What names an annotated trajectory; task and experiment without the words for variants of a benchmark."""

    benchmark: str
    task: str
    agent: str
    experiment: str


@dataclass
class Annotations:
    """Verdicts of annotators, by trajectory.

    Parameters
    ----------
    verdicts : dict of Run to list of {0, 1, None}
        In the order of the rows; None where the annotator was unsure.
    places : dict of Run to (SourceFile, int)
        File and row of the first.
    files : set of str
        Names of the files that hold annotations.
    """

    verdicts: dict[Run, list[int | None]] = field(default_factory=dict)
    places: dict[Run, tuple[SourceFile, int]] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    _runs: dict[tuple[str, str, str], list[Run]] = field(default_factory=dict)

    def add(self, run: Run, verdict: int | None, place: tuple[SourceFile, int]) -> None:
        """Add one annotator's verdict."""
        if run not in self.verdicts:
            self._runs.setdefault(run[:3], []).append(run)
            self.places[run] = place
        self.verdicts.setdefault(run, []).append(verdict)

    def outcome(self, run: Run) -> int | None:
        """Return what most of a trajectory's annotators say; None where they are even or all unsure."""
        decided = [verdict for verdict in self.verdicts[run] if verdict is not None]
        return None if 2 * sum(decided) == len(decided) else int(2 * sum(decided) > len(decided))

    def find(self, benchmark: str, task: str, agent: str, experiments: Iterable[str]) -> Run | None:
        """Return the annotated run of that task and agent in one of the experiments.

        A run whose experiment is not known is found where only one of its task and agent was annotated.
        """
        runs = self._runs.get((benchmark, normalised(task), agent), [])
        names = [normalised(name) for name in experiments if "_on_" in name]
        found = [run for run in runs if run.experiment in names] if names else runs
        return found[0] if len(found) == 1 else None

    def facts(self) -> dict[str, float]:
        """Count annotations; the disagreement rate is that of the trajectories with two or more verdicts, unsure ones aside."""
        decided = [
            [verdict for verdict in verdicts if verdict is not None]
            for verdicts in self.verdicts.values()
        ]
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
            f"{facts['annotations']:,} annotations of {facts['trajectories_annotated']:,} trajectories of {len(tasks):,} tasks "
            f"({summary.trajectories:,} with a majority, {facts['ties']:,} ties, success rate {summary.success_rate:.3f}, ICC {summary.icc:.3f})"
        )


def normalised(name: str) -> str:
    """Remove the parts of a dotted name that stand for variants of a benchmark: visualwebarena.resized.4 is visualwebarena.4."""
    return ".".join(part for part in name.strip().split(".") if part not in _VARIANTS)


def is_annotations(file: SourceFile) -> bool:
    """Say whether a CSV file has the columns of annotations.

    Raises
    ------
    BrokenFileError
        If it cannot be decompressed.
    """
    header = file.head(_HEAD).decode("utf-8", "replace").removeprefix("\ufeff").partition("\n")[0]
    return {name.strip(' "\r') for name in header.split(",")} >= _COLUMNS


def read_annotations(files: Files, reading: Reading) -> Annotations:
    """Read every annotation file; rows that cannot be used, and rows that repeat one, are counted."""
    annotations = Annotations()
    rows_seen: set[tuple[str, Run]] = set()
    for file in files.matching("*.csv", "*.csv.gz"):
        try:
            if is_annotations(file):
                annotations.files.add(file.name)
                reading.sha256(file)
                _read_file(file, annotations, rows_seen, reading)
        except InputError as error:
            reading.tally.drop("file_unreadable", str(error))
            annotations.files.add(file.name)
    return annotations


def _read_file(
    file: SourceFile, annotations: Annotations, rows_seen: set[tuple[str, Run]], reading: Reading
) -> None:
    for number, row in csv_rows(file):
        where = f"{file.name} row {number}"
        problem = row if isinstance(row, str) else _problem(row)
        if problem or isinstance(row, str):
            reading.tally.drop("unreadable_record", f"{where} cannot be used: {problem}.")
            continue
        verdict = row["trajectory_success"].strip()
        if verdict not in _VERDICTS:
            reading.tally.drop(
                "bad_outcome",
                f"{where} cannot be used: its trajectory_success is {verdict[:40]!r}.",
            )
            continue
        run = Run(
            row["benchmark"].strip(),
            normalised(row["task_id"]),
            row["model_name"].strip(),
            normalised(row["exp_name"]),
        )
        if (row["annotator_name"].strip(), run) in rows_seen:
            reading.tally.drop("duplicate", f"{where} repeats an annotation by the same annotator.")
            continue
        rows_seen.add((row["annotator_name"].strip(), run))
        annotations.add(run, _VERDICTS[verdict], (file, number))


def _problem(row: Mapping[str, Any]) -> str | None:
    if missing := sorted(name for name in _COLUMNS if not row[name].strip()):
        return f"it has no {', '.join(missing)}"
    return None
