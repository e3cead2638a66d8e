"""Score tables: reading and checking CSV, Parquet and JSON Lines.

Everything that is refused is refused here, in a sentence with file, row and column.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.files import parse_json

if TYPE_CHECKING:
    import pandas as pd


_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_FIELD_CHARACTERS = 1 << 27


@dataclass(frozen=True)
class Texts:
    """A column of texts that holds each distinct one once.

    Parameters
    ----------
    distinct : list of str or None
        In the order of their first rows; None, where a row has none, comes last.
    places : ndarray of int, shape (n,)
        Of each row's text among them.
    """

    distinct: list[str | None]
    places: npt.NDArray[np.integer[Any]]

    def rows(self) -> npt.NDArray[np.object_]:
        """Return a text a row, equal ones as one object."""
        texts: npt.NDArray[np.object_] = _array(self.distinct)[self.places]
        return texts


#: plain values as objects, or as a Parquet file stores them
Columns = dict[str, "npt.NDArray[Any] | Texts"]


def rows_of(values: npt.NDArray[Any] | Texts) -> npt.NDArray[Any]:
    """Return a column with a value a row."""
    return values.rows() if isinstance(values, Texts) else values


@dataclass(frozen=True)
class Rows:
    """Where rows stand in their file.

    Parameters
    ----------
    numbers : ndarray of int64, shape (n,)
        Row numbers, the first data row being 1 (the line, in JSON Lines).
    lines : ndarray of int64, shape (n,), or None
        Lines of a CSV that the rows begin on: not the same where it has blank lines or fields of
        several lines.
    """

    numbers: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64] | None = None

    def name(self, index: int) -> str:
        """Name a row as a reader finds it."""
        return f"row {self.numbers[index]}" + (
            "" if self.lines is None else f" (line {self.lines[index]})"
        )


def read_rows(
    path: Path, wanted: AbstractSet[str]
) -> tuple[list[str], dict[str, npt.NDArray[Any]], Rows]:
    """Return the wanted columns that a table has, with a Python value a row."""
    names, columns, rows = read_columns(path, wanted)
    return names, {name: rows_of(values) for name, values in columns.items()}, rows


def read_columns(
    path: Path, wanted: AbstractSet[str], numbers: AbstractSet[str] | None = None
) -> tuple[list[str], Columns, Rows]:
    """Read the wanted columns of a table, as far as it has them.

    Parameters
    ----------
    path : Path
        CSV, Parquet or JSON Lines, by the file's ending.
    wanted : set of str
        Columns to read; others may hold anything.
    numbers : set of str, optional
        Those of them in which a missing value is as good as NaN. Where this is given, a Parquet
        file's numbers come as they are stored, and its other
        texts as :class:`Texts`: without a Python object a row.

    Returns
    -------
    names : list of str
        All columns of the file.
    columns : dict of str to ndarray or Texts
        The wanted ones.
    rows : Rows
        Where the rows stand.

    Raises
    ------
    InputError
        If the file is missing, of another kind, or broken.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path} does not end in .csv, .parquet or .jsonl; save the score table in one of "
            "these formats."
        )
    if not path.is_file():
        raise InputError(f"{path} does not exist or is not a file; check the path.")
    return reader(path, wanted, numbers)


def _read_csv(
    path: Path, wanted: AbstractSet[str], _: AbstractSet[str] | None
) -> tuple[list[str], Columns, Rows]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream, _long_fields():
            return _csv_columns(path, wanted, _csv_records(stream))
    except UnicodeDecodeError:
        raise InputError(
            f"{path} is not UTF-8 text; save it as CSV in UTF-8, or as Parquet."
        ) from None
    except csv.Error as error:
        raise InputError(
            f"{path} cannot be read as CSV ({_first_line(error)}); save it as comma-separated "
            "UTF-8 text with one header row."
        ) from None


