"""Table files of every kind, and frames, read by the names of the wanted columns.

The module csv reads delimited text: pandas fills rows that are too short, and does not name the
line of a fault. Workbooks are read as their cells are stored.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Integers
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import parse_json
from certify_assets.tables.cells import array_of

_FRAME = Path("the table")
# a million rows of a score table take 200 MB in a workbook
_MOST_UNPACKED = 1 << 30
_ROWS = "Write one object a line, or a list of objects, with the columns as their keys."
# what separates fields, and its name where it is not the comma
_SEPARATORS = {",": "", ";": "semicolons", "\t": "tabs", "|": "bars"}
# a run may be a field of megabytes
_FIELD_CHARACTERS = 1 << 27
_HEAD = 1 << 20
SHEETS = (".xlsx", ".xlsm")
#: how text in UTF-16 begins
UTF16 = (b"\xff\xfe", b"\xfe\xff")
# what stands for bytes that are not UTF-8
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True)
class Table:
    """The wanted columns of a file or of a frame.

    Attributes
    ----------
    path
        Its name in messages.
    names
        All columns, as the file calls them.
    columns
        The wanted columns that were found, by the wanted names. Numbers are as stored, other values
        are objects.
    lines
        The line on which each row begins: headers, blank lines and fields of several lines shift
        them.
    read_as
        Sentences on what is unusual in the file: separators, encodings, names.
    """

    path: Path
    names: list[str]
    columns: Mapping[str, NDArray[Any]]
    lines: Integers
    read_as: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.lines.size)

    def row(self, place: int) -> str:
        """Name a row by its number, from 1, and its line where that is another number."""
        number, line = place + 1, self.lines[place]
        return f"row {number}" if line == number else f"row {number} (line {line})"

    @property
    def listed(self) -> str:
        """Its columns, as messages list them."""
        return ", ".join([*filter(None, self.names)][:12])

    def values(self, name: str) -> list[Any]:
        """Return the Python values of a column."""
        return self.columns[name].tolist()

    def has(self, name: str) -> bool:
        """Whether the file has a column, ignoring spaces, hyphens and capitals."""
        return bool(matched(self.names, {name}))


class Rows(NamedTuple):
    """A header, and the rows below it: the line each begins on, and its cells or its fault."""

    header: list[str]
    rows: Iterable[tuple[int, list[Any] | str]]
    # what was understood that a table usually does not need
    read_as: tuple[str, ...] = ()


def matched(names: Sequence[str], wanted: AbstractSet[str]) -> dict[str, str]:
    """Return a file's names of the wanted columns; an equal name counts before a similar one."""
    found = {name: name for name in names if name in wanted}
    alike: dict[str, list[str]] = {}
    for name in filter(None, names):
        if name not in found:
            alike.setdefault(_plain(name), []).append(name)
    for name in wanted - found.keys():
        written = alike.get(_plain(name), [])
        # of two that are alike neither is meant
        if len(written) == 1:
            found[name] = written[0]
    return dict(sorted(found.items()))


def _plain(name: str) -> str:
    return "_".join(name.lower().replace("-", " ").replace("_", " ").split())


def renamed(names: Mapping[str, str]) -> tuple[str, ...]:
    """Say which columns have another name in the file."""
    return tuple(
        f"column {written.strip()!r} as {name}"
        for name, written in names.items()
        if name != written
    )


def refuse_repeated(path: Path | str, header: Sequence[str]) -> None:
    """Refuse a header that names a column twice."""
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InputError(f"{path} has two columns called {twice!r}; keep one of them.")


def refuse_alike(path: Path | str, names: Sequence[str], wanted: Iterable[str]) -> None:
    """Refuse a table with two columns for one thing, such as score and Score."""
    for name in wanted:
        alike = [repr(other) for other in names if _plain(other) == _plain(name)]
        if len(alike) > 1:
            raise InputError(
                f"{path} has {len(alike)} columns for {name}: {', '.join(alike)}. Keep one of them."
            )


