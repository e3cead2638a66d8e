"""Score tables, read and checked; what is refused is named with file, row and column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.evaluation.score_reading import (
    COLUMNS,
    PERCENT,
    ScoreReading,
    parse_columns,
    written_columns,
)
from certify_assets.tables.cells import shown
from certify_assets.tables.columns import ColumnReader
from certify_assets.tables.reading import read_table
from certify_assets.tables.settings import TableSettings
from certify_assets.tables.table import Rows, Table, TableError, likely_column, matched
from certify_assets.work import counted

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates.inputs import ScoreRange

# task, score and outcome
_LEAST_COLUMNS = 3
#: attributes of a score table by the fields of its columns
_ATTRIBUTES = {
    "score": "scores",
    "outcome": "outcomes",
    "task": "tasks",
    "id": "trajectories",
    "agent": "agents",
    "split": "splits",
}


@dataclass(frozen=True)
class ScoreTable:
    """A validated score table; a column that the file lacks is None."""

    path: Path
    # NaN where unscored; never infinite
    scores: NDArray[np.float64]
    tasks: NDArray[np.object_]
    # 0 or 1, −1 where missing
    outcomes: NDArray[np.int8] | None = None
    trajectories: NDArray[np.object_] | None = None
    agents: NDArray[np.object_] | None = None
    splits: NDArray[np.object_] | None = None
    rows: Rows = field(default_factory=lambda: Rows(np.empty(0, dtype=np.int64)))
    # what was understood that is not as a score table has it
    read_as: tuple[str, ...] = ()
    # all columns that the file has, as it calls them
    found: tuple[str, ...] = ()
    # how the scores are read, for the certificate
    reading: ScoreReading = field(default_factory=ScoreReading)
    # the scale of the scores as they are written, where it may be of grades or percentages
    written: str = ""

    def __len__(self) -> int:
        return int(self.scores.size)

    @property
    def score_range(self) -> ScoreRange | None:
        """The range of its scores, None without any."""
        from certify_assets.certificates.inputs import score_range

        scored = np.sort(self.scores[np.isfinite(self.scores)])
        return score_range(scored) if scored.size else None

    def choose_split(self, wanted: str | None, *more: str, required: bool = False) -> ScoreTable:
        """Return the rows of one split or more; all rows where there is none, or none is wanted."""
        if required and wanted is not None and self.splits is None:
            raise InputError(
                f"{self.path} has no split column to choose split={wanted!r} by; add one, or "
                "leave --split out."
            )
        if self.splits is None or wanted is None:
            return self
        keep = np.isin(self.splits.astype(str), (wanted, *more))
        if not keep.any():
            found = sorted(set(self.splits.tolist()))
            raise InputError(
                f"{self.path} has no row with split={wanted!r}; splits found: {', '.join(found)}. "
                "Give a table that has it or leave the column out."
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

    def negated(self) -> ScoreTable:
        """Return the rows with scores of which lower ones were better."""
        reading = replace(self.reading, lower_is_better=True)
        return replace(self, scores=-self.scores, reading=reading)

    def labelled(self) -> ScoreTable:
        """Return the table with an outcome in every row; refuse one that lacks any.

        Rows without an outcome are left out where the settings say so.
        """
        if self.outcomes is None:
            columns = f"; its columns are {', '.join(self.found[:12])}" if self.found else ""
            likely = likely_column("outcome", self.found, ())
            raise TableError(
                [
                    f"{self.path} has no outcome column{columns}. Name the one with 0 and 1 with "
                    "--columns outcome=NAME."
                ],
                {} if likely is None else {"outcome": likely},
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
        return replace(kept, read_as=(*self.read_as, f"{rows} without an outcome left out"))

    @property
    def labels(self) -> NDArray[np.int8]:
        """The outcomes of a table that has them all."""
        outcomes = self.labelled().outcomes
        assert outcomes is not None
        return outcomes

    def file_columns(self) -> dict[str, NDArray[Any]]:
        """Return every column of the file in its order, and scores that were read as others."""
        names = [name for name in self.found if name]
        table = read_table(self.path, set(names))
        places = np.searchsorted(table.rows.numbers, self.rows.numbers)
        found = {name: table.columns[name][places] for name in names}
        if self.reading.lower_is_better or self.reading.scale == PERCENT:
            return {**found, "score_used": self.scores}
        return {**found, next(iter(self._called("score"))): self.scores}

    @property
    def naming_columns(self) -> set[str]:
        """The columns of the file that name tasks, runs, agents and splits."""
        return self._called("task", "id", "agent", "split")

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
        """Whether the columns of the file tell every row from the others."""
        return self.tells_rows(self.file_columns)

    def tells_rows(self, columns: Callable[[], Mapping[str, Iterable[Any]]]) -> bool:
        """Whether ids, or all columns together, tell rows apart that are alike otherwise."""
        if self.trajectories is not None:
            return True
        alike = len(set(zip(self.tasks.tolist(), self.scores.tolist(), strict=True))) < len(self)
        return len(self.found) > _LEAST_COLUMNS and alike and _rows_differ(columns())

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a frame, under the platform's own column names."""
        import pandas as pd

        names = {attribute: COLUMNS[one] for one, attribute in _ATTRIBUTES.items()}
        return pd.DataFrame(self._columns).rename(columns=names)


