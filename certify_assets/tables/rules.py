"""What a column of scores or names may not hold, as one table of rules.

A library alone reads most of this in silence: as other numbers, as other tasks, or as none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from certify_assets.tables.table import MISSING_ID

# 1,234 may be a thousand and more, and 1.234 where the numbers next to it have no point
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}([.,]\d{3})+\s*")
_BELOW_THOUSAND = re.compile(r"\s*[+-]?\d{1,3}\s*")
_LONGEST_MISSING = max(map(len, MISSING_ID))
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


class Rule(NamedTuple):
    """What is refused of cells, and the sentence about the first of them, after its place."""

    name: str
    # returns the values at fault
    broken: Callable[[Sequence[Any]], Collection[Any]]
    sentence: str


def _thousands(texts: Sequence[str]) -> Collection[str]:
    for sign in ",.":
        marked = next((text for text in texts if sign in text), None)
        doubtful = sign == "," or any(map(_BELOW_THOUSAND.fullmatch, texts))
        if marked is not None and all(_THOUSANDS.fullmatch(text) for text in texts if sign in text):
            return [marked] if doubtful else []
    return []


def _unwritable(names: Sequence[str]) -> Collection[str]:
    joined = "".join(names)
    plain = joined.isascii() and "\0" not in joined
    return [] if plain else [name for name in names if _UNWRITABLE.search(name)]


def _empty(names: Sequence[str]) -> Collection[str]:
    joined = "".join(names)
    # without blanks, a longer name is none of the missing ones
    if joined.split(None, 1) == [joined] and min(map(len, names)) > _LONGEST_MISSING:
        return []
    return [name for name in names if name.strip().lower() in MISSING_ID]


#: of the texts among scores
WRITTEN_SCORES = (
    Rule(
        "perhaps a thousand",
        _thousands,
        ": {value} may be a thousand or a decimal. Write every score with its decimals, and none "
        "with separators of thousands.",
    ),
)
#: of scores as they are read: None where a cell is no number
SCORES = (
    Rule(
        "no number",
        lambda scores: {None}.intersection(scores),
        ": {value} is not a number. Give the judge's score, or leave it empty where there is none.",
    ),
    Rule(
        "infinite",
        lambda scores: {math.inf, -math.inf}.intersection(scores),
        ": the score is infinite. Give a finite number, or leave it empty.",
    ),
)
#: of names as they are read: None where a cell is none
NAMES = (
    Rule(
        "no name",
        lambda names: {None}.intersection(names),
        ": {value} is no name but a {kind}. Give text or a whole number.",
    ),
    Rule(
        "not writable",
        _unwritable,
        ": {value} holds a NUL or half a character. Correct the text.",
    ),
)
#: of names of tasks and runs
IDS = (
    *NAMES,
    Rule(
        "empty",
        _empty,
        " is empty. Every trajectory needs the task that it attempts and its own id.",
    ),
)
