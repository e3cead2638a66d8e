"""Score tables, read and checked; what is refused is named with file, row and column."""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.evaluation.table_files import (
    Columns,
    Rows,
    Texts,
    read_columns,
    read_pieces,
    read_rows,
    rows_of,
    texts_of,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_MISSING_TEXT = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
_MISSING_ID = frozenset({"", "nan", "<na>"})
_LONGEST_MISSING = max(map(len, _MISSING_ID))
_ID_TYPES = (
    str,
    int,
    float,
    np.integer,
    np.floating,
    decimal.Decimal,
    datetime.date,
    datetime.time,
)
_Array = TypeVar("_Array", bound=npt.NDArray[Any])
#: columns of a frame by the fields of a score table
_FRAME_NAMES = {
    "scores": "score",
    "outcomes": "outcome",
    "tasks": "task_id",
    "trajectories": "trajectory_id",
    "agents": "agent",
    "splits": "split",
}
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class ColumnNames:
    """How the columns of a score table are called."""

    task: str = "task_id"
    score: str = "score"
    outcome: str = "outcome"
    trajectory: str = "trajectory_id"
    agent: str = "agent"
    split: str = "split"


@dataclass(frozen=True)
class ScoreTable:
    """A validated score table; a column that the file lacks is None."""

    path: Path
    # NaN where unscored; never infinite
    scores: npt.NDArray[np.float64]
    # 0 or 1, −1 where missing
    outcomes: npt.NDArray[np.int8] | None
    tasks: npt.NDArray[np.object_]
    trajectories: npt.NDArray[np.object_] | None = None
    agents: npt.NDArray[np.object_] | None = None
    splits: npt.NDArray[np.object_] | None = None
    # as `Rows` has them
    rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    lines: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return int(self.scores.size)

    def choose_split(self, wanted: str | None, *more: str, required: bool = False) -> ScoreTable:
        """Return the rows of one split or more; all rows where there is none, or none is wanted."""
        if required and wanted is not None and self.splits is None:
            raise InputError(
                f"{self.path} has no split column to choose split={wanted!r} by; add one, or "
                "leave --split out."
            )
        if self.splits is None or wanted is None:
            return self
        keep = np.logical_or.reduce([self.splits == name for name in (wanted, *more)]).astype(bool)
        if not keep.any():
            raise no_such_split(self.path, wanted, {str(name) for name in self.splits})
        return self.take(keep)

    def take(self, keep: npt.NDArray[np.bool_ | np.int64]) -> ScoreTable:
        """Return the rows where `keep` is true, or those at its places."""
        columns = {name: getattr(self, name) for name in (*_FRAME_NAMES, "rows", "lines")}
        return replace(
            self, **{name: value[keep] for name, value in columns.items() if value is not None}
        )

    def labelled(self) -> npt.NDArray[np.int8]:
        """Return the outcomes, all 0 or 1; refuse a table that lacks any."""
        if self.outcomes is None:
            raise InputError(
                f"{self.path} has no outcome column; certification and audits need one with 0 "
                "and 1 (or name it with --outcome-col)."
            )
        missing = np.flatnonzero(self.outcomes < 0)
        if missing.size:
            raise no_outcome(self.path, self.row_name(int(missing[0])), missing.size)
        return self.outcomes

    def row_name(self, index: int) -> str:
        """Name a row as a reader finds it in the file."""
        return Rows(self.rows, self.lines).name(index)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the table under the platform's own column names."""
        columns = {name: getattr(self, field) for field, name in _FRAME_NAMES.items()}
        return {name: value for name, value in columns.items() if value is not None}

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a frame, under the platform's own column names."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def to_arrow(self) -> pa.RecordBatch:
        """Return the columns, with the places of the rows in their file."""
        import pyarrow as pa

        columns = {name: getattr(self, name) for name in (*_FRAME_NAMES, "rows")}
        text = pa.large_string()
        return pa.record_batch(
            {
                name: pa.array(values, type=text if values.dtype == object else None)
                for name, values in columns.items()
                if values is not None
            }
        )

    @classmethod
    def from_arrow(cls, path: Path, rows: pa.RecordBatch | pa.Table) -> ScoreTable:
        """Build from columns that `to_arrow` made."""
        found: dict[str, Any] = {"outcomes": None}
        for name in rows.schema.names:
            column = rows[name].combine_chunks() if hasattr(rows[name], "chunks") else rows[name]
            plain = name in ("scores", "outcomes", "rows")
            found[name] = column.to_numpy() if plain else texts_of(column).rows()
        return cls(path, **found)


def no_such_split(path: Path, wanted: str, found: Collection[str]) -> InputError:
    """Return the error of a table that has no row of a split."""
    return InputError(
        f"{path} has no row with split={wanted!r}; splits found: "
        f"{', '.join(sorted(found)) or 'none'}. Give a table that has it or leave the column out."
    )


def no_outcome(path: Path, row: str, missing: int) -> InputError:
    """Return the error of a table with rows that have no outcome."""
    return InputError(
        f"{path}, {row} has no outcome ({missing} rows have none); label the row as 0 or 1 or "
        "leave it out."
    )


def id_used_twice(path: Path, row: str, column: str, label: str, other: str) -> InputError:
    """Return the error of a trajectory id that another row has too."""
    return InputError(
        f"{path}, {row}, column {column!r}: {_shown(label)} was already used in {other}; give "
        "every trajectory its own id, or leave the column out."
    )


def read_score_table(
    path: Path, *, columns: ColumnNames | None = None, outcomes: bool = True
) -> ScoreTable:
    """Read and check a CSV, Parquet or JSON Lines file, maybe under other names of columns.

    Without ``outcomes`` the column of outcomes is left unread, whatever it holds.
    """
    names = columns or ColumnNames()
    wanted, numbers = _wanted(path, names)
    if not outcomes:
        wanted.discard(names.outcome)
    return _checked(path, names, *read_columns(path, wanted, numbers))


def score_table_pieces(path: Path, names: ColumnNames, size: int) -> Iterator[ScoreTable]:
    """Go through a Parquet file as `read_score_table` reads it, a number of rows at a time.

    That a trajectory id occurs once is checked within a piece only.
    """
    wanted, numbers = _wanted(path, names)
    empty = True
    for found, raw, rows in read_pieces(path, wanted, numbers, size):
        yield _checked(path, names, found, raw, rows)
        empty = False
    if empty:
        raise _no_rows(path)


def _no_rows(path: Path) -> InputError:
    return InputError(f"{path} has a header but no rows; write one row a trajectory.")


def _wanted(path: Path, names: ColumnNames) -> tuple[set[str], set[str]]:
    """Return the columns of a score table, and those of numbers among them."""
    _refuse_one_column_twice(path, names)
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(
            f"{path} is empty; write the columns {names.task}, {names.score} and {names.outcome} "
            "with one row a trajectory."
        )
    wanted = {getattr(names, entry.name) for entry in fields(names)}
    others = {names.task, names.trajectory, names.agent, names.split}
    return wanted, {names.score, names.outcome} - others


def _checked(
    path: Path, names: ColumnNames, found: list[str], raw: Columns, rows: Rows
) -> ScoreTable:
    for name in (names.task, names.score):
        if name not in raw:
            shown = ", ".join(found[:12])
            raise InputError(
                f"{path} has no column {name!r}; its columns are {shown}; rename one or name it "
                "with --task-col or --score-col."
            )
    if not len(rows.numbers):
        raise _no_rows(path)
    cells = {name: _Cells(path, name, values, rows) for name, values in raw.items()}

    def optional(name: str, read: Callable[[_Cells], _Array]) -> _Array | None:
        return read(cells[name]) if name in cells else None

    return ScoreTable(
        path=path,
        scores=cells[names.score].scores(),
        outcomes=optional(names.outcome, _Cells.outcomes),
        tasks=cells[names.task].ids(),
        trajectories=optional(names.trajectory, lambda found: found.ids(unique=True)),
        agents=optional(names.agent, _Cells.labels),
        splits=optional(names.split, _Cells.labels),
        rows=rows.numbers,
        lines=rows.lines,
    )


def read_labels(
    path: Path, names: ColumnNames
) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.int8], Rows]:
    """Read trajectory ids and their outcomes, −1 where there is none, as a score table is read."""
    wanted = (names.trajectory, names.outcome)
    found, raw, rows = read_columns(path, set(wanted), {names.outcome})
    if missing := [name for name in wanted if name not in raw]:
        raise InputError(
            f"{path} has no column {missing[0]!r}; its columns are {', '.join(found[:12])}."
        )
    ids, outcomes = (_Cells(path, name, raw[name], rows) for name in wanted)
    return ids.ids(), outcomes.outcomes(), rows


