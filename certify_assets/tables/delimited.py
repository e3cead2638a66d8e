"""Delimited text: CSV and TSV as programs write them, with what was understood of each file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from certify_assets.errors import InputError
from certify_assets.tables.columns import (
    Columns,
    Rows,
    first_line,
    matched,
    objects,
    refuse_repeated,
    renamed,
)

#: what separates the fields of files that are not written with commas, and its name
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_FIELD_CHARACTERS = 1 << 27
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# characters of Windows-1252 that are letters or marks of western texts; another encoding has others
_WESTERN = re.compile(
    b"[\x00-\x7f\x80\x85\x91-\x97\x99\xa0\xa1\xa3\xa7-\xab\xae\xb0\xb2-\xb5\xb7-\xd6\xd8-\xf6"
    b"\xf8-\xfd]*"
)


@contextmanager
def long_fields() -> Iterator[None]:
    """Lift the csv module's limit on the length of a field while a table is read."""
    before = csv.field_size_limit(_FIELD_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def read_delimited(
    path: Path, wanted: AbstractSet[str], _: AbstractSet[str] | None
) -> tuple[list[str], Columns, Rows]:
    """Read the wanted columns of a file whose separators and encoding are found out."""
    encoding = "utf-8-sig"
    with path.open("rb") as stream:
        if stream.read(2) in _UTF16:
            encoding = "utf-16"
    try:
        return _read(path, wanted, encoding)
    except UnicodeError:
        # no other reading is left of UTF-16 that is none
        if encoding == "utf-16" or not _is_western(path):
            raise InputError(
                f"{path} is not UTF-8 text; save it as CSV in UTF-8, or as Parquet."
            ) from None
    return _read(path, wanted, "cp1252")


def _is_western(path: Path) -> bool:
    with path.open("rb") as stream:
        return all(_WESTERN.fullmatch(line) for line in stream)


def _read(path: Path, wanted: AbstractSet[str], encoding: str) -> tuple[list[str], Columns, Rows]:
    try:
        separator = _separator(path, wanted, encoding)
        with _opened(path, encoding) as stream:
            names, columns, rows = _columns(path, wanted, _records(stream, separator))
    except csv.Error as error:
        raise InputError(
            f"{path} cannot be read as CSV ({first_line(error)}); save it as comma-separated "
            "UTF-8 text with one header row."
        ) from None
    said = (
        []
        if encoding == "utf-8-sig"
        else [f"{'UTF-16' if encoding == 'utf-16' else 'Windows-1252'} text"]
    )
    if separator != ",":
        said.append(f"{SEPARATORS[separator]} between fields")
    return names, columns, Rows(rows.numbers, rows.lines, (*said, *rows.read_as))


@contextmanager
def _opened(path: Path, encoding: str) -> Iterator[IO[str]]:
    with path.open(encoding=encoding, newline="") as stream, long_fields():
        yield stream


def _separator(path: Path, wanted: AbstractSet[str], encoding: str) -> str:
    """Return what separates the fields: that by which the header has most of the wanted columns."""
    found: dict[str, tuple[int, int]] = {}
    for separator in (",", *SEPARATORS):
        with _opened(path, encoding) as stream:
            try:
                _, header = next(_records(stream, separator), (1, []))
            except csv.Error:
                continue
        found[separator] = (len(matched(header, wanted)), len(header))
    best = max(found.values(), default=(0, 0))
    likely = [separator for separator, counts in found.items() if counts == best]
    # a header of one field has no separator, and one of none of the columns is refused later
    if best[1] < 2 or "," in likely:
        return ","
    if len(likely) > 1:
        names = " or ".join(SEPARATORS[separator] for separator in likely)
        raise InputError(
            f"{path}: its header can be separated by {names}; save it with commas between fields."
        )
    return likely[0]


def _records(stream: Iterator[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """Go through the records that are not blank, each with the line that it begins on."""
    reader = csv.reader(stream, strict=True, delimiter=separator)
    line = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise csv.Error(f"line {line}: {error}") from None
        if len(cells) > 1 or any(cell.strip() for cell in cells):
            yield line, cells
        line = reader.line_num + 1


def _columns(
    path: Path, wanted: AbstractSet[str], records: Iterator[tuple[int, list[str]]]
) -> tuple[list[str], Columns, Rows]:
    _, header = next(records, (1, []))
    if not header:
        raise InputError(f"{path} holds blank lines only; write a header and one row a trajectory.")
    _check_header(path, header)
    names = matched(header, wanted)
    places = {name: header.index(written) for name, written in names.items()}
    values: dict[str, list[str]] = {name: [] for name in places}
    lines: list[int] = []
    for number, (line, cells) in enumerate(records, 1):
        if len(cells) != len(header):
            raise InputError(
                f"{path}, row {number} (line {line}) has {len(cells)} fields, its header has "
                f"{len(header)}; give every row as many fields as the header, with quotes around "
                "text that holds a comma."
            )
        lines.append(line)
        for name, place in places.items():
            values[name].append(cells[place])
    numbers = np.arange(1, len(lines) + 1)
    return header, objects(values), Rows(numbers, np.asarray(lines, dtype=np.int64), renamed(names))


def _check_header(path: Path, header: Sequence[str]) -> None:
    refuse_repeated(path, header)
    if any("\0" in name for name in header):
        raise InputError(
            f"{path} has NUL bytes in its header: it is damaged or UTF-16; save it as CSV in UTF-8."
        )
