"""The columns of a table, read as scores, outcomes or names.

Libraries read most of the cells refused here as other numbers, as other tasks, or as missing.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats, Objects
from certify_assets.names import folding, spelled, two_spellings
from certify_assets.tables.cells import (
    MISSING_ID,
    TableError,
    array_of,
    each,
    likely_column,
    name_of,
    number_of,
    shown,
)
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.reading import SHEETS, Table
from certify_assets.tables.settings import TableSettings, written_columns

# 1,234 may be a thousand and more, and 1.234 where the numbers next to it have no point
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}([.,]\d{3})+\s*")
_BELOW_THOUSAND = re.compile(r"\s*[+-]?\d{1,3}\s*")
_EMPTY = re.compile(rf"^\s*({'|'.join(MISSING_ID)})\s*$", re.IGNORECASE | re.MULTILINE)
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")

#: the values at fault among those of a column, and the sentence about the first, after its place
Rule = tuple[Callable[[Sequence[Any]], Collection[Any]], str]


def _thousands(cells: Sequence[Any]) -> Collection[str]:
    texts = [cell for cell in cells if isinstance(cell, str)]
    for sign in ",.":
        marked = [text for text in texts if sign in text]
        if marked and all(map(_THOUSANDS.fullmatch, marked)):
            doubtful = sign == "," or any(map(_BELOW_THOUSAND.fullmatch, texts))
            return marked[:1] if doubtful else []
    return []


def _unwritable(names: Sequence[str]) -> Collection[str]:
    # all names are looked at as one text first: tables hold millions
    there = _UNWRITABLE.search("".join(names))
    return [name for name in names if _UNWRITABLE.search(name)] if there else []


def _empty(names: Sequence[str]) -> Collection[str]:
    there = _EMPTY.search("\n".join(names))
    return [name for name in names if name.strip().lower() in MISSING_ID] if there else []


_WRITTEN: Final[Rule] = (
    _thousands,
    ": {value} may be a thousand or a decimal. Write every score with its decimals and without "
    "thousands separators.",
)
#: of scores as they are read: None where a cell is no number
_SCORES: Final[tuple[Rule, ...]] = (
    (
        lambda scores: {None}.intersection(scores),
        ": {value} is not a number. Give the score in digits, without a % sign, or leave it empty "
        "where there is none.",
    ),
    (
        lambda scores: {math.inf, -math.inf}.intersection(scores),
        ": the score is infinite. Give a finite number, or leave it empty.",
    ),
)
#: of names as they are read: None where a cell is none
_NAMES: Final[tuple[Rule, ...]] = (
    (
        lambda names: {None}.intersection(names),
        ": {value} is a {kind}, not a name. Give text or a whole number.",
    ),
    (_unwritable, ": {value} holds a NUL or half a character. Correct the text."),
)
#: of names of tasks and runs
_IDS: Final[tuple[Rule, ...]] = (
    *_NAMES,
    (_empty, " is empty. Every trajectory needs the task that it attempts and its own id."),
)


class ColumnReader:
    """Reads the columns of one table; `settle` raises all faults together."""

    def __init__(self, table: Table, settings: TableSettings | None = None) -> None:
        self.table, self.settings = table, settings or TableSettings()
        self.problems: list[str] = []
        self.remedies: dict[str, str] = {}
        # what is read otherwise than it is written
        self.notes: list[str] = []

    def settle(self) -> None:
        """Raise one error with all faults found."""
        if self.problems:
            raise TableError(self.problems, self.remedies)

    def lacks(self, columns: Mapping[str, str]) -> None:
        """Refuse a table that lacks columns, by field; say which of its columns may be meant."""
        names, unknown = self.table.names, dict.fromkeys(columns, "NAME")
        remedy = f"Rename yours, or give --columns {written_columns(unknown)}."
        # a title, or merged cells above the names of columns; a nameless first column is an index
        blanks = 0 if self.table.columns else names[1:].count("")
        if titled := 2 * blanks >= len(names) > 1:
            remedy = "Delete the lines above the names of the columns."
        lacking = " or ".join(map(repr, columns.values()))
        self.problems.append(
            f"{self.table.path} has no column {lacking}; its columns are {self.table.listed}. "
            f"{remedy}"
        )
        if not titled:
            self.remedies |= unknown
            for kind in columns:
                self.remedies |= likely_column(kind, names, self.table.columns)

    def refuse(self, column: str, places: Sequence[int], problem: str) -> None:
        """Refuse cells of a column for one reason."""
        said = f"{self.table.path}, {self.table.row(places[0])}, column {column!r}{problem}"
        more = f" {len(places):,} rows have such a cell." if len(places) > 1 else ""
        self.problems.append(said + more)

    def _obeys(
        self,
        column: str,
        rules: Sequence[Rule],
        values: Sequence[Any],
        distinct: Sequence[Any] | None = None,
    ) -> bool:
        """Whether the values of a column obey rules; refuse the first rule that is broken."""
        for broken, sentence in rules:
            if bad := set(broken(values if distinct is None else distinct)):
                places = [place for place, value in enumerate(values) if value in bad]
                cell = self.table.values(column)[places[0]]
                said = sentence.format(value=shown(cell), kind=type(cell).__name__)
                self.refuse(column, places, said)
                return False
        return True

    def scores(self, column: str) -> Floats:
        """Return finite numbers, NaN for empty cells."""
        stored = self.table.columns[column]
        if stored.dtype != object and not np.isinf(stored).any():
            return stored.astype(np.float64)
        cells = stored.tolist()
        if not self._obeys(column, [_WRITTEN], cells):
            return np.zeros(len(cells))
        texts = "".join(cell for cell in cells if isinstance(cell, str))
        if "," in texts and "." not in texts:
            self.notes.append("scores with decimal commas")
            cells = [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in cells]
        numbers = _numbers(cells, texts)
        return np.array(numbers if self._obeys(column, _SCORES, numbers) else 0.0, dtype=np.float64)

    def outcomes(self, column: str, *, named: bool) -> NDArray[np.int8]:
        """Return 0 and 1, −1 for empty cells; with `named`, refuse settings whose values do not
        occur.
        """
        values, words = self.table.columns[column], OutcomeColumn(column, self.settings)
        plain = values.dtype != object and not (self.settings.provenance() or words.contrary)
        if plain and np.isin(values, (0, 1)).all():
            return values.astype(np.int8)
        cells = values.tolist()
        read = each(cells, words.read)
        if None in read:
            places = [place for place, outcome in enumerate(read) if outcome is None]
            problem, remedy = words.problem(cells[places[0]])
            self.refuse(column, places, f": {problem}")
            self.remedies |= remedy
            return np.zeros(len(read), dtype=np.int8)
        if named:
            words.require_named(self.table.path)
        self.notes += words.notes()
        return np.array(read, dtype=np.int8)

    def names(self, column: str) -> Objects:
        """Return the name in each row, empty where it is missing."""
        return self._named(column, _NAMES)[0]

    def ids(self, column: str) -> Objects:
        """Return the name in each row; refuse an empty one, and one in two spellings."""
        names, distinct = self._named(column, _IDS)
        if self.settings.ids and (spelling := folding(distinct)):
            one, other = next(iter(spelling.items()))
            more = f" and {len(spelling) - 1:,} more" if len(spelling) > 1 else ""
            self.notes.append(f"{column}: {spelled(one)} as {spelled(other)}{more}")
            return array_of([spelling.get(name, name) for name in names.tolist()])
        if self._refuse_alike(column, names, distinct, "count them as one with --set ids=fold"):
            self.remedies["ids"] = "fold"
        return names

    def unique_ids(self, column: str) -> Objects:
        """Return the name in each row; refuse an empty one, a repeated one, and one in two
        spellings.
        """
        names, distinct = self._named(column, _IDS)
        if len(distinct) == names.size:
            self._refuse_alike(column, names, distinct, "give each run its own id")
            return names
        first: dict[str, int] = {}
        labels = names.tolist()
        places = [at for at, name in enumerate(labels) if first.setdefault(name, at) < at]
        label = labels[places[0]]
        self.refuse(
            column,
            places,
            f": {shown(label)} was already used in {self.table.row(first[label])}. Give every "
            "trajectory its own id, such as task and attempt in one.",
        )
        return names

    def _named(self, column: str, rules: Sequence[Rule]) -> tuple[Objects, list[str]]:
        """Return the name in each row, and the distinct names; refuse names that break a rule."""
        names, cells = self.table.columns[column], self.table.values(column)
        if set(map(type, cells)) != {str}:
            # Excel makes dates of names such as 3-1
            dated = rules is _IDS and self.table.path.suffix.lower() in SHEETS
            names = array_of(cells := each(cells, _undated if dated else name_of))
        distinct = list(dict.fromkeys(cells))
        if not self._obeys(column, rules, cells, distinct):
            # names that break no further rule
            distinct = [str(place) for place in range(len(cells))]
            names = array_of(distinct)
        return names, distinct

    def _refuse_alike(self, column: str, names: Objects, distinct: list[str], remedy: str) -> bool:
        """Refuse different names that look the same, as one task would count as two."""
        pair = two_spellings(distinct)
        if pair is None:
            return False
        before, place = map(names.tolist().index, pair)
        self.refuse(
            column,
            [place],
            f": {spelled(pair[1])} and {spelled(pair[0])} in {self.table.row(before)} are one "
            f"name in two spellings. Write the same name in both, or {remedy}.",
        )
        return True


def _undated(cell: Any) -> str | None:
    """Return a name as text, or None where the cell is a date."""
    return None if isinstance(cell, datetime.date | datetime.time) else name_of(cell)


def _numbers(cells: Sequence[Any], texts: str) -> Sequence[float | None]:
    """Return scores as numbers, None where a cell is not one; `texts` joins the texts."""
    kinds = set(map(type, cells))
    if kinds == {float}:
        return cells
    if kinds == {str} and "_" not in texts:
        with suppress(ValueError):
            return list(map(float, cells))
    return each(cells, number_of)
