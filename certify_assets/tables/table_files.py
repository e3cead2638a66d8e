"""Table files of every kind, read to columns of plain values, and written."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.files import parse_json, read_json, write_atomic
from certify_assets.tables.columns import (
    Columns,
    Rows,
    Texts,
    array_of,
    first_line,
    matched,
    objects,
    refuse_repeated,
    renamed,
    rows_of,
)
from certify_assets.tables.delimited import csv_text, formulas, read_delimited
from certify_assets.tables.sheets import read_sheet
from certify_assets.work import counted, reading

if TYPE_CHECKING:
    import pandas as pd

    #: a frame, or plain columns, which are written as CSV and JSON Lines without pandas
    Writable: TypeAlias = pd.DataFrame | Mapping[str, npt.NDArray[Any]]

PARQUET_ENDINGS = frozenset({".parquet", ".pq"})
_ENDINGS = PARQUET_ENDINGS | {".csv", ".jsonl", ".ndjson"}
# characters of a cell that a refusal shows
_SHOWN = 120


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
            f"{path} does not end in .csv, .tsv, .parquet, .jsonl, .json, .arrow or .xlsx; save "
            "the score table in one of these formats."
        )
    if not path.is_file():
        raise InputError(f"{path} does not exist or is not a file; check the path.")
    return reader(path, wanted, numbers)


def _read_parquet(
    path: Path, wanted: AbstractSet[str], numbers: AbstractSet[str] | None
) -> tuple[list[str], Columns, Rows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
            refuse_repeated(path, names)
            found = matched(names, wanted)
            # one after the other: as Arrow has them, the columns take as much memory again
            columns: Columns = {
                name: _arrow_values(path, name, _whole(file.read(columns=[written])), numbers)
                for name, written in counted(f"reading {path.name}", found.items())
            }
            rows = file.metadata.num_rows
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet ({first_line(error)}); write the table again."
        ) from None
    return names, columns, Rows(np.arange(1, rows + 1), read_as=renamed(found))


def _whole(column: Any) -> Any:
    return column.column(0).combine_chunks()


def arrow_columns(
    path: Path, table: Any, found: Mapping[str, str], numbers: AbstractSet[str] | None
) -> tuple[Columns, Rows]:
    """Return the columns of an Arrow table that are found under their names there."""
    columns: Columns = {
        name: _arrow_values(path, name, table[written].combine_chunks(), numbers)
        for name, written in counted(f"reading {path.name}", found.items())
    }
    return columns, Rows(np.arange(1, table.num_rows + 1), read_as=renamed(found))


def _read_arrow(
    path: Path, wanted: AbstractSet[str], numbers: AbstractSet[str] | None
) -> tuple[list[str], Columns, Rows]:
    import pyarrow as pa
    from pyarrow import feather

    try:
        # a Feather file of version 2 is an Arrow file
        table = feather.read_table(path, memory_map=False)
        # Arrow takes offsets and lengths as they are written, and reads where they point
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise InputError(
            f"{path} cannot be read as Arrow ({first_line(error)}); write the table again."
        ) from None
    names = list(table.column_names)
    refuse_repeated(path, names)
    return names, *arrow_columns(path, table, matched(names, wanted), numbers)


def _arrow_values(
    path: Path, name: str, column: Any, numbers: AbstractSet[str] | None
) -> npt.NDArray[Any] | Texts:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        kind = column.type
        if pa.types.is_string_view(kind.value_type):
            # as Polars writes categories; Arrow cannot decode those
            column = column.cast(pa.dictionary(kind.index_type, pa.large_string()))
        column = column.dictionary_decode()
    number = numbers is not None and name in numbers
    if number and (
        pa.types.is_floating(column.type)
        or (pa.types.is_integer(column.type) and not column.null_count)
    ):
        return numbers_of(column)
    # integers stay integers: the way through NumPy floats would turn task 7 into "7.0" as soon as
    # one value is missing
    if pa.types.is_floating(column.type) and not column.null_count:
        return numbers_of(column).astype(object)
    try:
        if (
            numbers is not None
            and not number
            and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type))
        ):
            return _texts_of(column)
        return array_of(column.to_pylist())
    except (ValueError, OverflowError):
        raise _unreadable(path, name, column) from None


def _texts_of(column: Any) -> Texts:
    """Return an Arrow array of strings with each distinct one once."""
    encoded = column.dictionary_encode()
    distinct, places = encoded.dictionary.to_pylist(), encoded.indices
    if column.null_count:
        places = places.fill_null(len(distinct))
        distinct.append(None)
    return Texts(distinct, numbers_of(places))


def numbers_of(column: Any) -> npt.NDArray[Any]:
    """Return an Arrow array of numbers, NaN where a floating one is missing."""
    # to_numpy imports pandas where it is installed
    return np.from_dlpack(column.fill_null(math.nan) if column.null_count else column)


def _unreadable(path: Path, name: str, column: Any) -> InputError:
    """Find the first value of a column that cannot be read."""
    for index in range(len(column)):
        try:
            column[index].as_py()
        except (ValueError, OverflowError) as error:
            reason = (
                "its text is not UTF-8"
                if isinstance(error, UnicodeDecodeError)
                else first_line(error)
            )
            return InputError(
                f"{path}, row {index + 1}, column {name!r} cannot be read ({reason}); "
                "write the table again."
            )
    return InputError(f"{path}, column {name!r} cannot be read; write the table again.")


def _read_jsonl(
    path: Path, wanted: AbstractSet[str], _: AbstractSet[str] | None
) -> tuple[list[str], Columns, Rows]:
    try:
        with path.open(encoding="utf-8-sig") as stream, reading(path, stream):
            lines = ((number, line) for number, line in enumerate(stream, 1) if line.strip())
            return _record_columns(
                ((number, _json_record(path, number, line)) for number, line in lines), wanted
            )
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as JSON Lines in UTF-8.") from None


def _read_json(
    path: Path, wanted: AbstractSet[str], _: AbstractSet[str] | None
) -> tuple[list[str], Columns, Rows]:
    records = read_json(path, remedy="write a list of objects in UTF-8, one a row")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"{path} is not a list of JSON objects; write one object a row.")
    return _record_columns(enumerate(records, 1), wanted)


def _record_columns(
    records: Iterable[tuple[int, dict[str, Any]]], wanted: AbstractSet[str]
) -> tuple[list[str], Columns, Rows]:
    names: dict[str, None] = {}
    kept: list[dict[str, Any]] = []
    rows: list[int] = []
    # most records have the same keys
    wished: dict[tuple[str, ...], list[str]] = {}
    for number, record in records:
        keys = tuple(record)
        if keys not in wished:
            names.update(dict.fromkeys(keys))
            wished[keys] = list(matched(keys, wanted).values())
        kept.append({name: record[name] for name in wished[keys]})
        rows.append(number)
    found = matched(list(names), wanted)
    columns = {name: [record.get(written) for record in kept] for name, written in found.items()}
    return (
        list(names),
        objects(columns),
        Rows(np.asarray(rows, dtype=np.int64), read_as=renamed(found)),
    )


def _json_record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise InputError(
            f"{path}, line {number} is not JSON ({first_line(error)}); write one JSON object a "
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
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), read_delimited),
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _read_arrow),
    **dict.fromkeys((".xlsx", ".xlsm"), read_sheet),
}

#: of the files that are read
TABLE_ENDINGS = frozenset(_READERS)


def check_table_file(path: Path, frame: Writable) -> None:
    """Refuse a table that its kind of file cannot hold, before anything is written."""
    # those who deliver runs choose the names of tasks, runs, agents and files, and reviewers open
    # the queue in a spreadsheet; a name in another spelling would be lost to every later join, so
    # it is not altered either
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(
            f"{path} does not end in .csv, .parquet or .jsonl; choose one of these formats."
        )
    if path.suffix.lower() == ".csv":
        _refuse_formulas(path, frame)


def _refuse_formulas(path: Path, frame: Writable) -> None:
    remedy = (
        "a spreadsheet would run it as a formula; choose a name that ends in .jsonl or .parquet, "
        "which hold it as it is."
    )
    if named := sorted(formulas(frame)):
        raise InputError(f"{path} cannot hold the column name {named[0][:_SHOWN]!r}: {remedy}")
    for name in frame:
        # numbers are none, and most of a large table
        cells = [] if frame[name].dtype.kind in "biuf" else _cells(frame[name])
        if found := formulas(cells):
            rows = [row for row, cell in enumerate(map(str, cells), 1) if cell in found]
            raise InputError(
                f"{path} cannot hold the {name} {str(cells[rows[0] - 1])[:_SHOWN]!r} of row "
                f"{rows[0]} ({len(rows)} such): {remedy}"
            )


def write_table_file(path: Path, frame: Writable) -> None:
    """Write a table as CSV, Parquet or JSON Lines, by the ending, atomically."""
    check_table_file(path, frame)
    suffix = path.suffix.lower()
    if suffix in PARQUET_ENDINGS:
        import pandas as pd
        from pyarrow import ArrowException

        buffer = io.BytesIO()
        try:
            pd.DataFrame(frame).to_parquet(buffer, index=False)
        except ArrowException as error:
            raise InputError(
                f"{path} cannot hold the table: {first_line(error)}. Choose a name that ends in "
                ".jsonl, which holds columns of mixed values."
            ) from None
        write_atomic(path, buffer.getvalue())
        return
    names = list(frame.keys())
    columns = [_cells(frame[name]) for name in names]
    if suffix == ".csv":
        text = csv_text(names, columns)
    else:
        rows = zip(*columns, strict=True)
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
        text = "".join(f"{encode(dict(zip(names, row, strict=True)))}\n" for row in rows)
    write_atomic(path, text.encode("utf-8"))


def _cells(column: npt.NDArray[Any] | pd.Series[Any]) -> list[Any]:
    """Return plain values, None where there is none."""
    values = column if isinstance(column, np.ndarray) else column.to_numpy(object, na_value=None)
    return [None if value != value else value for value in values.tolist()]
