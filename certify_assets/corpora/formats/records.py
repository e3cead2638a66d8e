"""Records of JSON documents, JSON lines and Parquet tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from certify_assets.corpora.formats.files import SourceFile, too_large
from certify_assets.files import apart_from_0_and_1, unique_keys

HEAD = 1 << 16
_LINE = re.compile(r"[^\s][^\n]*")
# an object on a line of its own, and the next
_NEXT_LINE = re.compile(r"\{[^\n]*\n\s*\{")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
#: a JSON object of a source, whose fields only its format knows
Record = dict[str, Any]


def decode(data: bytes) -> str:
    """Decode UTF-8; other bytes become lone surrogates, which mark their records."""
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def begins_json(head: bytes, *signs: bytes) -> bool:
    """Whether the first bytes of a file begin a JSON object or list."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(signs or (b"{", b"["))


def is_object_with(head: bytes, marks: Iterable[re.Pattern[bytes]]) -> bool:
    """Whether the first bytes of a file begin a JSON object in which every mark occurs."""
    return begins_json(head, b"{") and all(mark.search(head) for mark in marks)


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


def listed_records(values: Iterable[Any]) -> Iterator[tuple[int, Record | str]]:
    """Number the records of a list from 1; what is no object is a sentence."""
    return ((row, _object(value)) for row, value in enumerate(values, 1))


def _object(value: Any) -> Record | str:
    return value if isinstance(value, dict) else f"it is {type(value).__name__}, not an object"


def one_object(data: bytes | str) -> Record | str:
    """Return the object that a file or line holds or, in words, why it holds none."""
    text = decode(data) if isinstance(data, bytes) else data
    if not text.isascii() and _NOT_UTF8.search(text):
        return "it is not UTF-8"
    try:
        return _object(json_value(text))
    except ValueError as error:
        return str(error)


def iter_lines(data: bytes) -> Iterator[tuple[int, Record | str]]:
    """Go through JSON lines, numbered; a broken one is a sentence, an empty one is passed over."""
    text = decode(data)
    number, counted = 1, 0
    # a file of empty lines would fill memory if all lines were cut out before the first is read
    for match in _LINE.finditer(text):
        number += text.count("\n", counted, match.start())
        counted = match.start()
        yield number, one_object(match[0].strip())


def json_records(data: bytes) -> Iterator[tuple[int, Record | str]]:
    """Go through the objects of a file: one a line, a list, or a single one over many lines."""
    text = decode(data).strip()
    if text.startswith("["):
        try:
            yield from listed_records(json_value(data))
        except ValueError as error:
            yield 1, str(error)
    elif "\n" not in text or _NEXT_LINE.match(text):
        yield from iter_lines(data)
    else:
        yield 1, one_object(text)


def parquet_names(file: SourceFile) -> set[str] | None:
    """Return the names of a Parquet file's columns, None where it is no Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open() as stream:
            return set(pq.ParquetFile(stream).schema_arrow.names)
    except (pa.ArrowException, OSError, ValueError):
        return None


def parquet_rows(
    file: SourceFile, columns: Sequence[str], *, batch_rows: int
) -> Iterator[tuple[int, Record | str]]:
    """Go through the rows of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with file.open() as stream:
            table = pq.ParquetFile(stream)
            # one iterator over all groups would hold on to the bytes of every group it has read
            for group in range(table.num_row_groups):
                size = int(table.metadata.row_group(group).total_byte_size)
                if size > file.limit:
                    raise too_large(f"{file.name} has a row group of {size:,} bytes", file.limit)
                for batch in table.iter_batches(
                    batch_size=batch_rows, row_groups=[group], columns=list(columns)
                ):
                    for values in batch.to_pylist():
                        number += 1
                        yield number, values
    except (pa.ArrowException, OSError, ValueError) as error:
        yield number + 1, f"the file cannot be read from here on ({type(error).__name__})"