@contextmanager
def _long_fields() -> Iterator[None]:
    """Lift the csv module's limit on the length of a field while a table is read."""
    before = csv.field_size_limit(_FIELD_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _csv_records(stream: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Go through the records that are not blank, each with the line that it begins on."""
    reader = csv.reader(stream, strict=True)
    line = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise csv.Error(f"line {line}: {error}") from None
        if len(cells) > 1 or any(cell.strip() for cell in cells):
            yield line, cells
        line = reader.line_num + 1


def _csv_columns(
    path: Path, wanted: AbstractSet[str], records: Iterator[tuple[int, list[str]]]
) -> tuple[list[str], Columns, Rows]:
    _, header = next(records, (1, []))
    if not header:
        raise InputError(f"{path} holds blank lines only; write a header and one row a trajectory.")
    _check_header(path, header)
    places = {name: place for place, name in enumerate(header) if name in wanted}
    values: dict[str, list[str]] = {name: [] for name in places}
    lines: list[int] = []
    for number, (line, cells) in enumerate(records, 1):
        if len(cells) != len(header):
            raise InputError(
                f"{path}, row {number} (line {line}) has {len(cells)} fields, its header has "
                f"{len(header)}; "
                "give every row as many fields as the header, with quotes around text that holds "
                "a comma."
            )
        lines.append(line)
        for name, place in places.items():
            values[name].append(cells[place])
    return (
        header,
        _objects(values),
        Rows(np.arange(1, len(lines) + 1), np.asarray(lines, dtype=np.int64)),
    )


def _check_header(path: Path, header: Sequence[str]) -> None:
    _refuse_repeated(path, header)
    for separator, called in _SEPARATORS.items():
        if len(header) == 1 and separator in header[0]:
            raise InputError(
                f"{path} is separated by {called}; save it with commas between the fields and "
                "points in the numbers."
            )
    if any("\0" in name for name in header):
        raise InputError(
            f"{path} has NUL bytes in its header: it is damaged or UTF-16; save it as CSV in UTF-8."
        )


def _read_parquet(
    path: Path, wanted: AbstractSet[str], numbers: AbstractSet[str] | None
) -> tuple[list[str], Columns, Rows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
            _refuse_repeated(path, names)
            table = file.read(columns=[name for name in names if name in wanted])
            count = file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet ({_first_line(error)}); write the table again."
        ) from None
    columns: Columns = {
        name: _arrow_values(path, name, table[name].combine_chunks(), numbers)
        for name in table.column_names
    }
    return names, columns, Rows(np.arange(1, count + 1))


def _arrow_values(
    path: Path, name: str, column: Any, numbers: AbstractSet[str] | None
) -> npt.NDArray[Any] | Texts:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    number = numbers is not None and name in numbers
    if number and (
        pa.types.is_floating(column.type)
        or (pa.types.is_integer(column.type) and not column.null_count)
    ):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    # integers stay integers: the way through NumPy floats would turn task 7 into "7.0" as soon as
    # one value is missing
    if pa.types.is_floating(column.type) and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=object)
    try:
        if (
            numbers is not None
            and not number
            and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type))
        ):
            return _texts(column)
        return _array(column.to_pylist())
    except (ValueError, OverflowError):
        raise _unreadable(path, name, column) from None


def _texts(column: Any) -> Texts:
    encoded = column.dictionary_encode()
    distinct, places = encoded.dictionary.to_pylist(), encoded.indices
    if column.null_count:
        places = places.fill_null(len(distinct))
        distinct.append(None)
    return Texts(distinct, places.to_numpy(zero_copy_only=False))


def _unreadable(path: Path, name: str, column: Any) -> InputError:
    """Find the first value of a column that cannot be read."""
    for index in range(len(column)):
        try:
            column[index].as_py()
        except (ValueError, OverflowError) as error:
            reason = (
                "its text is not UTF-8"
                if isinstance(error, UnicodeDecodeError)
                else _first_line(error)
            )
            return InputError(
                f"{path}, row {index + 1}, column {name!r} cannot be read ({reason}); write the "
                "table again."
            )
    return InputError(f"{path}, column {name!r} cannot be read; write the table again.")


def _read_jsonl(
    path: Path, wanted: AbstractSet[str], _: AbstractSet[str] | None
) -> tuple[list[str], Columns, Rows]:
    records: list[dict[str, Any]] = []
    rows: list[int] = []
    names: dict[str, None] = {}
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    record = _json_record(path, number, line)
                    names.update(dict.fromkeys(record))
                    records.append(
                        {name: value for name, value in record.items() if name in wanted}
                    )
                    rows.append(number)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as JSON Lines in UTF-8.") from None
    columns = {name: [record.get(name) for record in records] for name in names if name in wanted}
    return list(names), _objects(columns), Rows(np.asarray(rows, dtype=np.int64))


def _json_record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise InputError(
            f"{path}, line {number} is not JSON ({_first_line(error)}); write one JSON object a "
            "line."
        ) from None
    if not isinstance(record, dict):
        raise InputError(
            f"{path}, line {number} is not a JSON object; write one object a line, with the "
            "columns as its keys."
        )
    return record


_READERS: Mapping[
    str,
    Callable[[Path, AbstractSet[str], AbstractSet[str] | None], tuple[list[str], Columns, Rows]],
] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
}


def _objects(values: Mapping[str, Sequence[Any]]) -> Columns:
    return {name: _array(items) for name, items in values.items()}


def _array(items: Sequence[Any]) -> npt.NDArray[np.object_]:
    # item by item: np.array would take lists inside for further axes
    return np.fromiter(items, dtype=object, count=len(items))


def _refuse_repeated(path: Path, header: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise InputError(f"{path} has two columns called {name!r}; keep one of them.")
        seen.add(name)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


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
        """Return the rows of one split; all rows without a split column, or where none is wanted.

        Raises
        ------
        InputError
            If the split is absent (the sentence names those found), or is required and the table
            has no split column.
        """
        if required and wanted is not None and self.splits is None:
            raise InputError(
                f"{self.path} has no split column to choose split={wanted!r} by; add one, or "
                "leave --split out."
            )
        if self.splits is None or wanted is None:
            return self
        keep = np.asarray(self.splits == wanted, dtype=bool)
        if not keep.any():
            found = ", ".join(sorted({str(name) for name in self.splits})) or "none"
            raise InputError(
                f"{self.path} has no row with split={wanted!r}; splits found: {found}. Give a "
                "table that has it or leave the column out."
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
                f"{self.path} has no outcome column; certification and audits need one with 0 "
                "and 1 (or name it with --outcome-col)."
            )
        missing = np.flatnonzero(self.outcomes < 0)
        if missing.size:
            raise InputError(
                f"{self.path}, {Rows(self.rows, self.lines).name(int(missing[0]))} has no "
                f"outcome ({missing.size} rows have none); "
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
        CSV, Parquet or JSON Lines, by the file's ending.
    columns : ColumnNames, optional
        Other names than the contract's.

    Returns
    -------
    ScoreTable

    Raises
    ------
    InputError
        For an empty or unreadable file, a missing column, a missing task, a score that is text or
        infinite, an outcome other than 0
        or 1, a repeated trajectory_id. One sentence with file, row, column and remedy.
    """
    names = columns or ColumnNames()
    _refuse_one_column_twice(path, names)
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(
            f"{path} is empty; write the columns {names.task}, {names.score} and {names.outcome} "
            "with one row a trajectory."
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
                f"{path} has no column {name!r}; its columns are {shown}; rename one or name it "
                "with --task-col or --score-col."
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
                f"{path}: {' and '.join(same)} both name the column {name!r}; give each a column "
                "of its own."
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
                f"{path}, {rows.name(index)}, column {column!r}: the score is infinite; give a "
                "finite number, or leave it empty."
            )
        scores[index] = number
    return scores


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
                f"{path}, {rows.name(index)}, column {column!r}: {_shown(value)} is not an "
                "outcome; "
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
            f"{path}, {rows.name(index)}, column {column!r} is empty; every trajectory needs the "
            "task that it attempts and its own id."
        )
    if unique and len(distinct) < len(labels):
        _refuse_repeated_id(path, column, labels, rows)
    return labels


def _refuse_repeated_id(
    path: Path, column: str, labels: npt.NDArray[np.object_], rows: Rows
) -> None:
    first: dict[str, int] = {}
    for index, label in enumerate(labels):
        if label in first:
            raise InputError(
                f"{path}, {rows.name(index)}, column {column!r}: {_shown(label)} was already "
                f"used in {rows.name(first[label])}; "
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
                f"{path}, {rows.name(index)}, column {column!r}: {_shown(value)} is no name but "
                f"a {type(value).__name__}; "
                "give text or a whole number."
            )
        if _UNWRITABLE.search(label):
            raise InputError(
                f"{path}, {rows.name(index)}, column {column!r}: {_shown(label)} holds a NUL or "
                "half a character; correct the text."
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


PROVENANCE_COLUMNS = ("provenance", "audit_sample", "asked")
NOT_STATED = {
    "code": "provenance_not_stated",
    "message": (
        "The table has no column provenance, audit_sample or asked: that its tasks were drawn at "
        "random before scoring, with all their attempts, and "
        "hold no label from the review queue is taken on trust."
    ),
}
_TRUE = frozenset({"true", "1", "1.0", "yes"})


def require_audit_sample(path: Path) -> bool:
    """Refuse a table of labels that says of any row that it is no audit sample.

    Parameters
    ----------
    path : Path
        A score table. Its column ``provenance`` must say ``audit_sample`` in every row, its column
        ``audit_sample`` be true in every row, its column
        ``asked``, as decisions have it, say ``audit_sample`` or ``spot_check``.

    Returns
    -------
    bool
        Whether the table has one of the columns; where it has none, its provenance is taken on
        trust.

    Raises
    ------
    InputError
        With the first row that is of something else, or does not say.
    """
    _, columns, rows = read_rows(path, set(PROVENANCE_COLUMNS))
    for name, values in columns.items():
        other = [index for index, value in enumerate(values) if not _is_audit_sample(name, value)]
        if other:
            shown = repr(values[other[0]])
            raise InputError(
                f"{path}, {rows.name(other[0])}, column {name!r}: "
                f"{shown if len(shown) <= 60 else shown[:57] + '...'} is no audit sample "
                f"({len(other)} of {len(values)} rows are none); labels from the review queue "
                "are of what the judge could not decide, so give "
                "only tasks drawn at random before scoring, with all their attempts."
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
