"""The meaning of an outcome column, decided from all its values together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from certify_assets.errors import InputError
from certify_assets.files import apart_from_0_and_1
from certify_assets.tables.cells import number_of, shown, word_of
from certify_assets.tables.settings import TableSettings

_YES, _NO = ["true", "t", "yes", "y"], ["false", "f", "no", "n"]
_GOOD = "pass passed success successful succeeded resolved solved correct"
_BAD = "fail failed failure unsuccessful unresolved unsolved incorrect"
#: words that say what became of a run, whatever their column is called
_OUTCOMES = {
    **dict.fromkeys([*_YES, *_GOOD.split()], 1),
    **dict.fromkeys([*_NO, *_BAD.split()], 0),
}
# of a column, or of a label of traces, whose yes is a failure or may be one
_CONTRARY = re.compile(
    r"fail|error|incorrect|wrong|un(re)?solved|unsuccess|reject|invalid|broken|crash|violat"
    r"|hallucinat|harmful|unsafe|toxic|defect|mistake|(?<!de)fault|abort|abandon|refus|escalat"
    r"|flagged|regress|timed?[ _-]?out|attack|inject|hack|cheat|leak|breach|malicious|decept"
    r"|misalign|poison|jailbreak|stuck|g[ai]ve[ _-]?up|needs?[ _-]?human|hand[ _-]?off"
    r"|exploit|compromis|vulnerab|misus|abus|fraud|spam|scam|phish|sabotag|scheming|sandbag"
    r"|exfiltrat|dishonest|unfaithful|(?<!un)bias|complain|interven|overrid|denied|danger|mismatch"
    r"|(^|[^a-z])(not?|non|nok|bad|bugs?|loss|lost)([^a-z]|$)"
)
# words that people write where they give no outcome
_UNDECIDED = frozenset(
    [
        "unsure",
        "ignore",
        "ignored",
        "skip",
        "skipped",
        "unknown",
        "undecided",
        "unclear",
        "maybe",
        "unlabelled",
        "unlabeled",
        "pending",
        "todo",
        "?",
        "-",
    ]
)
_MOST_LABELS = 6


@dataclass(frozen=True)
class OutcomeColumn:
    """A column of outcomes, each distinct value read once."""

    column: str
    settings: TableSettings = field(default_factory=TableSettings)
    # 1, 1.0 and True are equal and hash alike
    _known: dict[tuple[type, Any], int | None] = field(default_factory=dict)

    def read(self, value: Any) -> int | None:
        """Return 0 or 1, −1 for no label, None for a value that is not an outcome."""
        key = (type(value), value)
        try:
            if key not in self._known:
                self._known[key] = self._outcome(value)
            return self._known[key]
        except TypeError:
            return None

    def _outcome(self, value: Any) -> int | None:
        settings, number = self.settings, number_of(value)
        if (number is not None and math.isnan(number)) or _is_one_of(value, settings.no_label):
            return -1
        if settings.threshold is not None:
            if number is None or not math.isfinite(number):
                return None
            return int(number >= settings.threshold)
        if settings.success or settings.failure:
            return self._named(value)
        if number is None:
            return self._by_itself(value)
        # 1e-400 is no zero
        exact = apart_from_0_and_1(value) if isinstance(value, str) else value
        return int(number) if exact in (0, 1) and not self.contrary else None

    def _by_itself(self, value: Any) -> int | None:
        """Return the outcome of a word by itself; not of yes and no, if yes is a failure here."""
        word = str(word_of(value))
        return None if self.contrary and word in (*_YES, *_NO) else _OUTCOMES.get(word)

    def _named(self, value: Any) -> int | None:
        """Return the outcome of a value by the named successes or failures."""
        success, failure = self.settings.success, self.settings.failure
        for words, outcome in ((success, 1), (failure, 0)):
            if _is_one_of(value, words):
                return outcome
        rest = int(not success)
        # a pass may be too little where better is named; where no is a success, yes is a failure
        named = set(map(self._by_itself, (*success, *failure)))
        opposite = self._by_itself(value) == 1 - rest and (1 in named) == (rest == 0)
        unclear = opposite or (success and failure) or word_of(value) in _UNDECIDED
        return None if unclear else rest

    @property
    def contrary(self) -> bool:
        """Whether the column's name says that yes is a failure."""
        return _CONTRARY.search(self.column.lower()) is not None

    def require_named(self, path: Path | str, option: str = "--set") -> None:
        """Refuse a success or failure setting if none of its values occurs."""
        found = {outcome for outcome in self._known.values() if outcome in (0, 1)}
        success, failure = self.settings.success, self.settings.failure
        # where both are named, a slip leaves values that are in neither
        if len(found) == 1 and bool(success) != bool(failure) and found == {int(not success)}:
            name, words = ("success", success) if success else ("failure", failure)
            raise InputError(
                f"{path}, column {self.column!r} has no {' and no '.join(map(shown, words))}, "
                f"which {option} {name} names. Give values of the column."
            )

    def problem(self, value: Any, option: str = "--set") -> tuple[str, dict[str, str]]:
        """Say why a value is not an outcome, and which settings would make it one.

        Parameters
        ----------
        value
            The first one that is not an outcome.
        option
            How a user gives a setting: "--set" in a command.

        Returns
        -------
        str
            Two sentences about the value.
        dict of str
            Placeholders of the settings by their names.
        """
        settings, first, word = self.settings, shown(value), word_of(value)
        unread = {word_of(key[1]) for key, outcome in self._known.items() if outcome is None}
        undecided = ",".join(sorted(map(str, (unread | {word}) & _UNDECIDED)))
        remedy = {"no_label": undecided} if undecided else {}
        if word in _UNDECIDED:
            said = f"If it means no label, give {option} no_label={undecided}."
            return f"{first} is not an outcome. {said}", remedy
        named = [name for name in ("success", "failure") if getattr(settings, name)]
        if settings.threshold is not None or len(named) > 1:
            said = "no number to compare with the threshold"
            if named:
                said = "neither in success nor in failure"
            return f"{first} is {said}. Correct it, or add it to no_label.", {}
        if named:
            return f"{first} means a {named[0]} as well. Add it to {option} {named[0]}.", {}
        labels = [
            label
            for (_, label), outcome in self._known.items()
            if outcome != -1 and word_of(label) not in _UNDECIDED
        ] or [value]
        numbers = [number for number in map(number_of, labels) if number is not None]
        aside = f" Add {option} no_label={undecided} for no label." if undecided else ""
        if self.contrary:
            said = (
                "under a name that means a failure can be read in two ways. Say which of "
                f"{_listed(labels)} is a success with {option} success=VALUE"
            )
        elif len(numbers) == len(labels):
            remedy = {"threshold": "NUMBER", **remedy}
            said = (
                f"is not an outcome: the values go from {min(numbers):g} to {max(numbers):g}. Say "
                f"where success begins with {option} threshold=NUMBER"
            )
            return f"{first} {said}.{aside}", remedy
        else:
            # where the column has both outcomes, it may be a slip of the pen
            slip = ", or correct it" if {0, 1} <= {*self._known.values()} else ""
            said = (
                f"is not an outcome. Name the successes among {_listed(labels)} with {option} "
                f"success=VALUE, or the failures with {option} failure=VALUE{slip}"
            )
        return f"{first} {said}.{aside}", {"success": "VALUE", **remedy}

    def notes(self) -> list[str]:
        """Say which words are successes."""
        settings = self.settings
        if settings.threshold is not None:
            return [f"{self.column} counts {settings.threshold:g} and more as 1, less as 0"]
        named, said = settings.success or settings.failure, []
        for outcome in (1, 0):
            words = [
                str(value).strip()
                for (kind, value), found in self._known.items()
                if found == outcome and (named or (kind is str and number_of(value) is None))
            ]
            said += [f"{_listed(words)} as {outcome}"] if words else []
        return [f"{self.column} counts {' and '.join(said)}"] if said else []


def _listed(labels: Iterable[Any]) -> str:
    given = sorted(set(map(shown, labels)))
    more = f" and {len(given) - _MOST_LABELS} more" if len(given) > _MOST_LABELS else ""
    return ", ".join(given[:_MOST_LABELS]) + more


def _is_one_of(value: Any, words: Iterable[str]) -> bool:
    """Whether a value is among words; 1, 1.0 and true are equal, as tools write them."""
    numbers = {"true": 1.0, "false": 0.0}
    word, *others = (numbers.get(str(found), found) for found in map(word_of, (value, *words)))
    return word in others
