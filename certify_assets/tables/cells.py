"""Single cells of a table: as numbers, as words, as names, and as messages quote them."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

MISSING_TEXT = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
MISSING_ID = frozenset({"", "nan", "<na>"})
_NUMBERS = (int, float, np.integer, np.floating, decimal.Decimal)
_NAMES = (str, *_NUMBERS, datetime.date, datetime.time)
_Read = TypeVar("_Read")


def each(values: Sequence[Any], read: Callable[[Any], _Read]) -> list[_Read]:
    """Read every value of a column, once where several are alike."""
    # True, 1 and 1.0 are one key of a dictionary
    one_type = len(set(map(type, values))) == 1
    keys = values if one_type else list(zip(map(type, values), values, strict=True))
    try:
        first = dict(zip(keys, values, strict=True))
        return list(map({key: read(value) for key, value in first.items()}.__getitem__, keys))
    except TypeError:
        # lists and objects are no keys
        return list(map(read, values))


def number_of(value: Any) -> float | None:
    """Return a cell as a number: NaN where it is empty, None where it is no number."""
    if value is None:
        return math.nan
    if isinstance(value, str):
        value = value.strip()
        if value.lower() in MISSING_TEXT:
            return math.nan
        if "_" in value:
            return None
    elif isinstance(value, bool | np.bool_) or not isinstance(value, _NUMBERS):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf


def name_of(value: Any) -> str | None:
    """Return a name as text, or None where it is none."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool | np.bool_) or not isinstance(value, _NAMES):
        return None
    # a task numbered 7 is the same task whether the file holds 7, 7.0 or "7"
    if isinstance(value, float | np.floating):
        return str(int(value)) if float(value).is_integer() else str(value)
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
