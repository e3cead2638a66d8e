"""The cells of a table's column, read as scores, outcomes or names."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.names import folding, spelled, two_spellings
from certify_assets.tables.cells import MISSING_ID, MISSING_TEXT, name_of, number_of, shown
from certify_assets.tables.columns import Rows, TableError, Texts, array_of, rows_of
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.settings import TableSettings

_LONGEST_MISSING = max(map(len, MISSING_ID))
# a number as every program writes one, and with a comma for its point
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_WITH_COMMA = re.compile(r"[+-]?(\d+,?\d*|,\d+)(e[+-]?\d+)?", re.IGNORECASE)
# 1,234 may be a thousand and more
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
# 1.234 as well, where the numbers next to it have no point
_WITH_POINTS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+\s*")
_BELOW_THOUSAND = re.compile(r"\s*[+-]?\d{1,3}\s*")
# cells that one fault names: of the first why it is one, of the others where they are
_MOST_CELLS = 6
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class TextColumn:
    """A column of a file with what names its cells in messages."""

    path: Path
    column: str
    values: npt.NDArray[Any] | Texts
    rows: Rows
    settings: TableSettings = field(default_factory=TableSettings)
    # what is read otherwise than it is written
    notes: list[str] = field(default_factory=list)

    def error(self, index: int, problem: str, others: Sequence[int] = ()) -> InputError:
        """Return the error of a cell, which `others` have too."""
        said = f"{self.path}, {self.rows.name(index)}, column {self.column!r}{problem}"
        if not others:
            return InputError(said)
        named = [self.rows.name(place) for place in others[: _MOST_CELLS - 1]]
        if more := len(others) - len(named):
            named.append(f"and {more:,} more")
        return InputError(f"{said} The same holds of {', '.join(named)}.")

    def scores(self) -> npt.NDArray[np.float64]:
        """Return finite numbers, NaN where there is none."""
        values = rows_of(self.values)
        quick = _plain_numbers(values)
        if values.dtype == object and (place := _doubtful_point(values.tolist())) is not None:
            raise self.error(
                place,
                f": {shown(values[place])} may be a thousand, since scores below 1000 have no "
                "point; write none for thousands, or every score with its decimals.",
            )
        if quick is not None and not np.isinf(quick).any():
            return quick
        listed = values.tolist()
        if (read := _other_numbers(listed)) is not None:
            self.notes.append(read[1])
            return read[0]
        scores = np.empty(len(values), dtype=np.float64)
        places: dict[str, list[int]] = {}
        for index, value in enumerate(listed):
            if fault := self._keep_score(scores, index, value):
                places.setdefault(fault, []).append(index)
        if not places:
            return scores
        faults = sorted(places.items(), key=itemgetter(1))
        said = [
            str(self.error(first, fault.format(value=shown(listed[first])), others))
            for fault, (first, *others) in faults
        ]
        raise TableError(said, {})

    @staticmethod
    def _keep_score(scores: npt.NDArray[np.float64], index: int, value: Any) -> str | None:
        """Write a cell's number down, or say why it is none."""
        number = number_of(value)
        if number is None and isinstance(value, str) and _THOUSANDS.fullmatch(value.strip()):
            return (
                ": {value} is not a number in only one way (a thousand or a decimal comma); write "
                "it with a decimal point and without separators of thousands."
            )
        if number is None:
            return (
                ": {value} is not a number; give the judge's score as a number, or leave it empty "
                "where the judge gave none."
            )
        if math.isinf(number):
            return ": the score is infinite; give a finite number, or leave it empty."
        scores[index] = number
        return None

    def outcomes(self, *, named: bool = False) -> npt.NDArray[np.int8]:
        """Return 0 and 1, −1 where there is none; `named` refuses settings that name none."""
        values = rows_of(self.values)
        listed = values.tolist()
        words = OutcomeColumn(self.column, self.settings)
        quick = _plain_numbers(values) if words.plain else None
        if (
            quick is not None
            and ((missing := np.isnan(quick)) | (quick == 0) | (quick == 1)).all()
            # 1e-400 is no zero
            and (
                values.dtype != object
                or all(OutcomeColumn(self.column).read(one) is not None for one in set(listed))
            )
        ):
            return np.where(missing, -1, quick).astype(np.int8)
        read = [words.read(value) for value in listed]
        if None in read:
            index, *others = [place for place, outcome in enumerate(read) if outcome is None]
            problem, remedy = words.problem(value=listed[index])
            raise TableError([str(self.error(index, f": {problem}", others))], remedy)
        if named:
            words.require_named(self.path)
        self.notes.extend(words.notes())
        return np.array(read, dtype=np.int8)

    def ids(self, *, unique: bool = False) -> npt.NDArray[np.object_]:
        """Return a name a row, none of them empty."""
        labels, distinct = self._named()
        # a longer text is none of them, unless it is one between spaces
        doubtful = (
            min(map(len, distinct), default=0) <= _LONGEST_MISSING
            or len("".join(distinct).split(None, 1)) > 1
        )
        if doubtful and not MISSING_ID.isdisjoint(map(str.lower, map(str.strip, distinct))):
            first, *others = [place for place, label in enumerate(labels) if _is_missing(label)]
            raise self.error(
                first,
                " is empty; every trajectory needs the task that it attempts and its own id.",
                others,
            )
        if unique and len(distinct) < len(labels):
            self._refuse_repeated(labels)
        if not unique and self.settings.ids:
            return self._folded(labels, distinct)
        self._refuse_alike(labels, distinct, unique=unique)
        return labels

    def labels(self) -> npt.NDArray[np.object_]:
        """Return a name a row, empty ones too."""
        return self._named()[0]

    def _folded(
        self, labels: npt.NDArray[np.object_], distinct: Collection[str]
    ) -> npt.NDArray[np.object_]:
        """Return the first spelling of each name."""
        if not folding(distinct):
            return labels
        # of several spellings the one of the first row counts
        spelling = folding(labels.tolist())
        one, other = next(iter(spelling.items()))
        more = f" and {len(spelling) - 1:,} more" if len(spelling) > 1 else ""
        self.notes.append(f"{self.column}: {spelled(one)} as {spelled(other)}{more}")
        return array_of([spelling.get(label, label) for label in labels.tolist()])

    def _refuse_alike(
        self, labels: npt.NDArray[np.object_], distinct: Collection[str], *, unique: bool
    ) -> None:
        """Refuse names that look the same: one task would count as two."""
        if two_spellings(distinct) is None:
            return
        listed = labels.tolist()
        # of the first rows, in whatever order distinct names come
        pair = two_spellings(dict.fromkeys(listed))
        assert pair is not None
        before, index = map(listed.index, pair)
        said = (
            f": {spelled(listed[index])} and {spelled(listed[before])} in "
            f"{self.rows.name(before)} are one name in two spellings. Write the same name in both"
        )
        if unique:
            raise self.error(index, f"{said}, or give each run its own id.")
        problem = str(self.error(index, f"{said}, or count them as one with --set ids=fold."))
        raise TableError([problem], {"ids": "fold"})

    def _refuse_repeated(self, labels: npt.NDArray[np.object_]) -> None:
        first: dict[str, int] = {}
        repeated = [
            place for place, label in enumerate(labels) if first.setdefault(label, place) != place
        ]
        label = labels[repeated[0]]
        raise id_used_twice(
            self.path,
            self.rows.name(repeated[0]),
            self.column,
            label,
            self.rows.name(first[label]),
            more=len(repeated) - 1,
        )

    def _named(self) -> tuple[npt.NDArray[np.object_], Collection[str]]:
        """Return a name a row, and the distinct names."""
        if isinstance(self.values, Texts) and _plain_texts(self.values.distinct):
            return self.values.rows(), cast("list[str]", self.values.distinct)
        values = rows_of(self.values)
        labels = values if _plain_texts(values.tolist()) else self._one_by_one(values)
        return labels, set(labels.tolist())

    def _one_by_one(self, values: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        labels = np.empty(len(values), dtype=object)
        for index, value in enumerate(values):
            label = name_of(value)
            if label is None:
                raise self.error(
                    index,
                    f": {shown(value)} is no name but a {type(value).__name__}; give text or a "
                    "whole number.",
                )
            if _UNWRITABLE.search(label):
                raise self.error(
                    index, f": {shown(label)} holds a NUL or half a character; correct the text."
                )
            labels[index] = label
        return labels


def id_used_twice(
    path: Path, row: str, column: str, label: str, other: str, *, more: int = 0
) -> InputError:
    """Return the error of a trajectory id that another row has too, as `more` others have."""
    return InputError(
        f"{path}, {row}, column {column!r}: {shown(label)} was already used in {other}; give "
        "every trajectory its own id, or leave the column out."
        + (f" Rows that repeat an id: {more + 1:,}." if more else "")
    )


def _is_missing(label: str) -> bool:
    return label.strip().lower() in MISSING_ID


def _plain_numbers(values: npt.NDArray[Any]) -> npt.NDArray[np.float64] | None:
    """Return a whole column of numbers, or None where values are to be read one by one."""
    if values.dtype != object:
        return np.array(values, dtype=np.float64)
    listed = values.tolist()
    if set(map(type, listed)) != {str} or any("_" in text for text in listed):
        return None
    try:
        return np.fromiter(map(float, listed), dtype=np.float64, count=len(listed))
    except ValueError:
        return None


def _doubtful_point(listed: list[Any]) -> int | None:
    """Return the place of a text whose point may separate thousands, if all such texts' may."""
    pointed = -1
    for place, text in enumerate(listed):
        if not isinstance(text, str):
            return None
        if "." in text:
            if not _WITH_POINTS.fullmatch(text):
                return None
            pointed = place if pointed < 0 else pointed
    if pointed < 0 or not any(map(_BELOW_THOUSAND.fullmatch, listed)):
        return None
    return pointed


def _other_numbers(listed: list[Any]) -> tuple[npt.NDArray[np.float64], str] | None:
    """Return numbers with decimal commas or percent signs, where all of a column are, and which."""
    if not all(value is None or isinstance(value, str) for value in listed):
        return None
    texts = ["" if value is None else value.strip() for value in listed]
    given = [text for text in texts if text.lower() not in MISSING_TEXT]
    percent = bool(given) and all(text.endswith("%") for text in given)
    if percent:
        given = [text[:-1].rstrip() for text in given]
    comma = any("," in text for text in given)
    written = _WITH_COMMA if comma else _PLAIN
    if not (percent or comma) or not all(written.fullmatch(text) for text in given):
        return None
    # 24,897 % is no score of more than a thousand percent
    if comma and not percent and all(_THOUSANDS.fullmatch(text) for text in given if "," in text):
        return None
    numbers = np.array([float(text.replace(",", ".")) for text in given])
    if np.isinf(numbers).any():
        return None
    scores = np.full(len(texts), np.nan)
    scores[[text.lower() not in MISSING_TEXT for text in texts]] = (
        numbers / 100 if percent else numbers
    )
    said = [
        *(["decimal commas"] if comma else []),
        *(["percent signs, divided by 100"] if percent else []),
    ]
    return scores, "scores with " + " and ".join(said)


def _plain_texts(listed: list[Any]) -> bool:
    """Whether these are texts that a file can hold: most tables have no others."""
    if set(map(type, listed)) != {str}:
        return False
    joined = "".join(listed)
    return "\0" not in joined and (joined.isascii() or not _UNWRITABLE.search(joined))
