"""Excel workbooks: the sheet that holds a table, read as its cells are stored."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import IO, Any

import numpy as np

from certify_assets.errors import InputError, MissingToolError
from certify_assets.tables.columns import (
    Columns,
    Rows,
    first_line,
    matched,
    objects,
    refuse_repeated,
    renamed,
)
from certify_assets.work import counted

# of all parts of a workbook when they are unpacked: a million rows of a score table take 200 MB
_MOST_BYTES = 1 << 30


def read_sheet(
    path: Path, wanted: AbstractSet[str], _: AbstractSet[str] | None
) -> tuple[list[str], Columns, Rows]:
    """Read the wanted columns of the one sheet that has most of them."""
    header, rows, said = sheet_rows(path, path, wanted)
    refuse_repeated(path, [name for name in header if name])
    names = matched(header, wanted)
    places = {name: header.index(written) for name, written in names.items()}
    values = {name: [cells[place] for _, cells in rows] for name, place in places.items()}
    lines = np.array([line for line, _ in rows], dtype=np.int64)
    numbers = np.arange(1, len(rows) + 1)
    return header, objects(values), Rows(numbers, lines, (*said, *renamed(names)))


def sheet_rows(
    path: Path | str, source: Path | IO[bytes], wanted: AbstractSet[str]
) -> tuple[list[str], list[tuple[int, list[Any]]], tuple[str, ...]]:
    """Return header and rows, with their places in the sheet, of the one that has most columns."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise MissingToolError(
            f"{path} needs the package openpyxl, which is not installed; install it, or save the "
            "sheet as CSV."
        ) from None
    try:
        with zipfile.ZipFile(source) as archive:
            size = sum(part.file_size for part in archive.infolist())
        if size > _MOST_BYTES:
            raise InputError(
                f"{path} unpacks to {size:,} bytes, of at most {_MOST_BYTES:,}; save the sheet as "
                "CSV or Parquet."
            )
        with warnings.catch_warnings():
            # of styles and extensions, which hold no values
            warnings.simplefilter("ignore")
            book = load_workbook(source, read_only=True, data_only=True)
            sheets = {
                sheet.title: list(
                    counted(f"reading sheet {sheet.title}", sheet.values, sheet.max_row or 0)
                )
                for sheet in book.worksheets
            }
            book.close()
    except InputError:
        raise
    # a damaged part raises whatever its parser does
    except Exception as error:
        raise InputError(
            f"{path} cannot be read as an Excel workbook ({first_line(error)}); save the sheet as "
            "CSV."
        ) from None
    tables = {title: table for title, rows in sheets.items() if (table := _table(rows))}
    if not tables:
        raise InputError(
            f"{path} has no sheet with values; write a header and one row a trajectory."
        )
    counts = {title: len(matched(table[0][1], wanted)) for title, table in tables.items()}
    best = [title for title, count in counts.items() if count == max(counts.values())]
    if len(best) > 1:
        raise InputError(
            f"{path} has the table in several sheets ({', '.join(map(repr, best))}); keep one of "
            "them, or save it as CSV."
        )
    (_, header), *rows = tables[best[0]]
    # the library leaves out empty cells at the end of a row
    filled = [(line, cells + [None] * (len(header) - len(cells))) for line, cells in rows]
    places = [header.index(written) for written in matched(header, wanted).values()]
    if any(cells[place] is None for _, cells in filled for place in places):
        _refuse_formulas(path, source, best[0], header, places)
    return header, filled, (f"Excel workbook, sheet {best[0]!r}",)


def _refuse_formulas(
    path: Path | str,
    source: Path | IO[bytes],
    title: str,
    header: list[str],
    places: list[int],
) -> None:
    """Refuse formulas without a value, which other programs write: they read as empty."""
    from openpyxl import load_workbook

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values, formulas = (
            load_workbook(source, read_only=True, data_only=data_only)
            for data_only in (True, False)
        )
        pairs = zip(
            values[title].iter_rows(values_only=True),
            formulas[title].iter_rows(values_only=True),
            strict=False,
        )
        for line, (shown, written) in enumerate(pairs, 1):
            for place in places:
                if place < len(written) and written[place] is not None and shown[place] is None:
                    raise InputError(
                        f"{path}, line {line}, column {header[place]!r}: the formula has no value "
                        "yet; open the workbook, calculate and save it, or save the sheet as CSV."
                    )
        values.close()
        formulas.close()


def _table(rows: list[tuple[Any, ...]]) -> list[tuple[int, list[Any]]]:
    """Return the rows that hold values with their places in the sheet, the header as texts."""
    filled = [
        (line, list(cells))
        for line, cells in enumerate(rows, 1)
        if any(cell is not None and str(cell).strip() for cell in cells)
    ]
    if not filled:
        return []
    line, header = filled[0]
    return [(line, ["" if name is None else str(name) for name in header]), *filled[1:]]
