"""Excel workbooks: the sheet that holds a table, read as its cells are stored."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from certify_assets.errors import CertifyError, InputError
from certify_assets.tables.table import first_line, matched, nothing_in, refuse_repeated

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


def find_sheet(path: Path | str, source: IO[bytes], wanted: AbstractSet[str]) -> Sheet:
    """Return the one sheet of a workbook that has most of the wanted columns."""
    try:
        _refuse_large(path, source)
        sheets = _sheets(source, values=True)
    except (CertifyError, ImportError):
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
    _refuse_uncalculated(path, source, sheet, [*matched(sheet.header, wanted).values()])
    return sheet


def _refuse_uncalculated(
    path: Path | str, source: IO[bytes], sheet: Sheet, columns: list[str]
) -> None:
    """Refuse formulas without a value, as programs other than Excel write them: they read empty."""
    places = [sheet.header.index(name) for name in columns]
    empty = [(row, place) for row in sheet.rows for place in places if row[1][place] is None]
    if not empty:
        return
    written = next(one for one in _sheets(source, values=False) if one.title == sheet.title)
    rows = dict(written.rows)
    for (line, _), place in empty:
        if rows[line][place] is not None:
            raise InputError(
                f"{path}, line {line}, column {sheet.header[place]!r}: the formula has no value "
                "yet; open the workbook, calculate and save it, or save the sheet as CSV."
            )


def _refuse_large(path: Path | str, source: IO[bytes]) -> None:
    with zipfile.ZipFile(source) as archive:
        size = sum(part.file_size for part in archive.infolist())
    if size > _MOST_BYTES:
        raise InputError(
            f"{path} unpacks to {size:,} bytes, of at most {_MOST_BYTES:,}; save the sheet as CSV "
            "or Parquet."
        )


def _sheets(source: IO[bytes], *, values: bool) -> list[Sheet]:
    """Read all sheets: the values of their formulas, or what is written."""
    from openpyxl import load_workbook

    with warnings.catch_warnings():
        # of styles and extensions, which hold no values
        warnings.simplefilter("ignore")
        book = load_workbook(source, read_only=True, data_only=values)
        found = [_sheet(sheet) for sheet in book.worksheets]
        book.close()
    return found


def _sheet(sheet: Any) -> Sheet:
    """Return the rows that hold values, the first as the header."""
    filled = [
        (line, list(cells))
        for line, cells in enumerate(sheet.values, 1)
        if any(cell is not None and str(cell).strip() for cell in cells)
    ]
    header = ["" if name is None else str(name) for name in filled.pop(0)[1]] if filled else []
    # the library leaves out empty cells at the end of a row
    padded = [(line, cells + [None] * (len(header) - len(cells))) for line, cells in filled]
    return Sheet(sheet.title, header, padded)
