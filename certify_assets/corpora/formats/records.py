"""Records of JSON documents, JSON lines and Parquet tables, also of damaged ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from certify_assets.corpora.formats.files import SourceFile
from certify_assets.errors import InputError
from certify_assets.files import apart_from_0_and_1, unique_keys
from certify_assets.work import WorkStage, under_way

HEAD = 1 << 16
REST_LOST = "the file ends early or is too damaged to tell its records apart from here on"
_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys, parse_float=apart_from_0_and_1)
_SPACE = re.compile(r"[\s,]*")
_LINE = re.compile(r"[^\s][^\n]*")
_COLON = re.compile(r"\s*:\s*")
_NEXT_RECORD = re.compile(r"\}\s*,\s*(?=\{)")
_NEXT_MEMBER = re.compile(r'\}\s*,\s*(?="[^"\\]*"\s*:\s*\{)')
# an object on a line of its own, and the next
_NEXT_LINE = re.compile(r"\{[^\n]*\n\s*\{")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_MOST_RESYNCS = 2_000
_FIRST_FEW = 5
#: a JSON object of a source, whose fields only its format knows
Record = dict[str, Any]
_Member = Callable[[str, int], tuple[str, Any, int | None]]
# how many times the limit of a file the values of all its rows may take
_UNPACKED_LIMITS = 8


def decode(data: bytes) -> str:
    """Decode UTF-8; other bytes become lone surrogates, which mark their records."""
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def is_object_with(head: bytes, marks: Iterable[re.Pattern[bytes]]) -> bool:
    """Whether the first bytes of a file begin a JSON object in which every mark occurs."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and all(
        mark.search(head) for mark in marks
    )


def first_record(data: bytes, required: frozenset[str]) -> Record | None:
    """Return the first whole object of a JSON list that has the required keys."""
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return None
    for number, record in iter_list(data, required):
        if isinstance(record, dict) and required <= record.keys():
            return record
        if number >= _FIRST_FEW:
            break
    return None


def first_object(text: str, key: str, required: str) -> Record:
    """Return the first object of that key, at any depth, which has the required key."""
    for count, match in enumerate(_opening(key, "{").finditer(text)):
        record, end = _parse(text, match.end() - 1)
        if end is not None and required in record:
            return dict(record)
        if count >= _FIRST_FEW:
            break
    return {}


def iter_list(
    data: bytes | str, required: frozenset[str], under: str = ""
) -> Iterator[tuple[int, Record | str]]:
    """Go through the records of a JSON list, from 1; a broken one is a sentence."""
    text = data if isinstance(data, str) else decode(data)
    for number, _, record in _records(text, _start(text, under, "["), _list_member, required):
        yield number, record


def iter_dict(
    data: bytes | str, required: frozenset[str], under: str = ""
) -> Iterator[tuple[int, str, Record | str]]:
    """Go through the objects that are the values of a JSON object."""
    text = data if isinstance(data, str) else decode(data)
    yield from _records(text, _start(text, under, "{"), _dict_member, required)


def _records(
    text: str, position: int, member: _Member, required: frozenset[str]
) -> Iterator[tuple[int, str, Record | str]]:
    clean = text.isascii() or not _NOT_UTF8.search(text)
    number = resyncs = 0
    with parsing(text) as stage:
        while (position := _skip(text, position)) < len(text) and text[position] not in "]}":
            number, stage.done = number + 1, position
            key, record, end = member(text, position)
            if end is None:
                yield number, key, str(record)
                found, resyncs = _resync(text, position, member, required, resyncs)
                if found is None:
                    yield number + 1, "", REST_LOST
                    return
                position = found
                continue
            yield number, key, _checked(record, "" if clean else text[position:end])
            position = end
    if position >= len(text):
        yield number + 1, "", REST_LOST


def _opening(key: str, bracket: str) -> re.Pattern[str]:
    return re.compile(rf'"{re.escape(key)}"\s*:\s*{re.escape(bracket)}')


def _start(text: str, under: str, bracket: str) -> int:
    if not under:
        return text.find(bracket) + 1
    match = _opening(under, bracket).search(text)
    return match.end() if match else len(text)


def _list_member(text: str, position: int) -> tuple[str, Any, int | None]:
    return "", *_parse(text, position)


def _dict_member(text: str, position: int) -> tuple[str, Any, int | None]:
    """Parse a key and its value; the end is None where one of the two is broken."""
    key, end = _parse(text, position)
    colon = _COLON.match(text, end) if end is not None and isinstance(key, str) else None
    if colon is None:
        return "", key if end is None else "it has no key", None
    return key, *_parse(text, colon.end())


