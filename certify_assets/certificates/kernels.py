"""The loops of a certificate in numpy: a first call has nothing to compile."""

# Sums are whole numbers, or run over one histogram in a fixed order: no result depends on the
# number of threads. Tests hold each kernel equal to a plain twin.

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Booleans, Floats, Integers
from certify_assets.work import counted

_RADIX = 1 << 16
_MOST_STEPS, _CLOSE = 200, 1e-7
#: places drawn at once, which stay in the cache
_PLACES = 1 << 17
#: sums of fewer cells take numpy less time than loading what numba compiled
_WORTH_COMPILED = 1 << 24


def count_rows(
    codes: NDArray[np.int32], wrong: Booleans, ends: Integers, tasks: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Count covered rows and errors of each task for nested thresholds.

    The rows are in order of coverage; `ends` says how many each threshold covers, ascending.
    """
    covered, errors = np.zeros((2, ends.size, tasks), np.int32)
    for place, (first, last) in enumerate(pairwise([0, *ends.tolist()])):
        added = codes[first:last]
        for counts, more in ((covered, added), (errors, added[wrong[first:last]])):
            counts[place] = np.bincount(more, minlength=tasks)
            counts[place] += counts[place - 1] if place else 0
    return covered, errors


def lattice_histogram(
    covered: NDArray[np.int32],
    errors: NDArray[np.int32],
    numerators: int | Integers,
    denominator: int,
) -> tuple[Integers, Integers, Integers]:
    """Distinct values of denominator*k − numerator*n over tasks, with counts, by threshold.

    The histogram of threshold t is offsets[t]:offsets[t + 1], values ascending. The numerator is
    that of each threshold, or one for all.
    """
    rows = zip(covered, errors, np.broadcast_to(numerators, len(covered)).tolist(), strict=True)
    found = [
        _histogram(denominator * k.astype(np.int64) - numerator * n.astype(np.int64))
        for n, k, numerator in rows
    ]
    none = [np.zeros(0, np.int64)]
    values, counts = (np.concatenate(none + [each[side] for each in found]) for side in (0, 1))
    return values, counts, np.cumsum([0, *(values.size for values, _ in found)])


def _histogram(values: Integers) -> tuple[Integers, Integers]:
    """Distinct values, ascending, and their counts."""
    low = values.min()
    if values.max() - low > 8 * values.size + _RADIX:
        return np.unique(values, return_counts=True)
    often = np.bincount(values - low)
    found = np.flatnonzero(often)
    return found + low, often[found]


def rising_root(
    function: Callable[[Floats], tuple[Floats, Floats]],
    start: Floats,
    low: Floats,
    high: Floats,
) -> Floats:
    """Find where derivatives of convex functions are 0, each in its bracket.

    Newton's method, with bisection where a step leaves the bracket. `function` returns the first
    and the second derivative.
    """
    t, done = start, np.zeros(start.size, dtype=bool)
    for _ in range(_MOST_STEPS):
        value, slope = function(t)
        # one more of Newton's steps squares this distance; a short step may be one next to a pole
        close = np.abs(value) <= _CLOSE * np.sqrt(slope)
        low, high = np.where(value < 0.0, t, low), np.where(value < 0.0, high, t)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = t - value / slope
        step = np.where(close | ((low < step) & (step < high)), step, 0.5 * (low + high))
        close |= step == t
        # what is done stays, so that no result depends on the others
        t, done = np.where(done, t, step), done | close
        if done.all():
            break
    return t


def task_draws(seed: np.uint64, number: int, first: int = 0) -> NDArray[np.uint64]:
    """32-bit random numbers of a seed (splitmix64; Steele, Lea and Flood, 2014)."""
    z = np.arange(first + 1, first + number + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(32)


def resample_sums(values: Integers, draws: int, seed: int) -> Integers:
    """Sum the rows of ``values`` over tasks drawn with replacement, shape (draws, columns).

    Compiled by numba where it is installed and saves time; numpy gives the same integers.
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
    """How often each task is in each resample, from a given resample on, shape (draws, tasks)."""
    numbers = task_draws(key, draws * tasks, first * tasks)
    places = ((numbers * np.uint64(tasks)) >> np.uint64(32)).astype(np.int64)
    cells = places.reshape(draws, tasks) + tasks * np.arange(draws)[:, None]
    return np.bincount(cells.ravel(), minlength=draws * tasks).reshape(draws, tasks)
