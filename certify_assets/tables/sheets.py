"""Excel workbooks: the sheet that holds a table, read as its cells are stored."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import IO, Any

from certify_assets.errors import CertifyError, InputError
from certify_assets.tables.delimited import Rows
from certify_assets.tables.table import first_line, matched, nothing_in, refuse_repeated

# of all parts of a workbook when they are unpacked: a million rows of a score table take 200 MB
_MOST_BYTES = 1 << 30
_Row = tuple[int, list[Any]]


def find_sheet(path: Path | str, source: IO[bytes], wanted: AbstractSet[str]) -> Rows:
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
    counts = {title: len(matched(names, wanted)) for title, (names, _) in sheets.items() if names}
    best = [title for title, count in counts.items() if count == max(counts.values())]
    if not best:
        raise nothing_in(path)
    if len(best) > 1:
        raise InputError(
            f"{path} has the table in several sheets ({', '.join(map(repr, best))}); keep one of "
            "them, or save it as CSV."
        )
    title, (header, rows) = best[0], sheets[best[0]]
    refuse_repeated(path, [name for name in header if name])
    places = [header.index(name) for name in matched(header, wanted).values()]
    empty = [(line, place) for line, cells in rows for place in places if cells[place] is None]
    # programs other than Excel write formulas without a value, which read empty
    written = dict(_sheets(source, values=False)[title][1]) if empty else {}
    for line, place in empty:
        if written[line][place] is not None:
            raise InputError(
                f"{path}, line {line}, column {header[place]!r}: the formula has no value "
                "yet; open the workbook, calculate and save it, or save the sheet as CSV."
            )
    return Rows(header, rows, (f"Excel workbook, sheet {title!r}",))


def _refuse_large(path: Path | str, source: IO[bytes]) -> None:
    with zipfile.ZipFile(source) as archive:
        size = sum(part.file_size for part in archive.infolist())
    if size > _MOST_BYTES:
        raise InputError(
            f"{path} unpacks to {size:,} bytes, of at most {_MOST_BYTES:,}; save the sheet as CSV "
            "or Parquet."
        )


def _sheets(source: IO[bytes], *, values: bool) -> dict[str, tuple[list[str], list[_Row]]]:
    """Read all sheets: the values of their formulas, or what is written."""
    from openpyxl import load_workbook

    with warnings.catch_warnings():
        # of styles and extensions, which hold no values
        warnings.simplefilter("ignore")
        book = load_workbook(source, read_only=True, data_only=values)
        found = {sheet.title: _sheet(sheet) for sheet in book.worksheets}
        book.close()
    return found


def _sheet(sheet: Any) -> tuple[list[str], list[_Row]]:
    """Return the rows that hold values, the first as the header."""
    filled = [
        (line, list(cells))
        for line, cells in enumerate(sheet.values, 1)
        if any(cell is not None and str(cell).strip() for cell in cells)
    ]
    header = ["" if name is None else str(name) for name in filled.pop(0)[1]] if filled else []
    # the library leaves out empty cells at the end of a row
    padded = [(line, cells + [None] * (len(header) - len(cells))) for line, cells in filled]
    return header, padded
