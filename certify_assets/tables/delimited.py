"""Delimited text (CSV, TSV): its separator and header are found out.

The module csv reads it: pandas fills rows that are too short, and names no line of a fault.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from certify_assets.errors import InputError
from certify_assets.tables.table import matched

# what separates fields, and its name where it is not the comma
_SEPARATORS = {",": "", ";": "semicolons", "\t": "tabs", "|": "bars"}
# a run may be a field of megabytes
_FIELD_CHARACTERS = 1 << 27
_HEAD = 1 << 20
#: how text in UTF-16 begins
UTF16 = (b"\xff\xfe", b"\xfe\xff")
# what stands for bytes that are not UTF-8
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


class Rows(NamedTuple):
    """A header, and the rows below it: the line each begins on, and its cells or its fault."""

    header: list[str]
    rows: Iterable[tuple[int, list[Any] | str]]
    # what was understood that a table usually does not need
    read_as: tuple[str, ...] = ()


def read_delimited(name: Path | str, data: bytes, wanted: AbstractSet[str]) -> Rows:
    """Read text in UTF-8 or UTF-16; what finds most wanted columns separates its fields."""
    try:
        encoded = data.decode("utf-16").encode() if data[:2] in UTF16 else data
    except UnicodeError:
        raise InputError(f"{name} is not UTF-16 text; save it as CSV in UTF-8.") from None
    text = encoded.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    headers = {sign: _header(text[:_HEAD], sign) for sign in _SEPARATORS}
    # of several that find as many the first one
    separator = max(
        headers, key=lambda sign: (len(matched(headers[sign], wanted)), len(headers[sign]))
    )
    separated = f"{_SEPARATORS[separator]} between fields" if _SEPARATORS[separator] else ""
    rows = islice(_records(text, separator), 1 if headers[separator] else 0, None)
    return Rows(headers[separator], rows, (separated,) if separated else ())


def _header(text: str, separator: str) -> list[str]:
    """Return the header that a separator makes; none where it is no CSV."""
    _, cells = next(_records(text, separator), (0, ""))
    return cells if isinstance(cells, list) else []


def _records(text: str, separator: str) -> Iterator[tuple[int, list[Any] | str]]:
    """Go through the records that are not blank; the first that is CSV is the header."""
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
