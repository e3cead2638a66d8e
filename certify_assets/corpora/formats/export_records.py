"""Records of the exports of tracing tools: JSON documents, pages and lines, CSV, Parquet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from certify_assets.corpora.formats.base import Files, Origin, Reading, contents
from certify_assets.corpora.formats.files import BrokenFileError, SourceFile
from certify_assets.corpora.formats.records import (
    HEAD,
    Record,
    iter_lines,
    json_value,
    listed_records,
    parquet_names,
    parquet_rows,
)
from certify_assets.corpora.formats.table import csv_rows
from certify_assets.corpora.formats.texts import listed, mapping
from certify_assets.errors import InputError

EXPORT_SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".pq")
_TABLES, _PARQUET, _LINES = (".csv", ".tsv"), (".parquet", ".pq"), (".jsonl", ".ndjson")
_KEY = re.compile(rb'"([A-Za-z_]{2,40})"\s*:')
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_BATCH_ROWS = 1024
_MOST_PAGES = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def snake(name: str) -> str:
    """Return a name of an API (traceId) as files of the same tool write it (trace_id)."""
    return _HUMP.sub(r"_\1", name).lower()


def has_fields(file: SourceFile, kinds: Iterable[frozenset[str]]) -> bool:
    """Whether a file begins with records that have all fields of one of the kinds."""
    try:
        names = _field_names(file)
    except InputError:
        return False
    return any(kind <= names for kind in kinds)


def _field_names(file: SourceFile) -> set[str]:
    if file.suffix in _PARQUET:
        return {snake(name) for name in parquet_names(file) or ()}
    if file.suffix in _TABLES:
        head, _, _ = file.head(HEAD).decode("utf-8", "replace").partition("\n")
        separator = "\t" if file.suffix == ".tsv" else ","
        return {snake(name.strip().strip('"')) for name in head.split(separator)}
    head_bytes = file.head(HEAD)
    if head_bytes.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return set()
    return {snake(name.decode()) for name in _KEY.findall(head_bytes)}


def export_records(
    files: Files, reading: Reading, under: tuple[str, ...], kinds: Iterable[frozenset[str]]
) -> Iterator[tuple[Record, Origin]]:
    """Go through the records of exports, with fields in lower case and underscores.

    Parameters
    ----------
    files : Files
        JSON (a list, one record, or pages that hold a list under one of the keys), JSON lines, CSV
        and Parquet.
    reading : Reading
        Counts what cannot be read.
    under : tuple of str
        Keys of a page under which its records are.
    kinds : iterable of frozenset
        Fields by which records of the tool are recognised; other files are noted.

    Raises
    ------
    InputError
        At the end, where pages say that there are others, which no file has: runs would lack what
        these hold.
    """
    known = list(kinds)
    pages = _Pages(known)
    for file in files:
        if not has_fields(file, known):
            reading.other(file, "has no record of this format.")
            continue
        for row, record in _rows(file, reading, under, pages):
            if isinstance(record, str):
                reading.drop(
                    "unreadable_record", f"{file.name} row {row} cannot be used: {record}."
                )
            else:
                yield (
                    {snake(name): value for name, value in record.items()},
                    reading.origin(file, row),
                )
    pages.require_all()


class _Pages:
    """What pages of an API say of the others: their number (Langfuse), or a cursor to the next."""

    def __init__(self, kinds: Sequence[frozenset[str]]) -> None:
        self._kinds = kinds
        # of each kind of records, the first file, the number and the total of each page
        self._numbered: dict[int, list[tuple[str, int, int]]] = {}
        # … and the files of the pages with a next one, and how many are the last
        self._continued: dict[int, list[str]] = {}
        self._last: Counter[int] = Counter()

    def add(self, file: SourceFile, page: Mapping[str, Any], records: Sequence[Any]) -> None:
        """Note what a page says; one without records does not show of what it is."""
        first = next((item for item in records if isinstance(item, dict)), None)
        if first is None:
            return
        names = {snake(name) for name in first}
        kind = next((place for place, fields in enumerate(self._kinds) if fields <= names), -1)
        meta = mapping(page.get("meta"))
        number, total = meta.get("page"), meta.get("totalPages")
        if type(number) is int and type(total) is int:
            self._numbered.setdefault(kind, []).append((file.name, number, total))
            return
        after = meta.get("cursor") or mapping(page.get("cursors")).get("next")
        if after:
            self._continued.setdefault(kind, []).append(file.name)
        elif "cursor" in meta or "cursors" in page:
            self._last[kind] += 1

    def require_all(self) -> None:
        """Refuse pages of which others are missing."""
        for found in self._numbered.values():
            there = {number for _, number, _ in found}
            missing = sorted(set(range(1, max(total for *_, total in found) + 1)) - there)
            # of several queries, each has a first page
            expected = sum(total for _, number, total in found if number == 1)
            if missing or len(found) < expected:
                named = ", ".join(map(str, missing[:_MOST_PAGES]))
                raise _incomplete(
                    f"{found[0][0]} is page {found[0][1]} of {found[0][2]}, and "
                    + (
                        f"of its pages {named}{' …' if missing[_MOST_PAGES:] else ''} "
                        f"{'is' if len(missing) == 1 else 'are'} missing"
                        if missing
                        else f"there are {len(found)} pages where the first ones name {expected}"
                    )
                )
        for kind, names in self._continued.items():
            if not self._last[kind]:
                raise _incomplete(f"{names[-1]} says that another page follows, which no file is")


def _incomplete(problem: str) -> InputError:
    return InputError(
        f"{problem}: runs would lack what it holds; fetch every page, or remove meta (cursors) "
        "from the files where these are all that you want."
    )


def _rows(
    file: SourceFile, reading: Reading, under: tuple[str, ...], pages: _Pages
) -> Iterator[tuple[int, Record | str]]:
    if file.suffix in _PARQUET:
        yield from parquet_rows(file, sorted(parquet_names(file) or ()), batch_rows=_BATCH_ROWS)
        return
    if file.suffix in _TABLES:
        try:
            said, rows = csv_rows(file, frozenset())
            reading.understood(file, said)
            yield from rows
        except BrokenFileError as error:
            reading.drop("file_unreadable", str(error))
        return
    for _, data in contents([file], reading):
        if file.suffix in _LINES:
            for row, line in iter_lines(data):
                if isinstance(line, str):
                    yield row, line
                    continue
                records = _of_page(line, under)
                pages.add(file, line, records)
                for record in records:
                    yield row, record
        else:
            yield from _document(file, data, reading, under, pages)


def _document(
    file: SourceFile, data: bytes, reading: Reading, under: tuple[str, ...], pages: _Pages
) -> Iterator[tuple[int, Record | str]]:
    try:
        document = json_value(data)
    except ValueError as error:
        lines = list(iter_lines(data))
        if len(lines) > 1 and not isinstance(lines[0][1], str):
            # JSON lines under another name
            yield from lines
            return
        reading.drop("file_unreadable", f"{file.name} cannot be used: {error}; export it again.")
        return
    if isinstance(document, list):
        yield from listed_records(document)
        return
    records = _of_page(document, under)
    pages.add(file, document, records)
    yield from listed_records(records)


def _of_page(document: Record, under: tuple[str, ...]) -> list[Any]:
    """Return the records of a page, or the one record that a document is."""
    if "id" in document:
        return [document]
    found = [item for key in under for item in listed(document.get(key))]
    return found if any(key in document for key in under) else [document]


def nanoseconds(value: Any) -> int:
    """Return a moment as the tools write it (ISO 8601, UTC where it names no zone); 0 without."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return 0
    if not isinstance(value, datetime):
        return 0
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
