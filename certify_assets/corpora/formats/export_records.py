"""Records of the exports of tracing tools: JSON documents, pages and lines, CSV, Parquet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from certify_assets.corpora.formats.base import Origin, Reading, contents
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import (
    HEAD,
    Record,
    begins_json,
    iter_lines,
    json_value,
    listed_records,
    parquet_names,
    parquet_rows,
)
from certify_assets.corpora.formats.table import csv_rows
from certify_assets.corpora.formats.texts import listed
from certify_assets.errors import InputError

EXPORT_SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".pq")
_TABLES, _PARQUET, _LINES = (".csv", ".tsv"), (".parquet", ".pq"), (".jsonl", ".ndjson")
_KEY = re.compile(rb'"([A-Za-z_]{2,40})"\s*:')
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_BATCH_ROWS = 1024


def snake(name: str) -> str:
    """Return a name of an API (traceId) as files of the same tool write it (trace_id)."""
    return _HUMP.sub(r"_\1", name).lower()


def has_fields(file: SourceFile, kinds: Sequence[frozenset[str]]) -> bool:
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
    found = _KEY.findall(file.head(HEAD)) if begins_json(file.head(HEAD)) else ()
    return {snake(name.decode()) for name in found}


def export_records(
    files: FileSet, reading: Reading, under: tuple[str, ...], kinds: Sequence[frozenset[str]]
) -> Iterator[tuple[Record, Origin]]:
    """Go through the records of exports, with fields in lower case and underscores.

    Parameters
    ----------
    files : FileSet
        JSON (a list, one record, or pages that hold a list under one of the keys), JSON lines, CSV
        and Parquet.
    reading : Reading
        Counts what cannot be read.
    under : tuple of str
        Keys of a page under which its records are.
    kinds : sequence of frozenset
        Fields by which records of the tool are recognised; other files are noted.
    """
    for file in files:
        if not has_fields(file, kinds):
            reading.other(file, "has no record of this format.")
            continue
        for row, record in _rows(file, reading, under):
            if isinstance(record, str):
                reading.unusable(f"{file.name} row {row}", record)
            else:
                named = {snake(name): value for name, value in record.items()}
                yield named, reading.origin(file, row)


def _rows(
    file: SourceFile, reading: Reading, under: tuple[str, ...]
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
                for record in _of_page(line, under):
                    yield row, record
        else:
            yield from _document(file, data, reading, under)


def _document(
    file: SourceFile, data: bytes, reading: Reading, under: tuple[str, ...]
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
    records = document if isinstance(document, list) else _of_page(document, under)
    yield from listed_records(records)


def _of_page(document: Record, under: tuple[str, ...]) -> list[Any]:
    """Return the records of a page, or the one record that a document is."""
    if "id" in document:
        return [document]
    found = [item for key in under for item in listed(document.get(key))]
    return found if any(key in document for key in under) else [document]
