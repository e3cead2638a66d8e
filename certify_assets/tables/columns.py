"""The columns of a table, read as scores, outcomes or names by rules that refuse the others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.names import folding, spelled, two_spellings
from certify_assets.tables.cells import MISSING_ID, MISSING_TEXT, each, name_of, number_of, shown
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.settings import TableSettings
from certify_assets.tables.table import Table, TableError, array_of, likely_column

_PERCENT = "percent signs, divided by 100"
# 1,234 may be a thousand and more
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
# 1.234 as well, where the numbers next to it have no point
_WITH_POINTS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+\s*")
_BELOW_THOUSAND = re.compile(r"\s*[+-]?\d{1,3}\s*")
_LONGEST_MISSING = max(map(len, MISSING_ID))
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
# cells that one fault names: of the first why it is one, of the others where they are
_MOST_CELLS = 6

#: a cell that breaks a rule is refused with its sentence
Rules = Sequence[tuple[Callable[[Any], bool], str]]

_OF_SCORES: Final[Rules] = (
    (
        lambda cell: isinstance(cell, str) and _THOUSANDS.fullmatch(cell.strip()) is not None,
        ": {value} is not a number in only one way (a thousand or a decimal comma); write it with "
        "a decimal point and without separators of thousands.",
    ),
    (
        lambda cell: number_of(cell) is None,
        ": {value} is not a number; give the judge's score as a number, or leave it empty where "
        "the judge gave none.",
    ),
    (
        lambda cell: math.isinf(number_of(cell) or 0.0),
        ": the score is infinite; give a finite number, or leave it empty.",
    ),
)
_OF_NAMES: Final[Rules] = (
    (
        lambda cell: name_of(cell) is None,
        ": {value} is no name but a {kind}; give text or a whole number.",
    ),
    (
        lambda cell: _UNWRITABLE.search(name_of(cell) or "") is not None,
        ": {value} holds a NUL or half a character; correct the text.",
    ),
)
_OF_IDS: Final[Rules] = (
    *_OF_NAMES,
    (
        lambda cell: (name_of(cell) or "").strip().lower() in MISSING_ID,
        " is empty; every trajectory needs the task that it attempts and its own id.",
    ),
)


class ColumnReader:
    """Reads the columns of one table; `settle` refuses all that was found wrong."""

    def __init__(self, table: Table, settings: TableSettings | None = None) -> None:
        self.table, self.settings = table, settings or TableSettings()
        self.problems: list[str] = []
        self.remedies: dict[str, str] = {}
        # by column, what is read otherwise than it is written
        self.notes: dict[str, list[str]] = {}

    def settle(self) -> None:
        """Raise the error of all that was gathered."""
        if self.problems:
            raise TableError(self.problems, self.remedies)

    def lacks(self, kind: str, name: str) -> None:
        """Refuse a table without a column; say which one may be meant."""
        self.problems.append(
            f"{self.table.path} has no column {name!r}; its columns are {self.table.listed}. "
            f"Rename one, or name it with --columns {kind}=NAME."
        )
        self.remedies |= self.likely(kind)

    def likely(self, kind: str) -> dict[str, str]:
        """Return the one column that may be meant by a field, if there is one."""
        column = likely_column(kind, self.table.names, self.table.columns)
        return {} if column is None else {kind: column}

    def refuse(self, column: str, places: Sequence[int], problem: str) -> None:
        """Refuse cells of a column for one reason."""
        rows = self.table.rows
        first, *others = places
        said = f"{self.table.path}, {rows.name(first)}, column {column!r}{problem}"
        if others:
            named = [rows.name(place) for place in others[: _MOST_CELLS - 1]]
            if more := len(others) - len(named):
                named.append(f"and {more:,} more")
            said += f" The same holds of {', '.join(named)}."
        self.problems.append(said)

    def _obey(
        self, rules: Rules, column: str, cells: Sequence[Any], written: Sequence[Any]
    ) -> None:
        """Refuse the cells that break a rule; show them as they are written."""

        def broken(cell: Any) -> str:
            return next((said for is_broken, said in rules if is_broken(cell)), "")

        places: dict[str, list[int]] = {}
        for place, sentence in enumerate(each(cells, broken)):
            if sentence:
                places.setdefault(sentence, []).append(place)
        for sentence, found in places.items():
            value = written[found[0]]
            kind = type(value).__name__
            self.refuse(column, found, sentence.format(value=shown(value), kind=kind))

    def scores(self, column: str) -> NDArray[np.float64]:
        """Return finite numbers, NaN where there is none."""
        values = self.table.columns[column]
        if values.dtype != object and not np.isinf(values).any():
            return np.array(values, dtype=np.float64)
        cells = self.table.values(column)
        if (place := _doubtful_point(cells)) is not None:
            self.refuse(
                column,
                [place],
                f": {shown(cells[place])} may be a thousand, since scores below 1000 have no "
                "point; write none for thousands, or every score with its decimals.",
            )
        scores = _plain_numbers(cells)
        if scores is None or np.isinf(scores).any():
            signs, plain = _without_signs(cells)
            self._obey(_OF_SCORES, column, plain, cells)
            scores = np.array(each(plain, number_of), dtype=np.float64)
            scores = scores / 100 if _PERCENT in signs else scores
            self.notes[column] = [f"scores with {' and '.join(signs)}"] if signs else []
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
        self.notes[column] = words.notes()
        return np.array(read, dtype=np.int8)

    def names(self, column: str) -> NDArray[np.object_]:
        """Return a name a row, empty ones too."""
        return self._named(column, _OF_NAMES)[0]

    def ids(self, column: str, *, unique: bool = False) -> NDArray[np.object_]:
        """Return a name a row, none of them empty; `unique` refuses one that is used twice."""
        faults = len(self.problems)
        labels, distinct = self._named(column, _OF_IDS)
        if len(self.problems) > faults:
            return labels
        if unique and len(distinct) < labels.size:
            self._refuse_repeated(column, labels)
        elif not unique and self.settings.ids:
            return self._folded(column, labels)
        elif (pair := two_spellings(distinct)) is not None:
            self._refuse_alike(column, labels, pair, unique=unique)
        return labels

    def _named(self, column: str, rules: Rules) -> tuple[NDArray[np.object_], list[str]]:
        """Return a name a row, and the distinct names."""
        cells = self.table.values(column)
        if set(map(type, cells)) == {str} and _are_names(distinct := self.table.distinct(column)):
            return self.table.columns[column], distinct
        self._obey(rules, column, cells, cells)
        named = [name or "" for name in each(cells, name_of)]
        return array_of(named), list(dict.fromkeys(named))

    def _folded(self, column: str, labels: NDArray[np.object_]) -> NDArray[np.object_]:
        """Return the first spelling of each name."""
        spelling = folding(labels.tolist())
        if not spelling:
            return labels
        one, other = next(iter(spelling.items()))
        more = f" and {len(spelling) - 1:,} more" if len(spelling) > 1 else ""
        self.notes[column] = [f"{column}: {spelled(one)} as {spelled(other)}{more}"]
        return array_of([spelling.get(label, label) for label in labels.tolist()])

    def _refuse_alike(
        self, column: str, labels: NDArray[np.object_], pair: tuple[str, str], *, unique: bool
    ) -> None:
        """Refuse names that look the same: one task would count as two."""
        cells = labels.tolist()
        before, index = map(cells.index, pair)
        remedy = "give each run its own id" if unique else "count them as one with --set ids=fold"
        self.remedies |= {} if unique else {"ids": "fold"}
        self.refuse(
            column,
            [index],
            f": {spelled(cells[index])} and {spelled(cells[before])} in "
            f"{self.table.rows.name(before)} are one name in two spellings. Write the same name in "
            f"both, or {remedy}.",
        )

    def _refuse_repeated(self, column: str, labels: NDArray[np.object_]) -> None:
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


def _are_names(texts: Collection[str]) -> bool:
    """Whether these are names that a file can hold, none of them empty: most tables have these."""
    joined = "".join(texts)
    if "\0" in joined or (not joined.isascii() and _UNWRITABLE.search(joined)):
        return False
    # a longer text is none of the missing ones, unless it is one between spaces
    short = min(map(len, texts)) <= _LONGEST_MISSING or len(joined.split(None, 1)) > 1
    return not short or MISSING_ID.isdisjoint(map(str.lower, map(str.strip, texts)))


def _plain_numbers(cells: Sequence[Any]) -> NDArray[np.float64] | None:
    """Return a whole column of numbers, or None where values are to be read one by one."""
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
        if not isinstance(text, str):
            return None
        if "." in text:
            if not _WITH_POINTS.fullmatch(text):
                return None
            pointed = place if pointed is None else pointed
    return pointed if any(map(_BELOW_THOUSAND.fullmatch, cells)) else None


def _without_signs(cells: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """Return texts without percent signs and decimal commas, where all of a column have these."""
    texts = ["" if cell is None else cell for cell in cells]
    if not all(isinstance(text, str) for text in texts):
        return [], texts
    texts = ["" if text.strip().lower() in MISSING_TEXT else text.strip() for text in texts]
    given = list(filter(None, texts))
    percent = bool(given) and all(text.endswith("%") for text in given)
    with_comma = [text.removesuffix("%").rstrip() for text in given if "," in text]
    # 24,897 % is no score of more than a thousand percent
    thousands = not percent and all(map(_THOUSANDS.fullmatch, with_comma))
    comma = bool(with_comma) and not thousands and not any("." in text for text in given)
    if percent:
        texts = [text.removesuffix("%") for text in texts]
    if comma:
        texts = [text.replace(",", ".") for text in texts]
    return ["decimal commas"] * comma + [_PERCENT] * percent, texts
