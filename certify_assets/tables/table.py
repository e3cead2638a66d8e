"""A table as it was read: its columns, where its rows are, and its cells as numbers and names."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Integers, Objects
from certify_assets.errors import InputError


@dataclass(frozen=True)
class Table:
    """The wanted columns of a file or of a frame.

    Attributes
    ----------
    path
        What messages call it.
    names
        All columns, as the file calls them.
    columns
        Those that were wanted and are there, by their wanted names: numbers as they are stored,
        other values as objects.
    lines
        That the rows begin on: headers, blank lines and fields of several lines shift them.
    read_as
        What was understood that a table usually does not need: separators, encodings, names.
    """

    path: Path
    names: list[str]
    columns: Mapping[str, NDArray[Any]]
    lines: Integers
    read_as: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.lines.size)

    def row(self, place: int) -> str:
        """Name a row by its number, from 1, and its line where that is another number."""
        number, line = place + 1, self.lines[place]
        return f"row {number}" if line == number else f"row {number} (line {line})"

    @property
    def listed(self) -> str:
        """Its columns, as messages list them."""
        return ", ".join(self.names[:12])

    def values(self, name: str) -> list[Any]:
        """Return the Python values of a column."""
        return self.columns[name].tolist()


class TableError(InputError):
    """What keeps a table from being read, and columns and settings that would settle it."""

    def __init__(self, problems: Sequence[str], options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self.problems = tuple(problems)
        several = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(
            problems[0] if len(problems) == 1 else f"the table has several faults:{several}"
        )

    @property
    def lead(self) -> str:
        """What leads a call with the options: only users know some values, so it does not run."""
        return "fill in" if {"NAME", "NUMBER", "VALUE"} & {*self.options.values()} else "try"


class ScoreScaleError(TableError):
    """Scores that are not on the scale that they are said to have."""


#: words in the names of columns that may be meant, the likelier first
_LIKELY = {
    "task": (
        "task",
        "scenario",
        "problem",
        "instance",
        "question",
        "case",
        "example",
        "prompt",
        "sample",
    ),
    "score": ("score", "prob", "confidence", "rating"),
    "outcome": ("outcome", "label", "success", "pass", "resolved", "correct", "solved", "verdict"),
    "id": ("trajectory", "run", "trace"),
    "agent": ("agent", "model"),
    "group": ("group", "template", "repository"),
    "annotator": ("annotator", "reviewer", "rater"),
    "text": ("text", "transcript", "trajectory", "messages", "log"),
}


def likely_column(kind: str, found: Sequence[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return the one column that may be meant by a kind, under that kind, if there is one."""
    for word in _LIKELY.get(kind, ()):
        named = [name for name in found if word in name.lower() and name not in taken]
        if named:
            return {kind: named[0]} if len(named) == 1 else {}
    return {}


def array_of(items: Sequence[Any]) -> Objects:
    """Return an array of Python values."""
    # item by item: np.array would take lists inside for further axes
    return np.fromiter(items, dtype=object, count=len(items))


def refuse_repeated(path: Path | str, header: Sequence[str]) -> None:
    """Refuse a header that names a column twice."""
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InputError(f"{path} has two columns called {twice!r}; keep one of them.")


def matched(names: Sequence[str], wanted: AbstractSet[str]) -> dict[str, str]:
    """Return what a file calls the wanted columns: exactly, or alike but for case and spaces."""
    found = {name: name for name in names if name in wanted}
    alike: dict[str, list[str]] = {}
    for name in names:
        if name not in found:
            alike.setdefault(_plain(name), []).append(name)
    for name in wanted - found.keys():
        written = alike.get(_plain(name), [])
        # of two that are alike neither is meant
        if len(written) == 1:
            found[name] = written[0]
    return dict(sorted(found.items()))


def renamed(names: Mapping[str, str]) -> tuple[str, ...]:
    """Say which columns a file calls otherwise."""
    return tuple(
        f"column {written.strip()!r} as {name}"
        for name, written in names.items()
        if name != written
    )


def _plain(name: str) -> str:
    return "_".join(name.lower().replace("-", " ").replace("_", " ").split())


def nothing_in(path: Path | str) -> InputError:
    """Return the error of a file without a table."""
    return InputError(
        f"{path} is empty, or holds blank lines only; write a header and one row a trajectory."
    )


def first_line(error: BaseException) -> str:
    """Return the first line of another program's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


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
    """Return a cell as labels are compared: without case, and 0 and 0.0 as one."""
    text = str(value).strip().lower()
    number = number_of(text)
    return text if number is None or math.isnan(number) else number


def shown(value: Any) -> str:
    """Return a value as messages quote it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
