"""Delimited text (CSV, TSV) in the encodings and with the separators that programs write.

The module csv reads it: pandas fills rows that are too short, and names no line of a fault.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from certify_assets.errors import InputError
from certify_assets.tables.table import Table, matched, nothing_in, of_rows, refuse_repeated
from certify_assets.work import reading

# what separates the fields of files that are not written with commas, and its name
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_SEPARATOR_LINE = re.compile(r"sep=[,;\t|]", re.IGNORECASE)
_FIELD_CHARACTERS = 1 << 27
_HEAD = 1 << 20
UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CODED = {"utf-16": ("UTF-16 text",), "cp1252": ("Windows-1252 text",)}
# a letter in UTF-8 that is not of ASCII
_UTF8 = re.compile(b"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
# characters of Windows-1252 that are letters or marks of western texts; another encoding has others
_WESTERN = re.compile(
    b"[\x00-\x7f\x80\x85\x91-\x97\x99\xa0\xa1\xa3\xa7-\xab\xae\xb0\xb2-\xb5\xb7-\xd6\xd8-\xf6"
    b"\xf8-\xfd]*"
)


class DelimitedText:
    """Delimited text, whose encoding and separator are found out.

    Where no encoding fits, `encoding` is None, and wrong bytes become lone surrogates.
    """

    def __init__(self, name: Path | str, data: bytes, wanted: AbstractSet[str]) -> None:
        self.name, self._data = name, data
        self.encoding = _encoding(data)
        self._separator, said = self._find_separator(wanted)
        self.read_as = (*_CODED.get(self.encoding or "", ()), *said)

    def opened(self, size: int | None = None) -> io.TextIOWrapper:
        """Open the text, or its first bytes."""
        return io.TextIOWrapper(
            io.BytesIO(self._data[:size]),
            self.encoding or "utf-8-sig",
            "strict" if self.encoding and size is None else "surrogateescape",
            newline="",
        )

    def records(
        self, stream: Iterator[str], separator: str | None = None
    ) -> Iterator[tuple[int, int, list[str] | str]]:
        """Go through the records that are not blank.

        Each comes with its first and last line, and is a sentence where it is no CSV.
        """
        separator = separator or self._separator
        # a run may be a field of megabytes
        csv.field_size_limit(_FIELD_CHARACTERS)
        reader = csv.reader(stream, strict=True, delimiter=separator)
        while True:
            first = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield first, reader.line_num, str(error)
                continue
            # the line `sep=;` tells Excel the separator
            if first == 1 and _SEPARATOR_LINE.fullmatch(separator.join(cells)):
                continue
            if len(cells) > 1 or any(cell.strip() for cell in cells):
                yield first, reader.line_num, cells

    def _find_separator(self, wanted: AbstractSet[str]) -> tuple[str, tuple[str, ...]]:
        """Return the separator by which the header has most of the wanted columns."""
        found: dict[str, tuple[int, int]] = {}
        for separator in (",", *_SEPARATORS):
            records = self.records(self.opened(_HEAD), separator)
            header = next((cells for *_, cells in records), [])
            if isinstance(header, list):
                found[separator] = (len(matched(header, wanted)), len(header))
        best = max(found.values(), default=(0, 0))
        likely = [separator for separator, counts in found.items() if counts == best]
        # a header of one field has no separator, and one of none of the columns is refused later
        if best[1] < 2 or "," in likely:
            return ",", ()
        if len(likely) > 1:
            names = " or ".join(_SEPARATORS[separator] for separator in likely)
            raise InputError(
                f"{self.name}: its header can be separated by {names}; save it with commas between "
                "fields."
            )
        return likely[0], (f"{_SEPARATORS[likely[0]]} between fields",)


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


def read_delimited(path: Path, wanted: AbstractSet[str]) -> Table:
    """Read the wanted columns of a file; refuse one with a record that is no CSV."""
    text = DelimitedText(path, path.read_bytes(), wanted)
    if text.encoding is None:
        raise InputError(f"{path} is not UTF-8 text; save it as CSV in UTF-8, or as Parquet.")
    stream = text.opened()
    with reading(path, stream):
        rows = _rows(path, text.records(stream))
        _, header = next(rows, (1, []))
        if not header:
            raise nothing_in(path)
        refuse_repeated(path, header)
        if any("\0" in name for name in header):
            raise InputError(
                f"{path} has NUL bytes in its header: it is damaged or UTF-16; save it as CSV in "
                "UTF-8."
            )
        return of_rows(path, header, rows, wanted, text.read_as)


def _rows(
    path: Path, records: Iterable[tuple[int, int, list[str] | str]]
) -> Iterator[tuple[int, list[str]]]:
    """Go through the header and the rows, which have as many fields."""
    fields = 0
    for row, (line, _, cells) in enumerate(records):
        if isinstance(cells, str):
            raise InputError(
                f"{path} cannot be read as CSV (line {line}: {cells}); save it as "
                "comma-separated UTF-8 text with one header row."
            )
        fields = fields or len(cells)
        if len(cells) != fields:
            raise InputError(
                f"{path}, row {row} (line {line}) has {len(cells)} fields, its header has "
                f"{fields}; give every row as many fields as the header, with quotes around text "
                "that holds a comma."
            )
        yield line, cells
