"""Score tables: the one input that a stranger brings. Everything that is refused is refused here, in a sentence with file, row and column."""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.evaluation.score_files import Rows, Texts, read_columns, rows_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ColumnNames", "ScoreTable", "read_score_table"]

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
    """A validated score table.

    Parameters
    ----------
    path : Path
        Where it was read.
    scores : ndarray of float64, shape (n,)
        NaN where unscored; never infinite.
    outcomes : ndarray of int8, shape (n,), or None
        0 or 1, −1 where missing; None where the table has no outcome column.
    tasks : ndarray of str objects, shape (n,)
        Cluster labels.
    trajectories, agents : ndarray of str objects, shape (n,), or None
        Where the columns exist.
    splits : ndarray of str objects, shape (n,), or None
        Where the column exists.
    rows : ndarray of int64, shape (n,)
        Row numbers in the file, the first data row being 1 (the line, in JSON Lines).
    lines : ndarray of int64, shape (n,), or None
        Lines of a CSV that the rows begin on.
    """

    path: Path
    scores: npt.NDArray[np.float64]
    outcomes: npt.NDArray[np.int8] | None
    tasks: npt.NDArray[np.object_]
    trajectories: npt.NDArray[np.object_] | None = None
    agents: npt.NDArray[np.object_] | None = None
    splits: npt.NDArray[np.object_] | None = None
    rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    lines: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return int(self.scores.size)

    def choose_split(self, wanted: str | None, *, required: bool = False) -> ScoreTable:
        """Return the rows of one split; all rows where the table has no split column or none is wanted.

        Raises
        ------
        InputError
            If the split is absent (the sentence names those found), or is required and the table has no split column.
        """
        if required and wanted is not None and self.splits is None:
            raise InputError(
                f"{self.path} has no split column to choose split={wanted!r} by; add one, or leave --split out."
            )
        if self.splits is None or wanted is None:
            return self
        keep = np.asarray(self.splits == wanted, dtype=bool)
        if not keep.any():
            found = ", ".join(sorted({str(name) for name in self.splits})) or "none"
            raise InputError(
                f"{self.path} has no row with split={wanted!r}; splits found: {found}. Give a table that has it or leave the column out."
            )
        return self.take(keep)

    def take(self, keep: npt.NDArray[np.bool_]) -> ScoreTable:
        """Return the rows where `keep` is true."""
        chosen = {
            name: None if value is None else value[keep] for name, value in self._columns().items()
        }
        return ScoreTable(path=self.path, **chosen)  # type: ignore[arg-type]

    def labelled(self) -> npt.NDArray[np.int8]:
        """Return the outcomes, all 0 or 1.

        Raises
        ------
        InputError
            If the column or any value is missing.
        """
        if self.outcomes is None:
            raise InputError(
                f"{self.path} has no outcome column; certification and audits need one with 0 and 1 (or name it with --outcome-col)."
            )
        missing = np.flatnonzero(self.outcomes < 0)
        if missing.size:
            raise InputError(
                f"{self.path}, {Rows(self.rows, self.lines).name(int(missing[0]))} has no outcome ({missing.size} rows have none); "
                "label the row as 0 or 1 or leave it out."
            )
        return self.outcomes

    def to_frame(self) -> pd.DataFrame:
        """Return the table under the platform's own column names."""
        import pandas as pd

        names = {
            "tasks": "task_id",
            "trajectories": "trajectory_id",
            "agents": "agent",
            "scores": "score",
            "outcomes": "outcome",
            "splits": "split",
        }
        columns = {
            names[name]: value
            for name, value in self._columns().items()
            if name in names and value is not None
        }
        return pd.DataFrame(columns)

    def _columns(self) -> dict[str, npt.NDArray[Any] | None]:
        return {
            name: getattr(self, name)
            for name in (
                "scores",
                "outcomes",
                "tasks",
                "trajectories",
                "agents",
                "splits",
                "rows",
                "lines",
            )
        }


def read_score_table(path: Path, *, columns: ColumnNames | None = None) -> ScoreTable:
    """Read and check a score table.

    Parameters
    ----------
    path : Path
        CSV, Parquet or JSON Lines, told by the file's ending.
    columns : ColumnNames, optional
        Other names than the contract's.

    Returns
    -------
    ScoreTable

    Raises
    ------
    InputError
        For an empty or unreadable file, a missing column, a missing task, a score that is text or infinite, an outcome other than 0
        or 1, a repeated trajectory_id. One sentence with file, row, column and remedy.
    """
    names = columns or ColumnNames()
    _refuse_one_column_twice(path, names)
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(
            f"{path} is empty; write the columns {names.task}, {names.score} and {names.outcome} with one row a trajectory."
        )
    wanted = {getattr(names, entry.name) for entry in fields(names)}
    found, raw, rows = read_columns(
        path,
        wanted,
        {names.score, names.outcome} - {names.task, names.trajectory, names.agent, names.split},
    )
    for name in (names.task, names.score):
        if name not in raw:
            shown = ", ".join(found[:12])
            raise InputError(
                f"{path} has no column {name!r}; its columns are {shown}; rename one or name it with --task-col or --score-col."
            )
    if not len(rows.numbers):
        raise InputError(f"{path} has a header but no rows; write one row a trajectory.")
    return ScoreTable(
        path=path,
        scores=_scores(path, names.score, rows_of(raw[names.score]), rows),
        outcomes=_outcomes(path, names.outcome, rows_of(raw[names.outcome]), rows)
        if names.outcome in raw
        else None,
        tasks=_labels(path, names.task, raw[names.task], rows),
        trajectories=_labels(path, names.trajectory, raw[names.trajectory], rows, unique=True)
        if names.trajectory in raw
        else None,
        agents=_optional_labels(path, names.agent, raw[names.agent], rows)
        if names.agent in raw
        else None,
        splits=_optional_labels(path, names.split, raw[names.split], rows)
        if names.split in raw
        else None,
        rows=rows.numbers,
        lines=rows.lines,
    )


