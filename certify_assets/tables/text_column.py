"""The cells of a table's column, read as scores, outcomes or names."""

from __future__ import annotations

import datetime
import decimal
import math
import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.tables.columns import Rows, TableError, Texts, rows_of

_MISSING_TEXT = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
_MISSING_ID = frozenset({"", "nan", "<na>"})
_LONGEST_MISSING = max(map(len, _MISSING_ID))
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
# a number as every program writes one, and with a comma for its point
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_WITH_COMMA = re.compile(r"[+-]?(\d+,?\d*|,\d+)(e[+-]?\d+)?", re.IGNORECASE)
# 1,234 may be a thousand and more
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
# 1.234 as well, where the numbers next to it have no point
_WITH_POINTS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+\s*")
_BELOW_THOUSAND = re.compile(r"\s*[+-]?\d{1,3}\s*")
_YES_OR_NO = {"true": 1, "t": 1, "yes": 1, "y": 1, "false": 0, "f": 0, "no": 0, "n": 0}
#: words that say what became of a run, whatever their column is called
_OUTCOMES = _YES_OR_NO | {
    **dict.fromkeys(("pass", "passed", "success", "successful", "succeeded"), 1),
    **dict.fromkeys(("resolved", "solved", "correct"), 1),
    **dict.fromkeys(("fail", "failed", "failure", "unsuccessful"), 0),
    **dict.fromkeys(("unresolved", "unsolved", "incorrect"), 0),
}
# of a column, or of a label of traces, whose yes is a failure or may be one
_CONTRARY = re.compile(
    r"fail|error|incorrect|wrong|un(re)?solved|unsuccess|reject|invalid|broken|crash|violat"
    r"|hallucinat|harmful|unsafe|toxic|defect|mistake|(?<!de)fault|abort|abandon|refus|escalat"
    r"|flagged|regress|timed?[ _-]?out|attack|inject|hack|cheat|leak|breach|malicious|decept"
    r"|misalign|poison|jailbreak|stuck|g[ai]ve[ _-]?up|needs?[ _-]?human|hand[ _-]?off"
    r"|(^|[^a-z])(not?|non|nok|bad|bugs?|loss|lost)([^a-z]|$)"
)
_MOST_LABELS = 6
# cells that one fault names: of the first why it is one, of the others where they are
_MOST_CELLS = 6
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
# nearer to 0 or 1 than this a number is no class of its own
_ROUNDED = 1e-9


