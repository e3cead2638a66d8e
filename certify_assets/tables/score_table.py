"""Score tables, read and checked; what is refused is named with file, row and column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats, Objects
from certify_assets.errors import InputError
from certify_assets.tables.columns import PERCENT_SIGNS, ColumnReader
from certify_assets.tables.reading import read_table
from certify_assets.tables.settings import (
    COLUMNS,
    PERCENT,
    IssuedReading,
    ReadingOptions,
    ScoreReading,
    parse_columns,
    scale_words,
    written_columns,
)
from certify_assets.tables.table import (
    Rows,
    ScoreScaleError,
    Table,
    TableError,
    likely_column,
    matched,
    refuse_repeated,
    renamed,
    shown,
)
from certify_assets.work import counted

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates.inputs import ScoreRange

# 8.7 of a hundred and of ten look alike
_DOUBTFUL = (PERCENT, "0 to 10")
# task, score and outcome
_LEAST_COLUMNS = 3
#: attributes of a score table by the fields of its columns
_ATTRIBUTES = {
    "score": "scores",
    "again": "again",
    "outcome": "outcomes",
    "task": "tasks",
    "id": "trajectories",
    "agent": "agents",
    "split": "splits",
}
_ALL_FIELDS = tuple(name for name in COLUMNS if name != "annotator")


class Doubt(NamedTuple):
    """Why scores may not be those of a judge; `sure` where they are refused."""

    sentence: str
    # what --set score_scale would say if they are
    option: str
    sure: bool


@dataclass(frozen=True)
class ScoreTable:
    """A validated score table; a column that the file lacks is None."""

    path: Path
    # the file or the frame
    source: Any
    # NaN where unscored; never infinite
    scores: Floats
    tasks: Objects
    rows: Rows
    # all columns that the file has, as it calls them
    found: tuple[str, ...]
    # 0 or 1, −1 where missing
    outcomes: NDArray[np.int8] | None = None
    # second scores of the same judge, NaN where there is none
    again: Floats | None = None
    trajectories: Objects | None = None
    agents: Objects | None = None
    splits: Objects | None = None
    # what was understood that is not as a score table has it
    read_as: tuple[str, ...] = ()
    # how the scores are read, for the certificate
    reading: ScoreReading = field(default_factory=ScoreReading)
    # the scale of the scores as they are written, where it may be of grades or percentages
    written: str = ""
    # rows that were left out for want of an outcome
    left_out: int = 0

    def __len__(self) -> int:
        return int(self.scores.size)

    @property
    def score_range(self) -> ScoreRange | None:
        """The range of its scores, None without any."""
        from certify_assets.certificates.inputs import score_range

        scored = np.sort(self.scores[np.isfinite(self.scores)])
        return score_range(scored) if scored.size else None

    def options_of_more(self, asked: ReadingOptions) -> ReadingOptions:
        """Return options that read further scores of the judge as these were; refuse others."""
        issued = IssuedReading(str(self.path), self.reading, self.score_range, "has")
        return replace(asked, columns={}).under(issued)

    def doubt(self, issued: IssuedReading) -> Doubt | None:
        """Say how the scores are unlike those of a certificate."""
        from certify_assets.certificates.scale import scale_fault

        own, scale = f"{issued.name} {issued.verb}", issued.reading.score_scale
        same = "Give scores of the same judge on the same scale"
        # the range of scores tells of others
        divided = self.reading.score_scale == PERCENT and scale not in ("", PERCENT)
        if divided or (scale, self.written) == _DOUBTFUL:
            found = scale_words(self.written) or "scores up to 1"
            option = {"": "probability or log-odds", PERCENT: "probability"}.get(scale, "log-odds")
            return Doubt(
                f"{self.path} has {found}, and {own} {issued.reading.words}. {same}", option, True
            )
        if issued.scores is None:
            return None
        tasks = len(set(self.tasks.tolist())) or self.scores.size
        fault = scale_fault(issued.scores, self.scores, tasks)
        if fault is None:
            return None
        low, middle, high = np.nanquantile(self.scores, (0, 0.5, 1))
        least, most = issued.scores["low"], issued.scores["high"]
        percentages = low >= 0 and 1 < high <= 100 and least >= 0 and most <= 1
        return Doubt(
            f"{self.path} has scores from {low:.4g} to {high:.4g} (median {middle:.4g}), and "
            f"{own} scores from {least:.4g} to {most:.4g} (median "
            f"{issued.scores['quantiles'][2]:.4g}): {fault.reason}. {same}",
            "probability" if percentages or scale == PERCENT else "log-odds",
            fault.sure,
        )

    def choose_split(self, wanted: str | None, *more: str, required: bool = False) -> ScoreTable:
        """Return the rows of one split or more; all rows where there is none, or none is wanted."""
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
        """Return the rows where `keep` is true, or those at its places."""
        kept = {name: values[keep] for name, values in self._columns.items()}
        return replace(self, rows=self.rows.take(keep), **kept)

    @property
    def _columns(self) -> dict[str, Any]:
        columns = {name: getattr(self, name) for name in _ATTRIBUTES.values()}
        return {name: values for name, values in columns.items() if values is not None}

    def labelled(self) -> ScoreTable:
        """Return the table with an outcome in every row; refuse one that lacks any.

        Rows without an outcome are left out where the settings say so.
        """
        if self.outcomes is None:
            raise TableError(
                [
                    f"{self.path} has no outcome column; its columns are "
                    f"{', '.join(self.found[:12])}. Name the one with 0 and 1 with --columns "
                    "outcome=NAME."
                ],
                likely_column("outcome", self.found),
            )
        missing = np.flatnonzero(self.outcomes < 0)
        if not missing.size:
            return self
        rows = f"{missing.size:,} row{'s' * (missing.size > 1)}"
        if missing.size == len(self):
            raise InputError(f"{self.path} has no outcome in any row. Label its runs first.")
        if not self.reading.settings.unlabelled:
            raise TableError(
                [
                    f"{self.path}, {self.rows.name(int(missing[0]))} has no outcome ({rows} in "
                    "all). Label each, or leave these rows out with --set unlabelled=drop."
                ],
                {"unlabelled": "drop"},
            )
        kept = self.take(self.outcomes >= 0)
        notes = (*self.read_as, f"{rows} without an outcome left out")
        return replace(kept, read_as=notes, left_out=int(missing.size))

    @property
    def labels(self) -> NDArray[np.int8]:
        """The outcomes of a table that has them all."""
        outcomes = self.labelled().outcomes
        assert outcomes is not None
        return outcomes

    def file_columns(self) -> dict[str, NDArray[Any]]:
        """Return every column of the file in its order, and scores that were read as others."""
        table = read_table(self.source, {name for name in self.found if name})
        places = self.rows.numbers - 1
        # a frame may have columns whose names are no text
        found = {name: table.columns[name][places] for name in self.found if name in table.columns}
        if self.reading.lower_is_better or self.reading.score_scale == PERCENT:
            return {**found, "score_used": self.scores}
        return {**found, next(iter(self._called("score"))): self.scores}

    @property
    def naming_columns(self) -> set[str]:
        """The columns of the file that name tasks, runs, agents, groups and splits."""
        return self._called("task", "id", "agent", "group", "split")

    def _called(self, *fields: str) -> set[str]:
        """Return what the file calls the columns of some fields."""
        names = {**COLUMNS, **parse_columns(self.reading.columns)}
        wanted = {names[one] for one in fields}
        return set(matched([name for name in self.found if name], wanted).values())

    @property
    def alone(self) -> bool:
        """Whether the task of every row is the id of its run."""
        return self.trajectories is not None and bool(np.all(self.trajectories == self.tasks))

    @cached_property
    def named(self) -> bool:
        """Whether ids, or all columns together, tell rows apart that are alike otherwise."""
        if self.trajectories is not None:
            return True
        alike = len(set(zip(self.tasks.tolist(), self.scores.tolist(), strict=True))) < len(self)
        return len(self.found) > _LEAST_COLUMNS and alike and _rows_differ(self.file_columns())

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a frame, under the platform's own column names."""
        import pandas as pd

        names = {attribute: COLUMNS[one] for one, attribute in _ATTRIBUTES.items()}
        return pd.DataFrame(self._columns).rename(columns=names)


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
    fields: Collection[str] = _ALL_FIELDS,
) -> ScoreTable:
    """Read and check a score table.

    Parameters
    ----------
    source : Path or frame
        CSV or TSV, Parquet, Arrow, JSON, JSON Lines or Excel, by its ending; or a frame.
    reading
        How it is to be read, where that is not clear from the table.
    fields
        Fields of the columns that are read; others may hold anything.

    Raises
    ------
    InputError
        Where anything can be read in two ways, or not at all: every such thing of the table.
    """
    reading = reading or ReadingOptions()
    named = {"task", "score", *reading.columns} - {"outcome"}
    if reading.grouped is False:
        fields = [one for one in fields if one != "group"]
    elif reading.grouped and "outcome" in fields:
        # decisions need no tasks
        named.add("group")
    read, found, there = _read(source, reading, fields, named & set(fields), unique=True)
    scores, notes, scale, written = _scaled(read, there["score"], found.pop("score"), reading)
    if (again := found.get("again")) is not None:
        percentages = scale == PERCENT and PERCENT_SIGNS not in read.notes
        again = again / 100 if percentages else again
        found["again"] = -again if reading.lower_is_better else again
    grouped, tasks = 0, found.pop("task", np.empty(0, dtype=np.object_))
    if (groups := found.pop("group", None)) is not None and tasks.size:
        grouped = _count_grouped(read.table, there["group"], tasks, groups)
        notes.append(
            f"{grouped} tasks in {len(set(groups))} groups of {there['group']!r}, each of which "
            "counts as one task"
        )
        tasks = groups
    if lower := reading.lower_is_better:
        notes.append("lower scores as better")
    return ScoreTable(
        path=read.table.path,
        source=source,
        scores=-scores if lower else scores,
        tasks=tasks,
        rows=read.table.rows,
        found=tuple(read.table.names),
        read_as=(*read.table.read_as, *read.notes, *notes),
        reading=ScoreReading(scale, lower, read.settings, written_columns(there), grouped),
        written=written,
        left_out=0,
        **{_ATTRIBUTES[one]: values for one, values in found.items()},
    )


