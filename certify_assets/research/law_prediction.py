"""Predictions by the certifiability law, and what must be said beside them: how many points, which of them carry the line, how far it reaches."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.findings import FEW_TASKS
from certify_assets.errors import InputError
from certify_assets.research.law import Influence, Law
from certify_assets.research.law_points import LawPoint

__all__ = [
    "ENOUGH_POINTS",
    "LawPrediction",
    "carriers",
    "coverage_ceiling",
    "law_findings",
    "predict_coverage",
    "prediction_band",
]

#: as many as the paper has
ENOUGH_POINTS = 7
_DROP = 0.1
_FREE = "parameter_free"


@dataclass(frozen=True)
class LawPrediction:
    """What the law expects of a new corpus.

    Attributes
    ----------
    index : float
        (1−π)(2A₀−1).
    coverage, low, high : float
        Expected certified coverage and its prediction interval, clipped to [0, ceiling].
    unclipped : float
        a·index + b.
    confidence : float
        Of the interval, if residuals are normal.
    parameter_free : float
        The index itself, clipped alike.
    ceiling : float
        What no judge exceeds at this success rate, see :func:`coverage_ceiling`.
    extrapolates : bool
        Whether the index lies outside the range of the points.
    sentences : tuple of str
        What to say beside the number.
    """

    index: float
    coverage: float
    low: float
    high: float
    unclipped: float
    confidence: float
    parameter_free: float
    ceiling: float
    extrapolates: bool
    sentences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as plain values."""
        return {**asdict(self), "sentences": list(self.sentences)}


def coverage_ceiling(success_rate: float, alpha: float = 0.1) -> float:
    """Return the largest share that can be rejected with an error of at most α: (1−π)/(1−α), at most 1.

    All failures are rejected, and as many successes as the budget allows.
    """
    return min(1.0, (1 - success_rate) / (1 - alpha))


