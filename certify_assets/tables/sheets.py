"""Excel workbooks: the sheet that holds a table, read as its cells are stored."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from certify_assets.errors import CertifyError, InputError, MissingToolError
from certify_assets.tables.table import (
    Table,
    first_line,
    matched,
    nothing_in,
    of_rows,
    refuse_repeated,
)
from certify_assets.work import counted

# of all parts of a workbook when they are unpacked: a million rows of a score table take 200 MB
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Sheet:
    """The header of a sheet, and its rows with their places."""

    title: str
    header: list[str]
    rows: list[tuple[int, list[Any]]]

    @property
    def read_as(self) -> str:
        """Say which sheet it is."""
        return f"Excel workbook, sheet {self.title!r}"


def read_sheet(path: Path, wanted: AbstractSet[str]) -> Table:
    """Read the wanted columns of the one sheet that has most of them."""
    sheet = find_sheet(path, path, wanted)
    return of_rows(path, sheet.header, sheet.rows, wanted, (sheet.read_as,))


def find_sheet(path: Path | str, source: Path | IO[bytes], wanted: AbstractSet[str]) -> Sheet:
    """Return the one sheet of a workbook that has most of the wanted columns."""
    try:
        with zipfile.ZipFile(source) as archive:
            size = sum(part.file_size for part in archive.infolist())
        if size > _MOST_BYTES:
            raise InputError(
                f"{path} unpacks to {size:,} bytes, of at most {_MOST_BYTES:,}; save the sheet as "
                "CSV or Parquet."
            )
        with _book(path, source, values=True) as book:
            sheets = [_sheet(sheet) for sheet in book.worksheets]
    except CertifyError:
        raise
    # a damaged part raises whatever its parser does
    except Exception as error:
        raise InputError(
            f"{path} cannot be read as an Excel workbook ({first_line(error)}); save the sheet as "
            "CSV."
        ) from None
    counts = {sheet: len(matched(sheet.header, wanted)) for sheet in sheets if sheet.header}
    best = [sheet for sheet, count in counts.items() if count == max(counts.values())]
    if not best:
        raise nothing_in(path)
    if len(best) > 1:
        titles = ", ".join(repr(sheet.title) for sheet in best)
        raise InputError(
            f"{path} has the table in several sheets ({titles}); keep one of them, or save it as "
            "CSV."
        )
    sheet = best[0]
    refuse_repeated(path, [name for name in sheet.header if name])
    places = [sheet.header.index(name) for name in matched(sheet.header, wanted).values()]
    if any(cells[place] is None for _, cells in sheet.rows for place in places):
        _refuse_formulas(path, source, sheet, places)
    return sheet


@contextmanager
def _book(path: Path | str, source: Path | IO[bytes], *, values: bool) -> Iterator[Any]:
    """Open a workbook: the values of its formulas, or what is written."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise MissingToolError(
            f"{path} needs the package openpyxl, which is not installed; install it, or save the "
            "sheet as CSV."
        ) from None
    with warnings.catch_warnings():
        # of styles and extensions, which hold no values
        warnings.simplefilter("ignore")
        book = load_workbook(source, read_only=True, data_only=values)
        yield book
        book.close()


def _refuse_formulas(
    path: Path | str, source: Path | IO[bytes], sheet: Sheet, places: Collection[int]
) -> None:
    """Refuse formulas without a value, which other programs write: they read as empty."""
    with _book(path, source, values=False) as book:
        written = dict(enumerate(book[sheet.title].iter_rows(values_only=True), 1))
    for line, cells in sheet.rows:
        for place in places:
            if cells[place] is None and dict(enumerate(written[line])).get(place) is not None:
                raise InputError(
                    f"{path}, line {line}, column {sheet.header[place]!r}: the formula has no "
                    "value yet; open the workbook, calculate and save it, or save the sheet as CSV."
                )


def _sheet(sheet: Any) -> Sheet:
    """Return the rows that hold values, the first as the header."""
    rows = enumerate(counted(f"reading sheet {sheet.title}", sheet.values, sheet.max_row or 0), 1)
    filled = [
        (line, list(cells))
        for line, cells in rows
        if any(cell is not None and str(cell).strip() for cell in cells)
    ]
    header = ["" if name is None else str(name) for name in filled.pop(0)[1]] if filled else []
    # the library leaves out empty cells at the end of a row
    width = len(header)
    padded = [(line, cells + [None] * (width - len(cells))) for line, cells in filled]
    return Sheet(sheet.title, header, padded)
