"""The task bootstrap as the paper runs it: Monte-Carlo resamples, reproducible whatever the number of threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.counts import TaskCounts

__all__ = ["montecarlo_tails", "resample_errors", "resample_sums"]

_PIECE = 64


def resample_sums(values: NDArray[np.int64], draws: int, seed: int, threads: int | None = None) -> NDArray[np.int64]:
    """Sum the rows of ``values`` over tasks drawn with replacement.

    Parameters
    ----------
    values : int64 array, shape (tasks, columns)
    draws : int
        Number of resamples, each of as many tasks as there are.
    seed : int
    threads : int, optional
        By default one a core; the result does not depend on it, because each drawn task is a function of (seed, draw, place) alone.

    Returns
    -------
    int64 array, shape (draws, columns)
    """
    from certify_assets.certificates import kernels

    table = np.ascontiguousarray(values, dtype=np.int64)
    key = np.uint64(seed % 2**64)
    # a resample of few tasks is cheaper than handing it to a thread
    piece = max(_PIECE, 200_000 // max(table.size, 1))
    starts = range(0, draws, piece)

    def part(first: int) -> NDArray[np.int64]:
        sums: NDArray[np.int64] = kernels.task_sums(table, min(piece, draws - first), key, first)
        return sums

    if len(starts) == 1 or threads == 1:
        return np.concatenate([part(first) for first in starts])
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return np.concatenate(list(pool.map(part, starts)))


def montecarlo_tails(counts: TaskCounts, budget: Fraction, draws: int, seed: int, threads: int | None = None) -> NDArray[np.float64]:
    """Share of the resamples whose selective error exceeds the budget, at every threshold, on the same resamples for all.

    Parameters
    ----------
    counts : TaskCounts
    budget : Fraction
    draws, seed : int
    threads : int, optional

    Returns
    -------
    float64 array, shape (thresholds,)
    """
    excess = budget.denominator * counts.errors.astype(np.int64) - budget.numerator * counts.covered.astype(np.int64)
    return np.asarray((resample_sums(excess.T, draws, seed, threads) > 0).mean(axis=0))


def resample_errors(covered: NDArray[np.int32], errors: NDArray[np.int32], draws: int, seed: int) -> NDArray[np.float64]:
    """Selective error of each resample at one threshold; 0 for a resample that covers nothing.

    Parameters
    ----------
    covered, errors : int arrays, shape (tasks,)
    draws, seed : int

    Returns
    -------
    float64 array, shape (draws,)
    """
    sums = resample_sums(np.stack([covered, errors], axis=1).astype(np.int64), draws, seed)
    ratios: NDArray[np.float64] = sums[:, 1] / np.maximum(sums[:, 0], 1)
    return ratios
