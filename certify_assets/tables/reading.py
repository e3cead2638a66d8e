"""Table files of every kind, and frames, read under the names of columns that are wanted."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.files import parse_json, read_json
from certify_assets.tables.delimited import DelimitedText
from certify_assets.tables.sheets import find_sheet
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

_FRAME = Path("the table")
_PART, _MOST_UNPACKED = 1 << 20, 4 << 30
# the line of a row, and its cells, or what is wrong with it
_Row = tuple[int, Sequence[Any] | str]


def read_table(source: Any, wanted: AbstractSet[str]) -> Table:
    """Read the wanted columns that a table has.

    Parameters
    ----------
    source : Path or frame
        A file, whose ending says what it is, or a frame of pandas, Polars or Arrow.
    wanted : set of str
        Names of columns; case, spaces, hyphens and underscores count for nothing.

    Raises
    ------
    InputError
        Where there is no table, or not all of it can be read.
    """
    if not isinstance(source, Path):
        return _read_frame(source, wanted)
    if source.is_dir():
        raise InputError(f"{source} is a folder; name a file.")
    if source.suffix.lower() == ".gz" and source.is_file():
        return _read_packed(source, wanted)
    reader = _READERS.get(source.suffix.lower())
    if reader is None:
        raise InputError(
            f"{source} does not end in .csv, .tsv, .parquet, .jsonl, .json, .arrow or .xlsx; save "
            "the score table in one of these formats."
        )
    if not source.is_file():
        raise InputError(f"{source} does not exist or is not a file; check the path.")
    if not source.stat().st_size:
        raise nothing_in(source)
    return reader(source, wanted)


def _read_packed(packed: Path, wanted: AbstractSet[str]) -> Table:
    """Read a table that gzip has packed, unpacked into a folder of its own."""
    with TemporaryDirectory() as folder:
        path = Path(folder, packed.stem)
        try:
            with gzip.open(packed) as source, path.open("wb") as target:
                while part := source.read(_PART):
                    target.write(part)
                    if target.tell() > _MOST_UNPACKED:
                        raise InputError(
                            f"{packed} unpacks to more than {_MOST_UNPACKED >> 30} GiB; save it "
                            "as Parquet."
                        )
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{packed} cannot be unpacked ({error}); save it again.") from None
        try:
            return replace(read_table(path, wanted), path=packed)
        except InputError as error:
            error.args = tuple(str(arg).replace(str(path), str(packed)) for arg in error.args)
            raise


def _read_delimited(path: Path, wanted: AbstractSet[str]) -> Table:
    data = path.read_bytes()
    text = DelimitedText(path, data, wanted)
    if text.encoding is None:
        raise InputError(f"{path} is not UTF-8 text; save it as CSV in UTF-8, or as Parquet.")
    if not text.header and not data.strip():
        raise nothing_in(path)
    stream = text.opened()
    with reading(path, stream):
        return _of_rows(path, text.header, text.rows(stream), wanted, text.read_as)


def _read_sheet(path: Path, wanted: AbstractSet[str]) -> Table:
    sheet = find_sheet(path, path, wanted)
    return _of_rows(path, sheet.header, sheet.rows, wanted, (sheet.read_as,))


def _read_lines(path: Path, wanted: AbstractSet[str]) -> Table:
    try:
        with path.open(encoding="utf-8-sig") as stream, reading(path, stream):
            numbered = enumerate(stream, 1)
            lines = {line: _record(path, line, text) for line, text in numbered if text.strip()}
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as JSON Lines in UTF-8.") from None
    return _of_records(path, lines, wanted)


def _record(path: Path, line: int, text: str) -> Any:
    record, reason = None, ""
    try:
        record = parse_json(text)
    except ValueError as error:
        reason = f" ({first_line(error)})"
    if not isinstance(record, dict):
        raise InputError(
            f"{path}, line {line} is not a JSON object{reason}; write one object a line, with the "
            "columns as its keys."
        )
    return record


def _read_json(path: Path, wanted: AbstractSet[str]) -> Table:
    records = read_json(path, remedy="write a list of objects in UTF-8, one a row")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"{path} is not a list of JSON objects; write one object a row.")
    return _of_records(path, dict(enumerate(records, 1)), wanted)


def _of_records(
    path: Path, records: Mapping[int, Mapping[str, Any]], wanted: AbstractSet[str]
) -> Table:
    names = list(dict.fromkeys(name for record in records.values() for name in record))
    rows = ((line, [*map(record.get, names)]) for line, record in records.items())
    return _of_rows(path, names, rows, wanted)


def _of_rows(
    path: Path,
    header: list[str],
    rows: Iterable[_Row],
    wanted: AbstractSet[str],
    read_as: tuple[str, ...] = (),
) -> Table:
    """Make a table of rows and the lines that they begin on."""
    found = _matched(path, header, wanted)
    cells = [(header.index(written), list[Any]()) for written in found.values()]
    lines = []
    for line, row in rows:
        lines.append(line)
        if isinstance(row, str):
            raise InputError(
                f"{path}, {Rows.on(lines).name(-1)} cannot be read: {row}; save it as CSV in "
                "UTF-8, with quotes around text that holds a comma."
            )
        for place, column in cells:
            column.append(row[place])
    columns = {name: array_of(column) for name, (_, column) in zip(found, cells, strict=True)}
    return Table(path, header, columns, Rows.on(lines), (*read_as, *renamed(found)))


def _matched(path: Path, names: Sequence[Any], wanted: AbstractSet[str]) -> dict[str, str]:
    """Return what a table calls the wanted columns; refuse one that is there twice."""
    found = matched([name for name in names if isinstance(name, str)], wanted)
    refuse_repeated(path, [name for name in names if name in found.values()])
    return found


def _read_parquet(path: Path, wanted: AbstractSet[str]) -> Table:
    import pyarrow.parquet as pq

    with _readable(path), pq.ParquetFile(path) as file:
        names, size = file.schema_arrow.names, file.metadata.num_rows
        return _of_columns(
            path, names, wanted, lambda name: _of_arrow(file.read(columns=[name])[name]), size
        )


def _read_arrow(path: Path, wanted: AbstractSet[str]) -> Table:
    from pyarrow import feather

    with _readable(path):
        # a Feather file of version 2 is an Arrow file
        rows = feather.read_table(path, memory_map=False)
        # Arrow takes offsets and lengths as they are written, and reads where they point
        rows.validate(full=True)
        names, size = rows.column_names, rows.num_rows
        return _of_columns(path, names, wanted, lambda name: _of_arrow(rows[name]), size)


def _read_frame(frame: Any, wanted: AbstractSet[str]) -> Table:
    """Read the wanted columns of a frame; others may hold anything."""
    names, size = getattr(frame, "column_names", None) or frame.columns, len(frame)
    if hasattr(frame, "iloc"):
        path = Path(frame.attrs.get("path", _FRAME))
        return _of_columns(path, names, wanted, lambda name: _of_pandas(frame[name]), size)
    import pyarrow as pa

    def values(name: str) -> NDArray[Any]:
        return _of_arrow(pa.table(frame.select([name]))[name])

    with _readable(_FRAME):
        return _of_columns(_FRAME, names, wanted, values, size)


def _of_pandas(column: Any) -> NDArray[Any]:
    stored = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf"
    return column.to_numpy() if stored else column.to_numpy(object, na_value=None)


def _of_arrow(chunks: Any) -> NDArray[Any]:
    """Return the values of an Arrow column; its own to_numpy imports pandas."""
    import pyarrow as pa

    column = chunks.combine_chunks()
    kind = column.type
    if pa.types.is_floating(kind):
        return np.from_dlpack(column.fill_null(math.nan) if column.null_count else column)
    # floats would turn task 7 into "7.0" as soon as one value is missing
    if pa.types.is_integer(kind) and not column.null_count:
        return np.from_dlpack(column)
    categories = pa.types.is_dictionary(kind)
    if categories or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # one object for equal texts
        encoded = column if categories else column.dictionary_encode()
        texts = [*encoded.dictionary.to_pylist(), None]
        places = encoded.indices.cast(pa.int64()).fill_null(len(texts) - 1)
        return array_of(texts)[np.from_dlpack(places)]
    return array_of(column.to_pylist())


def _of_columns(
    path: Path,
    names: Sequence[Any],
    wanted: AbstractSet[str],
    values: Callable[[str], NDArray[Any]],
    size: int,
) -> Table:
    found = _matched(path, names, wanted)
    parts = counted(f"reading {path.name}", found.items())
    columns = {name: values(written) for name, written in parts}
    rows = Rows.on(range(1, size + 1))
    return Table(path, [*map(str, names)], columns, rows, renamed(found))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Refuse what Arrow cannot read."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, OverflowError, TypeError, ValueError) as error:
        kind = f" as {path.suffix[1:].capitalize()}" if path.suffix else ""
        raise InputError(
            f"{path} cannot be read{kind} ({first_line(error)}); write the table again."
        ) from None


_READERS: Mapping[str, Callable[[Path, AbstractSet[str]], Table]] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), _read_delimited),
    **dict.fromkeys((".parquet", ".pq"), _read_parquet),
    **dict.fromkeys((".jsonl", ".ndjson"), _read_lines),
    ".json": _read_json,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _read_arrow),
    **dict.fromkeys((".xlsx", ".xlsm"), _read_sheet),
}
