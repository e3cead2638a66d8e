"""The loops of a certificate in numpy: a first call has nothing to compile."""

# Sums are whole numbers, or run over one histogram or one profile in a fixed order: no result
# depends on the number of threads. Tests hold each kernel equal to a plain twin.

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_Integers = NDArray[np.int64]
_Floats = NDArray[np.float64]
#: tasks with more than i errors, right decisions, covered rows, i from 0
TellingCounts = tuple[_Floats, _Floats, _Floats]

#: cells of the matrices (thresholds by tasks) that are handled at once
_CELLS = 1 << 16
_RADIX = 1 << 16
_COARSE = 40
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)


def group_order(keys: _Integers, buckets: int) -> _Integers:
    """Stable permutation that sorts int64 keys in [0, buckets), in time linear in both."""
    if buckets <= _RADIX:
        # numpy sorts 16-bit integers by their digits
        return np.argsort(keys.astype(np.uint16), kind="stable")
    from scipy.sparse import csr_array

    # a row by columns is put in order by counting the entries of each column
    row = csr_array((np.arange(keys.size), keys, [0, keys.size]), shape=(1, buckets))
    return np.asarray(row.tocsc().data)


def count_rows(
    codes: NDArray[np.int32], wrong: NDArray[np.bool_], ends: _Integers, tasks: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Count covered rows and errors a task for nested thresholds."""
    # codes and wrong are in order of coverage, ends gives the rows covered at each threshold,
    # ascending
    covered = np.empty((ends.size, tasks), np.int32)
    errors = np.empty((ends.size, tasks), np.int32)
    block = max(1, _CELLS // max(tasks, 1))
    for first in range(0, ends.size, block):
        last = min(first + block, ends.size)
        begin = int(ends[first - 1]) if first else 0
        rows = slice(begin, int(ends[last - 1]))
        cells = codes[rows]
        if last - first > 1:
            added = np.diff(ends[first:last], prepend=begin)
            cells = np.repeat(np.arange(last - first) * tasks, added) + cells
        for counts, counted in ((covered, cells), (errors, cells[wrong[rows]])):
            found = np.bincount(counted, minlength=(last - first) * tasks).reshape(
                last - first, tasks
            )
            if first:
                found[0] += counts[first - 1]
            if last - first > 1:
                np.cumsum(found, axis=0, out=found)
            counts[first:last] = found
    return covered, errors


def lattice_histogram(
    covered: NDArray[np.int32],
    errors: NDArray[np.int32],
    numerator: int | _Integers,
    denominator: int,
) -> tuple[_Integers, _Integers, _Integers]:
    """Distinct values of denominator*k − numerator*n over tasks, with counts, a threshold each."""
    # the histogram of threshold t is offsets[t]:offsets[t + 1], values ascending; the numerator is
    # that of each threshold, or one of all
    thresholds, tasks = covered.shape
    numerators = np.full((thresholds, 1), np.reshape(numerator, (-1, 1)))
    block = max(1, _CELLS // max(tasks, 1))
    parts = [
        _histograms(
            np.multiply(denominator, errors[first : first + block], dtype=np.int64)
            - np.multiply(numerators[first : first + block], covered[first : first + block])
        )
        for first in range(0, thresholds, block)
    ]
    values, counts, lengths = (
        np.concatenate([part[place] for part in parts]) if parts else np.zeros(0, np.int64)
        for place in range(3)
    )
    return values, counts, np.concatenate([[0], np.cumsum(lengths)])


def _histograms(table: _Integers) -> tuple[_Integers, _Integers, _Integers]:
    """Distinct values of each row, ascending, their counts, and how many there are a row."""
    low = table.min(axis=1)
    spans = table.max(axis=1) - low + 1
    if int(spans.sum()) > 8 * table.size + _RADIX:
        ordered = np.sort(table, axis=1)
        new = np.ones(table.shape, dtype=bool)
        new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        starts = np.flatnonzero(new)
        return ordered[new], np.diff(starts, append=table.size), np.count_nonzero(new, axis=1)
    shifts = np.cumsum(spans) - spans - low
    often = np.bincount((table + shifts[:, None]).ravel(), minlength=int(spans.sum()))
    found = np.flatnonzero(often)
    row = np.searchsorted(shifts + low, found, side="right") - 1
    return found - shifts[row], often[found], np.bincount(row, minlength=low.size)


def saddle(
    values: _Integers, counts: _Integers, offsets: _Integers, draws: int, x: _Floats
) -> tuple[_Floats, _Floats, _Floats, _Floats]:
    """Solve draws * K'(t) = x for each histogram by bracketed Newton steps; t, K, K'', K''' there.

    An x must lie strictly between draws times the least and the largest value of its histogram.
    """
    begins, owner = offsets[:-1], np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    least, largest = values[begins], values[offsets[1:] - 1]
    target, unit = x / draws, 1.0 / np.maximum(np.abs(least), np.abs(largest))
    t, low, high = np.zeros(x.size), np.full(x.size, -np.inf), np.full(x.size, np.inf)
    done = np.zeros(x.size, dtype=bool)
    for _ in range(200):
        # without overflow: the largest exponent is 0
        edge = np.maximum(t * least, t * largest)
        masses = counts * np.exp(t[owner] * values - edge[owner])
        mass = np.add.reduceat(masses, begins)
        weights = masses / mass[owner]
        mean = np.add.reduceat(weights * values, begins)
        deviations = values - mean[owner]
        squares = weights * deviations * deviations
        second = np.add.reduceat(squares, begins)
        gap = target - mean
        done |= np.abs(gap) <= 1e-13 * (np.abs(target) + np.sqrt(second))
        if done.all():
            break
        rising = gap > 0.0
        low, high = np.where(rising, t, low), np.where(rising, high, t)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = t + gap / second
            # a step out of the bracket halves it, or goes far where it has no other end
            step = np.where((low <= step) & (step <= high), step, 0.5 * (low + high))
        reach = 8.0 * unit + np.abs(t)
        step = np.minimum(np.maximum(step, t - reach), t + reach)
        done |= step == t
        t = np.where(done, t, step)
    total = np.add.reduceat(counts, begins)
    # log(mass / total) cancels near 0
    near = np.add.reduceat(counts * np.expm1(np.minimum(t[owner] * values, 1.0)), begins) / total
    small = np.maximum(np.abs(t * least), np.abs(t * largest)) < 0.5
    level = np.where(small, np.log1p(near), edge + np.log(mass / total))
    return t, level, second, np.add.reduceat(squares * deviations, begins)


def saddlepoint_tails(
    values: _Integers, counts: _Integers, offsets: _Integers, draws: int
) -> _Floats:
    """P(S > 0) of each histogram, S the sum of draws, by the lattice Lugannani–Rice formula."""
    lengths = np.diff(offsets)
    least, largest = values[offsets[:-1]], values[offsets[1:] - 1]
    tails = (least > 0).astype(np.float64)
    spans = np.maximum(np.gcd.reduceat(values - np.repeat(least, lengths), offsets[:-1]), 1)
    # the smallest sum above 0 on the lattice
    starts = (draws * least) % spans
    starts = np.where(starts == 0, spans, starts)
    solved = (least <= 0) & (starts <= draws * largest)
    if not solved.any():
        return tails
    inside, span = np.repeat(solved, lengths), spans[solved]
    x = starts[solved] - 0.5 * span
    places = np.concatenate([[0], np.cumsum(lengths[solved])])
    t, level, second, third = saddle(values[inside], counts[inside], places, draws, x)
    scale = np.sqrt(draws * second)
    w = np.copysign(np.sqrt(np.maximum(2.0 * (t * x - draws * level), 0.0)), t)
    # 1/u − 1/w cancels near 0; its limit is minus a sixth of the skewness of the sum
    with np.errstate(divide="ignore", invalid="ignore"):
        correction = np.where(
            np.abs(w) < 1e-3,
            -draws * third / (6.0 * scale * scale * scale),
            1.0 / (2.0 / span * np.sinh(0.5 * t * span) * scale) - 1.0 / w,
        )
    tails[solved] = _corrected(w, correction)
    return tails


def _corrected(w: _Floats, correction: _Floats) -> _Floats:
    """Upper tail of the normal law at w, plus its density there times a correction."""
    upper = 0.5 * np.array([math.erfc(each) for each in (w / math.sqrt(2.0)).tolist()])
    return np.clip(upper + np.exp(-0.5 * w * w) / _SQRT_TWO_PI * correction, 0.0, 1.0)


def pseudo_task_tails(
    values: _Integers,
    counts: _Integers,
    offsets: _Integers,
    extra: _Floats,
    *,
    unit: float,
    factor: float,
) -> _Floats:
    """P(Σ z·Gamma(factor·count) + extra·E* ≥ 0) of each histogram, z = unit·value, E* exponential.

    By the Lugannani–Rice formula; 1 where the mean is not below 0, 1/2 next to it.
    """
    begins, lengths = offsets[:-1], np.diff(offsets)
    below = extra + factor * unit * np.add.reduceat(counts * values, begins) < 0.0
    tails = np.ones(below.size)
    if not below.any():
        return tails
    inside, begins = np.repeat(below, lengths), np.cumsum(lengths[below]) - lengths[below]
    z, shapes = unit * values[inside], factor * counts[inside]
    extra, owner = extra[below], np.repeat(np.arange(begins.size), lengths[below])
    t, low = np.zeros(begins.size), np.zeros(begins.size)
    high = 1.0 / np.maximum(extra, np.maximum.reduceat(z, begins))
    done = np.zeros(begins.size, dtype=bool)
    # K' rises from below 0 to infinity: Newton's steps, halving where one leaves the bracket
    for _ in range(200):
        parts, own = z / (1.0 - t[owner] * z), extra / (1.0 - t * extra)
        slope = own + np.add.reduceat(shapes * parts, begins)
        square = own * own + np.add.reduceat(shapes * parts * parts, begins)
        # in standard deviations of the tilted sum: a short step may be one next to the pole
        done |= np.abs(slope) <= 1e-13 * np.sqrt(square)
        low, high = np.where(slope < 0.0, t, low), np.where(slope < 0.0, high, t)
        step = t - slope / square
        step = np.where((low < step) & (step < high), step, 0.5 * (low + high))
        done |= step == t
        if done.all():
            break
        t = np.where(done, t, step)
    level = -np.log1p(-t * extra) - np.add.reduceat(shapes * np.log1p(-t[owner] * z), begins)
    # 1/u − 1/w cancels near the mean
    far = -2.0 * level >= 1e-4
    w, u = np.sqrt(-2.0 * level[far]), t[far] * np.sqrt(square[far])
    found = np.full(begins.size, 0.5)
    found[far] = _corrected(w, 1.0 / u - 1.0 / w)
    tails[below] = found
    return tails


def task_draws(seed: np.uint64, number: int, first: int = 0) -> NDArray[np.uint64]:
    """32-bit random numbers of a seed (splitmix64; Steele, Lea and Flood, 2014)."""
    z = np.arange(first + 1, first + number + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(32)


def icc_likelihood(
    counts: TellingCounts, mixed: float, rho: _Floats, p: float | None = None
) -> tuple[_Floats, _Floats]:
    """Beta-binomial log-likelihood at correlations, maximised over the mean p, and that mean.

    ``mixed`` counts tasks with both errors and right decisions; Newton's steps start at ``p``.
    """
    errors, right, sizes = counts
    keep, shift = (1.0 - rho)[:, None], np.arange(1, sizes.size) * rho[:, None]
    means = np.full(rho.size, errors[0] / (errors[0] + right[0]) if p is None else p)
    low, high = np.zeros(rho.size), np.ones(rho.size)
    # the likelihood is concave in the mean
    for _ in range(100):
        wrong, fine = keep * means[:, None] + shift, keep * (1.0 - means)[:, None] + shift
        by_wrong, by_fine = errors[1:] / wrong, right[1:] / fine
        slope = errors[0] / means - right[0] / (1.0 - means)
        slope += (keep * (by_wrong - by_fine)).sum(axis=1)
        bend = errors[0] / (means * means) + right[0] / ((1.0 - means) * (1.0 - means))
        bend += (keep * keep * (by_wrong / wrong + by_fine / fine)).sum(axis=1)
        low, high = np.where(slope > 0.0, means, low), np.where(slope > 0.0, high, means)
        step = means + slope / bend
        settled = np.abs(step - means) <= 1e-9 * means
        means = np.where(settled | ((low < step) & (step < high)), step, 0.5 * (low + high))
        if settled.all():
            break
    wrong, fine = keep * means[:, None] + shift, keep * (1.0 - means)[:, None] + shift
    values = errors[0] * np.log(means) + right[0] * np.log(1.0 - means)
    values += (errors[1:] * np.log(wrong) + right[1:] * np.log(fine)).sum(axis=1)
    values -= (sizes[1:] * np.log(keep + shift)).sum(axis=1)
    if mixed > 0.0:
        with np.errstate(divide="ignore"):
            values += mixed * np.log(keep[:, 0])
    return values, means


#: steps of a grid of correlations, and of the finer ones around what is looked for
_STEPS, _PEAK_ROUNDS = 64, 2


def icc_upper_end(counts: TellingCounts, mixed: float, drop: float) -> float:
    """Upper end of the interval of correlations whose likelihood is within drop of the maximum."""
    grid = np.arange(_STEPS + 1) / _STEPS
    values, means = icc_likelihood(counts, mixed, grid)
    fine, at = grid, values
    for _ in range(_PEAK_ROUNDS):
        best = int(np.argmax(at))
        fine = np.linspace(fine[max(best - 1, 0)], fine[min(best + 1, _STEPS)], _STEPS + 1)
        at, means = icc_likelihood(counts, mixed, fine, float(means[best]))
    best = int(np.argmax(at))
    estimate, least = float(fine[best]), float(at[best]) - drop
    if values[-1] >= least:
        return 1.0
    inside = np.flatnonzero((grid <= estimate) | (values >= least))[-1]
    fine = np.linspace(max(estimate, grid[inside]), grid[inside + 1], _STEPS + 1)
    at, _ = icc_likelihood(counts, mixed, fine, float(means[best]))
    place = max(int(np.count_nonzero(at[:-1] >= least)) - 1, 0)
    # the likelihood is a straight line from one of these to the next
    share = (at[place] - least) / (at[place] - at[place + 1])
    return float(fine[place] + share * (fine[place + 1] - fine[place]))


def icc_grid_bound(counts: TellingCounts, mixed: float, drop: float) -> float:
    """The same on a coarse grid of correlations, linear in between."""
    grid = np.arange(_COARSE + 1) / _COARSE
    values, _ = icc_likelihood(counts, mixed, grid)
    least = values.max() - drop
    place = int(np.flatnonzero(values >= least)[-1])
    if place == _COARSE:
        return 1.0
    share = (values[place] - least) / (values[place] - values[place + 1])
    return float((place + share) / _COARSE)
