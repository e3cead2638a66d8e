"""Scores of Inspect AI samples turned into outcomes, as the options of the import say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from certify_assets.corpora.formats.messages import mapping
from certify_assets.errors import InputError

__all__ = ["OPTIONS", "Scoring"]

OPTIONS: Mapping[str, str] = {
    "scorer": "name of the scorer that counts, where a log has several",
    "value_key": "key of the value that counts, where a score has several",
    "threshold": "least score that is a success, 1 where it is not given",
    "partial": "what P (partially correct) is: failure, success or drop; where it is not given, P is .5",
}
_LETTERS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_PARTIAL = {"failure": 0.0, "success": math.inf, "drop": None}
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Scoring:
    """Which score counts, and from where on it is a success.

    Parameters
    ----------
    scorer, value_key : str or None
        Names; None where there is only one.
    threshold : float or None
        Least score that is a success; None for 1, with scores that lie outside 0 to 1 refused.
    partial : str or None
        What P counts as.
    """

    scorer: str | None
    value_key: str | None
    threshold: float | None
    partial: str | None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Scoring:
        """Read the options.

        Raises
        ------
        InputError
            If threshold is not a number or partial is another word.
        """
        threshold, partial = options.get("threshold"), options.get("partial")
        if partial is not None and partial not in _PARTIAL:
            raise InputError(f"the option partial is {partial!r}; give failure, success or drop.")
        try:
            number = None if threshold is None else float(threshold)
        except (TypeError, ValueError):
            number = math.nan
        if number is not None and not math.isfinite(number):
            raise InputError(f"the option threshold is {threshold!r}; give a number.")
        return cls(options.get("scorer"), options.get("value_key"), number, partial)

    def outcome(self, scores: Any, where: str) -> int | str | None:
        """Return the outcome of a sample; None where it has no score that counts, words where the score cannot be used.

        Raises
        ------
        InputError
            If it has several scores or values and the options name none.
        """
        score = mapping(_only(mapping(scores), self.scorer, "scorer", where))
        value = score.get("value")
        if isinstance(value, Mapping):
            value = _only(value, self.value_key, "value_key", where)
        number = self._number(value)
        if isinstance(number, str) or number is None:
            return number
        if self.threshold is None and not (0 <= number <= 1 + _TOLERANCE or number == math.inf):
            return f"its score {number:g} is not from 0 to 1; say by the option threshold from where on it is a success"
        return int(number >= (1.0 if self.threshold is None else self.threshold) - _TOLERANCE)

    def misses(self, scores: Any) -> str | None:
        """Say which scorers a sample has instead of the one that the options name; None where that is not what it lacks."""
        names = list(mapping(scores))
        return (
            f"has no score of {self.scorer!r}, only of {', '.join(names)}"
            if self.scorer and names and self.scorer not in names
            else None
        )

    def between(self, scores: Any) -> bool:
        """Say whether nobody decided what the sample's score, between failure and success, is."""
        values = [mapping(score).get("value") for score in mapping(scores).values()]
        return self.threshold is None and any(
            isinstance(value, float) and 0 < value < 1 - _TOLERANCE for value in values
        )

    def _number(self, value: Any) -> float | str | None:
        if isinstance(value, str) and value.strip().lower() == "p" and self.partial:
            return _PARTIAL[self.partial]
        if isinstance(value, str):
            word = value.strip().lower()
            known = _LETTERS.get(word, _WORDS.get(word))
            try:
                value = float(word) if known is None else known
            except ValueError:
                return f"its score {value[:40]!r} is neither a number nor one of C, P, I and N"
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        return (
            float(value)
            if isinstance(value, int | float) and abs(value) < 1e300
            else f"its score is {type(value).__name__}"
        )


def _only(values: Mapping[str, Any], name: str | None, option: str, where: str) -> Any:
    """Return the value of that name, or the only one."""
    if name is not None:
        return values.get(name)
    if len(values) > 1:
        raise InputError(
            f"{where} has {len(values)} scores ({', '.join(map(str, values))}); name the one that counts with the option {option}."
        )
    return next(iter(values.values()), None)
