"""Table files of every kind, and frames, read under the names of columns that are wanted."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.files import parse_json
from certify_assets.tables.delimited import Rows, read_delimited
from certify_assets.tables.sheets import find_sheet
from certify_assets.tables.table import (
    Table,
    array_of,
    first_line,
    matched,
    nothing_in,
    refuse_repeated,
    renamed,
)

_FRAME = Path("the table")
_MOST_UNPACKED = 1 << 30
_ROWS = "Write one object a line, or a list of objects, with the columns as their keys."


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
    packed = source.suffix.lower() == ".gz"
    reader = _READERS.get((source.with_suffix("") if packed else source).suffix.lower())
    if source.is_dir():
        raise InputError(f"{source} is a folder; name a file.")
    if reader is None:
        raise InputError(
            f"{source} does not end in .csv, .tsv, .parquet, .jsonl, .json, .arrow or .xlsx; save "
            "the score table in one of these formats."
        )
    if not source.is_file():
        raise InputError(f"{source} does not exist or is not a file; check the path.")
    with _unpacked(source) if packed else source.open("rb") as stream:
        if not stream.read(1):
            raise nothing_in(source)
        stream.seek(0)
        return reader(source, stream, wanted)


def _unpacked(packed: Path) -> IO[bytes]:
    """Return what gzip has packed."""
    try:
        with gzip.open(packed) as stream:
            data = stream.read(_MOST_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{packed} cannot be unpacked ({error}); save it again.") from None
    if len(data) > _MOST_UNPACKED:
        raise InputError(f"{packed} unpacks to more than 1 GiB; save it as Parquet.")
    return io.BytesIO(data)


def _read_delimited(path: Path, stream: IO[bytes], wanted: AbstractSet[str]) -> Table:
    text = read_delimited(path, stream.read(), wanted)
    table = _of_rows(path, text, wanted)
    if not text.header:
        raise nothing_in(path)
    return table


def _read_sheet(path: Path, stream: IO[bytes], wanted: AbstractSet[str]) -> Table:
    return _of_rows(path, find_sheet(path, stream, wanted), wanted)


def _read_json(path: Path, stream: IO[bytes], wanted: AbstractSet[str]) -> Table:
    """Read a list of objects, or one object a line."""
    try:
        text = stream.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it in UTF-8.") from None
    if text.lstrip().startswith("["):
        listed = _parsed(text, path)
        rows = dict(enumerate(listed, 1)) if isinstance(listed, list) else {1: listed}
    else:
        lines = enumerate(text.split("\n"), 1)
        rows = {line: _parsed(part, path, line) for line, part in lines if part.strip()}
    for line, row in rows.items():
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {line} is not a JSON object. {_ROWS}")
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = ((line, [*map(row.get, names)]) for line, row in rows.items())
    return _of_rows(path, Rows(names, cells), wanted)


def _parsed(text: str, path: Path, line: int | None = None) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        where = path if line is None else f"{path}, line {line}"
        raise InputError(f"{where} is not a JSON object ({first_line(error)}). {_ROWS}") from None


def _of_rows(path: Path, given: Rows, wanted: AbstractSet[str]) -> Table:
    """Make a table of rows and the lines that they begin on."""
    found = _matched(path, given.header, wanted)
    columns = {name: list[Any]() for name in found}
    places = [given.header.index(written) for written in found.values()]
    lines = []
    for line, row in given.rows:
        lines.append(line)
        if isinstance(row, str):
            raise InputError(
                f"{path}, row {len(lines)} (line {line}) cannot be read: {row}; save it as CSV in "
                "UTF-8, with quotes around text that holds a comma."
            )
        for column, place in zip(columns.values(), places, strict=True):
            column.append(row[place])
    cells = {name: array_of(column) for name, column in columns.items()}
    read_as = (*given.read_as, *renamed(found))
    return Table(path, given.header, cells, np.array(lines, np.int64), read_as)


def _matched(path: Path, names: Sequence[Any], wanted: AbstractSet[str]) -> dict[str, str]:
    """Return what a table calls the wanted columns; refuse one that is there twice."""
    found = matched([name for name in names if isinstance(name, str)], wanted)
    refuse_repeated(path, [name for name in names if name in found.values()])
    return found


def _read_parquet(path: Path, stream: IO[bytes], wanted: AbstractSet[str]) -> Table:
    import pyarrow.parquet as pq

    with _readable(path):
        file = pq.ParquetFile(stream)
        names, size = file.schema_arrow.names, file.metadata.num_rows
        return _of_columns(path, names, wanted, lambda name: _of_arrow(file.read([name])), size)


def _read_arrow(path: Path, stream: IO[bytes], wanted: AbstractSet[str]) -> Table:
    from pyarrow import feather

    with _readable(path):
        # a Feather file of version 2 is an Arrow file
        rows = feather.read_table(stream)
        # Arrow takes offsets and lengths as they are written, and reads where they point
        rows.validate(full=True)
        names, size = rows.column_names, rows.num_rows
        return _of_columns(path, names, wanted, lambda name: _of_arrow(rows.select([name])), size)


def _read_frame(frame: Any, wanted: AbstractSet[str]) -> Table:
    """Read the wanted columns of a frame; others may hold anything."""
    if not hasattr(frame, "iloc"):
        # of Polars or Arrow
        frame = frame.to_pandas()
    path = Path(frame.attrs.get("path", _FRAME))
    return _of_columns(path, frame.columns, wanted, lambda name: _values(frame[name]), len(frame))


def _of_arrow(rows: Any) -> NDArray[Any]:
    """Return the values of a table of one column; integers stay integers where some are missing."""
    (column,) = rows.to_pandas(integer_object_nulls=True).to_dict("series").values()
    return _values(column)


def _values(column: Any) -> NDArray[Any]:
    """Return the values of a column of pandas: numbers as they are stored, others as objects."""
    stored = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf"
    return column.to_numpy() if stored else column.to_numpy(object, na_value=None)


def _of_columns(
    path: Path,
    names: Sequence[Any],
    wanted: AbstractSet[str],
    values: Callable[[str], NDArray[Any]],
    size: int,
) -> Table:
    found = _matched(path, names, wanted)
    columns = {name: values(written) for name, written in found.items()}
    return Table(path, [*map(str, names)], columns, np.arange(1, size + 1), renamed(found))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Refuse what Arrow cannot read."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, OverflowError, TypeError, ValueError) as error:
        kind = path.suffix[1:].capitalize()
        raise InputError(
            f"{path} cannot be read as {kind} ({first_line(error)}); write the table again."
        ) from None


_READERS: Mapping[str, Callable[[Path, IO[bytes], AbstractSet[str]], Table]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), _read_delimited),
    **dict.fromkeys((".parquet", ".pq"), _read_parquet),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _read_json),
    **dict.fromkeys((".arrow", ".feather"), _read_arrow),
    **dict.fromkeys((".xlsx", ".xlsm"), _read_sheet),
}
