"""Tables written to files; a CSV file holds no cell that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.files import write_atomic
from certify_assets.tables.reading import first_line

if TYPE_CHECKING:
    import pandas as pd

    #: a frame, or plain columns, which are written as CSV and JSON Lines without pandas
    Writable: TypeAlias = pd.DataFrame | Mapping[str, NDArray[Any]]

_PARQUET = (".parquet", ".pq")
_ENDINGS = (*_PARQUET, ".csv", ".jsonl", ".ndjson")
# characters of a cell that a refusal shows
_SHOWN = 120
# a spreadsheet that splits at other separators than the comma begins a cell behind these
_QUOTED = ";\t\r\n"
# most cells: no search is needed
_PLAIN = re.compile(r"\w[^;\t\r\n]*")
_FORMULA = re.compile(
    r"""
    (?: ^ | [;\t\r\n] )
    # what a spreadsheet passes over: spaces, control characters, a quote of its cell
    [\s\x00-\x1f\x7f\u200b-\u200f\u2060\ufeff"]*
    (?: [=@＝＠] | [+\-＋－]
        # a number with its sign is no formula, nor an estimate with its interval, nor a sign alone
        (?! (?: (?: \d+ (?: \.\d* )? | \.\d+ ) (?: e[+\-]?\d+ )?
                (?: [ ]\( [\d.\ %−–-]+ (?: [ ]to[ ][\d.\ %−–-]+ )? \) )? )?
            \s* (?: $ | [;\t\r\n] ) )
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
# of cells, with those that are empty
_NUMBERS = (int, float, type(None))


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may run a cell of this text, or a part that it splits off."""
    if _PLAIN.fullmatch(text):
        return False
    return text[:1] in ("\t", "\r", "\n") or _FORMULA.search(text) is not None


def defused(cell: str) -> str:
    """Return a cell of a table for reading; a formula becomes text."""
    return f"'{cell}" if is_formula(cell) else cell


def harmless(
    path: Path, columns: dict[str, NDArray[Any]], naming: Collection[str]
) -> dict[str, NDArray[Any]]:
    """Keep a spreadsheet from running texts that a CSV only passes on."""
    # names are written as they are, or refused: another spelling would be lost to later joins
    if path.suffix.lower() != ".csv":
        return columns
    return {
        name: values
        if name in naming or values.dtype.kind != "O"
        else np.array(
            [defused(cell) if isinstance(cell, str) else cell for cell in values], dtype=object
        )
        for name, values in columns.items()
    }


class _Lines(list[str]):
    """Lines that a csv.writer writes, each without its end."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix(_QUOTED))


def csv_text(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> str:
    """Write columns as CSV, with quotes around texts that hold another separator."""
    # csv quotes cells that contain a character of the line terminator
    writer = csv.writer(lines := _Lines(), lineterminator=_QUOTED)
    writer.writerow(names)
    writer.writerows(zip(*columns, strict=True))
    return "".join(f"{line}\n" for line in lines)


def check_table_file(path: Path, frame: Writable) -> None:
    """Refuse a table that its kind of file cannot hold, before anything is written."""
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(
            f"{path} does not end in .csv, .parquet or .jsonl; choose one of these formats."
        )
    if path.suffix.lower() != ".csv":
        return
    # those who deliver runs choose the names of tasks, runs, agents and files, and reviewers open
    # the queue in a spreadsheet; a name in another spelling would be lost to every later join, so
    # it is not altered either
    remedy = (
        "a spreadsheet would run it as a formula; choose a name that ends in .jsonl or .parquet."
    )
    # numbers are no formulas, and most of a large table
    texts = {name: _cells(frame[name]) for name in frame if frame[name].dtype.kind not in "biuf"}
    for what, cells in (("column name", list(frame)), *texts.items()):
        if found := _formulas(cells):
            rows = [row for row, cell in enumerate(map(str, cells), 1) if cell in found]
            raise InputError(
                f"{path} cannot hold the {what} {str(cells[rows[0] - 1])[:_SHOWN]!r} of row "
                f"{rows[0]} ({len(rows)} such): {remedy}"
            )


def _formulas(cells: Iterable[Any]) -> set[str]:
    # most columns have the same few texts in every row
    texts = {str(cell) for cell in cells if not isinstance(cell, _NUMBERS)}
    return set(filter(is_formula, texts))


def write_table_file(path: Path, frame: Writable) -> None:
    """Write a table as CSV, Parquet or JSON Lines, by the ending, atomically."""
    check_table_file(path, frame)
    suffix = path.suffix.lower()
    if suffix in _PARQUET:
        write_atomic(path, _parquet(path, frame))
        return
    names = list(frame.keys())
    columns = [_cells(frame[name]) for name in names]
    if suffix == ".csv":
        text = csv_text(names, columns)
    else:
        rows = zip(*columns, strict=True)
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
        text = "".join(f"{encode(dict(zip(names, row, strict=True)))}\n" for row in rows)
    write_atomic(path, text.encode("utf-8"))


def _parquet(path: Path, frame: Writable) -> bytes:
    import pandas as pd
    from pyarrow import ArrowException

    buffer = io.BytesIO()
    try:
        pd.DataFrame(frame).to_parquet(buffer, index=False)
    except ArrowException as error:
        raise InputError(
            f"{path} cannot hold the table: {first_line(error)}. Choose a name that ends in "
            ".jsonl, which holds columns of mixed values."
        ) from None
    return buffer.getvalue()


def _cells(column: NDArray[Any] | pd.Series[Any]) -> list[Any]:
    """Return plain values, None for missing ones."""
    values = column if isinstance(column, np.ndarray) else column.to_numpy(object, na_value=None)
    return [None if value != value else value for value in values.tolist()]
