"""The whole grid at once, for figures: coverage, error, bootstrap bound and guard at every threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.baselines import clopper_pearson_upper
from certify_assets.certificates.counts import TaskCounts, count_at
from certify_assets.certificates.evaluation import Settings, evaluate
from certify_assets.certificates.inputs import observe
from certify_assets.certificates.lattice import bootstrap_tails, error_lattice
from certify_assets.certificates.montecarlo import resample_errors

__all__ = ["ThresholdCurve", "bootstrap_errors", "bootstrap_quantile", "threshold_curve"]

_RESOLUTION = 1000


@dataclass(frozen=True, eq=False)
class ThresholdCurve:
    """The grid from its narrowest threshold to its widest; every array has shape (thresholds,).

    Attributes
    ----------
    side : str
    level : float
    thresholds, coverage, selective_error : float64
    tail : float64
        P*(resampled error > α).
    bootstrap_upper : float64
        q(θ): the 1 − level quantile of the resampled error in the limit of infinitely many resamples, rounded up to a thousandth (or to
        the decimals of α), so that q(θ) ≤ α exactly where tail ≤ level.
    naive_upper : float64
        Clopper–Pearson bound at 1 − level as if trajectories were independent.
    floor_probability : float64
    effective_tasks : float64
    covered_tasks : int64
    passed_bootstrap, passed_guard : bool
    """

    side: str
    level: float
    thresholds: NDArray[np.float64]
    coverage: NDArray[np.float64]
    selective_error: NDArray[np.float64]
    tail: NDArray[np.float64]
    bootstrap_upper: NDArray[np.float64]
    naive_upper: NDArray[np.float64]
    floor_probability: NDArray[np.float64]
    effective_tasks: NDArray[np.float64]
    covered_tasks: NDArray[np.int64]
    passed_bootstrap: NDArray[np.bool_]
    passed_guard: NDArray[np.bool_]


def threshold_curve(
    scores: ArrayLike, outcomes: ArrayLike, tasks: Sequence[Any] | NDArray[Any], **keywords: Any
) -> ThresholdCurve:
    """Evaluate guarded_taskboot at every threshold of the grid.

    Parameters
    ----------
    scores, outcomes, tasks
        As for :func:`certify_assets.certificates.certify`.
    **keywords
        The settings of :func:`certify_assets.certificates.certify` (side, alpha, delta, grid, guard, engine, draws, seed, candidates, …).

    Returns
    -------
    ThresholdCurve
    """
    settings = Settings(**keywords)
    observations = observe(scores, outcomes, tasks)
    evaluation = evaluate(observations, settings)
    counts = evaluation.counts
    tails = evaluation.tails
    if settings.applied_multiplicity == "maxt":
        # adjusted tails are of all thresholds together, and the curve shows each by itself
        tails = evaluate(observations, replace(settings, multiplicity="fixed")).tails
    upper = [
        bootstrap_quantile(counts.at(place), settings, bool(tail <= settings.level))
        for place, tail in enumerate(tails)
    ]
    totals = zip(counts.error_totals.tolist(), counts.covered_trajectories.tolist(), strict=True)
    naive = [clopper_pearson_upper(errors, covered, settings.level) for errors, covered in totals]
    return ThresholdCurve(
        side=settings.side,
        level=settings.level,
        thresholds=counts.thresholds,
        coverage=counts.coverage,
        selective_error=counts.selective_error,
        tail=tails,
        bootstrap_upper=np.array(upper),
        naive_upper=np.array(naive),
        floor_probability=evaluation.guard.floor_probability,
        effective_tasks=counts.effective_tasks,
        covered_tasks=counts.covered_tasks,
        passed_bootstrap=evaluation.passed_test,
        passed_guard=evaluation.guard.passed,
    )


def bootstrap_quantile(counts: TaskCounts, settings: Settings, passed: bool) -> float:
    """Smallest rate r on a fine decimal grid with P*(resampled error > r) ≤ level, at one threshold.

    Parameters
    ----------
    counts : TaskCounts
        Of one threshold.
    settings : Settings
        Level, and α whose decimals lie on the grid.
    passed : bool
        Whether the tail at α is at most the level: it says on which side of α the answer lies, and the saddlepoint where.

    Returns
    -------
    float
    """
    steps = math.lcm(_RESOLUTION, settings.budget.denominator)
    at_alpha = int(settings.budget * steps)
    low, high = (-1, at_alpha) if passed else (at_alpha, steps)
    while high - low > 1:
        middle = (low + high) // 2
        lattice = error_lattice(counts.covered, counts.errors, Fraction(middle, steps))
        inside = bootstrap_tails(lattice, settings.level, "saddlepoint")[0] <= settings.level
        low, high = (low, middle) if inside else (middle, high)
    return high / steps


def bootstrap_errors(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    threshold: float,
    side: str = "reject",
    draws: int = 2000,
    seed: int = 42,
) -> NDArray[np.float64]:
    """Selective errors of task resamples at one threshold, for a histogram.

    Parameters
    ----------
    scores, outcomes, tasks
        As for :func:`certify_assets.certificates.certify`.
    threshold : float
    side : {"reject", "release"}
    draws, seed : int

    Returns
    -------
    float64 array, shape (draws,)
        0 for a resample that covers nothing.
    """
    Settings(side=side, draws=draws, seed=seed)
    counts = count_at(observe(scores, outcomes, tasks), side, np.array([float(threshold)]))
    return resample_errors(counts.covered[0], counts.errors[0], draws, seed)