def _count_grouped(table: Table, column: str, tasks: Objects, groups: Objects) -> int:
    """Return the number of tasks; refuse one that lies in two groups."""
    group_of: dict[str, str] = {}
    for place, (task, group) in enumerate(zip(tasks.tolist(), groups.tolist(), strict=True)):
        if group_of.setdefault(task, group) != group:
            raise InputError(
                f"{table.path}, {table.rows.name(place)}, column {column!r}: task {shown(task)} "
                f"is in the groups {shown(group_of[task])} and {shown(group)}. Give each task one "
                "group."
            )
    return len(group_of)


class LabelRows(NamedTuple):
    """The rows of a table of labels: −1 where there is no outcome."""

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
            plain = matched(names, {COLUMNS[one]})
            meant |= {one: COLUMNS[one]} if plain else likely_column(one, names, meant.values())
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
    """Read the columns of some fields; refuse all that is wrong with them at once.

    Returns the reader, and by field the columns and their names.
    """
    usual, before = {**COLUMNS, **reading.columns}, reading.remembered or {}
    wanted = {names[one] for names in (usual, before) for one in fields if one in names}
    table = read_table(source, wanted)
    # what is decided is written next to every column
    refuse_repeated(table.path, [name for name in table.names if name])
    names = {one: before[one] if before.get(one) in table.columns else usual[one] for one in fields}
    for one, column in reading.columns.items():
        if names.get(one, column) != column:
            raise InputError(
                f"{table.path} has the column {names[one]!r} that the certificate was issued on, "
                f"and --columns {one}={column} names another. Leave it out."
            )
    there = {one: column for one, column in names.items() if column in table.columns}
    lacking = [one for one in names if one in needed and one not in there]
    if not len(table) and not lacking:
        raise InputError(f"{table.path} has a header but no rows; write one row a trajectory.")
    read = ColumnReader(table, reading.settings)
    for one in lacking:
        read.lacks(one, names[one])
    readers: dict[str, Callable[[str], NDArray[Any]]] = {
        "score": read.scores,
        "again": read.scores,
        # a later table may hold successes or failures alone
        "outcome": partial(read.outcomes, named=reading.remembered is None),
        "task": read.ids,
        "id": partial(read.ids, unique=unique),
        "agent": read.names,
        "group": read.ids,
        "split": read.names,
        "annotator": read.names,
    }
    order = counted("checking the columns", [one for one in readers if one in there])
    found = {one: readers[one](there[one]) for one in order}
    # so that it counts only where all else is mended
    mended = len(read.remedies) >= len(read.problems) > 0
    if mended and "outcome" in fields and "outcome" not in there:
        read.remedies |= read.likely("outcome")
    read.settle()
    return read, found, there