def one_object(text: str) -> Record | str:
    """Return the object that a file holds or, in words, why it holds none."""
    record, end = _parse(text, _skip(text, 0))
    return str(record) if end is None else _checked(record, text[:end])


def iter_lines(data: bytes) -> Iterator[tuple[int, Record | str]]:
    """Go through JSON lines; as `iter_list`, numbered by line. Empty lines are passed over."""
    text = decode(data)
    number, counted = 1, 0
    # a file of empty lines would fill memory if all lines were cut out before the first is read
    with parsing(text) as stage:
        for match in _LINE.finditer(text):
            number += text.count("\n", counted, match.start())
            counted = stage.done = match.start()
            line = match[0].strip()
            record, end = _parse(line, 0)
            if end is not None and line[end:]:
                yield number, "something follows the object on its line"
            else:
                yield number, str(record) if end is None else _checked(record, line)


def parsing(text: str) -> AbstractContextManager[WorkStage]:
    """Have a file shown of which all is in memory, and the records are taken out of it."""
    return under_way(WorkStage("reading its records", len(text), in_bytes=True))


def json_records(data: bytes) -> Iterator[tuple[int, Record | str]]:
    """Go through the objects of a file: one a line, a list, or a single one over many lines."""
    text = decode(data).strip()
    if text.startswith("["):
        yield from iter_list(text, frozenset())
    elif "\n" not in text or _NEXT_LINE.match(text):
        yield from iter_lines(data)
    else:
        yield 1, one_object(text)


def _checked(record: Any, raw: str) -> Record | str:
    if not raw.isascii() and _NOT_UTF8.search(raw):
        return "it is not UTF-8"
    return record if isinstance(record, dict) else f"it is {type(record).__name__}, not an object"


def _parse(text: str, position: int) -> tuple[Any, int | None]:
    """Parse one JSON value; where that fails, return the reason and None."""
    try:
        return _DECODER.raw_decode(text, position)
    except json.JSONDecodeError as error:
        return f"it is not JSON ({error.msg})", None
    except RecursionError:
        return "it is nested too deeply", None
    except ValueError as error:
        # ours begin so; Python's own are of integers alone
        said = str(error)
        return said if said.startswith("it has") else "it holds a number that is too long", None


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _resync(
    text: str, position: int, member: _Member, required: frozenset[str], resyncs: int
) -> tuple[int | None, int]:
    """Find the next place after a broken record where a whole record begins."""
    next_record = _NEXT_RECORD if member is _list_member else _NEXT_MEMBER
    for match in next_record.finditer(text, position + 1):
        resyncs += 1
        if resyncs > _MOST_RESYNCS:
            return None, resyncs
        _, record, end = member(text, match.end())
        if end is not None and isinstance(record, dict) and required <= record.keys():
            return match.end(), resyncs
    return None, resyncs


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

    number = unpacked = 0
    try:
        with file.open() as stream:
            table = pq.ParquetFile(stream)
            # one iterator over all groups would hold on to the bytes of every group it has read
            for group in range(table.num_row_groups):
                rows = _rows_at_once(table.metadata.row_group(group), file, batch_rows)
                for batch in table.iter_batches(
                    batch_size=rows, row_groups=[group], columns=list(columns)
                ):
                    batch = batch.cast(
                        pa.schema([(field.name, _plain(field.type)) for field in batch.schema])
                    )
                    unpacked += batch.nbytes
                    if batch.nbytes > file.limit or unpacked > _UNPACKED_LIMITS * file.limit:
                        raise _too_large(file)
                    for values in batch.to_pylist():
                        number += 1
                        yield number, values
    except (pa.ArrowException, OSError, ValueError) as error:
        yield number + 1, f"the file cannot be read from here on ({type(error).__name__})"


def _rows_at_once(group: Any, file: SourceFile, most: int) -> int:
    # a value that a dictionary holds once may be in every row of a batch; the columns' own metadata
    # would say more, but asking for it on a damaged footer ends the process (pyarrow 25)
    return max(1, min(most, file.limit // max(1, int(group.total_byte_size))))


def _plain(kind: Any) -> Any:
    """Return a column's type without dictionaries, whose bytes say nothing of what they become."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct(
            [
                kind.field(place).with_type(_plain(kind.field(place).type))
                for place in range(kind.num_fields)
            ]
        )
    return kind


def _too_large(file: SourceFile) -> InputError:
    return InputError(
        f"{file.name} unpacks to far more than the limit of {file.limit:,} bytes; split it or "
        "raise the option max_file_mb."
    )
