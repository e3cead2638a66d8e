"""Runs that were drawn for labels: the file of a draw, and the labels that a certificate takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Certificate
from certify_assets.certificates.inputs import UNLABELLED, SampleInputs
from certify_assets.certificates.sampling import RUNS, TASKS, Draw
from certify_assets.cli.output import say
from certify_assets.cli.reading import labelled, read_scores, remedies, say_read_as
from certify_assets.errors import ForgedCertificateError, InputError, UnlabelledRunError, quoted
from certify_assets.tables.columns import ColumnReader
from certify_assets.tables.reading import read_table
from certify_assets.tables.run_labels import RunLabels, reading_of_scores, require_ids
from certify_assets.tables.score_table import ScoreTable
from certify_assets.tables.settings import COLUMNS, DRAWN_BY, ReadingOptions

#: column that a draw adds to those of its table, next to `DRAWN_BY`
BATCH: Final = "batch"
_DRAWN_BY: Final = (
    "seed={seed} count={count} attempts={attempts} estimand={estimand} most={most} table={sha256}"
)
_PARSED = re.compile(
    r"seed=(?P<seed>\d{1,19}) count=(?P<count>\d{1,9}) attempts=(?P<attempts>\d{1,9}) "
    r"estimand=(?P<estimand>tasks|runs) most=(?P<most>\d{1,9}) table=(?P<sha256>[0-9a-f]{64})"
)


def drawn_by(draw: Draw) -> str:
    """Return the text by which every row of a draw says how it was drawn."""
    return _DRAWN_BY.format_map(draw.inputs)


@dataclass(frozen=True)
class DrawnFile:
    """A file that `certify sample` wrote, perhaps with labels by now."""

    path: Path
    draw: Draw
    # the batch of each run; empty where the file lacks them
    batches: Mapping[str, int]
    runs: frozenset[str]

    @classmethod
    def read(cls, path: Path, reading: ReadingOptions) -> DrawnFile:
        """Read which runs were drawn, and how."""
        name = {**COLUMNS, **reading.columns}["id"]
        table = read_table(path, {name, BATCH, DRAWN_BY})
        if not {name, DRAWN_BY} <= table.columns.keys():
            raise InputError(
                f"{path} lacks the column {DRAWN_BY} or {name}, which certify sample writes. Give "
                "the file of the draw as it was written."
            )
        said = set(map(str, table.values(DRAWN_BY)))
        found = _PARSED.fullmatch(next(iter(said), ""))
        if len(said) != 1 or found is None:
            raise InputError(
                f"{path}, column {DRAWN_BY} does not name one draw. Give the file as certify "
                "sample wrote it."
            )
        said_of = found.groupdict()
        draw = Draw(
            count=int(said_of["count"]),
            attempts=int(said_of["attempts"]),
            estimand=RUNS if said_of["estimand"] == RUNS else TASKS,
            most=int(said_of["most"]),
            seed=int(said_of["seed"]),
            sha256=said_of["sha256"],
        )
        columns = ColumnReader(table, reading.settings)
        runs = columns.unique_ids(name)
        columns.settle()
        numbers = table.values(BATCH) if BATCH in table.columns else []
        batches = {
            run: int(number)
            for run, number in zip(runs.tolist(), map(str, numbers), strict=False)
            if number.isdecimal()
        }
        return cls(path, draw, batches, frozenset(runs.tolist()))

    def rows_of(self, table: ScoreTable) -> ScoreTable:
        """Return the drawn rows of a table; refuse another table, and an edited file."""
        rows = _redrawn(table, self.draw)
        if rows is None:
            raise InputError(
                f"{self.path} was drawn from another table than {table.path}: tasks, runs or "
                "scores differ. Give the table that it was drawn from."
            )
        if set(names_of(rows)[1]) != self.runs:
            raise InputError(
                f"{self.path} does not hold the runs that its seed draws from {table.path}. Give "
                "the file as certify sample wrote it."
            )
        return rows


def _redrawn(table: ScoreTable, draw: Draw) -> ScoreTable | None:
    """Draw again from a table; None where the draw is from another one."""
    tasks, runs = names_of(table)
    same = Draw.of(tasks, runs, table.scores, count=1).sha256
    return None if same != draw.sha256 else table.take(np.sort(draw.rows(tasks, runs)))


def names_of(table: ScoreTable) -> tuple[list[str], list[str]]:
    """Return the tasks and the runs of a table as texts."""
    require_ids(table)
    assert table.trajectories is not None
    return list(map(str, table.tasks.tolist())), list(map(str, table.trajectories.tolist()))


@dataclass(frozen=True)
class Calibration:
    """The rows that a certificate is issued on."""

    # all of the file, which further tables are read like
    whole: ScoreTable
    table: ScoreTable
    sample: SampleInputs | None = None
    file: DrawnFile | None = None

    def more_labels(self, needed: UnlabelledRunError, *, several: bool) -> UnlabelledRunError:
        """Return a refusal that names the batch to label, and the first run that needs it."""
        tasks, runs = names_of(self.table)
        lacking = [
            (run, task == needed.task and score == needed.score)
            for run, task, score, outcome in zip(
                runs, tasks, self.table.scores.tolist(), self.outcomes.tolist(), strict=True
            )
            if outcome == UNLABELLED
        ]
        first = next(run for run, wanted in lacking if wanted)
        batches = {} if self.file is None else self.file.batches
        what = "the drawn runs"
        if (number := batches.get(first)) is not None:
            count = sum(batches.get(run) == number for run, _ in lacking)
            what = f"batch {number} ({count:,} run{'s' * (count > 1)})"
        other = " Or name one side (--side)." if several else ""
        return UnlabelledRunError(
            f"{needed} Label {what}; {quoted(first)} is the first without a label.{other}",
            needed.task,
            needed.score,
        )

    @property
    def outcomes(self) -> NDArray[np.int8]:
        """The outcomes of the rows: of drawn ones some are missing or unclear."""
        assert self.table.outcomes is not None
        return self.table.outcomes


def calibration(
    scores: Path,
    reading: ReadingOptions,
    labels: Path | None,
    sample: Path | None,
    *,
    judge: str | None = None,
    truth: str | None = None,
) -> Calibration:
    """Return the labelled rows of a table, or those that were drawn.

    Labels are those of `labels`. Without it they are those written into the file of the draw, and
    without any there, the outcomes of the table itself.
    """
    drawn = None if sample is None else DrawnFile.read(sample, reading)
    given = labels or (sample if sample is not None and _has_labels(sample, reading) else None)
    own = reading_of_scores(scores, given, reading)
    whole = read_scores(scores, own, outcomes=given is None, judge=judge, truth=truth)
    table = whole.choose_split("cal")
    if given is None and drawn is None:
        if table.outcomes is None:
            say("Without any labels: certify sample draws the runs to label.")
        return Calibration(whole, labelled(table))
    return _joined(whole, table, None if given is None else _read_labels(given, reading), drawn)


def labelled_rows(table: ScoreTable, labels: Path | None, reading: ReadingOptions) -> ScoreTable:
    """Return the rows of a table that have an outcome, or a label of a file, in its order."""
    if labels is None:
        return labelled(table)
    require_ids(table)
    found = _read_labels(labels, reading)
    if found.waiting is not None:
        scored = table.take(~np.isnan(table.scores))
        if waiting := found.waiting.intersection(names_of(scored)[1]):
            raise InputError(
                f"{labels} is the file of a draw, and {len(waiting):,} of its runs have no label. "
                "Label all of them: the first are those that the judge is surest of."
            )
        found = replace(found, waiting=None)
    rows = _labelled_by(found, table)
    places = {name: place for place, name in enumerate(found.outcomes)}
    return rows.take(np.argsort([places[name] for name in names_of(rows)[1]]))


def calibration_of(
    issued: Sequence[Certificate], table: ScoreTable, labels: Path | None, reading: ReadingOptions
) -> Calibration:
    """Return the rows that certificates were issued on, their draw made again."""
    samples = [item.inputs.get("sample") for item in issued]
    found = None if labels is None else _read_labels(labels, reading)
    if not any(samples):
        if found is None:
            return Calibration(table, labelled(table))
        return _joined(table, table, found, None)
    if any(sample != samples[0] for sample in samples):
        raise InputError("The certificates are of several draws. Choose one with --side.")
    draw = Draw.from_inputs(samples[0])  # type: ignore[arg-type]
    rows = _redrawn(table, draw)
    if rows is None:
        raise ForgedCertificateError(
            f"inputs.sample.sha256 is {draw.sha256!r} in the document, and another one is that of "
            f"{table.path}; give the table that was drawn from."
        )
    if found is None and rows.outcomes is None:
        raise InputError(
            f"The certificate is on drawn runs, and {table.path} has no outcomes. Give the file "
            "of the draw with its labels (--labels FILE)."
        )
    return Calibration(table, _labels_of_draw(rows, found, table), draw.inputs)


def _joined(
    whole: ScoreTable, table: ScoreTable, found: RunLabels | None, drawn: DrawnFile | None
) -> Calibration:
    require_ids(table)
    if drawn is None:
        assert found is not None
        return Calibration(whole, _labelled_by(found, table))
    if found is not None:
        _say_matching(found, table)
    rows = _labels_of_draw(drawn.rows_of(table), found, table)
    return Calibration(whole, rows, drawn.draw.inputs, drawn)


def _say_matching(found: RunLabels, table: ScoreTable) -> None:
    say(found.matching(table))
    if (agreement := found.agreement(table)) is not None:
        say(agreement.sentence())


def _labelled_by(found: RunLabels, table: ScoreTable) -> ScoreTable:
    """Return the runs of a table that have a label; refuse labels of none of them."""
    _say_matching(found, table)
    joined = found.join_alone(table)
    assert joined.outcomes is not None
    known = joined.outcomes >= 0
    return replace(joined.take(known), left_out=int(np.count_nonzero(~known)))


def _labels_of_draw(rows: ScoreTable, found: RunLabels | None, table: ScoreTable) -> ScoreTable:
    """Return the drawn rows of a table with their labels; refuse labels of other runs."""
    if found is None:
        if rows.outcomes is None:
            raise InputError(
                f"No drawn run has a label, and {rows.path} has no outcomes. Write labels into "
                "the file of the draw, or give them with --labels."
            )
        return rows
    unknown = sorted(found.outcomes.keys() - set(names_of(table)[1]))
    if unknown:
        raise InputError(
            f"{found.path} labels {unknown[0]!r}, and {table.path} has no such run ({len(unknown)} "
            "such labels). Write trajectory_id alike in both files."
        )
    strange = sorted(found.outcomes.keys() - set(names_of(rows)[1]))
    if strange:
        raise InputError(
            f"{found.path} labels {strange[0]!r}, which was not drawn ({len(strange)} such "
            "labels). Labels that were there before the draw prove nothing; take them out."
        )
    return found.join(rows)


def _read_labels(path: Path, reading: ReadingOptions) -> RunLabels:
    with remedies():
        found = RunLabels.read(path, reading)
    say_read_as(path, found.read_as)
    return found


def _has_labels(path: Path, reading: ReadingOptions) -> bool:
    """Whether anything is written into the outcomes of a file."""
    return bool(filled(path, {**COLUMNS, **reading.columns}["outcome"]))


def filled(source: Any, column: str) -> int:
    """Return how many cells of a column say something; 0 where the file or frame lacks it."""
    table = read_table(source, {column})
    cells = table.values(column) if column in table.columns else []
    return sum(cell is not None and cell == cell and str(cell).strip() != "" for cell in cells)