def _scaled(
    read: ColumnReader, column: str, scores: Floats, reading: ReadingOptions
) -> tuple[Floats, list[str], str, str]:
    """Bring scores to the scale that they are said to have.

    Returns them with what was understood, the scale that a certificate keeps, and the scale on
    which they seem to be written.
    """
    asked = reading.score_scale
    low, high = np.nanmin(scores, initial=1), np.nanmax(scores, initial=0)
    if asked == "probability" and (low < 0 or high > 100):
        place = int(np.flatnonzero((scores < 0) | (scores > 100))[0])
        read.refuse(
            column,
            [place],
            f": {scores[place]:g} is neither a probability nor a percentage; leave score_scale "
            "out, or correct the score.",
        )
        try:
            read.settle()
        except TableError as error:
            raise ScoreScaleError(error.problems, error.options) from None
    # ends of scales on which scores are given that are neither probabilities nor log-odds
    ends = (end for end in (10, 100) if low >= 0 and 1 < high <= end)
    written = next((f"0 to {end}" for end in ends), "")
    if written and asked == "probability":
        return scores / 100, ["scores in percent, divided by 100"], PERCENT, written
    notes = []
    if written and asked is None:
        notes = [
            f"scores up to {high:g} as they are (--set score_scale=probability takes them for "
            "percentages)"
        ]
    return scores, notes, PERCENT if PERCENT_SIGNS in read.notes else written, written


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


def require_audit_sample(path: Path) -> bool:
    """Refuse labels that are no audit sample; return whether the table says where they are from."""
    read = ColumnReader(read_table(path, _AUDIT_SAMPLE.keys()))
    for name in read.table.columns:
        values = read.table.values(name)
        words = [str(value).strip().lower().replace(" ", "_").replace("-", "_") for value in values]
        other = [place for place, word in enumerate(words) if word not in _AUDIT_SAMPLE[name]]
        if other:
            read.refuse(
                name,
                other[:1],
                f": {shown(values[other[0]])} is no audit sample ({len(other)} of {len(values)} "
                "rows are none). Labels from the review queue are of what the judge could not "
                "decide. Give only tasks drawn at random before scoring, with all their attempts.",
            )
    read.settle()
    return bool(read.table.columns)
