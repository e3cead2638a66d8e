"""TaskBoot: Algorithm 1 of the paper, which draws tasks with replacement B times.

A certificate of it takes the limit of infinitely many draws instead (`bootstrap`), unless the
engine montecarlo is asked for.

References
----------
Davison and Hinkley (1997), Bootstrap Methods and their Application, section 4.2.
Phipson and Smyth (2010), Permutation p-values should never be zero.
"""

from __future__ import annotations

import math
from fractions import Fraction
from importlib.util import find_spec

import numpy as np

from certify_assets.arrays import Floats, Integers
from certify_assets.certificates import kernels
from certify_assets.certificates.counts import TaskCounts
from certify_assets.work import counted

#: places drawn at once, which stay in the cache
_PLACES = 1 << 17
#: sums of fewer cells take numpy less time than loading what numba compiled
_WORTH_COMPILED = 1 << 24


def taskboot_tails(counts: TaskCounts, budget: Fraction, draws: int, seed: int) -> Floats:
    """Estimate P*(resampled error > α) at every threshold by (k + 1)/(B + 1).

    k of B resamples exceed the budget. Algorithm 1 asks whether the quantile q(θ) at 1 − δ/|Θ| is
    at most α, which is whether this tail is at most δ/|Θ|.
    """
    # The share k/B is 0 when no resample happens to exceed, so that a single draw would certify
    # noise. (k + 1)/(B + 1) supposes one more resample that exceeds: it lies above the exact tail p
    # by (1 − p)/(B + 1) on average (5e-4 at 2,000 draws), which errs on the side of not certifying.
    return (exceedances(counts, budget, draws, seed).astype(np.float64) + 1.0) / (draws + 1.0)


def draws_needed(level: float) -> int:
    """Fewest draws B at which a threshold can pass at all: 1/(B + 1) ≤ level."""
    draws = max(1, math.floor(1.0 / level) - 2)
    while 1.0 / (draws + 1) > level:
        draws += 1
    return draws


def exceedances(counts: TaskCounts, budget: Fraction, draws: int, seed: int) -> Integers:
    """How many resamples have an error (Eq. 3) above the budget, the same ones for all thresholds.

    A resample that covers nothing has error 0.
    """
    # Σk/Σn > num/den exactly where Σ(den·k − num·n) > 0, in whole numbers
    errors, covered = (each.astype(np.int64) for each in (counts.errors, counts.covered))
    excess = budget.denominator * errors - budget.numerator * covered
    return np.count_nonzero(resample_sums(excess.T, draws, seed) > 0, axis=0)


def resample_sums(values: Integers, draws: int, seed: int) -> Integers:
    """Sum the rows of ``values`` over tasks drawn with replacement, shape (draws, columns).

    Compiled by numba where it is installed and worth it; numpy gives the same integers.
    """
    key = np.uint64(seed)
    if draws * values.size >= _WORTH_COMPILED and find_spec("numba"):
        from certify_assets.certificates.compiled import drawn_sums

        return drawn_sums(np.ascontiguousarray(values), draws, key)
    return drawn_sums_in_numpy(values, draws, key)


def drawn_sums_in_numpy(values: Integers, draws: int, key: np.uint64) -> Integers:
    """Sum the rows of drawn tasks by matrix products: the twin of `compiled.drawn_sums`."""
    tasks, columns = values.shape
    wide, sums = values.astype(np.float64), np.zeros((draws, columns), dtype=np.int64)
    piece = max(1, _PLACES // max(1, tasks))
    for first in counted("resampling", range(0, draws, piece)):
        often = _times_drawn(tasks, min(piece, draws - first), key, first)
        # whole numbers below 2^53 are exact, in whatever order they are added
        sums[first : first + piece] = often.astype(np.float64) @ wide
    return sums


def _times_drawn(tasks: int, draws: int, key: np.uint64, first: int) -> Integers:
    """How often each task is in each resample from one on, shape (draws, tasks)."""
    numbers = kernels.task_draws(key, draws * tasks, first * tasks)
    places = ((numbers * np.uint64(tasks)) >> np.uint64(32)).astype(np.int64)
    cells = places.reshape(draws, tasks) + tasks * np.arange(draws)[:, None]
    return np.bincount(cells.ravel(), minlength=draws * tasks).reshape(draws, tasks)
