"""Single cells of a table: as numbers, as words and as messages quote them."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np

MISSING_TEXT = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
MISSING_ID = frozenset({"", "nan", "<na>"})
_ID_TYPES = (
    str,
    int,
    float,
    np.integer,
    np.floating,
    decimal.Decimal,
    datetime.date,
    datetime.time,
)


def number_of(value: Any) -> float | None:
    """Return a cell as a number: NaN where it is empty, None where it is no number."""
    if value is None:
        return math.nan
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | float | np.integer | np.floating):
        return _as_float(value)
    if not isinstance(value, str):
        # decimals of a Parquet file are numbers; lists, dates and objects are not
        return _as_float(value) if type(value).__name__ == "Decimal" else None
    text = value.strip()
    if text.lower() in MISSING_TEXT:
        return math.nan
    return None if "_" in text else _as_float(text)


def _as_float(value: Any) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf


def name_of(value: Any) -> str | None:
    """Return a name as text, or None where it is none."""
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_) or not isinstance(value, _ID_TYPES):
        return None
    # a task numbered 7 is the same task whether the file holds 7, 7.0 or "7"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def word_of(value: Any) -> str | float:
    """Return a cell as labels are compared: without case, and 0 and 0.0 as one."""
    text = str(value).strip().lower()
    number = number_of(text)
    return text if number is None or math.isnan(number) else number


def shown(value: Any) -> str:
    """Return a value as messages quote it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