@dataclass(frozen=True)
class OutcomeColumn:
    """What the values of a column say of runs, each distinct one read once."""

    column: str
    # whose value is a success, all others being failures
    success_label: str | None = None
    # a column has few distinct values; 1, 1.0 and True are equal and hash alike
    _known: dict[tuple[type, Any], int | None] = field(default_factory=dict)

    def read(self, value: Any) -> int | None:
        """Return 0 or 1, −1 where there is none, None for what is no outcome."""
        key = (type(value), value)
        try:
            return self._known[key] if key in self._known else self._keep(key)
        except TypeError:
            return None

    def _keep(self, key: tuple[type, Any]) -> int | None:
        return self._known.setdefault(key, self._outcome(key[1]))

    def _outcome(self, value: Any) -> int | None:
        number = _number(value)
        if number is not None and math.isnan(number):
            return -1
        if self.success_label is not None:
            # 0 and 0.0 are the same label
            same = number is not None and number == _number(self.success_label)
            word, label = str(value).strip().lower(), self.success_label.strip().lower()
            if word != label and _OUTCOMES.get(word) == _OUTCOMES.get(label) == 1:
                return None
            return int(same or word == label)
        if isinstance(value, bool | np.bool_):
            return None if self.contrary else int(value)
        if isinstance(value, str) and (word := value.strip().lower()) in _OUTCOMES:
            return None if self.contrary and word in _YES_OR_NO else _OUTCOMES[word]
        if number not in (0.0, 1.0) or self.contrary:
            return None
        exact = decimal.Decimal(value.strip()) if isinstance(value, str) else value
        return int(number) if exact in (0, 1) else None

    @property
    def contrary(self) -> bool:
        """Whether the column's name says that its yes is a failure."""
        return means_failure(self.column)

    @property
    def found(self) -> set[int]:
        """Return the outcomes that the values read so far have."""
        return {outcome for outcome in self._known.values() if outcome in (0, 1)}

    @property
    def values(self) -> list[str]:
        """Return the values read so far that are not missing, as messages quote them."""
        return sorted({shown(key[1]) for key, outcome in self._known.items() if outcome != -1})

    @property
    def unknown(self) -> list[str]:
        """Return the values read so far that are no outcomes, as messages quote them."""
        return sorted({shown(key[1]) for key, outcome in self._known.items() if outcome is None})

    @property
    def rounded(self) -> bool:
        """Whether all that are no outcomes are numbers which another reader would round to one."""
        numbers = [_number(key[1]) for key, outcome in self._known.items() if outcome is None]
        return all(it is not None and min(abs(it), abs(it - 1)) < _ROUNDED for it in numbers)

    @property
    def words(self) -> list[str]:
        """Return the words read so far that are outcomes, and numbers under a success label."""
        texts = {
            value.strip() if isinstance(value, str) else str(value)
            for (kind, value), outcome in self._known.items()
            if outcome in (0, 1) and (kind is str or self.success_label is not None)
        }
        return sorted(text for text in texts if _number(text) is None or self.success_label)

    def notes(self) -> list[str]:
        """Say which words are successes."""
        named: dict[int, list[str]] = {1: [], 0: []}
        for word in self.words:
            named[self._outcome(word) or 0].append(word)
        said = [
            f"{', '.join(map(shown, words[:_MOST_LABELS]))} as {outcome}"
            for outcome, words in named.items()
            if words
        ]
        return [f"{self.column}: {' and '.join(said)}"] if said else []


