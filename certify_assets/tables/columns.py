"""The columns of a table, read as scores, outcomes or names by rules that refuse the others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats, Objects
from certify_assets.names import folding, spelled, two_spellings
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.settings import TableSettings
from certify_assets.tables.table import (
    MISSING_ID,
    MISSING_TEXT,
    Table,
    TableError,
    array_of,
    each,
    likely_column,
    name_of,
    number_of,
    shown,
)

PERCENT_SIGNS: Final = "scores with percent signs, divided by 100"
_DECIMAL_COMMAS = "scores with decimal commas"
# 1,234 may be a thousand and more, and 1.234 where the numbers next to it have no point
_COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_POINTS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+\s*")
_BELOW_THOUSAND = re.compile(r"\s*[+-]?\d{1,3}\s*")
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_LONGEST_MISSING = max(map(len, MISSING_ID))
# cells that one fault names: of the first why it is one, of the others where they are
_MOST_CELLS = 6


class _Fault(NamedTuple):
    """Why a cell cannot be used, in words that follow its place."""

    sentence: str


def _score(cell: Any) -> float | _Fault:
    """Return a finite score, NaN where there is none."""
    if isinstance(cell, str) and _COMMAS.fullmatch(cell):
        return _Fault(
            ": {value} is not a number in only one way (a thousand or a decimal comma); write it "
            "with a decimal point and without separators of thousands."
        )
    number = number_of(cell)
    if number is None:
        return _Fault(
            ": {value} is not a number; give the judge's score as a number, or leave it empty "
            "where the judge gave none."
        )
    if math.isinf(number):
        return _Fault(": the score is infinite; give a finite number, or leave it empty.")
    return number


def _name(cell: Any) -> str | _Fault:
    """Return a name, empty where there is none."""
    name = name_of(cell)
    if name is None:
        return _Fault(": {value} is no name but a {kind}; give text or a whole number.")
    if _UNWRITABLE.search(name):
        return _Fault(": {value} holds a NUL or half a character; correct the text.")
    return name


def _id(cell: Any) -> str | _Fault:
    name = _name(cell)
    if isinstance(name, str) and name.strip().lower() in MISSING_ID:
        return _Fault(" is empty; every trajectory needs the task that it attempts and its own id.")
    return name


class ColumnReader:
    """Reads the columns of one table; `settle` refuses all that was found wrong."""

    def __init__(self, table: Table, settings: TableSettings | None = None) -> None:
        self.table, self.settings = table, settings or TableSettings()
        self.problems: list[str] = []
        self.remedies: dict[str, str] = {}
        # what is read otherwise than it is written
        self.notes: list[str] = []

    def settle(self) -> None:
        """Raise the error of all that was gathered."""
        # a command line that mends a part of the faults would be refused again
        mended = len(self.remedies) >= len(self.problems)
        if self.problems:
            raise TableError(self.problems, self.remedies if mended else {})

    def lacks(self, kind: str, name: str) -> None:
        """Refuse a table without a column; say which one may be meant."""
        self.problems.append(
            f"{self.table.path} has no column {name!r}; its columns are {self.table.listed}. "
            f"Rename one, or name it with --columns {kind}=NAME."
        )
        self.remedies |= self.likely(kind)

    def likely(self, kind: str) -> dict[str, str]:
        """Return the one column that may be meant by a field, if there is one."""
        return likely_column(kind, self.table.names, self.table.columns)

    def refuse(self, column: str, places: Sequence[int], problem: str) -> None:
        """Refuse cells of a column for one reason."""
        first, *others = map(self.table.rows.name, places[:_MOST_CELLS])
        said = f"{self.table.path}, {first}, column {column!r}{problem}"
        if len(places) > _MOST_CELLS:
            others.append(f"and {len(places) - _MOST_CELLS:,} more")
        self.problems.append(f"{said} The same holds of {', '.join(others)}." if others else said)

    def _read(
        self, column: str, read: Callable[[Any], Any], cells: Sequence[Any] | None = None
    ) -> list[Any]:
        """Read the cells of a column; refuse those with a fault, and return none then."""
        written = self.table.values(column)
        found = each(written if cells is None else cells, read)
        places: dict[str, list[int]] = {}
        for place, value in enumerate(found):
            if isinstance(value, _Fault):
                places.setdefault(value.sentence, []).append(place)
        for sentence, where in places.items():
            value = written[where[0]]
            said = sentence.format(value=shown(value), kind=type(value).__name__)
            self.refuse(column, where, said)
        return [] if places else found

    def scores(self, column: str) -> Floats:
        """Return finite numbers, NaN where there is none."""
        written = self.table.values(column)
        if (place := _doubtful_point(written)) is not None:
            self.refuse(
                column,
                [place],
                f": {shown(written[place])} may be a thousand, since scores below 1000 have no "
                "point; write none for thousands, or every score with its decimals.",
            )
        scores = _plain_numbers(self.table.columns[column])
        if scores is None or np.isinf(scores).any():
            cells, notes = _without_signs(written)
            self.notes += notes
            scores = np.array(self._read(column, _score, cells), dtype=np.float64)
            scores = scores / 100 if PERCENT_SIGNS in notes else scores
        return scores

    def outcomes(self, column: str, *, named: bool) -> NDArray[np.int8]:
        """Return 0 and 1, −1 where there is none; `named` refuses settings that name none."""
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
        """Return a name a row, empty ones too."""
        return self._named(column, _name)[0]

    def ids(self, column: str, *, unique: bool = False) -> Objects:
        """Return a name a row, none of them empty; `unique` refuses one that is used twice."""
        labels, distinct = self._named(column, _id)
        if unique and len(distinct) < labels.size:
            self._refuse_repeated(column, labels.tolist())
        elif not unique and self.settings.ids:
            return self._folded(column, labels)
        elif (pair := two_spellings(distinct)) is not None:
            self._refuse_alike(column, labels.tolist(), pair, unique=unique)
        return labels

    def _named(self, column: str, read: Callable[[Any], Any]) -> tuple[Objects, list[str]]:
        """Return a name a row, and the distinct names."""
        cells = self.table.values(column)
        distinct = list(dict.fromkeys(cells)) if set(map(type, cells)) == {str} else []
        if distinct and _are_names(distinct):
            return self.table.columns[column], distinct
        named = self._read(column, read)
        return array_of(named), list(dict.fromkeys(named))

    def _folded(self, column: str, labels: Objects) -> Objects:
        """Return the first spelling of each name."""
        spelling = folding(labels.tolist())
        if not spelling:
            return labels
        one, other = next(iter(spelling.items()))
        more = f" and {len(spelling) - 1:,} more" if len(spelling) > 1 else ""
        self.notes.append(f"{column}: {spelled(one)} as {spelled(other)}{more}")
        return array_of([spelling.get(label, label) for label in labels.tolist()])

    def _refuse_alike(
        self, column: str, labels: list[str], pair: tuple[str, str], *, unique: bool
    ) -> None:
        """Refuse names that look the same: one task would count as two."""
        before, place = map(labels.index, pair)
        remedy = "give each run its own id" if unique else "count them as one with --set ids=fold"
        self.remedies |= {} if unique else {"ids": "fold"}
        self.refuse(
            column,
            [place],
            f": {spelled(labels[place])} and {spelled(labels[before])} in "
            f"{self.table.rows.name(before)} are one name in two spellings. Write the same name in "
            f"both, or {remedy}.",
        )

    def _refuse_repeated(self, column: str, labels: list[str]) -> None:
        first: dict[str, int] = {}
        places = [
            place for place, label in enumerate(labels) if first.setdefault(label, place) != place
        ]
        label = labels[places[0]]
        self.refuse(
            column,
            places,
            f": {shown(label)} was already used in {self.table.rows.name(first[label])}; give "
            "every trajectory its own id, or leave the column out.",
        )


def _are_names(texts: Sequence[str]) -> bool:
    """Whether these are names that a file can hold, none of them empty: most tables have these."""
    joined = "".join(texts)
    if "\0" in joined or (not joined.isascii() and _UNWRITABLE.search(joined)):
        return False
    # without spaces a longer text is none of the missing ones
    longer = min(map(len, texts)) > _LONGEST_MISSING and joined.split(None, 1) == [joined]
    return longer or MISSING_ID.isdisjoint(map(str.lower, map(str.strip, texts)))


def _plain_numbers(values: NDArray[Any]) -> Floats | None:
    """Return a whole column of numbers, or None where values are to be read one by one."""
    if values.dtype != object:
        return np.array(values, dtype=np.float64)
    cells = values.tolist()
    kinds = set(map(type, cells))
    texts = kinds == {str} and not any("_" in text for text in cells)
    if not texts and not kinds <= {int, float, type(None)}:
        return None
    try:
        return np.array([math.nan if cell is None else float(cell) for cell in cells])
    except (ValueError, OverflowError):
        return None


def _doubtful_point(cells: Sequence[Any]) -> int | None:
    """Return the place of a text whose point may separate thousands, if all such texts' may."""
    pointed = None
    for place, text in enumerate(cells):
        if not isinstance(text, str) or ("." in text and not _POINTS.fullmatch(text)):
            return None
        if "." in text and pointed is None:
            pointed = place
    return pointed if any(map(_BELOW_THOUSAND.fullmatch, cells)) else None


def _without_signs(cells: Sequence[Any]) -> tuple[Sequence[Any], list[str]]:
    """Return texts without percent signs and decimal commas, where all of a column have these."""
    if not all(isinstance(cell, str | None) for cell in cells):
        return cells, []
    texts = [(cell or "").strip() for cell in cells]
    given = [text for text in texts if text.lower() not in MISSING_TEXT]
    percent = bool(given) and all(text.endswith("%") for text in given)
    with_comma = [text.removesuffix("%").rstrip() for text in given if "," in text]
    # 24,897 % is no score of more than a thousand percent
    thousands = not percent and all(map(_COMMAS.fullmatch, with_comma))
    comma = bool(with_comma) and not thousands and not any("." in text for text in given)
    notes = []
    if comma:
        texts, notes = [text.replace(",", ".") for text in texts], [_DECIMAL_COMMAS]
    if percent:
        texts, notes = [text.removesuffix("%") for text in texts], [*notes, PERCENT_SIGNS]
    return texts, notes
