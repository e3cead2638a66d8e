"""Settings of how a table is read where that is not clear from the table itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from certify_assets.errors import InputError

_WORDS = ("success", "failure", "no_label")
_CHOICES = {"unlabelled": "drop", "ids": "fold"}
_OUTCOME = {"success", "failure", "threshold"}


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
        values = {name: value for name, value in given.items() if value is not None}
        for name, value in values.items():
            if name in _CHOICES and value != _CHOICES[name]:
                raise InputError(f"{name}={value} is no setting. Give {name}={_CHOICES[name]}.")
            if name in _WORDS:
                values[name] = words_of(name, value)
            elif name == "threshold":
                values[name] = _threshold(value)
            elif name not in _CHOICES:
                names = ", ".join(entry.name for entry in fields(cls))
                raise InputError(f"{name!r} is no setting of a table. Choose one of {names}.")
        if "threshold" in values and not values.keys().isdisjoint(("success", "failure")):
            raise InputError(
                "threshold is for outcomes that are numbers, success and failure are for words. "
                "Give one of them."
            )
        said = [word.lower() for name in _WORDS for word in values.get(name, ())]
        if twice := [word for word in said if said.count(word) > 1]:
            raise InputError(
                f"{twice[0]!r} is given twice among success, failure and no_label. Give it once."
            )
        return cls(**values)

    def under(self, issued: TableSettings, name: str) -> TableSettings:
        """Return the settings of a certificate with these added; refuse what contradicts it."""
        mine, known = self.provenance(), issued.provenance()
        settled = set(known) | (set() if known.keys().isdisjoint(_OUTCOME) else _OUTCOME)
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
        said = {name: ",".join(getattr(self, name)) for name in _WORDS}
        if self.threshold is not None:
            said["threshold"] = repr(self.threshold).removesuffix(".0")
        said |= {name: getattr(self, name) for name in _CHOICES}
        return {name: text for name, text in said.items() if text}


def words_of(name: str, value: Any) -> tuple[str, ...]:
    """Return a setting that is a list, or words separated by commas; none of them is empty."""
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    found = tuple(str(item).strip() for item in items)
    if not all(found) or any("," in word for word in found):
        raise InputError(f"{name} is {value!r}. Give words separated by commas.")
    return found


def _threshold(value: Any) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"threshold is {value!r}. Give a number.")
    return number
