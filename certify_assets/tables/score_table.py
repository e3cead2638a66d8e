"""Score tables, read and checked; errors name the file, row and column."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats, Integers, Objects
from certify_assets.errors import InputError
from certify_assets.tables.cells import ScoreScaleError, TableError, likely_column, shown
from certify_assets.tables.columns import ColumnReader
from certify_assets.tables.reading import (
    Table,
    matched,
    read_table,
    refuse_alike,
    refuse_repeated,
    renamed,
)
from certify_assets.tables.settings import (
    COLUMNS,
    DRAWN_BY,
    PERCENT,
    IssuedReading,
    ReadingOptions,
    parse_columns,
)
from certify_assets.work import counted

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates.inputs import SampleInputs, ScoreRange

# task, score and outcome
_LEAST_COLUMNS = 3
# annotators are of labels
_FIELDS = tuple(name for name in COLUMNS if name != "annotator")


class Doubt(NamedTuple):
    """A reason to doubt that scores are a judge's; `sure` where they are refused."""

    sentence: str
    # what --set score_scale would say if they are
    option: str
    sure: bool


@dataclass(frozen=True)
class ScoreTable:
    """A validated score table; a column that the file lacks is None."""

    # the file or the frame
    source: Any
    # what was read of it
    table: Table
    # places of the rows in the file, from 0
    places: Integers
    # NaN where unscored; never infinite
    scores: Floats
    tasks: Objects
    # 0 or 1, −1 where missing
    outcomes: NDArray[np.int8] | None = None
    # second scores of the same judge, NaN where there is none
    again: Floats | None = None
    trajectories: Objects | None = None
    agents: Objects | None = None
    splits: Objects | None = None
    # what was understood that is not as a score table has it
    read_as: tuple[str, ...] = ()
    # how the table was read, for the certificate
    reading: Mapping[str, str] = field(default_factory=dict)
    # rows that were left out for want of an outcome
    left_out: int = 0
    # how the rows were drawn; some may lack an outcome then
    sample: SampleInputs | None = None

    def __len__(self) -> int:
        return int(self.scores.size)

    @property
    def path(self) -> Path:
        """The name of the table in messages."""
        return self.table.path

    @property
    def labels(self) -> NDArray[np.int8]:
        """The outcomes of a table in which every row has one."""
        outcomes = self.labelled().outcomes
        assert outcomes is not None
        return outcomes

    @property
    def evidence(self) -> dict[str, Any]:
        """The data to issue or verify certificates on, as keywords of :meth:`Certifier.of`."""
        assert self.outcomes is not None
        names = ("scores", "outcomes", "tasks", "agents", "named", "alone", "again")
        found = {name: getattr(self, name) for name in (*names, "left_out", "sample")}
        return {"provenance": self.reading, **found}

    @property
    def score_range(self) -> ScoreRange | None:
        """The range of its scores; None without scores."""
        from certify_assets.certificates.inputs import score_range

        scored = np.sort(self.scores[np.isfinite(self.scores)])
        return score_range(scored) if scored.size else None

    def options_of_more(self, asked: ReadingOptions) -> ReadingOptions:
        """Return options that read further scores of the judge like these; refuse contradicting
        ones.
        """
        name = f"the certificate on {self.path}"
        return replace(asked, columns={}).under(IssuedReading(name, self.reading, self.score_range))

    def doubt(self, issued: IssuedReading) -> Doubt | None:
        """Say how the scores differ from those of a certificate."""
        from certify_assets.certificates.scale import scale_fault

        if (known := issued.scores) is None:
            return None
        fault = scale_fault(known, self.scores, len(set(self.tasks.tolist())) or len(self))
        if fault is None:
            return None
        low, high = float(np.nanmin(self.scores)), float(np.nanmax(self.scores))
        percentages = low >= 0 and 1 < high <= 100 and known["low"] >= 0 and known["high"] <= 1
        percentages |= issued.reading.get("score_scale") == PERCENT
        return Doubt(
            f"{self.path} has scores from {low:.4g} to {high:.4g}, and {issued.name} was issued on "
            f"scores from {known['low']:.4g} to {known['high']:.4g}: {fault.reason}. Give scores "
            "of the same judge on the same scale",
            "probability" if percentages else "log-odds",
            fault.sure,
        )

    def choose_split(self, wanted: str | None, *more: str, required: bool = False) -> ScoreTable:
        """Return the rows of some splits; all rows if none is wanted, or there are no splits."""
        if wanted is None or (self.splits is None and not required):
            return self
        splits = np.array([], dtype=str) if self.splits is None else self.splits.astype(str)
        keep = np.isin(splits, (wanted, *more))
        if not keep.any():
            raise InputError(
                f"{self.path} has no row with split={wanted!r}; splits found: "
                f"{', '.join(sorted(set(splits))) or 'none'}. Give a table that has it or leave "
                "the option or the column out."
            )
        return self.take(keep)

    def take(self, keep: NDArray[np.bool_ | np.int64]) -> ScoreTable:
        """Return the rows that `keep` selects, a mask or places."""
        kept: dict[str, Any] = {
            name: values[keep]
            for name, values in vars(self).items()
            if isinstance(values, np.ndarray)
        }
        return replace(self, **kept)

    def labelled(self) -> ScoreTable:
        """Return the table with an outcome in every row.

        Rows without an outcome are refused, or left out if the settings say so.
        """
        if self.outcomes is None:
            problem = (
                f"{self.path} has no outcome column; its columns are {self.table.listed}. Name "
                "the one with 0 and 1 with --columns outcome=NAME."
            )
            raise TableError([problem], likely_column("outcome", self.table.names))
        missing = np.flatnonzero(self.outcomes < 0)
        if not missing.size:
            return self
        first = int(self.places[missing[0]])
        rows = f"{missing.size:,} row{'s' * (missing.size > 1)}"
        if missing.size == len(self):
            raise InputError(f"{self.path} has no outcome in any row. Label its runs first.")
        if "unlabelled" not in self.reading:
            problem = (
                f"{self.path}, {self.table.row(first)} has no outcome ({rows} in all). Label "
                "each, or leave these rows out with --set unlabelled=drop."
            )
            raise TableError([problem], {"unlabelled": "drop"})
        self.refuse_part_of_draw()
        kept = self.take(self.outcomes >= 0)
        notes = (*self.read_as, f"{rows} without an outcome left out")
        return replace(kept, read_as=notes, left_out=int(missing.size))

    def refuse_part_of_draw(self) -> None:
        """Refuse drawn runs if some have no label: the labelled ones are the judge's surest."""
        if self.outcomes is None or (self.outcomes < 0).all():
            return
        drawn = matched([*filter(None, self.table.names)], {DRAWN_BY})
        waiting = int(np.count_nonzero((self.outcomes < 0) & ~np.isnan(self.scores)))
        if drawn and waiting:
            raise InputError(
                f"{self.path} has the column {DRAWN_BY} of a draw, and {waiting:,} of its runs "
                "have no label. Give the table that was drawn from, and the draw with --sample."
            )

    def file_columns(self) -> dict[str, NDArray[Any]]:
        """Return every column of the file in order, and the scores as read where they differ."""
        names = self.table.names
        stored = read_table(self.source, {name for name in names if name}).columns
        # a frame may have columns whose names are no text
        found = {name: stored[name][self.places] for name in names if name in stored}
        changed = self.reading.keys() & {"lower_is_better", "score_scale"}
        name = "score_used" if changed else next(iter(self._called("score")))
        return {**found, name: self.scores}

    @property
    def naming_columns(self) -> set[str]:
        """The columns of the file that name tasks, runs, agents, groups and splits."""
        return self._called("task", "id", "agent", "group", "split")

    @property
    def judging_columns(self) -> set[str]:
        """The columns that hold scores; for a log, all that hold opinions of a run."""
        said = getattr(self.source, "attrs", {}).get("judgements", ())
        return {*self._called("score", "again"), "score_used", *said}

    def _called(self, *fields: str) -> set[str]:
        """Return the file's names of some columns."""
        names = {**COLUMNS, **parse_columns(self.reading.get("columns", ""))}
        return set(matched(self.table.names, {names[one] for one in fields}).values())

    @property
    def alone(self) -> bool:
        """Whether the task of every row is the id of its run."""
        return self.trajectories is not None and bool(np.all(self.trajectories == self.tasks))

    @cached_property
    def named(self) -> bool:
        """Whether ids, or all columns together, distinguish rows that are otherwise alike."""
        if self.trajectories is not None:
            return True
        alike = len(set(zip(self.tasks.tolist(), self.scores.tolist(), strict=True))) < len(self)
        return (
            len(self.table.names) > _LEAST_COLUMNS and alike and _rows_differ(self.file_columns())
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a frame, under the platform's own column names."""
        import pandas as pd

        columns = {
            "score": self.scores,
            "again": self.again,
            "outcome": self.outcomes,
            "task": self.tasks,
            "id": self.trajectories,
            "agent": self.agents,
            "split": self.splits,
        }
        found = {COLUMNS[one]: values for one, values in columns.items() if values is not None}
        return pd.DataFrame(found)


def _rows_differ(columns: Mapping[str, NDArray[Any]]) -> bool:
    """Whether no two rows of a table are equal; a column that numbers its rows does not count."""
    texts = [list(map(str, values)) for values in columns.values()]
    numbers = [[str(place) for place in range(start, len(texts[0]) + start)] for start in (0, 1)]
    rows = list(zip(*(values for values in texts if values not in numbers), strict=True))
    return len(set(rows)) == len(rows)


def read_score_table(
    source: Any,
    reading: ReadingOptions | None = None,
    *,
    fields: Collection[str] = _FIELDS,
) -> ScoreTable:
    """Read and check a score table.

    Parameters
    ----------
    source : Path or frame
        CSV or TSV, Parquet, Arrow, JSON, JSON Lines or Excel, by its ending; or a frame.
    reading
        How to read it, where the table does not make that clear.
    fields
        Fields of the columns to read; others may hold anything.

    Raises
    ------
    InputError
        If anything is ambiguous or unreadable; it names every such column of the table.
    """
    reading = reading or ReadingOptions()
    needed = {"task", "score", *reading.columns}
    if reading.grouped is False:
        fields = [one for one in fields if one != "group"]
    elif reading.grouped and "outcome" in fields:
        # decisions need no tasks
        needed.add("group")
    read, found, there = _read(source, reading, fields, needed & set(fields), unique=True)
    scores, notes, scale = _scaled(read, there["score"], found["score"], reading)
    again = found.get("again")
    if again is not None and scale == PERCENT:
        again = again / 100
    if reading.lower_is_better:
        scores, notes = -scores, [*notes, "lower scores as better"]
        again = None if again is None else -again
    tasks, grouped = found.get("task", np.empty(0, dtype=np.object_)), 0
    if (groups := found.get("group")) is not None and tasks.size:
        grouped = _count_grouped(read.table, there["group"], tasks, groups)
        notes = [
            *notes,
            f"{grouped} tasks in {len(set(groups))} groups of {there['group']!r}; each group "
            "counts as one task",
        ]
        tasks = groups
    return ScoreTable(
        source,
        read.table,
        np.arange(len(read.table)),
        scores,
        tasks,
        found.get("outcome"),
        again,
        found.get("id"),
        found.get("agent"),
        found.get("split"),
        (*read.table.read_as, *read.notes, *notes),
        reading.provenance(there, scale, grouped),
    )


def _count_grouped(table: Table, column: str, tasks: Objects, groups: Objects) -> int:
    """Return the number of tasks; refuse one that lies in two groups."""
    group_of: dict[str, str] = {}
    for place, (task, group) in enumerate(zip(tasks.tolist(), groups.tolist(), strict=True)):
        if group_of.setdefault(task, group) != group:
            raise InputError(
                f"{table.path}, {table.row(place)}, column {column!r}: task {shown(task)} is in "
                f"the groups {shown(group_of[task])} and {shown(group)}. Give each task one group."
            )
    return len(group_of)


#: names of columns in tables of labels that are meant although they hold no word that tells
_EXACT = {"id": "id", "outcome": "target"}


class LabelRows(NamedTuple):
    """The rows of a table of labels; −1 means no outcome."""

    ids: Objects
    outcomes: NDArray[np.int8]
    # the outcomes as they are written
    written: list[Any]
    # None where the table names none
    annotators: Objects | None
    table: Table


def read_labels(path: Path, reading: ReadingOptions | None = None) -> LabelRows:
    """Read trajectory ids, outcomes and annotators, as a score table is read.

    Where a column has another name and only one can be meant, that one is read.
    """
    reading, needed = reading or ReadingOptions(), ("id", "outcome")
    fields = (*needed, "annotator")
    names = [name for name in read_table(path, set()).names if name]
    meant: dict[str, str] = {}
    for one in fields:
        # names that are given may be those of the score table
        given = reading.columns.get(one, COLUMNS[one])
        if not matched(names, {given, (reading.remembered or {}).get(one, given)}):
            exact = (*matched(names, {COLUMNS[one]}), *matched(names, {_EXACT.get(one, "")}))
            likely = likely_column(one, names, meant.values())
            meant |= {one: exact[0]} if exact else likely
    asked = replace(reading, columns={**reading.columns, **meant})
    read, found, there = _read(path, asked, fields, needed, unique=False)
    notes = (*renamed({COLUMNS[one]: name for one, name in meant.items()}), *read.notes)
    table = replace(read.table, read_as=(*read.table.read_as, *notes))
    written = table.values(there["outcome"])
    return LabelRows(found["id"], found["outcome"], written, found.get("annotator"), table)


def _read(
    source: Any,
    reading: ReadingOptions,
    fields: Collection[str],
    needed: Collection[str],
    *,
    unique: bool,
) -> tuple[ColumnReader, dict[str, NDArray[Any]], dict[str, str]]:
    """Read the columns of some fields; report all their faults at once.

    Returns the reader, and by field the columns and their names.
    """
    usual, before = {**COLUMNS, **reading.columns}, reading.remembered or {}
    wanted = {names[one] for names in (usual, before) for one in fields if one in names}
    table = read_table(source, wanted)
    # what is decided is written next to every column
    refuse_repeated(table.path, [name for name in table.names if name])
    names = {one: before[one] if before.get(one) in table.columns else usual[one] for one in fields}
    # a column that is named, as it is written, leaves no doubt
    usually = [COLUMNS[one] for one, column in names.items() if column == COLUMNS[one]]
    refuse_alike(table.path, table.names, usually)
    for one, column in reading.columns.items():
        if names.get(one, column) != column:
            raise InputError(
                f"{table.path} has the column {names[one]!r} that the certificate was issued on, "
                f"and --columns {one}={column} names another. Leave it out."
            )
    if {"score", "outcome"} <= names.keys() and names["score"] == names["outcome"]:
        raise InputError(
            f"Column {names['score']!r} of {table.path} cannot be both the score and the outcome. "
            "Name another column for one of them."
        )
    there = {one: column for one, column in names.items() if column in table.columns}
    lacking = [one for one in names if one in needed and one not in there]
    if lacking and "outcome" in names.keys() - there.keys() - {*lacking}:
        lacking.append("outcome")
    if not len(table) and not lacking:
        raise InputError(f"{table.path} has a header but no rows; write one row a trajectory.")
    read = ColumnReader(table, reading.settings)
    if lacking:
        read.lacks({one: names[one] for one in lacking})
    readers: dict[str, Callable[[str], NDArray[Any]]] = {
        "score": read.scores,
        "again": read.scores,
        # a later table may hold successes or failures alone
        "outcome": partial(read.outcomes, named=reading.remembered is None),
        "task": read.ids,
        "id": read.unique_ids if unique else read.ids,
        "agent": read.names,
        "group": read.ids,
        "split": read.names,
        "annotator": read.names,
    }
    order = counted("checking the columns", [one for one in readers if one in there])
    found = {one: readers[one](there[one]) for one in order}
    read.settle()
    return read, found, there


def _scaled(
    read: ColumnReader, column: str, scores: Floats, reading: ReadingOptions
) -> tuple[Floats, list[str], str]:
    """Bring scores to their declared scale.

    Returns the scores, a note of how they were read, and the scale that a certificate keeps.
    """
    low, high = np.nanmin(scores, initial=1), np.nanmax(scores, initial=0)
    if reading.score_scale == "probability":
        # 8.7 of a hundred and of ten look alike
        if low < 0 or high > 100 or 1 < high <= 10:
            place = int(np.nanargmin(scores) if low < 0 else np.nanargmax(scores))
            problem = (
                f": {scores[place]:g} is neither a probability nor a percentage. Leave "
                "score_scale out, or correct the score."
            )
            read.refuse(column, [place], problem)
            raise ScoreScaleError(read.problems, {})
        if high > 1:
            return scores / 100, ["scores in percent, divided by 100"], PERCENT
    if reading.score_scale is None and low >= 0 and 10 < high <= 100:
        percent = "--set score_scale=probability takes them for percentages"
        return scores, [f"scores up to {high:g} as they are ({percent})"], ""
    return scores, [], ""


NOT_STATED = {
    "code": "provenance_not_stated",
    "message": (
        "The table has no column provenance, audit_sample or asked, so two things are taken on "
        "trust. Its tasks were drawn at random before scoring, with all their attempts. None of "
        "its labels is from the review queue."
    ),
}
#: what columns say of rows that are drawn at random
_AUDIT_SAMPLE = {
    "provenance": {"audit_sample"},
    "audit_sample": {"true", "1", "1.0", "yes"},
    "asked": {"audit_sample"},
}


def require_audit_sample(source: Any, places: Integers | None = None) -> bool:
    """Refuse rows that are not an audit sample; return whether the table says where its rows come
    from.

    All rows are checked, or those at `places`.
    """
    table = read_table(source, _AUDIT_SAMPLE.keys())
    for name in table.columns:
        values = table.values(name)
        for place in range(len(values)) if places is None else places.tolist():
            value = values[place]
            if re.sub("[ -]", "_", str(value).strip().lower()) not in _AUDIT_SAMPLE[name]:
                raise InputError(
                    f"{table.path}, {table.row(place)}, column {name!r}: {shown(value)} is not an "
                    "audit sample. Labels from the review queue are of runs that the judge could "
                    "not decide. Give only tasks drawn at random before scoring, with all their "
                    "attempts."
                )
    return bool(table.columns)
