"""Table files: CSV, Parquet and JSON Lines, read to columns of plain values and written."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.files import SEPARATORS, long_fields, parse_json, write_atomic

if TYPE_CHECKING:
    import pandas as pd

    #: a frame, or plain columns, which are written as CSV and JSON Lines without pandas
    Writable: TypeAlias = pd.DataFrame | Mapping[str, npt.NDArray[Any]]

_BUFFER = 1 << 20
PARQUET_ENDINGS = frozenset({".parquet", ".pq"})
_ENDINGS = PARQUET_ENDINGS | {".csv", ".jsonl", ".ndjson"}
# a whole number with its sign is no formula; a sign before anything else is
_FORMULA = re.compile(r"\s*([=@＝＠]|[+\-＋－](?!\d+(\.\d+)?\s*$))|[\t\r\n]")


@dataclass(frozen=True)
class Texts:
    """A column of texts that holds each distinct one once."""

    # in the order of their first rows; None, where a row has none, comes last
    distinct: list[str | None]
    # of each row's text among them
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
    """Places of rows in their file."""

    # the first data row is 1; in JSON Lines, the line
    numbers: npt.NDArray[np.int64]
    # of a CSV, that the rows begin on: blank lines and fields of several lines shift them
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
    """Return all columns' names, the wanted columns that there are, and the places of the rows."""
    # `numbers` are those in which a missing value is as good as NaN: where they are given, a
    # Parquet file's numbers and texts come without a Python object a row
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
        with path.open(encoding="utf-8-sig", newline="") as stream, long_fields():
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
                f"{len(header)}; give every row as many fields as the header, with quotes around "
                "text that holds a comma."
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
    for separator, called in SEPARATORS.items():
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


def read_pieces(
    path: Path, wanted: AbstractSet[str], numbers: AbstractSet[str], size: int
) -> Iterator[tuple[list[str], Columns, Rows]]:
    """Go through a Parquet file as `read_columns` reads it, a number of rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # pages of a row group one after the other, however large the group is
        with pq.ParquetFile(path, buffer_size=_BUFFER) as file:
            names = list(file.schema_arrow.names)
            _refuse_repeated(path, names)
            columns = [name for name in names if name in wanted]
            before = 0
            for groups in _row_groups(file, size):
                for batch in file.iter_batches(size, row_groups=groups, columns=columns):
                    found: Columns = {
                        name: _arrow_values(path, name, batch.column(name), numbers, before)
                        for name in batch.schema.names
                    }
                    yield names, found, Rows(np.arange(before + 1, before + batch.num_rows + 1))
                    before += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet ({_first_line(error)}); write the table again."
        ) from None


def _row_groups(file: Any, size: int) -> Iterator[list[int]]:
    """Cut the row groups of a Parquet file into runs of at least so many rows."""
    # an iterator over all of them keeps the dictionaries of every group until its end
    groups: list[int] = []
    rows = 0
    for group in range(file.num_row_groups):
        groups.append(group)
        rows += file.metadata.row_group(group).num_rows
        if rows >= size:
            yield groups
            groups, rows = [], 0
    if groups:
        yield groups


def _arrow_values(
    path: Path, name: str, column: Any, numbers: AbstractSet[str] | None, before: int = 0
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
            return texts_of(column)
        return _array(column.to_pylist())
    except (ValueError, OverflowError):
        raise _unreadable(path, name, column, before) from None


def texts_of(column: Any) -> Texts:
    """Return an Arrow array of strings with each distinct one once."""
    encoded = column.dictionary_encode()
    distinct, places = encoded.dictionary.to_pylist(), encoded.indices
    if column.null_count:
        places = places.fill_null(len(distinct))
        distinct.append(None)
    return Texts(distinct, places.to_numpy(zero_copy_only=False))


def _unreadable(path: Path, name: str, column: Any, before: int) -> InputError:
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
                f"{path}, row {before + index + 1}, column {name!r} cannot be read ({reason}); "
                "write the table again."
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


def check_table_file(path: Path, frame: Writable) -> None:
    """Refuse a table that its kind of file cannot hold, before anything is written."""
    # names of tasks, runs and agents are untrusted, and reviewers open the queue in a spreadsheet;
    # a name in another spelling would be lost to every later join, so it is not altered either
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(
            f"{path} does not end in .csv, .parquet or .jsonl; choose one of these formats."
        )
    if path.suffix.lower() != ".csv":
        return
    for column in ("task_id", "trajectory_id", "agent", "split"):
        found = (
            [str(value) for value in frame[column] if _FORMULA.match(str(value))]
            if column in frame
            else []
        )
        if found:
            raise InputError(
                f"{path} cannot hold the {column} {found[0]!r} ({len(found)} such): a "
                "spreadsheet would run it as a formula; choose a name that ends in .jsonl or "
                ".parquet, which hold it as it is."
            )


def write_table_file(path: Path, frame: Writable) -> None:
    """Write a table as CSV, Parquet or JSON Lines, by the ending, atomically."""
    check_table_file(path, frame)
    suffix = path.suffix.lower()
    if suffix in PARQUET_ENDINGS:
        import pandas as pd

        buffer = io.BytesIO()
        pd.DataFrame(frame).to_parquet(buffer, index=False)
        write_atomic(path, buffer.getvalue())
        return
    names = list(frame.keys())
    rows = zip(*(_cells(frame[name]) for name in names), strict=True)
    text = io.StringIO()
    if suffix == ".csv":
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
    else:
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        text.writelines(f"{encode(dict(zip(names, row, strict=True)))}\n" for row in rows)
    write_atomic(path, text.getvalue().encode("utf-8"))


def _cells(column: npt.NDArray[Any] | pd.Series[Any]) -> list[Any]:
    """Return plain values, None where there is none."""
    values = column if isinstance(column, np.ndarray) else column.to_numpy(object, na_value=None)
    return [None if value != value else value for value in values.tolist()]
