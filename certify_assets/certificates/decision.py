"""Decisions: what a certificate allows the judge to do with each new trajectory, and why the rest go to a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.certificate import Certificate
from certify_assets.errors import InputError

__all__ = ["Decisions", "decide"]


class Decisions(NamedTuple):
    """One decision and its reason a row.

    Attributes
    ----------
    decisions : array of str
        "reject", "release" or "human".
    reasons : array of str
        "below_threshold" (rejected), "above_threshold" (released); for people: "middle", "unscored", "overlap" (in both regions),
        "not_certified" (no certificate certifies anything).
    """

    decisions: NDArray[np.str_]
    reasons: NDArray[np.str_]

    @property
    def counts(self) -> dict[str, int]:
        """Rows rejected, released and left to people."""
        return {name: int(np.count_nonzero(self.decisions == name)) for name in ("reject", "release", "human")}


def decide(certificates: Certificate | Sequence[Certificate], scores: ArrayLike) -> Decisions:
    """Decide rows by the certified thresholds.

    Parameters
    ----------
    certificates : Certificate or sequence of Certificate
        One, or one per side.
    scores : array_like of float
        NaN = unscored.

    Returns
    -------
    Decisions

    Raises
    ------
    InputError
        If there is no certificate, there are two for one side, or a score is text or infinite.
    """
    given = [certificates] if isinstance(certificates, Certificate) else list(certificates)
    sides = [certificate.side for certificate in given]
    if not given or len(set(sides)) != len(sides):
        raise InputError(f"There are certificates for the sides {', '.join(sides) or 'none'}; give one, or one for each side.")
    values = _scores(scores)
    regions = {certificate.side: _region(certificate, values) for certificate in given}
    nowhere = np.zeros(values.size, dtype=bool)
    rejected, released = regions.get("reject", nowhere), regions.get("release", nowhere)
    certified = any(certificate.certified for certificate in given)
    decisions = np.full(values.size, "human", dtype="<U7")
    reasons = np.full(values.size, "middle" if certified else "not_certified", dtype="<U15")
    decisions[rejected & ~released], reasons[rejected & ~released] = "reject", "below_threshold"
    decisions[released & ~rejected], reasons[released & ~rejected] = "release", "above_threshold"
    reasons[rejected & released] = "overlap"
    reasons[np.isnan(values)] = "unscored"
    return Decisions(decisions, reasons)


def _region(certificate: Certificate, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    if certificate.threshold is None:
        return np.zeros(values.size, dtype=bool)
    inside: NDArray[np.bool_] = values <= certificate.threshold if certificate.side == "reject" else values >= certificate.threshold
    return inside


def _scores(scores: ArrayLike) -> NDArray[np.float64]:
    try:
        values = np.array(scores, dtype=np.float64, ndmin=1)
    except (TypeError, ValueError, OverflowError):
        raise InputError("A score is not a number; give the score column that the judge wrote.") from None
    if values.ndim != 1 or np.isinf(values).any():
        raise InputError("A score is infinite or not one a row; give one finite score a row, and NaN where there is none.")
    return values
