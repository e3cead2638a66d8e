"""What the values of an outcome column say of runs, looked at as a whole."""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from certify_assets.errors import InputError
from certify_assets.tables.cells import number_of, shown, word_of
from certify_assets.tables.settings import TableSettings

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
    r"|exploit|compromis|vulnerab|misus|abus|fraud|spam|scam|phish|sabotag|scheming|sandbag"
    r"|exfiltrat|dishonest|unfaithful|(?<!un)bias|complain|interven|overrid|denied|danger|mismatch"
    r"|(^|[^a-z])(not?|non|nok|bad|bugs?|loss|lost)([^a-z]|$)"
)
# words that people write where they give no outcome
_UNDECIDED = frozenset(
    ("unsure", "ignore", "ignored", "skip", "skipped", "unknown", "undecided", "unclear", "maybe")
) | frozenset(("not sure", "can't tell", "unlabelled", "unlabeled", "pending", "todo", "?", "-"))
_MOST_LABELS = 6


@dataclass(frozen=True)
class OutcomeColumn:
    """A column of outcomes, each distinct value read once."""

    column: str
    settings: TableSettings = field(default_factory=TableSettings)
    # 1, 1.0 and True are equal and hash alike
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
        number = number_of(value)
        if number is not None and math.isnan(number):
            return -1
        word = word_of(value)
        if _same(value) in _compared(self.settings.no_label):
            return -1
        if self.settings.threshold is not None:
            finite = number is not None and math.isfinite(number)
            return int(number >= self.settings.threshold) if finite and number is not None else None
        if self.settings.success or self.settings.failure:
            return self._named(value)
        if isinstance(value, bool | np.bool_):
            return None if self.contrary else int(value)
        if (known := self._by_itself(word)) is not None:
            return known
        if number not in (0.0, 1.0) or self.contrary:
            return None
        exact = decimal.Decimal(value.strip()) if isinstance(value, str) else value
        return int(number) if exact in (0, 1) else None

    def _by_itself(self, word: str | float) -> int | None:
        """Return what a word means under any column but one whose yes is a failure."""
        doubtful = self.contrary and word in _YES_OR_NO
        return None if doubtful or not isinstance(word, str) else _OUTCOMES.get(word)

    def _named(self, value: Any) -> int | None:
        """Return the outcome of a value where successes or failures are named."""
        word, same = word_of(value), _same(value)
        words = (*self.settings.success, *self.settings.failure)
        success, failure = _compared(self.settings.success), _compared(self.settings.failure)
        if same in success or same in failure:
            return int(same in success)
        rest = int(not success)
        # a pass may be too little where better is named; where no is a success, yes is a failure
        named = {self._by_itself(word_of(one)) for one in words}
        opposite = self._by_itself(word) == 1 - rest and (1 in named) == (rest == 0)
        return None if (success and failure) or opposite or word in _UNDECIDED else rest

    @property
    def plain(self) -> bool:
        """Whether 0 and 1 mean what they mean in most tables."""
        return not (self.contrary or self.settings.provenance().keys() - {"unlabelled", "ids"})

    @property
    def contrary(self) -> bool:
        """Whether the column's name says that its yes is a failure."""
        return means_failure(self.column)

    @property
    def found(self) -> set[int]:
        """Return the outcomes that the values read so far have."""
        return {outcome for outcome in self._known.values() if outcome in (0, 1)}

    @property
    def words(self) -> list[str]:
        """Return the words read so far that are outcomes, and numbers where outcomes are named."""
        named = bool(self.settings.success or self.settings.failure)
        texts = {
            value.strip() if isinstance(value, str) else str(value)
            for (kind, value), outcome in self._known.items()
            if outcome in (0, 1) and (kind is str or named)
        }
        return sorted(text for text in texts if named or number_of(text) is None)

    def require_named(self, path: Path | str, option: str = "--set") -> None:
        """Refuse settings that name outcomes none of which are there: a slip of the pen."""
        if self.settings.success and self.settings.failure:
            # a slip leaves values that are in neither
            return
        for name, other in (("success", 0), ("failure", 1)):
            if (words := getattr(self.settings, name)) and self.found == {other}:
                raise InputError(
                    f"{path}, column {self.column!r} has no {' and no '.join(map(shown, words))}, "
                    f"which {option} {name} names. Give values of the column."
                )

    def problem(self, option: str = "--set", value: Any = None) -> tuple[str, dict[str, str]]:
        """Say why a value is no outcome, and which settings would settle it.

        Parameters
        ----------
        option
            How a setting is given: "--set" in a command.
        value
            The first that was read and is no outcome, where it is not given.

        Returns
        -------
        str
            Two sentences about the first such value.
        dict of str
            Placeholders of the settings by their names.
        """
        if value is None:
            value = next(key[1] for key, outcome in self._known.items() if outcome is None)
        first, word = shown(value), word_of(value)
        undecided, labels = self._undecided(), self._labels() or [first]
        listed = ", ".join(labels[:_MOST_LABELS])
        listed += f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
        if word in _UNDECIDED:
            said = f"Say what stands for no label with {option} no_label={undecided or word}."
            return f"{first} is not an outcome. {said}", {"no_label": undecided or str(word)}
        if self.settings.threshold is not None:
            return f"{first} is no number to compare with the threshold. {_NOT_ONE}", {}
        for name, other in (("success", "failure"), ("failure", "success")):
            if getattr(self.settings, name) and not getattr(self.settings, other):
                return f"{first} means a {name} as well. Add it to {option} {name}.", {}
        if self.settings.success:
            return f"{first} is neither in success nor in failure. {_NOT_ONE}", {}
        aside = f" Add {option} no_label={undecided} for no label." if undecided else ""
        remedy = {"no_label": undecided} if undecided else {}
        if self.contrary:
            said = f"Say which of {listed} is a success with {option} success=VALUE."
            problem = f"{first} under a name that means a failure can be read in two ways. {said}"
            return problem + aside, {"success": "VALUE", **remedy}
        if scale := self._scale():
            said = f"Say where success begins with {option} threshold=NUMBER."
            ends = f"the values go from {min(scale):g} to {max(scale):g}"
            return f"{first} is not an outcome: {ends}. {said}{aside}", {
                "threshold": "NUMBER",
                **remedy,
            }
        said = f"{option} success=VALUE, or the failures with {option} failure=VALUE."
        return (
            f"{first} is not an outcome. Name the successes among {listed} with {said}{aside}",
            {"success": "VALUE", **remedy},
        )

    def _undecided(self) -> str:
        """Return the words read so far that may stand for no label, as a setting has them."""
        unknown = [word_of(key[1]) for key, outcome in self._known.items() if outcome is None]
        return ",".join(sorted({str(word) for word in unknown if word in _UNDECIDED}))

    def _labels(self) -> list[str]:
        """Return the other values that are not missing, as messages quote them."""
        known = [key[1] for key, outcome in self._known.items() if outcome != -1]
        return sorted({shown(value) for value in known if word_of(value) not in _UNDECIDED})

    def _scale(self) -> list[float]:
        """Return the values read so far where all are numbers of a scale."""
        known = [key[1] for key, outcome in self._known.items() if outcome != -1]
        numbers = [number_of(value) for value in known if word_of(value) not in _UNDECIDED]
        found = [number for number in numbers if number is not None and math.isfinite(number)]
        return found if len(found) == len(numbers) else []

    def notes(self) -> list[str]:
        """Say which words are successes."""
        if self.settings.threshold is not None:
            return [f"{self.column}: {self.settings.threshold:g} and more as 1, less as 0"]
        named: dict[int, list[str]] = {1: [], 0: []}
        for word in self.words:
            named[self._outcome(word) or 0].append(word)
        said = [
            f"{', '.join(map(shown, words[:_MOST_LABELS]))} as {outcome}"
            for outcome, words in named.items()
            if words
        ]
        return [f"{self.column}: {' and '.join(said)}"] if said else []


_NOT_ONE = "Correct it, or add it to no_label."


def _compared(words: Collection[str]) -> set[str | float]:
    return set(map(_same, words))


def _same(value: Any) -> str | float:
    """Return what values are compared by: 1, 1.0 and true are one, as tools write them."""
    word = word_of(value)
    return {"true": 1.0, "false": 0.0}.get(word, word) if isinstance(word, str) else word


def means_failure(name: str) -> bool:
    """Whether the name of a column or of a label says that its yes is a failure."""
    return _CONTRARY.search(name.lower()) is not None