def _refuse_one_column_twice(path: Path, names: ColumnNames) -> None:
    options = {"--task-col": names.task, "--score-col": names.score, "--outcome-col": names.outcome}
    for name in options.values():
        same = [other for other, there in options.items() if there == name]
        if len(same) > 1:
            raise InputError(
                f"{path}: {' and '.join(same)} both name the column {name!r}; give each a column of its own."
            )


def _scores(
    path: Path, column: str, values: npt.NDArray[Any], rows: Rows
) -> npt.NDArray[np.float64]:
    quick = _plain_numbers(values)
    if quick is not None and not np.isinf(quick).any():
        return quick
    scores = np.empty(len(values), dtype=np.float64)
    for index, value in enumerate(values.tolist()):
        number = _number(value)
        if number is None:
            raise InputError(
                f"{path}, {rows.name(index)}, column {column!r}: {_shown(value)} is not a number; "
                "give the judge's score as a number, or leave it empty where the judge gave none."
            )
        if math.isinf(number):
            raise InputError(
                f"{path}, {rows.name(index)}, column {column!r}: the score is infinite; give a finite number, or leave it empty."
            )
        scores[index] = number
    return scores


def _plain_numbers(values: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """Return a whole column of numbers, or of texts that Python reads as such; None where its values are to be looked at one by one."""
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


def _outcomes(
    path: Path, column: str, values: npt.NDArray[Any], rows: Rows
) -> npt.NDArray[np.int8]:
    quick = _plain_numbers(values)
    if quick is not None and ((missing := np.isnan(quick)) | (quick == 0) | (quick == 1)).all():
        return np.where(missing, -1, quick).astype(np.int8)
    outcomes = np.empty(len(values), dtype=np.int8)
    for index, value in enumerate(values.tolist()):
        number = float(value) if isinstance(value, bool | np.bool_) else _number(value)
        if number is None or not (math.isnan(number) or number in (0.0, 1.0)):
            raise InputError(
                f"{path}, {rows.name(index)}, column {column!r}: {_shown(value)} is not an outcome; "
                "write 1 for a success, 0 for a failure, or leave it empty where there is no label."
            )
        outcomes[index] = -1 if math.isnan(number) else int(number)
    return outcomes


def _labels(
    path: Path, column: str, values: npt.NDArray[Any] | Texts, rows: Rows, *, unique: bool = False
) -> npt.NDArray[np.object_]:
    labels, distinct = _named(path, column, values, rows)
    # a longer text is none of them, unless it is one between spaces
    doubtful = (
        min(map(len, distinct)) <= _LONGEST_MISSING or len("".join(distinct).split(None, 1)) > 1
    )
    if doubtful and not _MISSING_ID.isdisjoint(map(str.lower, map(str.strip, distinct))):
        index = next(
            index for index, label in enumerate(labels) if label.strip().lower() in _MISSING_ID
        )
        raise InputError(
            f"{path}, {rows.name(index)}, column {column!r} is empty; every trajectory needs the task that it attempts and its own id."
        )
    if unique and len(distinct) < len(labels):
        _refuse_repeated(path, column, labels, rows)
    return labels


def _refuse_repeated(path: Path, column: str, labels: npt.NDArray[np.object_], rows: Rows) -> None:
    first: dict[str, int] = {}
    for index, label in enumerate(labels):
        if label in first:
            raise InputError(
                f"{path}, {rows.name(index)}, column {column!r}: {_shown(label)} was already used in {rows.name(first[label])}; "
                "give every trajectory its own id, or leave the column out."
            )
        first[label] = index


def _optional_labels(
    path: Path, column: str, values: npt.NDArray[Any] | Texts, rows: Rows
) -> npt.NDArray[np.object_]:
    return _named(path, column, values, rows)[0]


def _named(
    path: Path, column: str, values: npt.NDArray[Any] | Texts, rows: Rows
) -> tuple[npt.NDArray[np.object_], Collection[str]]:
    """Return a name a row, and the distinct names."""
    if isinstance(values, Texts) and _plain_texts(values.distinct):
        return values.rows(), cast("list[str]", values.distinct)
    values = rows_of(values)
    labels = values if _plain_texts(values.tolist()) else _one_by_one(path, column, values, rows)
    return labels, set(labels.tolist())


def _one_by_one(
    path: Path, column: str, values: npt.NDArray[Any], rows: Rows
) -> npt.NDArray[np.object_]:
    labels = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        label = _label(value)
        if label is None:
            raise InputError(
                f"{path}, {rows.name(index)}, column {column!r}: {_shown(value)} is no name but a {type(value).__name__}; "
                "give text or a whole number."
            )
        if _UNWRITABLE.search(label):
            raise InputError(
                f"{path}, {rows.name(index)}, column {column!r}: {_shown(label)} holds a NUL or half a character; correct the text."
            )
        labels[index] = label
    return labels


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
