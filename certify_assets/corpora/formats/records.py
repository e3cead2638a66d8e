"""Records of files (JSON documents and lines, CSV, Excel, Parquet) and their values."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from certify_assets.corpora.formats.files import (
    FILE_BYTES,
    NOT_GZIP,
    BrokenFileError,
    SourceFile,
    too_large,
)
from certify_assets.errors import InputError
from certify_assets.files import apart_from_0_and_1, parse_json
from certify_assets.tables.reading import SHEETS, find_sheet, read_delimited, refuse_repeated

#: bytes of a file that tell its format
HEAD = 1 << 16
PARQUET = (".parquet", ".pq")
LINES = (".jsonl", ".ndjson")
JSON = (".json", *LINES)
DELIMITED = (".csv", ".tsv")
#: what tracing tools export to
EXPORTS = (*JSON, *DELIMITED, *PARQUET)
# an object on a line of its own, and the next
_NEXT_LINE = re.compile(rb"\{[^\n]*\n\s*\{")
_BLANK = b"\xef\xbb\xbf \t\r\n"
_KEY = re.compile(rb'"([A-Za-z_]{2,40})"\s*:')
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_FIRST_ROWS = 100
_BATCH_ROWS = 64
#: a JSON object of a source, whose fields only its format knows
Record = dict[str, Any]
#: where a record begins in its file, from 1, and the record or, in words, why it is none
Row = tuple[int, Record | str]


def text_of(value: Any) -> str:
    """Return the value if it is text, otherwise ""."""
    return value if isinstance(value, str) else ""


def named(value: Any) -> str | None:
    """Return the value if it is text that can name something."""
    return value if isinstance(value, str) and value.strip() else None


def hashed(text: str) -> str:
    """Return sixteen hexadecimal digits of a text's hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_id(value: Any) -> bool:
    """Whether a value can identify a record: a number or text, not empty."""
    return isinstance(value, int | str) and not isinstance(value, bool) and value != ""


def mapping(value: Any) -> Record:
    """Return the value if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """Return the value if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[Record]:
    """Return the objects of a list."""
    return [item for item in listed(value) if isinstance(item, dict)]


def is_list_of_objects(value: Any) -> bool:
    """Whether a value is a list that holds only objects."""
    return isinstance(value, list) and len(objects(value)) == len(value)


def inside(value: Any, *path: str) -> Any:
    """Return the value at a path of keys, or None."""
    for key in path:
        value = mapping(value).get(key)
    return value


def parsed(value: Any) -> Any:
    """Parse a JSON text of an object or list; return any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def snake(record: Record) -> Record:
    """Rename the fields of an API (traceId) to those of the tool's files (trace_id)."""
    return {_snake(name): value for name, value in record.items()}


def _snake(name: str) -> str:
    return _HUMP.sub(r"_\1", name).lower()


def begins(file: SourceFile, signs: bytes, *marks: bytes) -> bool:
    """Whether a file begins with one of the characters, and its beginning matches all patterns."""
    head = file.head(HEAD)
    first = head.lstrip(_BLANK)[:1]
    return bool(first) and first in signs and all(re.search(mark, head) for mark in marks)


def has_fields(file: SourceFile, *kinds: Collection[str]) -> bool:
    """Whether the first records of a file have all fields of one of the kinds."""
    names: Iterable[str] = ()
    try:
        if file.suffix in PARQUET:
            names = opened(file).names
        elif file.suffix in DELIMITED:
            names = read_delimited(file.name, file.head(HEAD), frozenset()).header
        elif begins(file, b"{["):
            names = (name.decode() for name in _KEY.findall(file.head(HEAD)))
    except InputError:
        return False
    found = {_snake(name.strip()) for name in names}
    return any(found.issuperset(kind) for kind in kinds)


def json_value(data: bytes) -> Any:
    """Parse a whole file or line; a ValueError names the fault."""
    try:
        return parse_json(data.decode("utf-8-sig"), parse_float=apart_from_0_and_1)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg})") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def document(file: SourceFile) -> Any:
    """Parse a file of one JSON value."""
    try:
        return json_value(file.read())
    except ValueError as error:
        raise BrokenFileError(f"{file.name} cannot be used: {error}; fetch it again.") from None