def _rows_differ(columns: Mapping[str, Iterable[Any]]) -> bool:
    """Whether no two rows of a table are equal; a column that numbers its rows does not count."""
    texts = [list(map(str, values)) for values in columns.values()]
    numbers = [[str(place) for place in range(start, len(texts[0]) + start)] for start in (0, 1)]
    rows = list(zip(*(values for values in texts if values not in numbers), strict=True))
    return len(set(rows)) == len(rows)


def read_score_table(
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    remembered: Mapping[str, str] | None = None,
    outcomes: bool = True,
    settings: TableSettings | None = None,
    score_scale: str | None = None,
) -> ScoreTable:
    """Read and check a table, maybe under other names of columns.

    Parameters
    ----------
    path
        CSV or TSV, Parquet, Arrow, JSON, JSON Lines or Excel, by its ending.
    columns
        What its columns are called, by the fields of `COLUMNS`; upper and lower case, spaces and
        hyphens count for nothing.
    remembered
        What they were called in an earlier table; where this one lacks such a column, it has the
        name that it has in most tables.
    outcomes
        Whether the column of outcomes is read; else it may hold whatever it does.
    settings
        How outcomes and ids are read. By default 0 and 1, yes and no, true and false, pass and
        fail and the like are outcomes.
    score_scale
        "probability" where scores are from 0 to 1, or percentages, which are divided by 100;
        "log-odds" where they are any number. By default they are taken as they are.

    Raises
    ------
    InputError
        Where anything can be read in two ways, or not at all: every such thing of the file.

    """
    fields = [name for name in COLUMNS if outcomes or name != "outcome"]
    read, names = _opened(path, fields, columns or {}, remembered or {}, settings)
    needed = {"task", "score", *(columns or {})} - {"outcome"}
    return _score_table(read, names, needed, score_scale, first=remembered is None)


def frame_table(
    table: Table,
    columns: Mapping[str, str],
    settings: TableSettings,
    score_scale: str | None = None,
) -> ScoreTable:
    """Check the columns of a frame, `columns` being their names by field."""
    needed = {"task", "score", *columns} - {"outcome"}
    read = ColumnReader(table, settings)
    return _score_table(read, {**COLUMNS, **columns}, needed, score_scale)


def frame_scores(table: Table, name: str, score_scale: str | None = None) -> ScoreTable:
    """Return the scores of a frame without tasks, whatever else it has."""
    # as in files, a column that is not there has the name that it has in most tables
    name = name if name in table.columns else COLUMNS["score"]
    return _score_table(ColumnReader(table), {"score": name}, {"score"}, score_scale)


def read_labels(
    path: Path,
    columns: Mapping[str, str] | None = None,
    remembered: Mapping[str, str] | None = None,
    settings: TableSettings | None = None,
) -> tuple[NDArray[np.object_], NDArray[np.int8], Table]:
    """Read trajectory ids and their outcomes, −1 where there is none, as a score table is read."""
    fields = ("id", "outcome")
    read, names = _opened(path, fields, columns or {}, remembered or {}, settings)
    found = _checked(read, names, fields, first=remembered is None, unique=False)
    notes = (*read.table.read_as, *read.notes.get(names["outcome"], ()))
    return found["id"], found["outcome"], replace(read.table, read_as=notes)


def _opened(
    path: Path,
    fields: Collection[str],
    asked: Mapping[str, str],
    before: Mapping[str, str],
    settings: TableSettings | None,
) -> tuple[ColumnReader, dict[str, str]]:
    """Read the columns of some fields; those of an earlier table count where they are there."""
    usual = {**COLUMNS, **asked}
    possible = {names[one] for names in (usual, before) for one in fields if one in names}
    table = read_table(path, possible)
    there = {one: column for one, column in before.items() if column in table.columns}
    for one, column in there.items():
        if asked.get(one, column) != column:
            raise InputError(
                f"{path} has the column {column!r} that the certificate was issued on, and "
                f"--columns {one}={asked[one]} names another. Leave it out."
            )
    names = {**usual, **there}
    return ColumnReader(table, settings), {one: names[one] for one in fields}