def first_line(error: BaseException) -> str:
    """Return the first line of another program's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def read_table(source: Any, wanted: AbstractSet[str]) -> Table:
    """Read the wanted columns that a table has.

    Parameters
    ----------
    source : Path or frame
        A file, whose ending says what it is, or a frame of pandas, Polars or Arrow.
    wanted : set of str
        Names of columns; case, spaces, hyphens and underscores are ignored.

    Raises
    ------
    InputError
        If there is no table, or part of it cannot be read.
    """
    if not isinstance(source, Path):
        frame = source if hasattr(source, "iloc") else source.to_pandas()
        return _of_frame(Path(frame.attrs.get("path", _FRAME)), frame.columns, wanted, frame)
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
            raise _nothing_in(source)
        stream.seek(0)
        return reader(source, stream, wanted)


def _nothing_in(path: Path | str) -> InputError:
    return InputError(
        f"{path} is empty, or holds blank lines only; write a header and one row a trajectory."
    )


def _too_large(path: Path | str) -> InputError:
    return InputError(f"{path} unpacks to more than 1 GiB; save it as Parquet.")


def _unpacked(packed: Path) -> IO[bytes]:
    """Return the unpacked content of a gzip file."""
    try:
        with gzip.open(packed) as stream:
            data = stream.read(_MOST_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{packed} cannot be unpacked ({error}); save it again.") from None
    if len(data) > _MOST_UNPACKED:
        raise _too_large(packed)
    return io.BytesIO(data)


def _read_text(path: Path, stream: IO[bytes], wanted: AbstractSet[str]) -> Table:
    return _of_rows(path, read_delimited(path, stream.read(), wanted), wanted)


def _read_sheet(path: Path, stream: IO[bytes], wanted: AbstractSet[str]) -> Table:
    return _of_rows(path, find_sheet(path, stream, wanted), wanted)


def _read_json(path: Path, stream: IO[bytes], wanted: AbstractSet[str]) -> Table:
    """Read a list of objects, or one object a line."""
    try:
        text = stream.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it in UTF-8.") from None
    lines, rows = enumerate(text.split("\n"), 1), dict[int, Any]()
    if text.lstrip().startswith("["):
        rows = dict(enumerate(_parsed(text, f"{path}"), 1))
    else:
        rows = {line: _parsed(part, f"{path}, line {line}") for line, part in lines if part.strip()}
    for line, row in rows.items():
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {line} is not a JSON object. {_ROWS}")
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = ((line, [*map(row.get, names)]) for line, row in rows.items())
    return _of_rows(path, Rows(names, cells), wanted)


def _parsed(text: str, where: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise InputError(f"{where} is not a JSON object ({first_line(error)}). {_ROWS}") from None


def _of_rows(path: Path, given: Rows, wanted: AbstractSet[str]) -> Table:
    """Make a table of rows and the lines on which they begin."""
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
    if not given.header and not lines:
        raise _nothing_in(path)
    cells = {name: array_of(column) for name, column in columns.items()}
    read_as = (*given.read_as, *renamed(found))
    return Table(path, given.header, cells, np.array(lines, np.int64), read_as)


def _matched(path: Path, names: Sequence[Any], wanted: AbstractSet[str]) -> dict[str, str]:
    """Return a table's names of the wanted columns; refuse one that is there twice."""
    found = matched([name for name in names if isinstance(name, str)], wanted)
    refuse_repeated(path, [name for name in names if name in found.values()])
    return found


def _read_arrow(path: Path, stream: IO[bytes], wanted: AbstractSet[str]) -> Table:
    """Read the wanted columns of a Parquet or Arrow file; others may be damaged."""
    import pyarrow as pa
    from pyarrow import feather, parquet

    kind = path.suffix[1:].capitalize()
    try:
        if kind in ("Parquet", "Pq"):
            file = parquet.ParquetFile(stream)
            names = file.schema_arrow.names
            rows = file.read([*_matched(path, names, wanted).values()])
        else:
            # a Feather file of version 2 is an Arrow file
            rows = feather.read_table(stream)
            # Arrow takes offsets and lengths as they are written, and reads where they point
            rows.validate(full=True)
            names = rows.column_names
            rows = rows.select([*_matched(path, names, wanted).values()])
        # integers stay integers where some are missing, and an index of pandas is a column
        frame = rows.to_pandas(integer_object_nulls=True, ignore_metadata=True)
        return _of_frame(path, names, wanted, frame)
    except (pa.ArrowException, OSError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, CertifyError):
            raise
        raise InputError(
            f"{path} cannot be read as {kind} ({first_line(error)}); write the table again."
        ) from None


def _of_frame(path: Path, names: Sequence[Any], wanted: AbstractSet[str], frame: Any) -> Table:
    """Make a table of columns of pandas: numbers as stored, others as objects."""
    found = _matched(path, names, wanted)
    columns = {}
    for name, written in found.items():
        column = frame[written]
        stored = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf"
        columns[name] = column.to_numpy() if stored else column.to_numpy(object, na_value=None)
    return Table(path, [*map(str, names)], columns, np.arange(1, len(frame) + 1), renamed(found))


_READERS: Mapping[str, Callable[[Path, IO[bytes], AbstractSet[str]], Table]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), _read_text),
    **dict.fromkeys((".parquet", ".pq", ".arrow", ".feather"), _read_arrow),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _read_json),
    **dict.fromkeys(SHEETS, _read_sheet),
}


