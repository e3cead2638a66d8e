"""Frames of pandas, Polars and Arrow, read as tables."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError, MissingToolError
from certify_assets.tables.reading import arrow_table
from certify_assets.tables.table import Rows, Table, first_line, matched, refuse_repeated, renamed

_FRAME = Path("the table")


def names_of(frame: Any) -> list[Any]:
    """Return what a frame calls its columns."""
    return list(getattr(frame, "column_names", None) or frame.columns)


def read_frame(frame: Any, wanted: AbstractSet[str]) -> Table:
    """Read the wanted columns of a frame; others may hold anything."""
    given = names_of(frame)
    found = matched([name for name in given if isinstance(name, str)], wanted)
    kept = [name for name in given if name in found.values()]
    refuse_repeated(_FRAME, kept)
    if hasattr(frame, "iloc"):
        columns = {name: _values(frame[written]) for name, written in found.items()}
        rows = Rows(np.arange(1, len(frame) + 1))
        table = Table(_FRAME, kept, columns, rows, renamed(found))
    else:
        table = arrow_table(_FRAME, _arrow(frame, kept), wanted)
    return replace(table, names=list(map(str, given)))


def _values(column: Any) -> NDArray[Any]:
    """Return a pandas column: numbers as they are stored, others as objects."""
    stored = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf"
    values = column.to_numpy() if stored else column.to_numpy(object, na_value=None)
    return np.asarray(values)


def _arrow(frame: Any, kept: list[str]) -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingToolError(
            "a frame that is not of pandas needs the package pyarrow, which is not installed; "
            "install it, or give scores, outcomes and tasks as arrays."
        ) from None
    try:
        return pa.table(frame.select(kept) if hasattr(frame, "select") else frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"the table cannot be read ({first_line(error)}); give columns of one type each."
        ) from None