def _refuse_one_column_twice(path: Path, names: ColumnNames) -> None:
    options = {"--task-col": names.task, "--score-col": names.score, "--outcome-col": names.outcome}
    for name in options.values():
        same = [other for other, there in options.items() if there == name]
        if len(same) > 1:
            raise InputError(
                f"{path}: {' and '.join(same)} both name the column {name!r}; give each a column "
                "of its own."
            )


@dataclass(frozen=True)
class _Cells:
    """A column of a file with what names its cells in messages."""

    path: Path
    column: str
    values: npt.NDArray[Any] | Texts
    rows: Rows

    def error(self, index: int, problem: str) -> InputError:
        """Return the error of a cell."""
        return InputError(f"{self.path}, {self.rows.name(index)}, column {self.column!r}{problem}")

    def scores(self) -> npt.NDArray[np.float64]:
        """Return finite numbers, NaN where there is none."""
        values = rows_of(self.values)
        quick = _plain_numbers(values)
        if quick is not None and not np.isinf(quick).any():
            return quick
        scores = np.empty(len(values), dtype=np.float64)
        for index, value in enumerate(values.tolist()):
            number = _number(value)
            if number is None:
                raise self.error(
                    index,
                    f": {_shown(value)} is not a number; give the judge's score as a number, or "
                    "leave it empty where the judge gave none.",
                )
            if math.isinf(number):
                raise self.error(
                    index, ": the score is infinite; give a finite number, or leave it empty."
                )
            scores[index] = number
        return scores

    def outcomes(self) -> npt.NDArray[np.int8]:
        """Return 0 and 1, −1 where there is none."""
        values = rows_of(self.values)
        quick = _plain_numbers(values)
        if quick is not None and ((missing := np.isnan(quick)) | (quick == 0) | (quick == 1)).all():
            return np.where(missing, -1, quick).astype(np.int8)
        outcomes = np.empty(len(values), dtype=np.int8)
        for index, value in enumerate(values.tolist()):
            number = float(value) if isinstance(value, bool | np.bool_) else _number(value)
            if number is None or not (math.isnan(number) or number in (0.0, 1.0)):
                raise self.error(
                    index,
                    f": {_shown(value)} is not an outcome; write 1 for a success, 0 for a "
                    "failure, or leave it empty where there is no label.",
                )
            outcomes[index] = -1 if math.isnan(number) else int(number)
        return outcomes

    def ids(self, *, unique: bool = False) -> npt.NDArray[np.object_]:
        """Return a name a row, none of them empty."""
        labels, distinct = self._named()
        # a longer text is none of them, unless it is one between spaces
        doubtful = (
            min(map(len, distinct)) <= _LONGEST_MISSING or len("".join(distinct).split(None, 1)) > 1
        )
        if doubtful and not _MISSING_ID.isdisjoint(map(str.lower, map(str.strip, distinct))):
            missing = (place for place, label in enumerate(labels) if _is_missing(label))
            raise self.error(
                next(missing),
                " is empty; every trajectory needs the task that it attempts and its own id.",
            )
        if unique and len(distinct) < len(labels):
            self._refuse_repeated(labels)
        return labels

    def labels(self) -> npt.NDArray[np.object_]:
        """Return a name a row, empty ones too."""
        return self._named()[0]

    def _refuse_repeated(self, labels: npt.NDArray[np.object_]) -> None:
        first: dict[str, int] = {}
        for index, label in enumerate(labels):
            if label in first:
                raise id_used_twice(
                    self.path,
                    self.rows.name(index),
                    self.column,
                    label,
                    self.rows.name(first[label]),
                )
            first[label] = index

    def _named(self) -> tuple[npt.NDArray[np.object_], Collection[str]]:
        """Return a name a row, and the distinct names."""
        if isinstance(self.values, Texts) and _plain_texts(self.values.distinct):
            return self.values.rows(), cast("list[str]", self.values.distinct)
        values = rows_of(self.values)
        labels = values if _plain_texts(values.tolist()) else self._one_by_one(values)
        return labels, set(labels.tolist())

    def _one_by_one(self, values: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        labels = np.empty(len(values), dtype=object)
        for index, value in enumerate(values):
            label = _label(value)
            if label is None:
                raise self.error(
                    index,
                    f": {_shown(value)} is no name but a {type(value).__name__}; give text or a "
                    "whole number.",
                )
            if _UNWRITABLE.search(label):
                raise self.error(
                    index, f": {_shown(label)} holds a NUL or half a character; correct the text."
                )
            labels[index] = label
        return labels


def _is_missing(label: str) -> bool:
    return label.strip().lower() in _MISSING_ID


def _plain_numbers(values: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """Return a whole column of numbers, or None where values are to be read one by one."""
    if values.dtype != object:
        return np.array(values, dtype=np.float64)
    listed = values.tolist()
    if set(map(type, listed)) != {str} or any("_" in text for text in listed):
        return None
    try:
        return np.fromiter(map(float, listed), dtype=np.float64, count=len(listed))
    except ValueError:
        return None


def _number(value: Any) -> float | None:
    if value is None:
        return math.nan
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | float | np.integer | np.floating):
        return _as_float(value)
    if not isinstance(value, str):
        # decimals of a Parquet file are numbers; lists, dates and objects are not
        return _as_float(value) if type(value).__name__ == "Decimal" else None
    text = value.strip()
    if text.lower() in _MISSING_TEXT:
        return math.nan
    return None if "_" in text else _as_float(text)


def _as_float(value: Any) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf


def _plain_texts(listed: list[Any]) -> bool:
    """Whether these are texts that a file can hold: most tables have no others."""
    if set(map(type, listed)) != {str}:
        return False
    joined = "".join(listed)
    return "\0" not in joined and (joined.isascii() or not _UNWRITABLE.search(joined))


def _label(value: Any) -> str | None:
    """Return a name as text, or None where it is none."""
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_) or not isinstance(value, _ID_TYPES):
        return None
    # a task numbered 7 is the same task whether the file holds 7, 7.0 or "7"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


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
    _, columns, rows = read_rows(path, set(PROVENANCE_COLUMNS))
    for name, values in columns.items():
        other = [index for index, value in enumerate(values) if not _is_audit_sample(name, value)]
        if other:
            raise _Cells(path, name, values, rows).error(
                other[0],
                f": {_shown(values[other[0]])} is no audit sample ({len(other)} of {len(values)} "
                "rows are none); labels from the review queue are of what the judge could not "
                "decide, so give only tasks drawn at random before scoring, with all their "
                "attempts.",
            )
    return bool(columns)


def _is_audit_sample(column: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if column == "asked":
        return text in {"audit_sample", "spot_check"}
    return (
        text in _TRUE
        if column == "audit_sample"
        else text.replace(" ", "_").replace("-", "_") == "audit_sample"
    )
