"""Decisions: what a certificate lets the judge decide, and why the rest is reviewed by humans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.counts import covers
from certify_assets.errors import InputError

#: what happens to a row, and why, by its code
DECISIONS = ("human", "reject", "release", "human", "human", "human")
REASONS = ("middle", "below_threshold", "above_threshold", "overlap", "unscored", "not_certified")
_REGIONS = {"reject": 1, "release": 2}
_UNSCORED, _NOT_CERTIFIED = 4, 5


class RowDecisions(NamedTuple):
    """One decision and its reason a row.

    Attributes
    ----------
    decisions : array of str
        "reject", "release" or "human".
    reasons : array of str
        "below_threshold" (rejected), "above_threshold" (released); for review: "middle",
        "unscored", "overlap" (in both regions), "not_certified" (no certificate certifies
        anything).
    """

    decisions: NDArray[np.str_]
    reasons: NDArray[np.str_]

    @property
    def counts(self) -> dict[str, int]:
        """Rows rejected, released and left to review."""
        return {
            name: int(np.count_nonzero(self.decisions == name))
            for name in ("reject", "release", "human")
        }


def decide(certificates: Certificate | Sequence[Certificate], scores: ArrayLike) -> RowDecisions:
    """Decide rows by the certified thresholds.

    Parameters
    ----------
    certificates : Certificate or sequence of Certificate
        One, or one per side.
    scores : array_like of float
        NaN = unscored.

    Returns
    -------
    RowDecisions

    Raises
    ------
    InputError
        If there is no certificate, there are two for one side, or a score is text or infinite.
    """
    given = [certificates] if isinstance(certificates, Certificate) else list(certificates)
    sides = [certificate.side for certificate in given]
    if not given or len(set(sides)) != len(sides):
        raise InputError(
            f"There are certificates for the sides {', '.join(sides) or 'none'}; give one, or one "
            "for each side."
        )
    values = _scores(scores)
    # a row in one region has its number, a row in both their sum
    codes = np.zeros(values.size, dtype=np.uint8)
    for certificate in given:
        if certificate.threshold is not None:
            inside = covers(certificate.side, certificate.threshold, values)
            codes += inside.view(np.uint8) * np.uint8(_REGIONS[certificate.side])
    if not any(certificate.certified for certificate in given):
        codes[:] = _NOT_CERTIFIED
    codes[np.isnan(values)] = _UNSCORED
    return RowDecisions(
        np.array(DECISIONS, dtype="<U7")[codes], np.array(REASONS, dtype="<U15")[codes]
    )


def _scores(scores: ArrayLike) -> NDArray[np.float64]:
    try:
        values = np.array(scores, dtype=np.float64, ndmin=1)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "A score is not a number; give the score column that the judge wrote."
        ) from None
    if values.ndim != 1 or np.isinf(values).any():
        raise InputError(
            "A score is infinite or not one a row; give one finite score a row, and NaN where "
            "there is none."
        )
    return values
