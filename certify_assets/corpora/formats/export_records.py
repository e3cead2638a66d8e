"""Records of the exports of tracing tools: JSON documents, pages and lines, CSV, Parquet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from certify_assets.corpora.formats.base import Origin, Reading, contents
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import (
    HEAD,
    Record,
    begins_json,
    json_records,
    listed_records,
    parquet_names,
    parquet_rows,
)
from certify_assets.corpora.formats.table import csv_rows
from certify_assets.corpora.formats.texts import listed
from certify_assets.errors import InputError

PARQUET = (".parquet", ".pq")
JSON = (".json", ".jsonl", ".ndjson")
_TABLES = (".csv", ".tsv")
EXPORT_SUFFIXES = (*JSON, *_TABLES, *PARQUET)
_KEY = re.compile(rb'"([A-Za-z_]{2,40})"\s*:')
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_BATCH_ROWS = 256


def snake(record: Record) -> Record:
    """Name the fields of an API (traceId) as files of the same tool do (trace_id)."""
    return {_snake(name): value for name, value in record.items()}


def _snake(name: str) -> str:
    return _HUMP.sub(r"_\1", name).lower()


def has_fields(file: SourceFile, *kinds: frozenset[str]) -> bool:
    """Whether a file begins with records that have all fields of one of the kinds."""
    try:
        names = set(map(_snake, _field_names(file)))
    except InputError:
        return False
    return any(kind <= names for kind in kinds)


def _field_names(file: SourceFile) -> Iterable[str]:
    if file.suffix in PARQUET:
        return parquet_names(file) or ()
    head = file.head(HEAD)
    if file.suffix in _TABLES:
        header = head.decode("utf-8", "replace").partition("\n")[0]
        cells = header.split("\t" if file.suffix == ".tsv" else ",")
        return [name.strip().strip('"') for name in cells]
    return [name.decode() for name in _KEY.findall(head)] if begins_json(head) else ()


def export_records(
    files: FileSet,
    reading: Reading,
    is_record: Callable[[Record], bool],
    under: Sequence[str] = (),
) -> Iterator[tuple[Origin, Record]]:
    """Go through the records of exports; what cannot be read is counted.

    Parameters
    ----------
    files : FileSet
        JSON (a list, one record, or pages that hold a list under one of the keys), JSON lines, CSV
        or Parquet.
    reading : Reading
        Counts what cannot be read.
    is_record : callable
        Whether an object is a record of the format; a file that has none is noted as another's.
    under : sequence of str
        Keys of a page under which its records are.
    """
    for file in files:
        sound, strangers = False, list[int]()
        for row, record in _rows(file, reading, under):
            if isinstance(record, str):
                reading.unusable(f"{file.name} row {row}", record)
            elif is_record(record):
                sound = True
                yield reading.origin(file, row), record
            else:
                strangers.append(row)
        if sound:
            for row in strangers:
                reading.unusable(f"{file.name} row {row}", "it is no record of this format")
        elif strangers:
            reading.other(file, "has no record of this format.")


def _rows(
    file: SourceFile, reading: Reading, under: Sequence[str]
) -> Iterator[tuple[int, Record | str]]:
    if file.suffix in PARQUET:
        names = parquet_names(file)
        if names is None:
            reading.drop("file_unreadable", f"{file.name} is not a Parquet file; write it again.")
        else:
            yield from parquet_rows(file, sorted(names), batch_rows=_BATCH_ROWS)
    elif file.suffix in _TABLES:
        try:
            said, rows = csv_rows(file, frozenset())
            reading.understood(file, said)
            yield from rows
        except BrokenFileError as error:
            reading.drop("file_unreadable", str(error))
    else:
        for _, data in contents([file], reading):
            for row, record in json_records(data):
                page = None if isinstance(record, str) else _page(record, under)
                yield from [(row, record)] if page is None else listed_records(page)


def _page(record: Record, under: Sequence[str]) -> list[Any] | None:
    """Return the records of a page, None where it is a record itself."""
    if "id" in record or not any(isinstance(record.get(key), list) for key in under):
        return None
    return [item for key in under for item in listed(record.get(key))]
