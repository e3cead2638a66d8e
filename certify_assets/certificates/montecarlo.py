"""The task bootstrap as the paper runs it: Monte-Carlo resamples, reproducible whatever the number of threads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.counts import TaskCounts

__all__ = [
    "draws_needed",
    "exceedance_shares",
    "montecarlo_tails",
    "resample_errors",
    "resample_sums",
    "tail_estimate",
]

#: places drawn, about a millisecond, and resamples of one call of the kernel at most
_PLACES, _DRAWS = 1 << 20, 512


def resample_sums(
    values: NDArray[np.int64], draws: int, seed: int, threads: int | None = None
) -> NDArray[np.int64]:
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
    pieces = _pieces(values, draws, seed, threads, np.asarray)
    return np.concatenate(pieces) if pieces else np.zeros((0, values.shape[1]), dtype=np.int64)


def _pieces(
    values: NDArray[np.int64],
    draws: int,
    seed: int,
    threads: int | None,
    reduce: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> list[NDArray[np.int64]]:
    """Reduce the sums of a few resamples at a time, in order, so that they stay in the cache."""
    from certify_assets.certificates import resampling

    tasks, columns = values.shape
    lowest = values.min(axis=0) if tasks else np.zeros(columns, dtype=np.int64)
    above = np.subtract(values, lowest, dtype=np.int64).view(np.uint64)
    digits = max(1, -(-int(above.max(initial=0)).bit_length() // 8))
    table, key = _byte_table(above, digits), np.uint64(seed % 2**64)
    piece = min(_DRAWS, -(-_PLACES // max(1, tasks * table.shape[0])))

    def part(first: int) -> NDArray[np.int64]:
        sums = resampling.task_sums(table, min(piece, draws - first), key, first)
        whole = sums[:, :columns]
        whole += tasks * lowest
        for digit in range(1, digits):
            whole += sums[:, digit * columns : (digit + 1) * columns] << np.int64(8 * digit)
        return reduce(whole)

    # a few small resamples are cheaper than starting threads
    if threads == 1 or draws * tasks * table.shape[0] <= _PLACES:
        return [part(first) for first in range(0, draws, piece)]
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return list(pool.map(part, range(0, draws, piece)))


def _byte_table(above: NDArray[np.uint64], digits: int) -> NDArray[np.uint8]:
    """Base-256 digits of a table (tasks, columns), lowest digit first, in blocks of as many columns as the kernel adds at once."""
    from certify_assets.certificates.resampling import LANES, NARROW, STRIDE

    tasks, columns = above.shape
    narrow = columns * digits <= NARROW
    lanes, width = (NARROW, NARROW) if narrow else (LANES, STRIDE)
    blocks = max(1, -(-columns * digits // lanes))
    # a row that lies in one cache line is read at once: the table starts at a multiple of the line
    memory = np.zeros(blocks * tasks * width + STRIDE, dtype=np.uint8)
    start = -memory.ctypes.data % STRIDE
    table = memory[start : start + blocks * tasks * width].reshape(blocks, tasks, width)
    for digit in range(digits):
        column = digit * columns
        values = (above >> np.uint64(8 * digit)).astype(np.uint8)
        while values.size:
            block, lane = divmod(column, lanes)
            taken = min(lanes - lane, values.shape[1])
            table[block, :, lane : lane + taken] = values[:, :taken]
            column, values = column + taken, values[:, taken:]
    return table


def draws_needed(level: float) -> int:
    """Fewest draws B at which a threshold can pass at all: 1/(B + 1) ≤ level."""
    fewest = max(1, math.ceil(1.0 / level) - 1)
    # the rounded quotient may be one off in either direction
    return next(
        draws for draws in range(max(1, fewest - 1), fewest + 3) if 1.0 / (draws + 1) <= level
    )


def montecarlo_tails(
    counts: TaskCounts, budget: Fraction, draws: int, seed: int, threads: int | None = None
) -> NDArray[np.float64]:
    """Monte-Carlo estimate (k + 1)/(B + 1) of P*(resampled error > budget), k of B resamples exceeding it, at every threshold.

    Parameters
    ----------
    counts : TaskCounts
    budget : Fraction
    draws, seed : int
    threads : int, optional

    Returns
    -------
    float64 array, shape (thresholds,)

    Notes
    -----
    The share k/B is 0 when no resample happens to exceed, so that a single draw would certify noise. (k + 1)/(B + 1) supposes one more
    resample that exceeds: it is never below 1/(B + 1), and lies above the exact tail p by (1 − p)/(B + 1) on average (5e-4 at 2,000 draws).
    The bias errs on the side of not certifying; it and the noise of k shrink with more draws, and the other engines have neither.

    References
    ----------
    Davison and Hinkley (1997), Bootstrap Methods and their Application, section 4.2.
    Phipson and Smyth (2010), Permutation p-values should never be zero.
    """
    return tail_estimate(exceedance_shares(counts, budget, draws, seed, threads), draws)


def tail_estimate(shares: NDArray[np.float64], draws: int) -> NDArray[np.float64]:
    """Return (k + 1)/(draws + 1) where a share k/draws of the resamples exceeds."""
    return np.asarray((np.rint(shares * draws) + 1.0) / (draws + 1.0))


def exceedance_shares(
    counts: TaskCounts, budget: Fraction, draws: int, seed: int, threads: int | None = None
) -> NDArray[np.float64]:
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
    excess = budget.denominator * counts.errors.astype(
        np.int64
    ) - budget.numerator * counts.covered.astype(np.int64)
    return np.asarray(np.sum(_pieces(excess.T, draws, seed, threads, _positive), axis=0) / draws)


def _positive(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    # twice as fast as count_nonzero along the first axis, and as exact: a piece has few rows
    return np.asarray((np.ones(sums.shape[0], np.float32) @ (sums > 0)).astype(np.int64))


def resample_errors(
    covered: NDArray[np.int32], errors: NDArray[np.int32], draws: int, seed: int
) -> NDArray[np.float64]:
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