def _checked(
    read: ColumnReader,
    names: Mapping[str, str],
    needed: Collection[str],
    *,
    first: bool,
    unique: bool = True,
) -> dict[str, NDArray[Any]]:
    """Read the columns of some fields; refuse all that is wrong with them at once."""
    columns = read.table.columns
    if not len(read.table) and all(names[one] in columns for one in needed):
        raise InputError(f"{read.table.path} has a header but no rows; write one row a trajectory.")
    for one in names:
        if one in needed and names[one] not in columns:
            read.lacks(one, names[one])
    readers: dict[str, Callable[[str], NDArray[Any]]] = {
        "score": read.scores,
        "outcome": partial(read.outcomes, named=first),
        "task": read.ids,
        "id": partial(read.ids, unique=unique),
        "agent": read.names,
        "split": read.names,
    }
    there = [one for one in readers if names.get(one) in columns]
    found = {one: readers[one](names[one]) for one in counted("checking the columns", there)}
    if read.problems and "outcome" not in there:
        read.remedies |= read.likely("outcome")
    read.settle()
    return found


def _score_table(
    read: ColumnReader,
    names: Mapping[str, str],
    needed: Collection[str],
    scale: str | None,
    *,
    first: bool = True,
) -> ScoreTable:
    """Check the columns of a table; bring its scores to the scale that they are said to have."""
    found, table = _checked(read, names, needed, first=first), read.table
    low, high = np.nanmin(found["score"], initial=1), np.nanmax(found["score"], initial=0)
    if scale == "probability" and (low < 0 or high > 100):
        place = int(np.flatnonzero((found["score"] < 0) | (found["score"] > 100))[0])
        read.refuse(
            names["score"],
            [place],
            f": {found['score'][place]:g} is neither a probability nor a percentage; leave "
            "--score-scale out, or correct the score.",
        )
        read.settle()
    said = {one: read.notes.get(names[one], []) for one in found}
    notes = [note for one in said for note in said[one]]
    percent = any("percent" in note for note in said["score"])
    if low >= 0 and 1 < high <= 100 and scale == "probability":
        found["score"] = found["score"] / 100
        notes.append("scores in percent, divided by 100")
        percent = True
    elif low >= 0 and 1 < high <= 100 and scale is None:
        notes.append(
            f"scores up to {high:g} as they are (--score-scale probability takes them for "
            "percentages)"
        )
    # ends of scales on which scores are given that are neither probabilities nor log-odds
    ends = (end for end in (10, 100) if low >= 0 and 1 < high <= end)
    written = next((f"0 to {end}" for end in ends), "")
    there = {one: names[one] for one in found}
    return ScoreTable(
        path=table.path,
        tasks=found.pop("task", np.empty(0, dtype=np.object_)),
        rows=table.rows,
        read_as=(*table.read_as, *notes),
        found=tuple(table.names),
        reading=ScoreReading(
            scale=PERCENT if percent else "" if scale == "probability" else written,
            settings=read.settings,
            columns=written_columns(there),
        ),
        written=written,
        **{_ATTRIBUTES[one]: values for one, values in found.items()},
    )


PROVENANCE_COLUMNS = ("provenance", "audit_sample", "asked")
NOT_STATED = {
    "code": "provenance_not_stated",
    "message": (
        "The table has no column provenance, audit_sample or asked: that its tasks were drawn at "
        "random before scoring, with all their attempts, and hold no label from the review queue "
        "is taken on trust."
    ),
}
_TRUE = frozenset({"true", "1", "1.0", "yes"})


def require_audit_sample(path: Path) -> bool:
    """Refuse labels that are no audit sample; return whether the table says where they are from."""
    read = ColumnReader(read_table(path, set(PROVENANCE_COLUMNS)))
    for name in read.table.columns:
        values = read.table.values(name)
        other = [index for index, value in enumerate(values) if not _is_audit_sample(name, value)]
        if other:
            read.refuse(
                name,
                other[:1],
                f": {shown(values[other[0]])} is no audit sample ({len(other)} of {len(values)} "
                "rows are none); labels from the review queue are of what the judge could not "
                "decide, so give only tasks drawn at random before scoring, with all their "
                "attempts.",
            )
    read.settle()
    return bool(read.table.columns)


def _is_audit_sample(column: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if column == "asked":
        return text in {"audit_sample", "spot_check"}
    return (
        text in _TRUE
        if column == "audit_sample"
        else text.replace(" ", "_").replace("-", "_") == "audit_sample"
    )
