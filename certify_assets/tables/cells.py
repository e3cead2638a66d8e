"""Single cells of a table: as numbers, as words, as names, and as messages quote them."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

MISSING_TEXT = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
MISSING_ID = frozenset({"", "nan", "<na>"})
_NUMBERS = (int, float, np.integer, np.floating, decimal.Decimal)
_NAMES = (str, *_NUMBERS, datetime.date, datetime.time)
_Read = TypeVar("_Read")


def each(values: Iterable[Any], read: Callable[[Any], _Read]) -> list[_Read]:
    """Read every value of a column, once where several are alike."""
    try:
        return list(map(lru_cache(None, typed=True)(read), values))
    except TypeError:
        # lists and objects have no hash
        return list(map(read, values))


def number_of(value: Any) -> float | None:
    """Return a cell as a number: NaN where it is empty, None where it is no number."""
    if value is None or (isinstance(value, str) and value.strip().lower() in MISSING_TEXT):
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (str, *_NUMBERS)):
        return None
    try:
        return None if isinstance(value, str) and "_" in value else float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf


def name_of(value: Any) -> str | None:
    """Return a name as text, or None where it is none."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool) or not isinstance(value, _NAMES):
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