def one_object(data: bytes) -> Record | str:
    """Return the object in a file or line, or the reason why there is none."""
    try:
        return _object(json_value(data))
    except ValueError as error:
        return str(error)


def listed_records(values: Iterable[Any]) -> Iterator[Row]:
    """Number the records of a list from 1."""
    return ((row, _object(value)) for row, value in enumerate(values, 1))


def _object(value: Any) -> Record | str:
    return value if isinstance(value, dict) else f"it is {type(value).__name__}, not an object"


def json_rows(file: SourceFile) -> Iterator[Row]:
    """Iterate over the objects of a file: one on each line, a list, or a single one."""
    if file.suffix in LINES:
        yield from _lines(file.open(), file)
        return
    data = file.read()
    start = data.lstrip(_BLANK)
    if start.startswith(b"["):
        yield from listed_records(document(file))
    elif _NEXT_LINE.match(start):
        yield from _lines(io.BytesIO(data), file)
    else:
        yield 1, one_object(data)


def _lines(stream: Any, file: SourceFile) -> Iterator[Row]:
    number = 0
    try:
        with stream:
            while line := stream.readline(FILE_BYTES + 1):
                number += 1
                if len(line) > FILE_BYTES:
                    raise too_large(f"row {number} of {file.name}", FILE_BYTES)
                if line.strip():
                    yield number, one_object(line)
    except NOT_GZIP as error:
        raise BrokenFileError(
            f"{file.name} cannot be decompressed after row {number} ({error}); fetch it again."
        ) from None


class Opened(NamedTuple):
    """A file of records: the names of their fields, their rows, and how it was read."""

    names: list[str]
    rows: Callable[[Collection[str]], Iterator[Row]]
    read_as: tuple[str, ...] = ()


def opened(file: SourceFile, wanted: Collection[str] = ()) -> Opened:
    """Open a file of records; the `wanted` fields tell its header from other lines.

    Without any, the names in JSON, which need a pass over the file, are not determined.
    """
    if file.suffix in PARQUET:
        with _parquet(file) as table:
            names = sorted(table.schema_arrow.names)
        return Opened(names, lambda columns: _parquet_rows(file, columns))
    if file.suffix in SHEETS:
        sheet = find_sheet(file.name, io.BytesIO(file.read()), frozenset(wanted))
        header = [name for name in sheet.header if name]
        rows = [(line, dict(zip(sheet.header, row, strict=False))) for line, row in sheet.rows]
        return Opened(header, lambda _: iter(rows), sheet.read_as)
    if file.suffix in DELIMITED:
        data = file.read()
        text = read_delimited(file.name, data, frozenset(wanted))
        names = [name.strip() for name in text.header]
        refuse_repeated(file.name, names)

        def cells(_: Collection[str]) -> Iterator[Row]:
            for line, row in read_delimited(file.name, data, frozenset(wanted)).rows:
                yield line, row if isinstance(row, str) else dict(zip(names, row, strict=True))

        return Opened(names, cells, text.read_as)
    first = [mapping(record) for _, record in islice(json_rows(file), _FIRST_ROWS if wanted else 0)]
    found = dict.fromkeys(name for record in first for name in record)
    return Opened(list(found), lambda _: json_rows(file))


@contextmanager
def _parquet(file: SourceFile) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open() as stream:
            yield pq.ParquetFile(stream)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BrokenFileError(
            f"{file.name} is damaged or not a Parquet file ({type(error).__name__}); write it "
            "again."
        ) from None


def _parquet_rows(file: SourceFile, columns: Collection[str]) -> Iterator[Row]:
    number = 0
    with _parquet(file) as table:
        # one iterator over all groups would hold on to the bytes of every group it has read
        for group in range(table.num_row_groups):
            size = int(table.metadata.row_group(group).total_byte_size)
            if size > FILE_BYTES:
                raise too_large(f"a row group of {file.name}", FILE_BYTES)
            for batch in table.iter_batches(_BATCH_ROWS, [group], sorted(columns)):
                for values in batch.to_pylist():
                    number += 1
                    yield number, values