def prediction_band(
    law: Law, index: ArrayLike, *, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Return the line and the half width of the prediction interval at values of the index, neither clipped.

    Notes
    -----
    .. math:: t_{n-2}\; s\,\sqrt{1 + 1/n + (x-\bar x)^2 / \sum (x_i - \bar x)^2}

    with s the residual standard deviation: right for normal residuals of one variance, which so few points cannot show.
    """
    from scipy.special import stdtrit

    at, x = np.asarray(index, dtype=np.float64), np.array([point.x for point in law.points])
    spread = np.sqrt(1 + 1 / x.size + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    half = stdtrit(x.size - 2, (1 + confidence) / 2) * law.deviation * spread
    return law.intercept + law.slope * at, np.asarray(half, dtype=np.float64)


def predict_coverage(
    law: Law,
    *,
    success_rate: float,
    auroc: float,
    n_eff: float | None = None,
    alpha: float = 0.1,
    confidence: float = 0.95,
) -> LawPrediction:
    """Predict the certified reject coverage of a corpus that has not been trained on.

    Parameters
    ----------
    law : Law
    success_rate, auroc : float
        π and A₀ of the new corpus, in [0, 1].
    n_eff : float, optional
        Effective trajectories; only for what is said of it, the law does not use it.
    alpha : float
        Budget that the points' coverage was certified at; for the ceiling.
    confidence : float
        Of the interval.

    Returns
    -------
    LawPrediction

    Raises
    ------
    InputError
        If a number is outside its range.
    """
    if not 0 < confidence < 1 or not 0 < alpha < 1:
        raise InputError(
            "confidence and alpha of a prediction lie between 0 and 1; give two such numbers."
        )
    point = LawPoint(
        corpus="the new corpus", success_rate=success_rate, auroc=auroc, coverage=0.0, n_eff=n_eff
    )
    line, half = (float(value) for value in prediction_band(law, point.x, confidence=confidence))
    ceiling = coverage_ceiling(success_rate, alpha)
    coverage, low, high, free = (
        min(max(value, 0.0), ceiling) for value in (line, line - half, line + half, point.x)
    )
    known = [item.x for item in law.points]
    outside = not min(known) <= point.x <= max(known)
    said = [
        f"The index is {point.x:.3f}; the law expects a coverage of {coverage:.3f} ({confidence:.0%} interval {low:.3f} to {high:.3f}), "
        f"the line without parameters {free:.3f}.",
        *_of_the_new(law, point, outside=outside),
        *(message for _, message in law_findings(law)),
    ]
    return LawPrediction(
        point.x, coverage, low, high, line, confidence, free, ceiling, outside, tuple(said)
    )


def _of_the_new(law: Law, point: LawPoint, *, outside: bool) -> list[str]:
    said = []
    if outside:
        known = [item.x for item in law.points]
        said.append(
            f"That index is outside the range of the points, {min(known):.3f} to {max(known):.3f}: this is an extrapolation."
        )
    if point.discrimination <= 0:
        said.append(
            "The judge ranks no better than chance (AUROC at most .5): nothing is to be expected of it."
        )
    smallest = min((item.n_eff for item in law.points if item.n_eff is not None), default=None)
    if point.n_eff is not None and smallest is not None and point.n_eff < smallest:
        said.append(
            f"n_eff {point.n_eff:.3g} is below that of every point ({smallest:.3g} at least); the law does not know of sample size."
        )
    return said


def carriers(law: Law) -> tuple[Influence, ...]:
    """Return the points that carry the fit: leverage above twice its mean, or a LOOCV R² that falls by more than .1 without them."""
    whole = law.form("law").loocv_r2 or 0.0
    return tuple(
        item
        for item in law.influence
        if item.leverage > 4 / len(law.points)
        or (item.loocv_r2_without is not None and item.loocv_r2_without < whole - _DROP)
    )


def law_findings(law: Law) -> tuple[tuple[str, str], ...]:
    """Return what a reader of the law should know, as (code, sentence): points, anchors, validation, carriers, the line without parameters."""
    return (
        *_of_the_points(law),
        *_of_the_validation(law),
        *_of_the_carriers(law),
        *_of_the_free_line(law),
    )


def _of_the_points(law: Law) -> list[tuple[str, str]]:
    count = len(law.points)
    few = "" if count >= ENOUGH_POINTS else f", fewer than the paper's {ENOUGH_POINTS}"
    found = [
        (
            "points",
            f"The law is a line through {count} corpora{few}: an empirical summary of them, not a theorem.",
        )
    ]
    zero, small = (
        [point.corpus for point in law.points if point.anchor == kind]
        for kind in ("nothing certified", "few tasks")
    )
    if zero:
        found.append(
            (
                "nothing_certified",
                f"Anchors: nothing is certified on {len(zero)} of them ({', '.join(zero)}).",
            )
        )
    if small:
        found.append(
            (
                "few_tasks",
                f"Anchors: {len(small)} of them rest on fewer than {FEW_TASKS} tasks ({', '.join(small)}).",
            )
        )
    return found


def _of_the_validation(law: Law) -> list[tuple[str, str]]:
    validated = law.form("law").loocv_r2
    if validated is None or validated > 0:
        return []
    return [
        (
            "no_prediction",
            f"Leave-one-out R² is {validated:.2f}: the mean of the corpora would have predicted better than this line.",
        )
    ]


def _of_the_carriers(law: Law) -> list[tuple[str, str]]:
    whole = law.form("law").loocv_r2 or 0.0
    return [
        (
            "carries_the_fit",
            f"{item.corpus} carries the fit (leverage {item.leverage:.2f}); without it the law is {item.slope_without:.3f} x "
            f"{item.intercept_without:+.3f}"
            + (
                "."
                if item.loocv_r2_without is None
                else f" and its LOOCV R² {item.loocv_r2_without:.2f} instead of {whole:.2f}."
            ),
        )
        for item in carriers(law)
    ]


def _of_the_free_line(law: Law) -> list[tuple[str, str]]:
    free, fitted = law.form(_FREE), law.form("law")
    if (
        free.r2 is None
        or free.mae is None
        or fitted.loocv_r2 is None
        or fitted.mae is None
        or not math.isfinite(free.r2)
    ):
        return []
    better = free.mae <= fitted.mae
    return [
        (
            _FREE,
            f"The line without parameters has R² {free.r2:.3f} and MAE {free.mae:.3f} on these points, the fit LOOCV R² {fitted.loocv_r2:.3f} "
            f"and MAE {fitted.mae:.3f}: "
            + ("fitting gains nothing." if better else "fitting gains something."),
        )
    ]
