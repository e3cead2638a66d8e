"""Delimited text: CSV and TSV as programs write them, and CSV that no spreadsheet runs."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

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
from certify_assets.work import reading

# what separates the fields of files that are not written with commas, and its name
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_SEPARATOR_LINE = re.compile(r"sep=[,;\t|]", re.IGNORECASE)
_FIELD_CHARACTERS = 1 << 27
UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CODED = {"utf-16": ("UTF-16 text",), "cp1252": ("Windows-1252 text",)}
# a letter in UTF-8 that is not of ASCII
_UTF8 = re.compile(b"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
# characters of Windows-1252 that are letters or marks of western texts; another encoding has others
_WESTERN = re.compile(
    b"[\x00-\x7f\x80\x85\x91-\x97\x99\xa0\xa1\xa3\xa7-\xab\xae\xb0\xb2-\xb5\xb7-\xd6\xd8-\xf6"
    b"\xf8-\xfd]*"
)
# a spreadsheet that splits at other separators than the comma begins a cell behind these
_QUOTED = ";\t\r\n"
_SPLITS = re.compile(f"[{_QUOTED}]")
_PLAIN = re.compile(r"\w[^;\t\r\n]*")
# what a spreadsheet passes over before a formula: spaces, control characters, a quote of its cell
_PASSED_OVER = re.compile(r"[\s\x00-\x1f\x7f\u200b-\u200f\u2060\ufeff\"]*")
_MARK = re.compile(r"[=@+\-＝＠＋－]")
# a number with its sign is no formula, nor an estimate with its interval, nor a sign alone
_SIGNED = re.compile(
    r"[+\-＋－]((\d+(\.\d*)?|\.\d+)(e[+\-]?\d+)?( \([\d. %−–-]+( to [\d. %−–-]+)?\))?)?\s*",
    re.IGNORECASE,
)

# of cells, with those that are empty
_NUMBERS = (int, float, type(None))


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
        if stream.read(2) in UTF16:
            encoding = "utf-16"
    try:
        return _read(path, wanted, encoding)
    except UnicodeError:
        # no other reading is left of UTF-16 that is none
        with path.open("rb") as stream:
            if encoding == "utf-16" or not _is_western(stream):
                raise InputError(
                    f"{path} is not UTF-8 text; save it as CSV in UTF-8, or as Parquet."
                ) from None
    return _read(path, wanted, "cp1252")


def decoded(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Return a text and how it was encoded where that is not UTF-8.

    Bytes that are in no encoding become lone surrogates, which mark their records.
    """
    for encoding in ("utf-16",) if data[:2] in UTF16 else ("utf-8-sig", "cp1252"):
        if encoding == "cp1252" and not _is_western(data.splitlines()):
            break
        try:
            return data.decode(encoding), _CODED.get(encoding, ())
        except UnicodeError:
            continue
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff"), ()


def _is_western(lines: Iterable[bytes]) -> bool:
    # of a text that is UTF-8 but for some bytes, the letters would become others
    return all(_WESTERN.fullmatch(line) and not _UTF8.search(line) for line in lines)


def _read(path: Path, wanted: AbstractSet[str], encoding: str) -> tuple[list[str], Columns, Rows]:
    def opened() -> IO[str]:
        return path.open(encoding=encoding, newline="")

    try:
        separator, said = separator_of(path, wanted, opened)
        with opened() as stream, reading(path, stream), long_fields():
            names, columns, rows = _columns(path, wanted, _records(stream, separator))
    except csv.Error as error:
        raise InputError(
            f"{path} cannot be read as CSV ({first_line(error)}); save it as comma-separated "
            "UTF-8 text with one header row."
        ) from None
    read_as = (*_CODED.get(encoding, ()), *said, *rows.read_as)
    return names, columns, Rows(rows.numbers, rows.lines, read_as)


def separator_of(
    name: Path | str, wanted: AbstractSet[str], opened: Callable[[], IO[str]]
) -> tuple[str, tuple[str, ...]]:
    """Return what separates the fields, in words too where that is no comma.

    It is that by which the header has most of the wanted columns.
    """
    found: dict[str, tuple[int, int]] = {}
    for separator in (",", *_SEPARATORS):
        with opened() as stream, long_fields():
            try:
                _, header = next(_records(stream, separator), (1, []))
            except csv.Error:
                continue
        found[separator] = (len(matched(header, wanted)), len(header))
    best = max(found.values(), default=(0, 0))
    likely = [separator for separator, counts in found.items() if counts == best]
    # a header of one field has no separator, and one of none of the columns is refused later
    if best[1] < 2 or "," in likely:
        return ",", ()
    if len(likely) > 1:
        names = " or ".join(_SEPARATORS[separator] for separator in likely)
        raise InputError(
            f"{name}: its header can be separated by {names}; save it with commas between fields."
        )
    return likely[0], (f"{_SEPARATORS[likely[0]]} between fields",)


def is_separator_line(line: int, cells: Sequence[str], separator: str) -> bool:
    """Whether these are the first line `sep=;` that names the separator for Excel."""
    return line == 1 and _SEPARATOR_LINE.fullmatch(separator.join(cells)) is not None


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
        if is_separator_line(line, cells, separator):
            pass
        elif len(cells) > 1 or any(cell.strip() for cell in cells):
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


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may run a cell of this text, or a part that it splits off."""
    if _PLAIN.fullmatch(text):
        return False
    if text[:1] in ("\t", "\r", "\n"):
        return True
    for part in _SPLITS.split(text):
        passed = _PASSED_OVER.match(part)
        cell = part[passed.end() :] if passed else part
        if _MARK.match(cell) and not _SIGNED.fullmatch(cell):
            return True
    return False


def formulas(cells: Iterable[Any]) -> set[str]:
    """Return the texts among the cells that a spreadsheet may run; numbers are none."""
    # most columns have the same few texts in every row
    texts = {
        cell if type(cell) is str else str(cell) for cell in cells if not isinstance(cell, _NUMBERS)
    }
    return set(filter(is_formula, texts))


def defused(cell: str) -> str:
    """Return a cell of a table that is only looked at, as text where it would be a formula."""
    return f"'{cell}" if is_formula(cell) else cell


class _Lines(list[str]):
    """Lines that a csv.writer writes, each without its end."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix(_QUOTED))


def csv_text(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> str:
    """Write columns as CSV, with quotes around a text that holds another separator."""
    # what is of a line's end is written in quotes
    writer = csv.writer(lines := _Lines(), lineterminator=_QUOTED)
    writer.writerow(names)
    writer.writerows(zip(*columns, strict=True))
    return "".join(f"{line}\n" for line in lines)
