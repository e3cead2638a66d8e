"""Table files of every kind, read under the names of columns that are wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.files import parse_json, read_json
from certify_assets.tables.delimited import read_delimited
from certify_assets.tables.sheets import read_sheet
from certify_assets.tables.table import (
    Rows,
    Table,
    array_of,
    first_line,
    matched,
    nothing_in,
    refuse_repeated,
    renamed,
)
from certify_assets.work import counted, reading

if TYPE_CHECKING:
    import pyarrow as pa


def read_table(path: Path, wanted: AbstractSet[str]) -> Table:
    """Read the wanted columns that a file has, by its ending; InputError where it has no table."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path} does not end in .csv, .tsv, .parquet, .jsonl, .json, .arrow or .xlsx; save "
            "the score table in one of these formats."
        )
    if not path.is_file():
        raise InputError(f"{path} does not exist or is not a file; check the path.")
    if not path.stat().st_size:
        raise nothing_in(path)
    return reader(path, wanted)


def arrow_table(path: Path, rows: pa.Table, wanted: AbstractSet[str]) -> Table:
    """Read the wanted columns of an Arrow table."""
    refuse_repeated(path, rows.column_names)
    found = matched(rows.column_names, wanted)
    known: dict[str, list[Any]] = {}
    columns = {
        name: _values(path, name, rows[written].combine_chunks(), known)
        for name, written in counted(f"reading {path.name}", found.items())
    }
    places = Rows(np.arange(1, rows.num_rows + 1))
    return Table(path, rows.column_names, columns, places, renamed(found), known)


def _read_parquet(path: Path, wanted: AbstractSet[str]) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
            refuse_repeated(path, names)
            rows = file.read(columns=list(matched(names, wanted).values()))
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _unreadable(path, "Parquet", error) from None
    return replace(arrow_table(path, rows, wanted), names=names)


def _read_arrow(path: Path, wanted: AbstractSet[str]) -> Table:
    import pyarrow as pa
    from pyarrow import feather

    try:
        # a Feather file of version 2 is an Arrow file
        table = feather.read_table(path, memory_map=False)
        # Arrow takes offsets and lengths as they are written, and reads where they point
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _unreadable(path, "Arrow", error) from None
    return arrow_table(path, table, wanted)


def _unreadable(path: Path, kind: str, error: Exception) -> InputError:
    said = first_line(error)
    return InputError(f"{path} cannot be read as {kind} ({said}); write the table again.")


def _values(path: Path, name: str, column: Any, known: dict[str, list[Any]]) -> NDArray[Any]:
    """Return the values of an Arrow array: numbers as they are stored, others as objects."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        if pa.types.is_string_view(kind.value_type):
            # as Polars writes categories; Arrow cannot decode those
            column = column.cast(pa.dictionary(kind.index_type, pa.large_string()))
        column = column.dictionary_decode()
    number = column.type
    try:
        # to_numpy imports pandas where it is installed
        if pa.types.is_floating(number):
            return np.from_dlpack(column.fill_null(math.nan) if column.null_count else column)
        # floats would turn task 7 into "7.0" as soon as one value is missing
        if pa.types.is_integer(number) and not column.null_count:
            return np.from_dlpack(column)
        if pa.types.is_string(number) or pa.types.is_large_string(number):
            # one object for equal texts
            encoded = column.dictionary_encode(null_encoding="encode")
            known[name] = encoded.dictionary.to_pylist()
            return np.asarray(array_of(known[name])[np.from_dlpack(encoded.indices)])
        return array_of(column.to_pylist())
    except (ValueError, OverflowError):
        raise _broken_value(path, name, column) from None


def _broken_value(path: Path, name: str, column: Any) -> InputError:
    """Find the first value of a column that cannot be read."""
    for index in range(len(column)):
        try:
            column[index].as_py()
        except (ValueError, OverflowError) as error:
            text = isinstance(error, UnicodeDecodeError)
            reason = "its text is not UTF-8" if text else first_line(error)
            return InputError(
                f"{path}, row {index + 1}, column {name!r} cannot be read ({reason}); "
                "write the table again."
            )
    return InputError(f"{path}, column {name!r} cannot be read; write the table again.")


def _read_lines(path: Path, wanted: AbstractSet[str]) -> Table:
    try:
        with path.open(encoding="utf-8-sig") as stream, reading(path, stream):
            lines = ((number, line) for number, line in enumerate(stream, 1) if line.strip())
            return _of_records(
                path, ((number, _record(path, number, line)) for number, line in lines), wanted
            )
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as JSON Lines in UTF-8.") from None


def _record(path: Path, number: int, line: str) -> Mapping[str, Any]:
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


def _read_json(path: Path, wanted: AbstractSet[str]) -> Table:
    records = read_json(path, remedy="write a list of objects in UTF-8, one a row")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"{path} is not a list of JSON objects; write one object a row.")
    return _of_records(path, enumerate(records, 1), wanted)


def _of_records(
    path: Path, records: Iterable[tuple[int, Mapping[str, Any]]], wanted: AbstractSet[str]
) -> Table:
    by_number = dict(records)
    names = list(dict.fromkeys(chain.from_iterable(by_number.values())))
    found = matched(names, wanted)
    columns = {
        name: array_of([record.get(written) for record in by_number.values()])
        for name, written in found.items()
    }
    rows = Rows(np.array([*by_number], dtype=np.int64))
    return Table(path, names, columns, rows, renamed(found))


_READERS: Mapping[str, Callable[[Path, AbstractSet[str]], Table]] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), read_delimited),
    **dict.fromkeys((".parquet", ".pq"), _read_parquet),
    **dict.fromkeys((".jsonl", ".ndjson"), _read_lines),
    ".json": _read_json,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _read_arrow),
    **dict.fromkeys((".xlsx", ".xlsm"), read_sheet),
}
