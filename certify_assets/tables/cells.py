"""Cells of tables as numbers, names and words, and the error of a table with several faults."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from certify_assets.arrays import Objects
from certify_assets.errors import InputError


class TableError(InputError):
    """The faults that keep a table from being read; columns and settings that would help."""

    def __init__(self, problems: Sequence[str], options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self.problems = tuple(problems)
        several = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(
            problems[0] if len(problems) == 1 else f"the table has several faults:{several}"
        )

    @property
    def lead(self) -> str:
        """Word before the suggested call: "fill in" if only users know a value, else "try"."""
        return "fill in" if {"NAME", "NUMBER", "VALUE"} & {*self.options.values()} else "try"


class ScoreScaleError(TableError):
    """Scores that are not on the declared scale."""


#: words in the names of columns that may be meant, the likelier first
_LIKELY = {
    "task": "task scenario problem instance question case example prompt sample",
    "score": "score prob confidence rating",
    "outcome": "outcome label success pass resolved correct solved verdict",
    "id": "trajectory run trace",
    "agent": "agent model",
    "group": "group template repository",
    "annotator": "annotator reviewer rater",
    "text": "text transcript trajectory messages log",
}


def likely_column(kind: str, found: Sequence[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return the one column that may hold a kind of values, under that kind, if there is one."""
    for word in _LIKELY.get(kind, "").split():
        named = [name for name in found if word in name.lower() and name not in taken]
        if named:
            return {kind: named[0]} if len(named) == 1 else {}
    return {}


def array_of(items: Sequence[Any]) -> Objects:
    """Return an array of Python values."""
    # item by item: np.array would take lists inside for further axes
    return np.fromiter(items, dtype=object, count=len(items))


MISSING_TEXT = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
MISSING_ID = frozenset({"", "nan", "<na>"})
_NUMBERS = (int, float, np.integer, np.floating, decimal.Decimal)
_NAMES = (str, *_NUMBERS, datetime.date, datetime.time)
_Read = TypeVar("_Read")


def each(values: Iterable[Any], read: Callable[[Any], _Read]) -> list[_Read]:
    """Read every value of a column; equal values are read once."""
    try:
        return list(map(lru_cache(None, typed=True)(read), values))
    except TypeError:
        # lists and objects have no hash
        return list(map(read, values))


def number_of(value: Any) -> float | None:
    """Return a cell as a number: NaN where it is empty, None where it is not a number."""
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
    """Return a name as text, or None where the cell cannot name anything."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, _NAMES):
        return None
    if value != value:
        return ""
    # a task numbered 7 is the same task whether the file holds 7, 7.0 or "7"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def word_of(value: Any) -> str | float:
    """Return a cell as labels are compared: case is ignored, and 0 and 0.0 are equal."""
    text = str(value).strip().lower()
    number = number_of(text)
    return text if number is None or math.isnan(number) else number


def shown(value: Any) -> str:
    """Return a value as messages quote it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
