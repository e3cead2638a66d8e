"""Delimited text (CSV, TSV): its separator and header are found out.

The module csv reads it: pandas fills rows that are too short, and names no line of a fault.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path

from certify_assets.errors import InputError
from certify_assets.tables.table import matched

# what separates fields, and its name where it is not the comma
_SEPARATORS = {",": "", ";": "semicolons", "\t": "tabs", "|": "bars"}
_FIELD_CHARACTERS = 1 << 27
_HEAD = 1 << 20
#: how text in UTF-16 begins
UTF16 = (b"\xff\xfe", b"\xfe\xff")
# what stands for bytes that are not UTF-8
_NOT_UTF8 = re.compile("[\udc80-\udcff]")

#: the line that a record begins on, and its cells, or what is wrong with it
Record = tuple[int, list[str] | str]


class DelimitedText:
    """Text in UTF-8 or UTF-16, whose fields are separated by what finds most wanted columns."""

    def __init__(self, name: Path | str, data: bytes, wanted: AbstractSet[str]) -> None:
        try:
            if data[:2] in UTF16:
                data = data.decode("utf-16").encode()
        except UnicodeError:
            raise InputError(f"{name} is not UTF-16 text; save it as CSV in UTF-8.") from None
        self._data = data
        self._is_utf8 = True
        try:
            data.decode()
        except UnicodeDecodeError:
            self._is_utf8 = False
        headers = {sign: self._header(sign) for sign in _SEPARATORS}
        # of several that find as many the first one
        self._separator = max(
            headers, key=lambda sign: (len(matched(headers[sign], wanted)), len(headers[sign]))
        )
        self.header = headers[self._separator]
        separated = _SEPARATORS[self._separator]
        self.read_as = (f"{separated} between fields",) if separated else ()

    def _header(self, separator: str) -> list[str]:
        """Return the header that a separator makes; none where it is no CSV."""
        _, cells = next(self._records(separator, _HEAD), (0, ""))
        return cells if isinstance(cells, list) else []

    def rows(self) -> Iterator[Record]:
        """Go through the records under the header."""
        return islice(self._records(self._separator), 1 if self.header else 0, None)

    def _records(self, separator: str, size: int | None = None) -> Iterator[Record]:
        """Go through the records that are not blank; the first that is CSV is the header."""
        # a run may be a field of megabytes
        csv.field_size_limit(_FIELD_CHARACTERS)
        data = io.BytesIO(self._data[:size])
        text = io.TextIOWrapper(data, "utf-8-sig", "surrogateescape", newline="")
        reader = csv.reader(text, strict=True, delimiter=separator)
        width = 0
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
            elif not self._is_utf8 and _NOT_UTF8.search("".join(cells)):
                yield line, "it is not UTF-8"
            else:
                yield line, cells
