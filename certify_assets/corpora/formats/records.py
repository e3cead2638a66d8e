"""Records of files: JSON documents and lines, CSV, Excel and Parquet tables."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from certify_assets.corpora.formats.files import BrokenFileError, SourceFile, too_large
from certify_assets.errors import InputError
from certify_assets.files import apart_from_0_and_1, unique_keys
from certify_assets.tables.delimited import DelimitedText
from certify_assets.tables.sheets import find_sheet
from certify_assets.tables.table import refuse_repeated

HEAD = 1 << 16
PARQUET = (".parquet", ".pq")
LINES = (".jsonl", ".ndjson")
JSON = (".json", *LINES)
DELIMITED = (".csv", ".tsv")
SHEETS = (".xlsx", ".xlsm")
#: what tracing tools export to
EXPORTS = (*JSON, *DELIMITED, *PARQUET)
# an object on a line of its own, and the next
_NEXT_LINE = re.compile(r"\{[^\n]*\n\s*\{")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_KEY = re.compile(rb'"([A-Za-z_]{2,40})"\s*:')
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_FIRST_ROWS = 100
_BATCH_ROWS = 64
#: a JSON object of a source, whose fields only its format knows
Record = dict[str, Any]
#: where a record begins in its file, from 1, and the record or, in words, why it is none
Row = tuple[int, Record | str]


class Opened(NamedTuple):
    """A file of records: the names of their fields, their rows, and how it was read."""

    names: list[str]
    rows: Callable[[Collection[str]], Iterator[Row]]
    read_as: tuple[str, ...] = ()


def begins_json(head: bytes, *signs: bytes) -> bool:
    """Whether the first bytes of a file begin a JSON object or list."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(signs or (b"{", b"["))


def is_object_with(head: bytes, *marks: bytes) -> bool:
    """Whether the first bytes of a file begin a JSON object in which every pattern occurs."""
    return begins_json(head, b"{") and all(re.search(mark, head) for mark in marks)


def json_value(data: bytes | str) -> Any:
    """Parse a whole file or line; a ValueError says what is wrong with it."""
    try:
        return json.loads(data, object_pairs_hook=unique_keys, parse_float=apart_from_0_and_1)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except ValueError as error:
        # ours begin so; Python's own are of integers alone
        said = str(error)
        raise ValueError(
            said if said.startswith("it has") else "it holds a number that is too long"
        ) from None


def one_object(data: bytes) -> Record | str:
    """Return the object that a file or line holds or, in words, why it holds none."""
    # other bytes become lone surrogates, which mark their records
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    if not text.isascii() and _NOT_UTF8.search(text):
        return "it is not UTF-8"
    try:
        return _object(json_value(text))
    except ValueError as error:
        return str(error)


def listed_records(values: Iterable[Any]) -> Iterator[Row]:
    """Number the records of a list from 1."""
    return ((row, _object(value)) for row, value in enumerate(values, 1))


def _object(value: Any) -> Record | str:
    return value if isinstance(value, dict) else f"it is {type(value).__name__}, not an object"


def json_rows(file: SourceFile) -> Iterator[Row]:
    """Go through the objects of a file: one a line, a list, or a single one over many lines."""
    if file.suffix in LINES:
        yield from _lines(file.open(), file)
        return
    data = file.read()
    if begins_json(data, b"["):
        try:
            yield from listed_records(json_value(data))
        except ValueError as error:
            raise BrokenFileError(f"{file.name} cannot be used: {error}; correct it.") from None
    elif _NEXT_LINE.match(data.lstrip(b"\xef\xbb\xbf \t\r\n").decode("utf-8", "replace")):
        yield from _lines(io.BytesIO(data), file)
    else:
        yield 1, one_object(data)


def _lines(stream: Any, file: SourceFile) -> Iterator[Row]:
    number = 0
    try:
        with stream:
            while line := stream.readline(file.limit):
                number += 1
                if line.strip():
                    yield number, one_object(line)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BrokenFileError(
            f"{file.name} cannot be decompressed after row {number} ({error}); fetch it again."
        ) from None


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
            if size > file.limit:
                raise too_large(f"{file.name} has a row group of {size:,} bytes", file.limit)
            for batch in table.iter_batches(_BATCH_ROWS, [group], sorted(columns)):
                for values in batch.to_pylist():
                    number += 1
                    yield number, values


def opened(file: SourceFile, wanted: AbstractSet[str] = frozenset()) -> Opened:
    """Open a file of records; the `wanted` fields tell its header from other lines.

    Without any, the names in JSON, which cost a reading, are not looked for.
    """
    if file.suffix in PARQUET:
        with _parquet(file) as table:
            names = sorted(table.schema_arrow.names)
        return Opened(names, lambda columns: _parquet_rows(file, columns))
    if file.suffix in SHEETS:
        sheet = find_sheet(file.name, io.BytesIO(file.read()), wanted)
        header = [name for name in sheet.header if name]
        named = [(line, dict(zip(sheet.header, row, strict=False))) for line, row in sheet.rows]
        return Opened(header, lambda _: iter(named), (sheet.read_as,))
    if file.suffix in DELIMITED:
        text = DelimitedText(file.name, file.read(), wanted)
        names = [name.strip() for name in text.header]
        refuse_repeated(file.name, names)

        def cells(_: Collection[str]) -> Iterator[Row]:
            for line, row in text.rows(text.opened()):
                yield line, row if isinstance(row, str) else dict(zip(names, row, strict=True))

        return Opened(names, cells, text.read_as)
    first = [record for _, record in islice(json_rows(file), _FIRST_ROWS if wanted else 0)]
    found = (name for record in first if isinstance(record, dict) for name in record)
    return Opened(list(dict.fromkeys(found)), lambda _: json_rows(file))


def snake(record: Record) -> Record:
    """Name the fields of an API (traceId) as files of the same tool do (trace_id)."""
    return {_snake(name): value for name, value in record.items()}


def _snake(name: str) -> str:
    return _HUMP.sub(r"_\1", name).lower()


def has_fields(file: SourceFile, *kinds: Collection[str]) -> bool:
    """Whether a file begins with records that have all fields of one of the kinds."""
    try:
        names = set(map(_snake, _field_names(file)))
    except InputError:
        return False
    return any(names.issuperset(kind) for kind in kinds)


def _field_names(file: SourceFile) -> Iterable[str]:
    if file.suffix in PARQUET:
        return opened(file).names
    head = file.head(HEAD)
    if file.suffix in DELIMITED:
        return [name.strip() for name in DelimitedText(file.name, head, frozenset()).header]
    return [name.decode() for name in _KEY.findall(head)] if begins_json(head) else ()
