"""Delimited text (CSV, TSV) in the encodings and with the separators that programs write.

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

# what separates the fields of files that are not written with commas, and its name
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_SEPARATOR_LINE = re.compile(r"sep=[,;\t|]", re.IGNORECASE)
_FIELD_CHARACTERS = 1 << 27
_HEAD = 1 << 20
_NOT_UTF8 = frozenset(map(chr, range(0xDC80, 0xDD00)))
UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CODED = {"utf-16": ("UTF-16 text",), "cp1252": ("Windows-1252 text",)}
# a letter in UTF-8 that is not of ASCII
_UTF8 = re.compile(b"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
# characters of Windows-1252 that are letters or marks of western texts; another encoding has others
_WESTERN = re.compile(
    b"[\x00-\x7f\x80\x85\x91-\x97\x99\xa0\xa1\xa3\xa7-\xab\xae\xb0\xb2-\xb5\xb7-\xd6\xd8-\xf6"
    b"\xf8-\xfd]*"
)

#: the line that a record begins on, and its cells, or what is wrong with it
Record = tuple[int, list[str] | str]


class DelimitedText:
    """Delimited text, whose encoding, separator and header are found out.

    Where no encoding fits, `encoding` is None, and wrong bytes become lone surrogates.
    """

    def __init__(self, name: Path | str, data: bytes, wanted: AbstractSet[str]) -> None:
        self._data = data
        self.encoding = _encoding(data)
        headers = self._headers()
        counts = {
            separator: (len(matched(header, wanted)), len(header))
            for separator, header in headers.items()
        }
        best = max(counts.values())
        # a header of one field has no separator, and one of none of the columns is refused later
        likely = [sign for sign, count in counts.items() if count == best and best[1] > 1]
        if len(likely) > 1 and "," not in likely:
            names = " or ".join(map(_SEPARATORS.__getitem__, likely))
            raise InputError(
                f"{name}: its header can be separated by {names}; save it with commas between "
                "fields."
            )
        self._separator = "," if "," in likely or not likely else likely[0]
        self.header = headers[self._separator]
        separated = _SEPARATORS.get(self._separator)
        said = (f"{separated} between fields",) if separated else ()
        self.read_as = (*_CODED.get(self.encoding or "", ()), *said)

    def _headers(self) -> dict[str, list[str]]:
        """Return the header that each separator makes; none where it is no CSV."""
        found = {}
        for separator in (",", *_SEPARATORS):
            _, cells = next(self._records(self.opened(_HEAD), separator), (0, ""))
            found[separator] = cells if isinstance(cells, list) else []
        return found

    def opened(self, size: int | None = None) -> io.TextIOWrapper:
        """Open the text, or its first bytes."""
        data, encoding = io.BytesIO(self._data[:size]), self.encoding or "utf-8-sig"
        return io.TextIOWrapper(data, encoding, "surrogateescape", newline="")

    def rows(self, stream: Iterator[str]) -> Iterator[Record]:
        """Go through the records under the header."""
        return islice(self._records(stream, self._separator), 1 if self.header else 0, None)

    def _records(self, stream: Iterator[str], separator: str) -> Iterator[Record]:
        """Go through the records that are not blank; the first that is CSV is the header."""
        # a run may be a field of megabytes
        csv.field_size_limit(_FIELD_CHARACTERS)
        reader = csv.reader(stream, strict=True, delimiter=separator)
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
            # the line `sep=;` tells Excel the separator
            if line == 1 and _SEPARATOR_LINE.fullmatch(separator.join(cells)):
                continue
            if len(cells) < 2 and not "".join(cells).strip():
                continue
            width = width or len(cells)
            if len(cells) != width:
                yield line, f"it has {len(cells)} cells, the header has {width}"
            elif self.encoding is None and not _NOT_UTF8.isdisjoint("".join(cells)):
                yield line, "it is not UTF-8"
            else:
                yield line, cells


def _encoding(data: bytes) -> str | None:
    for encoding in ("utf-16",) if data[:2] in UTF16 else ("utf-8-sig", "cp1252"):
        # of a text that is UTF-8 but for some bytes, the letters would become others
        if encoding == "cp1252" and (not _WESTERN.fullmatch(data) or _UTF8.search(data)):
            return None
        try:
            data.decode(encoding)
        except UnicodeError:
            continue
        return encoding
    return None
