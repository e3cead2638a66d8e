"""Columns of a table file: their names as files write them, their values, places of the rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError


@dataclass(frozen=True)
class Texts:
    """A column of texts that holds each distinct one once."""

    # in the order of their first rows; None, where a row has none, comes last
    distinct: list[str | None]
    # of each row's text among them
    places: npt.NDArray[np.integer[Any]]

    def rows(self) -> npt.NDArray[np.object_]:
        """Return a text a row, equal ones as one object."""
        texts: npt.NDArray[np.object_] = array_of(self.distinct)[self.places]
        return texts


#: plain values as objects, or as a Parquet file stores them
Columns = dict[str, "npt.NDArray[Any] | Texts"]


def rows_of(values: npt.NDArray[Any] | Texts) -> npt.NDArray[Any]:
    """Return a column with a value a row."""
    return values.rows() if isinstance(values, Texts) else values


@dataclass(frozen=True)
class Rows:
    """Places of rows in their file."""

    # the first data row is 1; in JSON Lines, the line
    numbers: npt.NDArray[np.int64]
    # of a CSV, that the rows begin on: blank lines and fields of several lines shift them
    lines: npt.NDArray[np.int64] | None = None
    # what was understood that is not as the formats have it: separators, encoding, columns' names
    read_as: tuple[str, ...] = ()

    def name(self, index: int) -> str:
        """Name a row as a reader finds it."""
        return f"row {self.numbers[index]}" + (
            "" if self.lines is None else f" (line {self.lines[index]})"
        )


class TableError(InputError):
    """What keeps a table from being read, and columns and settings that would settle it."""

    def __init__(self, problems: Sequence[str], options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self.problems = tuple(problems)
        one, several = problems[0], "\n".join(f"  {problem}" for problem in problems)
        super().__init__(one if len(problems) == 1 else f"the table has several faults:\n{several}")


#: words in the names of columns that may be meant, the likelier first
_LIKELY = {
    "task": ("task", "problem", "instance", "question", "item", "case", "scenario"),
    "score": ("score", "prob", "logit", "confidence", "grade", "rating"),
    "outcome": ("outcome", "label", "success", "pass", "resolved", "correct", "solved", "verdict"),
    "id": ("trajectory", "run"),
    "agent": ("agent", "model"),
    "split": ("split", "partition"),
    "text": ("text", "transcript", "trajectory", "trace", "messages", "log", "output"),
}


def likely_column(kind: str, found: Sequence[str], taken: Collection[str]) -> str | None:
    """Return the one column that may be meant by a kind of column, if there is one."""
    for word in _LIKELY[kind]:
        named = [name for name in found if word in name.lower() and name not in taken]
        if named:
            return named[0] if len(named) == 1 else None
    return None


def objects(values: Mapping[str, Sequence[Any]]) -> Columns:
    """Return columns of Python values."""
    return {name: array_of(items) for name, items in values.items()}


def array_of(items: Sequence[Any]) -> npt.NDArray[np.object_]:
    """Return an array of Python values."""
    # item by item: np.array would take lists inside for further axes
    return np.fromiter(items, dtype=object, count=len(items))


def refuse_repeated(path: Path | str, header: Sequence[str]) -> None:
    """Refuse a header that names a column twice."""
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise InputError(f"{path} has two columns called {name!r}; keep one of them.")
        seen.add(name)


def first_line(error: BaseException) -> str:
    """Return the first line of another program's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


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
    return {name: found[name] for name in sorted(found)}


def renamed(names: Mapping[str, str]) -> tuple[str, ...]:
    """Say which columns a file calls otherwise."""
    return tuple(
        f"column {written.strip()!r} as {name}"
        for name, written in names.items()
        if name != written
    )


def _plain(name: str) -> str:
    return "_".join(name.lower().replace("-", " ").replace("_", " ").split())
