"""Settings of how a table is read where that is not clear from the table itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from certify_assets.errors import InputError

_CHOICES = {"unlabelled": "drop", "ids": "fold"}


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
        if unknown := sorted(values.keys() - {entry.name for entry in fields(cls)}):
            names = ", ".join(entry.name for entry in fields(cls))
            raise InputError(f"{unknown[0]!r} is no setting of a table. Choose one of {names}.")
        for name, choice in _CHOICES.items():
            if values.get(name, choice) != choice:
                raise InputError(f"{name}={values[name]} is no setting. Give {name}={choice}.")
        for name in ("success", "failure", "no_label"):
            if name in values:
                values[name] = _words(name, values[name])
        if "threshold" in values:
            values["threshold"] = _threshold(values["threshold"])
        found = cls(**values)
        if found.threshold is not None and (found.success or found.failure):
            raise InputError(
                "threshold is for outcomes that are numbers, success and failure are for words. "
                "Give one of them."
            )
        said = [word.lower() for word in (*found.success, *found.failure, *found.no_label)]
        if twice := [word for word in said if said.count(word) > 1]:
            raise InputError(
                f"{twice[0]!r} is given twice among success, failure and no_label. Give it once."
            )
        return found

    def under(self, issued: TableSettings, name: str) -> TableSettings:
        """Return the settings of a certificate with these added; refuse what contradicts it."""
        mine, known = self.provenance(), issued.provenance()
        outcome = ("success", "failure", "threshold")
        settled = {*known, *(outcome if not known.keys().isdisjoint(outcome) else ())}
        for setting, value in mine.items():
            if setting in settled and known.get(setting) != value:
                said = " ".join(f"{key}={known[key]}" for key in sorted(known) if key in settled)
                raise InputError(
                    f"{name} was issued on a table that was read with {said}, which "
                    f"{setting}={value} contradicts. Leave {setting} out."
                )
        return TableSettings.of({**mine, **known})

    def provenance(self) -> dict[str, str]:
        """Return the settings that are given, as text; `of` reads them again."""
        said = {
            "success": ",".join(self.success),
            "failure": ",".join(self.failure),
            "threshold": "" if self.threshold is None else repr(self.threshold).removesuffix(".0"),
            "no_label": ",".join(self.no_label),
            "unlabelled": self.unlabelled,
            "ids": self.ids,
        }
        return {name: text for name, text in said.items() if text}


def _words(name: str, value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    found = tuple(str(item).strip() for item in items)
    if not all(found) or any("," in word for word in found):
        raise InputError(f"{name} is {value!r}. Give words separated by commas.")
    return found


def _threshold(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"threshold is {value!r}. Give a number.")
    return number
