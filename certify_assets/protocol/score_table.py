"""Score tables: the one input that a stranger brings. Everything that is refused is refused here, in a sentence with file, row and column."""

from __future__ import annotations

import csv
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ColumnNames", "ScoreTable", "read_score_table"]

_MISSING_TEXT = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
_MISSING_ID = frozenset({"", "nan", "<na>"})
_READERS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}


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
        Row numbers in the file, the first data row being 1.
    """

    path: Path
    scores: npt.NDArray[np.float64]
    outcomes: npt.NDArray[np.int8] | None
    tasks: npt.NDArray[np.object_]
    trajectories: npt.NDArray[np.object_] | None = None
    agents: npt.NDArray[np.object_] | None = None
    splits: npt.NDArray[np.object_] | None = None
    rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return int(self.scores.size)

    def choose_split(self, wanted: str | None) -> ScoreTable:
        """Return the rows of one split; all rows where the table has no split column or none is wanted.

        Raises
        ------
        InputError
            If the split is absent; the sentence names those found.
        """
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
        chosen = {name: None if value is None else value[keep] for name, value in self._columns().items()}
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
                f"{self.path}, row {self.rows[missing[0]]} has no outcome ({missing.size} rows have none); "
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
        columns = {names[name]: value for name, value in self._columns().items() if name in names and value is not None}
        return pd.DataFrame(columns)

    def _columns(self) -> dict[str, npt.NDArray[Any] | None]:
        return {name: getattr(self, name) for name in ("scores", "outcomes", "tasks", "trajectories", "agents", "splits", "rows")}


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
    kind = _READERS.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path} does not end in .csv, .parquet or .jsonl; save the score table in one of these formats.")
    if not path.is_file():
        raise InputError(f"{path} does not exist or is not a file; check the path.")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty; write the columns {names.task}, {names.score} and {names.outcome} with one row a trajectory.")
    raw, rows = {"csv": _read_csv, "parquet": _read_parquet, "jsonl": _read_jsonl}[kind](path)
    for name in (names.task, names.score):
        if name not in raw:
            found = ", ".join(list(raw)[:12])
            raise InputError(
                f"{path} has no column {name!r}; its columns are {found}; rename one or name it with --task-col or --score-col."
            )
    if not len(rows):
        raise InputError(f"{path} has a header but no rows; write one row a trajectory.")
    return ScoreTable(
        path=path,
        scores=_scores(path, names.score, raw[names.score], rows),
        outcomes=_outcomes(path, names.outcome, raw[names.outcome], rows) if names.outcome in raw else None,
        tasks=_labels(path, names.task, raw[names.task], rows),
        trajectories=_unique(path, names.trajectory, raw[names.trajectory], rows) if names.trajectory in raw else None,
        agents=_optional_labels(raw[names.agent]) if names.agent in raw else None,
        splits=_optional_labels(raw[names.split]) if names.split in raw else None,
        rows=rows,
    )


Columns = dict[str, npt.NDArray[np.object_]]


def _read_csv(path: Path) -> tuple[Columns, npt.NDArray[np.int64]]:
    import pandas as pd

    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            header = next(csv.reader(stream), [])
        _refuse_repeated(path, header)
        with warnings.catch_warnings():
            # pandas only warns when it drops the surplus fields of a row; here that is an error
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig", index_col=False)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as CSV in UTF-8, or as Parquet.") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as CSV ({_first_line(error)}); save it as comma-separated UTF-8 text with one header row."
        ) from None
    except pd.errors.ParserWarning as warning:
        raise InputError(
            f"{path} has rows longer than its header ({_first_line(warning)}); give every row as many fields as the header."
        ) from None
    return {str(name): frame[name].to_numpy(dtype=object) for name in frame.columns}, np.arange(1, len(frame) + 1)


def _read_parquet(path: Path) -> tuple[Columns, npt.NDArray[np.int64]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet ({_first_line(error)}); write the table again.") from None
    _refuse_repeated(path, table.column_names)
    columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        columns[name] = _arrow_objects(column)
    return columns, np.arange(1, table.num_rows + 1)


def _arrow_objects(column: Any) -> npt.NDArray[np.object_]:
    import pyarrow as pa

    # integers stay integers: the way through NumPy floats would turn task 7 into "7.0" as soon as one value is missing
    if pa.types.is_floating(column.type) and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_pylist()
    return values


def _read_jsonl(path: Path) -> tuple[Columns, npt.NDArray[np.int64]]:
    records: list[dict[str, Any]] = []
    rows: list[int] = []
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    records.append(_json_record(path, number, line))
                    rows.append(number)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as JSON Lines in UTF-8.") from None
    names = dict.fromkeys(name for record in records for name in record)
    columns: Columns = {}
    for name in names:
        values = np.empty(len(records), dtype=object)
        values[:] = [record.get(name) for record in records]
        columns[name] = values
    return columns, np.asarray(rows, dtype=np.int64)


def _json_record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}, line {number} is not JSON ({_first_line(error)}); write one JSON object a line.") from None
    if not isinstance(record, dict):
        raise InputError(f"{path}, line {number} is not a JSON object; write one object with task_id, score and outcome a line.")
    return record


def _refuse_repeated(path: Path, header: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise InputError(f"{path} has two columns called {name!r}; keep one of them.")
        seen.add(name)


def _scores(path: Path, column: str, values: npt.NDArray[np.object_], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    scores = np.empty(len(values), dtype=np.float64)
    for index, value in enumerate(values):
        number = _number(value)
        if number is None:
            raise InputError(
                f"{path}, row {rows[index]}, column {column!r}: {_shown(value)} is not a number; "
                "give the judge's score as a number, or leave it empty where the judge gave none."
            )
        if math.isinf(number):
            raise InputError(
                f"{path}, row {rows[index]}, column {column!r}: the score is infinite; give a finite number, or leave it empty."
            )
        scores[index] = number
    return scores


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


def _outcomes(path: Path, column: str, values: npt.NDArray[np.object_], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
    outcomes = np.empty(len(values), dtype=np.int8)
    for index, value in enumerate(values):
        number = float(value) if isinstance(value, bool | np.bool_) else _number(value)
        if number is None or not (math.isnan(number) or number in (0.0, 1.0)):
            raise InputError(
                f"{path}, row {rows[index]}, column {column!r}: {_shown(value)} is not an outcome; "
                "write 1 for a success, 0 for a failure, or leave it empty where there is no label."
            )
        outcomes[index] = -1 if math.isnan(number) else int(number)
    return outcomes


def _labels(path: Path, column: str, values: npt.NDArray[np.object_], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    labels = _optional_labels(values)
    for index, label in enumerate(labels):
        if label.strip().lower() in _MISSING_ID:
            raise InputError(f"{path}, row {rows[index]}, column {column!r} is empty; every trajectory needs the task that it attempts.")
    return labels


def _unique(path: Path, column: str, values: npt.NDArray[np.object_], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    labels = _labels(path, column, values, rows)
    first: dict[str, int] = {}
    for label, row in zip(labels, rows, strict=True):
        if label in first:
            raise InputError(
                f"{path}, row {row}, column {column!r}: {_shown(label)} was already used in row {first[label]}; "
                "give every trajectory its own id, or leave the column out."
            )
        first[label] = int(row)
    return labels


def _optional_labels(values: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    labels = np.empty(len(values), dtype=object)
    labels[:] = [_label(value) for value in values]
    return labels


def _label(value: Any) -> str:
    if value is None:
        return ""
    # a task numbered 7 is the same task whether the file holds 7, 7.0 or "7"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