@dataclass(frozen=True)
class TextColumn:
    """A column of a file with what names its cells in messages."""

    path: Path
    column: str
    values: npt.NDArray[Any] | Texts
    rows: Rows
    # whose value is a success, all others being failures
    success_label: str | None = None
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
        number = _number(value)
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

    def outcomes(self) -> npt.NDArray[np.int8]:
        """Return 0 and 1, −1 where there is none."""
        values = rows_of(self.values)
        listed = values.tolist()
        words = OutcomeColumn(self.column, self.success_label)
        labelled = self.success_label is not None or words.contrary
        quick = None if labelled else _plain_numbers(values)
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
            raise self._no_outcome(
                [place for place, outcome in enumerate(read) if outcome is None], listed
            )
        self.notes.extend(words.notes())
        return np.array(read, dtype=np.int8)

    def _no_outcome(self, places: list[int], listed: list[Any]) -> InputError:
        """Return the error of a column with other values than outcomes, at these places."""
        index, *others = places
        words = OutcomeColumn(self.column, self.success_label)
        labels = sorted({shown(value) for value in listed if words.read(value) != -1})
        if self.success_label is not None:
            return self.error(
                index,
                f": {shown(listed[index])} means a success, as {shown(self.success_label)} does, "
                "which --success-label names; write one of them for both, or 0 for each failure.",
                others,
            )
        if words.contrary:
            return self.error(
                index,
                f": {shown(listed[index])} under a name that means a failure can be read in two "
                f"ways; say with --success-label which of {', '.join(labels[:_MOST_LABELS])} is a "
                "success.",
                others,
            )
        if len(labels) <= _MOST_LABELS:
            return self.error(
                index,
                f": {shown(listed[index])} is not an outcome; write 1 for a success and 0 for a "
                f"failure, or say with --success-label which of {', '.join(labels)} is one.",
                others,
            )
        return self.error(
            index,
            f": {shown(listed[index])} is not an outcome; write 1 for a success, 0 for a "
            "failure, or leave it empty where there is no label.",
            others,
        )

    def ids(self, *, unique: bool = False) -> npt.NDArray[np.object_]:
        """Return a name a row, none of them empty."""
        labels, distinct = self._named()
        # a longer text is none of them, unless it is one between spaces
        doubtful = (
            min(map(len, distinct), default=0) <= _LONGEST_MISSING
            or len("".join(distinct).split(None, 1)) > 1
        )
        if doubtful and not _MISSING_ID.isdisjoint(map(str.lower, map(str.strip, distinct))):
            first, *others = [place for place, label in enumerate(labels) if _is_missing(label)]
            raise self.error(
                first,
                " is empty; every trajectory needs the task that it attempts and its own id.",
                others,
            )
        if unique and len(distinct) < len(labels):
            self._refuse_repeated(labels)
        if not unique:
            self._refuse_alike(labels, distinct)
        return labels

    def labels(self) -> npt.NDArray[np.object_]:
        """Return a name a row, empty ones too."""
        return self._named()[0]

    def _refuse_alike(self, labels: npt.NDArray[np.object_], distinct: Collection[str]) -> None:
        """Refuse names that look the same: one task would count as two."""
        joined = "".join(distinct)
        if joined.isascii() and joined.split(None, 1) == [joined]:
            return
        if len({_looks(label) for label in distinct}) == len(distinct):
            return
        first: dict[str, int] = {}
        for index, label in enumerate(labels):
            before = first.setdefault(_looks(label), index)
            if labels[before] != label:
                raise self.error(
                    index,
                    f": {label!a} differs from {labels[before]!a} in "
                    f"{self.rows.name(before)} only in spaces around it or in how its letters are "
                    "encoded; write the same name in both.",
                )

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
            label = _label(value)
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


def means_failure(name: str) -> bool:
    """Whether the name of a column or of a label says that its yes is a failure."""
    return _CONTRARY.search(name.lower()) is not None


def id_used_twice(
    path: Path, row: str, column: str, label: str, other: str, *, more: int = 0
) -> InputError:
    """Return the error of a trajectory id that another row has too, as `more` others have."""
    return InputError(
        f"{path}, {row}, column {column!r}: {shown(label)} was already used in {other}; give "
        "every trajectory its own id, or leave the column out."
        + (f" Rows that repeat an id: {more + 1:,}." if more else "")
    )


def _looks(label: str) -> str:
    return unicodedata.normalize("NFC", label.strip())


def _is_missing(label: str) -> bool:
    return label.strip().lower() in _MISSING_ID


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
    given = [text for text in texts if text.lower() not in _MISSING_TEXT]
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
    scores[[text.lower() not in _MISSING_TEXT for text in texts]] = (
        numbers / 100 if percent else numbers
    )
    said = [
        *(["decimal commas"] if comma else []),
        *(["percent signs, divided by 100"] if percent else []),
    ]
    return scores, "scores with " + " and ".join(said)


def _number(value: Any) -> float | None:
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
    if text.lower() in _MISSING_TEXT:
        return math.nan
    return None if "_" in text else _as_float(text)


def _as_float(value: Any) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf


def _plain_texts(listed: list[Any]) -> bool:
    """Whether these are texts that a file can hold: most tables have no others."""
    if set(map(type, listed)) != {str}:
        return False
    joined = "".join(listed)
    return "\0" not in joined and (joined.isascii() or not _UNWRITABLE.search(joined))


def _label(value: Any) -> str | None:
    """Return a name as text, or None where it is none."""
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_) or not isinstance(value, _ID_TYPES):
        return None
    # a task numbered 7 is the same task whether the file holds 7, 7.0 or "7"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def shown(value: Any) -> str:
    """Return a value as messages quote it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
