"""How a grid of thresholds is paid for: the level at which each threshold is tested, and which of them pass.

References
----------
Maurer, Hothorn and Lehmacher (1995), Multiple comparisons in drug clinical trials (fixed sequence).
Wiens (2003), A fixed sequence Bonferroni procedure for testing multiple endpoints (fallback).
Westfall and Young (1993), Resampling-based multiple testing (step-down max-T).
Angelopoulos and others (2025), Learn then test: calibrating predictive algorithms to achieve risk control.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.montecarlo import resample_sums

__all__ = [
    "DEFAULT_STARTS",
    "MULTIPLICITIES",
    "chain",
    "level_shares",
    "maxt_tails",
    "start_places",
]

MULTIPLICITIES = ("bonferroni", "fixed", "fallback", "maxt")
DEFAULT_STARTS = {"fixed": (0.3,), "fallback": (0.1, 0.3, 0.5, 0.7)}
_LEVELS = (0.02, 0.98)
_CELLS = 4_000_000
_TIE = 1e-9


def level_shares(multiplicity: str, grid: int, starts: Sequence[float] | None) -> int:
    """Number of equal shares into which δ is cut: one a threshold, one a start, or one."""
    if multiplicity == "bonferroni":
        return grid
    return len(starts) if multiplicity == "fallback" and starts else 1


def start_places(starts: Sequence[float], grid: int) -> tuple[int, ...]:
    """First threshold of the grid whose quantile is at least each start; the last one where there is none."""
    quantiles = np.linspace(*_LEVELS, grid)
    # .3 lies within rounding of a quantile of some grids
    return tuple(
        sorted({min(int(np.searchsorted(quantiles, start - _TIE)), grid - 1) for start in starts})
    )


def chain(
    tails: NDArray[np.float64], places: Sequence[int], share: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Test upward from each start, carrying on what earlier starts have not lost.

    Parameters
    ----------
    tails : float64 array, shape (thresholds,)
    places : sequence of int
        Starts, ascending; one is a fixed sequence.
    share : float
        Level that each start brings.

    Returns
    -------
    levels : float64 array, shape (thresholds,)
        At which each threshold was tested; 0 where it was not.
    passed : bool array, shape (thresholds,)

    Notes
    -----
    A threshold that passes hands its level to the next one, a start adds its own, a threshold that fails loses what it had: the probability
    of passing any threshold whose error is at least α is at most the sum of the shares.
    """
    levels, passed = np.zeros(tails.size), np.zeros(tails.size, dtype=bool)
    shares = 0
    for place, tail in enumerate(tails):
        shares += place in places
        levels[place] = shares * share
        passed[place] = shares > 0 and tail <= levels[place]
        shares = shares if passed[place] else 0
    return levels, passed


def maxt_tails(counts: TaskCounts, budget: Fraction, draws: int, seed: int) -> NDArray[np.float64]:
    """Step-down max-T adjusted tails from the joint task bootstrap of every threshold.

    Parameters
    ----------
    counts : TaskCounts
    budget : Fraction
    draws, seed : int

    Returns
    -------
    float64 array, shape (thresholds,)
        (k + 1)/(draws + 1); compared with δ itself. For a single threshold this is the Monte-Carlo tail of TaskBoot.

    Notes
    -----
    Threshold j has T_j = −Σz/s, s its standard deviation over tasks; a resample has T*_j = (Σz* − Σz)/s. From the largest T on, k counts
    the resamples whose largest T* over the thresholds not yet passed exceeds T_j; a tail is never below an earlier one.
    """
    excess = (
        budget.denominator * counts.errors.astype(np.int64)
        - budget.numerator * counts.covered.astype(np.int64)
    ).T
    totals = excess.sum(axis=0)
    spread = np.sqrt(np.square(excess - excess.mean(axis=0)).sum(axis=0))
    scale = np.where(spread > 0, spread, 1.0)
    observed = np.where(spread > 0, -totals / scale, np.where(totals < 0, np.inf, -np.inf))
    order = np.argsort(-observed, kind="stable")
    exceeding = np.zeros(order.size, dtype=np.int64)
    sums = resample_sums(excess, draws, seed)
    for first in range(0, draws, max(1, _CELLS // order.size)):
        moved = (sums[first : first + max(1, _CELLS // order.size)] - totals) / scale
        largest = np.maximum.accumulate(moved[:, order[::-1]], axis=1)[:, ::-1]
        # machines differ in the last digit of a quotient, and a resample may equal the table
        exceeding += (largest > observed[order] + _TIE).sum(axis=0)
    tails = np.empty(order.size)
    tails[order] = np.maximum.accumulate((exceeding + 1.0) / (draws + 1.0))
    return tails