def read_delimited(name: Path | str, data: bytes, wanted: AbstractSet[str]) -> Rows:
    """Read text in UTF-8 or UTF-16; the separator is the one that finds most wanted columns."""
    try:
        encoded = data.decode("utf-16").encode() if data[:2] in UTF16 else data
    except UnicodeError:
        raise InputError(f"{name} is not UTF-16 text; save it as CSV in UTF-8.") from None
    text = encoded.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    headers = {}
    for sign in _SEPARATORS:
        _, cells = next(_records(text[:_HEAD], sign), (0, ""))
        # none where it is no CSV
        headers[sign] = cells if isinstance(cells, list) else []
    # of several that find as many the first one
    separator = max(
        headers, key=lambda sign: (len(matched(headers[sign], wanted)), len(headers[sign]))
    )
    named, header = _SEPARATORS[separator], headers[separator]
    rows = islice(_records(text, separator), 1 if header else 0, None)
    return Rows(header, rows, (f"{named} between fields",) if named else ())


def _records(text: str, separator: str) -> Iterator[tuple[int, list[Any] | str]]:
    """Iterate over the records that are not blank; the first that is CSV is the header."""
    csv.field_size_limit(_FIELD_CHARACTERS)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    width, is_utf8 = 0, _NOT_UTF8.search(text) is None
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # a quote that is never closed takes in all that follows
            last = reader.line_num
            opened = f"; its quote is not closed up to line {last}" if last > line else ""
            yield line, f"it is not CSV ({error}{opened})"
            continue
        if len(cells) < 2 and not "".join(cells).strip():
            continue
        width = width or len(cells)
        if len(cells) != width:
            yield line, f"it has {len(cells)} cells, the header has {width}"
        elif not is_utf8 and _NOT_UTF8.search("".join(cells)):
            yield line, "it is not UTF-8"
        else:
            yield line, cells


def find_sheet(path: Path | str, source: IO[bytes], wanted: AbstractSet[str]) -> Rows:
    """Return the sheet of a workbook that has most of the wanted columns."""
    try:
        with zipfile.ZipFile(source) as archive:
            if sum(part.file_size for part in archive.infolist()) > _MOST_UNPACKED:
                raise _too_large(path)
        sheets = _sheets(source, values=True)
    except (CertifyError, ImportError):
        raise
    # a damaged part raises whatever its parser does
    except Exception as error:
        raise InputError(
            f"{path} cannot be read as an Excel workbook ({first_line(error)}); save the sheet as "
            "CSV."
        ) from None
    counts = {title: len(matched(names, wanted)) for title, (names, _) in sheets.items() if names}
    best = [title for title, count in counts.items() if count == max(counts.values())]
    if not best:
        raise _nothing_in(path)
    if len(best) > 1:
        raise InputError(
            f"{path} has the table in several sheets ({', '.join(map(repr, best))}); keep one of "
            "them, or save it as CSV."
        )
    title, (header, rows) = best[0], sheets[best[0]]
    refuse_repeated(path, [name for name in header if name])
    places = [header.index(name) for name in matched(header, wanted).values()]
    for place in places:
        after = slice(place + 1, place + 2)
        filled = not any(header[after]) and any(
            cells[after] not in ([], [None]) for _, cells in rows
        )
        if filled and _merges(source, place):
            raise InputError(
                f"{path}: the name {header[place]!r} is merged over two columns with values. "
                "Give each column its own name, or delete one."
            )
    empty = [(line, place) for line, cells in rows for place in places if cells[place] is None]
    # programs other than Excel write formulas without a value, which read empty
    written = dict(_sheets(source, values=False)[title][1]) if empty else {}
    for line, place in empty:
        if written[line][place] is not None:
            raise InputError(
                f"{path}, line {line}, column {header[place]!r}: the formula has no value "
                "yet; open the workbook, calculate and save it, or save the sheet as CSV."
            )
    return Rows(header, rows, (f"Excel workbook, sheet {title!r}",))


def _merges(source: IO[bytes], place: int) -> bool:
    """Whether a sheet merges a cell of a column with the next one."""
    from openpyxl.utils import get_column_letter

    merged = rf'mergeCell ref="{get_column_letter(place + 1)}(\d+):[A-Z]+\1"'.encode()
    with zipfile.ZipFile(source) as archive:
        parts = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
        return any(re.search(merged, archive.read(name)) for name in parts)


def _sheets(
    source: IO[bytes], *, values: bool
) -> dict[str, tuple[list[str], list[tuple[int, list[Any]]]]]:
    """Return the header and the rows of all sheets: formulas as their values, or as written."""
    from openpyxl import load_workbook

    found = {}
    with warnings.catch_warnings():
        # of styles and extensions, which hold no values
        warnings.simplefilter("ignore")
        book = load_workbook(source, read_only=True, data_only=values)
        for sheet in book.worksheets:
            filled = [
                (line, list(cells))
                for line, cells in enumerate(sheet.values, 1)
                if any(cell is not None and str(cell).strip() for cell in cells)
            ]
            names = filled.pop(0)[1] if filled else []
            header = ["" if name is None else str(name) for name in names]
            # the library leaves out empty cells at the end of a row
            padded = [(line, row + [None] * (len(header) - len(row))) for line, row in filled]
            found[sheet.title] = header, padded
        book.close()
    return found
