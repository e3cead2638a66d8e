"""What settles how a table is read where the table itself is not clear."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from certify_assets.errors import InputError, unknown_setting

#: how the columns of most score tables are called, by field
COLUMNS: Final[Mapping[str, str]] = {
    "task": "task_id",
    "score": "score",
    "outcome": "outcome",
    "id": "trajectory_id",
    "agent": "agent",
    "group": "group",
    "split": "split",
}
# a name may hold commas: the next column begins where its field is named
_NEXT = re.compile(rf",(?=(?:{'|'.join(COLUMNS)})=)")
_OUTCOME = {"success", "failure", "threshold"}


def parse_columns(text: str) -> dict[str, str]:
    """Read names of columns by their fields, written as task=NAME,score=NAME."""
    return checked_columns(part.partition("=")[::2] for part in (_NEXT.split(text) if text else ()))


def checked_columns(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return names of columns by their fields, each given once; InputError says which there are."""
    named: dict[str, str] = {}
    for name, column in pairs:
        if name not in COLUMNS or not column or name in named:
            raise InputError(
                f"columns has {f'{name}={column}'!r}. Give each of {', '.join(COLUMNS)} once, as "
                "FIELD=NAME separated by commas."
            )
        named[name] = column
    used: dict[str, str] = {}
    for name in ("task", "score", "outcome"):
        column = named.get(name, COLUMNS[name])
        if (other := used.setdefault(column, name)) != name:
            raise InputError(
                f"columns gives {other} and {name} the column {column!r}. Give each a column of "
                "its own."
            )
    return named


def written_columns(named: Mapping[str, str]) -> str:
    """Write names of columns as `parse_columns` reads them; those of every table are left out."""
    return ",".join(
        f"{name}={named[name]}"
        for name, plain in COLUMNS.items()
        if named.get(name, plain) != plain
    )


@dataclass(frozen=True)
class TableSettings:
    """How outcomes and ids of a table are read.

    Parameters
    ----------
    success, failure
        Outcomes that are successes, and those that are failures. Where one of them is given, every
        other outcome is the opposite; where both are, every other one is refused.
    threshold
        Outcomes are numbers, and a success from there on.
    no_label
        Words in the column of outcomes that stand for no outcome.
    unlabelled
        "drop" leaves rows without an outcome out where outcomes are needed.
    ids
        "fold" counts ids that differ only in spelling as one.
    """

    success: tuple[str, ...] = ()
    failure: tuple[str, ...] = ()
    threshold: float | None = None
    no_label: tuple[str, ...] = ()
    unlabelled: str = ""
    ids: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TableSettings:
        """Read settings by name; what is None is not given. InputError names what is wrong."""
        if unknown := sorted(given.keys() - _READERS.keys()):
            raise unknown_setting(unknown[0], _READERS)
        found = cls(
            **{
                name: _READERS[name](name, value)
                for name, value in given.items()
                if value is not None
            }
        )
        if found.threshold is not None and (found.success or found.failure):
            raise InputError(
                "threshold is for outcomes that are numbers, success and failure are for words. "
                "Give one of them."
            )
        words = [word.lower() for word in (*found.success, *found.failure, *found.no_label)]
        if twice := [word for word in words if words.count(word) > 1]:
            raise InputError(
                f"{twice[0]!r} is given twice among success, failure and no_label. Give it once."
            )
        return found

    def under(self, issued: TableSettings, name: str) -> TableSettings:
        """Return the settings of a certificate with these added; refuse what contradicts it."""
        mine, known = self.provenance(), issued.provenance()
        settled = known.keys() | (_OUTCOME if known.keys() & _OUTCOME else set())
        for setting, value in mine.items():
            if setting in settled and known.get(setting) != value:
                said = " ".join(f"{key}={known[key]}" for key in sorted(known))
                raise InputError(
                    f"{name} was issued on a table that was read with {said}, which "
                    f"{setting}={value} contradicts. Leave {setting} out."
                )
        return TableSettings.of({**mine, **known})

    def provenance(self) -> dict[str, str]:
        """Return the settings that are given, as text; `of` reads them again."""
        return {
            name: _text(value) for name, value in vars(self).items() if value not in ((), None, "")
        }


def _text(value: tuple[str, ...] | float | str) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).removesuffix(".0")


def words_of(name: str, value: Any) -> tuple[str, ...]:
    """Return a setting that is a list, or words separated by commas; none of them is empty."""
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    found = tuple(str(item).strip() for item in items)
    if not all(found) or any("," in word for word in found):
        raise InputError(f"{name} is {value!r}. Give words separated by commas.")
    return found


def _number(name: str, value: Any) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} is {value!r}. Give a number.")
    return number


def _only(word: str) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        if value != word:
            raise InputError(f"{name}={value} is no setting. Give {name}={word}.")
        return word

    return read


_READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys(("success", "failure", "no_label"), words_of),
    "threshold": _number,
    "unlabelled": _only("drop"),
    "ids": _only("fold"),
}
