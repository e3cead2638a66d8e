"""Compiled kernels; tests hold each equal to a plain twin in numpy."""

# Every caller passes C-contiguous arrays of one dtype, so that each kernel has exactly one
# signature: a small first call compiles (or loads from numba's cache) what a large later call runs.
# Kernels release the interpreter lock and use no threading layer of numba: threads come from the
# caller, and results do not depend on their number.
#
# In the Monte-Carlo kernel a task is a row of bytes, one byte a column (a base-256 digit of its
# value). Rows are added into 16-bit lanes of vector registers, which hold 257 rows without
# overflow, and the lanes into int64: every sum is an exact integer in whatever order it is taken.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.cgutils import ir  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray

_Integers = NDArray[np.int64]
_Floats = NDArray[np.float64]

_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        # neither the package folder nor the user's cache folder can be written: compile again in
        # each process
        return numba.njit(nogil=True, error_model="numpy")(function)


@_compiled
def group_order(keys: _Integers, buckets: int) -> _Integers:
    """Stable counting sort: the permutation that sorts int64 keys in [0, buckets)."""
    starts = np.zeros(buckets + 1, np.int64)
    for key in keys:
        starts[key + 1] += 1
    for bucket in range(buckets):
        starts[bucket + 1] += starts[bucket]
    order = np.empty(keys.size, np.int64)
    for row in range(keys.size):
        order[starts[keys[row]]] = row
        starts[keys[row]] += 1
    return order


@_compiled
def distinct_rows(words: NDArray[np.uint32]) -> tuple[_Integers, _Integers]:
    """Number the distinct rows of a uint32 matrix by first appearance: first rows, and numbers."""
    rows, width = words.shape
    slots = 16
    while slots < 2 * rows:
        slots *= 2
    table = np.full(slots, np.int64(-1))
    first = np.empty(rows, np.int64)
    codes = np.empty(rows, np.int64)
    found = 0
    for row in range(rows):
        key = np.uint64(0xCBF29CE484222325)
        for column in range(width):
            key = (key ^ np.uint64(words[row, column])) * np.uint64(0x100000001B3)
        key ^= key >> np.uint64(32)
        slot = np.int64(key & np.uint64(slots - 1))
        while True:
            code = table[slot]
            if code < 0:
                table[slot], first[found], codes[row] = found, row, found
                found += 1
                break
            same = True
            for column in range(width):
                if words[first[code], column] != words[row, column]:
                    same = False
                    break
            if same:
                codes[row] = code
                break
            slot = (slot + 1) & (slots - 1)
    return first[:found].copy(), codes


@_compiled
def count_rows(
    codes: NDArray[np.int32], wrong: NDArray[np.uint8], ends: _Integers, tasks: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Count covered rows and errors a task for nested thresholds."""
    # codes and wrong are in order of coverage, ends gives the rows covered at each threshold,
    # ascending: one pass over the rows, one over the matrices
    covered = np.zeros((ends.size, tasks), np.int32)
    errors = np.zeros((ends.size, tasks), np.int32)
    row = 0
    for threshold in range(ends.size):
        if threshold > 0:
            for task in range(tasks):
                covered[threshold, task] = covered[threshold - 1, task]
                errors[threshold, task] = errors[threshold - 1, task]
        while row < ends[threshold]:
            covered[threshold, codes[row]] += 1
            errors[threshold, codes[row]] += wrong[row]
            row += 1
    return covered, errors


@_compiled
def lattice_histogram(
    covered: NDArray[np.int32], errors: NDArray[np.int32], numerator: int, denominator: int
) -> tuple[_Integers, _Integers, _Integers]:
    """Distinct values of denominator*k − numerator*n over tasks, with counts, a threshold each."""
    # the histogram of threshold t is offsets[t]:offsets[t + 1], values ascending
    thresholds, tasks = covered.shape
    offsets = np.zeros(thresholds + 1, np.int64)
    values = np.empty(1024, np.int64)
    counts = np.empty(1024, np.int64)
    row = np.empty(tasks, np.int64)
    dense = np.zeros(1, np.int64)
    filled = 0
    for threshold in range(thresholds):
        low, high = np.int64(2**62), np.int64(-(2**62))
        for task in range(tasks):
            value = denominator * np.int64(errors[threshold, task]) - numerator * np.int64(
                covered[threshold, task]
            )
            row[task] = value
            low, high = min(low, value), max(high, value)
        span = high - low + 1
        if values.size < filled + min(span, tasks):
            wider = 2 * (filled + min(span, tasks))
            values = np.concatenate((values[:filled], np.empty(wider - filled, np.int64)))
            counts = np.concatenate((counts[:filled], np.empty(wider - filled, np.int64)))
        if span <= 8 * tasks + 65536:
            if dense.size < span:
                dense = np.zeros(span, np.int64)
            for task in range(tasks):
                dense[row[task] - low] += 1
            for place in range(span):
                if dense[place] > 0:
                    values[filled], counts[filled] = low + place, dense[place]
                    dense[place] = 0
                    filled += 1
        else:
            row.sort()
            for task in range(tasks):
                if task > 0 and row[task] == row[task - 1]:
                    counts[filled - 1] += 1
                else:
                    values[filled], counts[filled] = row[task], 1
                    filled += 1
        offsets[threshold + 1] = filled
    return values[:filled].copy(), counts[:filled].copy(), offsets


@_compiled
def _cumulants(
    values: _Integers, counts: _Integers, total: int, t: float
) -> tuple[float, float, float, float]:
    """K(t) to K'''(t) of one draw, without overflow and without cancellation near 0."""
    edge = max(t * values[0], t * values[-1])
    mass = first = 0.0
    small = 0.0
    for place in range(values.size):
        weight = counts[place] * math.exp(t * values[place] - edge)
        mass += weight
        first += weight * values[place]
        small += counts[place] * math.expm1(min(t * values[place], 1.0))
    mean = first / mass
    second = third = 0.0
    for place in range(values.size):
        weight = counts[place] * math.exp(t * values[place] - edge) / mass
        deviation = values[place] - mean
        second += weight * deviation * deviation
        third += weight * deviation * deviation * deviation
    if max(abs(t * values[0]), abs(t * values[-1])) < 0.5:
        return math.log1p(small / total), mean, second, third
    return edge + math.log(mass / total), mean, second, third


@_compiled
def saddle(
    values: _Integers, counts: _Integers, draws: int, x: float
) -> tuple[float, float, float, float]:
    """Solve draws * K'(t) = x by bracketed Newton steps; return (t, K, K'', K''') there."""
    # x must lie strictly between draws * values[0] and draws * values[-1]
    total = 0
    for count in counts:
        total += count
    target = x / draws
    low, high = -math.inf, math.inf
    unit = 1.0 / max(abs(values[0]), abs(values[-1]))
    t = 0.0
    level, mean, second, third = _cumulants(values, counts, total, t)
    for _ in range(200):
        gap = target - mean
        if gap > 0.0:
            low = t
        else:
            high = t
        if gap == 0.0 or abs(gap) <= 1e-13 * (abs(target) + math.sqrt(second)):
            break
        proposal = t + gap / second if second > 0.0 else math.nan
        if not (low < proposal < high):
            if low == -math.inf:
                proposal = 2.0 * high - unit
            elif high == math.inf:
                proposal = 2.0 * low + unit
            else:
                proposal = 0.5 * (low + high)
        if proposal == t:
            break
        t = max(min(proposal, t + 8.0 * unit + abs(t)), t - 8.0 * unit - abs(t))
        level, mean, second, third = _cumulants(values, counts, total, t)
    return t, level, second, third


@_compiled
def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


@_compiled
def _lattice_tail(values: _Integers, counts: _Integers, draws: int) -> float:
    """P(S > 0) for a sum of draws, by the lattice-corrected Lugannani–Rice formula."""
    if values[-1] <= 0:
        return 0.0
    if values[0] > 0:
        return 1.0
    span = 0
    for place in range(1, values.size):
        span = _gcd(span, values[place] - values[0])
    start = (draws * values[0]) % span
    if start <= 0:
        start = span
    if start <= draws * values[0]:
        return 1.0
    if start > draws * values[-1]:
        return 0.0
    x = start - 0.5 * span
    t, level, second, third = saddle(values, counts, draws, x)
    square = 2.0 * (t * x - draws * level)
    scale = math.sqrt(draws * second)
    w = math.copysign(math.sqrt(max(square, 0.0)), t)
    upper = 0.5 * math.erfc(w / math.sqrt(2.0))
    density = math.exp(-0.5 * w * w) / _SQRT_TWO_PI
    if abs(w) < 1e-3:
        # 1/u − 1/w cancels here; its limit is minus a sixth of the skewness of the sum
        correction = -draws * third / (6.0 * scale**3)
    else:
        correction = 1.0 / (2.0 / span * math.sinh(0.5 * t * span) * scale) - 1.0 / w
    return float(min(max(upper + density * correction, 0.0), 1.0))


@_compiled
def saddlepoint_tails(
    values: _Integers, counts: _Integers, offsets: _Integers, draws: int
) -> _Floats:
    """Lattice saddlepoint tail P(S > 0) of each histogram; draws are the tasks resampled."""
    tails = np.empty(offsets.size - 1, np.float64)
    for threshold in range(tails.size):
        part = slice(offsets[threshold], offsets[threshold + 1])
        tails[threshold] = _lattice_tail(values[part], counts[part], draws)
    return tails


@_compiled
def _splitmix(seed: np.uint64, counter: np.uint64) -> np.uint64:
    """The counter-th number of the splitmix64 stream of a seed (Steele, Lea and Flood, 2014)."""
    z = seed + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@_compiled
def task_draws(seed: np.uint64, tasks: int) -> NDArray[np.uint64]:
    """One 32-bit random number a task, as uint64."""
    drawn = np.empty(tasks, np.uint64)
    for task in range(tasks):
        drawn[task] = _splitmix(seed, np.uint64(task)) >> np.uint64(32)
    return drawn


@_compiled
def _profile(errors: _Floats, right: _Floats, sizes: _Floats, mixed: float, rho: float) -> float:
    """Beta-binomial log-likelihood at one correlation, maximised over the mean."""
    # the likelihood is concave in the mean
    keep = 1.0 - rho
    low, high = 0.0, 1.0
    p = errors[0] / (errors[0] + right[0])
    for _ in range(100):
        slope = errors[0] / p - right[0] / (1.0 - p)
        bend = -errors[0] / (p * p) - right[0] / ((1.0 - p) * (1.0 - p))
        for i in range(1, sizes.size):
            if sizes[i] == 0.0:
                break
            a, b = keep * p + i * rho, keep * (1.0 - p) + i * rho
            if a > 0.0:
                slope += keep * errors[i] / a
                bend -= keep * keep * errors[i] / (a * a)
            if b > 0.0:
                slope -= keep * right[i] / b
                bend -= keep * keep * right[i] / (b * b)
        if slope > 0.0:
            low = p
        else:
            high = p
        step = p - slope / bend
        if not (low < step < high):
            step = 0.5 * (low + high)
        if abs(step - p) <= 1e-14 * p:
            break
        p = step
    value = errors[0] * math.log(p) + right[0] * math.log(1.0 - p)
    if mixed > 0.0:
        value += mixed * math.log(keep) if keep > 0.0 else -math.inf
    for i in range(1, sizes.size):
        if errors[i] > 0.0:
            value += errors[i] * math.log(keep * p + i * rho)
        if right[i] > 0.0:
            value += right[i] * math.log(keep * (1.0 - p) + i * rho)
        value -= sizes[i] * math.log(keep + i * rho)
    return float(value)


@_compiled
def icc_profile(
    errors: _Floats, right: _Floats, sizes: _Floats, mixed: float, drop: float
) -> tuple[float, float]:
    """Most likely intra-task correlation of errors, and the upper end of its profile interval."""
    # errors[i], right[i], sizes[i] count the tasks with more than i errors, right decisions,
    # covered rows; mixed counts tasks with both; the interval holds what is within drop of the
    # maximum
    steps = 64
    grid = np.empty(steps + 1, np.float64)
    for place in range(steps + 1):
        grid[place] = _profile(errors, right, sizes, mixed, place / steps)
    best = np.argmax(grid)
    low, high = max(best / steps - 1.0 / steps, 0.0), min(best / steps + 1.0 / steps, 1.0)
    golden = 0.5 * (math.sqrt(5.0) - 1.0)
    for _ in range(40):
        left, rightmost = high - golden * (high - low), low + golden * (high - low)
        if _profile(errors, right, sizes, mixed, left) >= _profile(
            errors, right, sizes, mixed, rightmost
        ):
            high = rightmost
        else:
            low = left
    estimate = 0.5 * (low + high)
    top = _profile(errors, right, sizes, mixed, estimate)
    if grid[best] >= top:
        estimate, top = best / steps, grid[best]
    inside, outside = estimate, 1.0
    for place in range(steps, -1, -1):
        if place / steps <= estimate:
            break
        if grid[place] >= top - drop:
            inside = place / steps
            break
        outside = place / steps
    if inside == 1.0:
        return estimate, 1.0
    for _ in range(50):
        middle = 0.5 * (inside + outside)
        if _profile(errors, right, sizes, mixed, middle) >= top - drop:
            inside = middle
        else:
            outside = middle
    return estimate, inside


@_compiled
def icc_grid_bound(
    errors: _Floats, right: _Floats, sizes: _Floats, mixed: float, drop: float
) -> float:
    """Upper end of the profile interval on a grid of correlations, linear in between."""
    steps = 40
    grid = np.empty(steps + 1, np.float64)
    for place in range(steps + 1):
        grid[place] = _profile(errors, right, sizes, mixed, place / steps)
    least = grid.max() - drop
    if grid[steps] >= least:
        return 1.0
    for place in range(steps - 1, -1, -1):
        if grid[place] >= least:
            return float((place + (grid[place] - least) / (grid[place] - grid[place + 1])) / steps)
    return 1.0


@_compiled
def _pseudo_task_tail(
    values: _Integers, counts: _Integers, extra: float, unit: float, factor: float
) -> float:
    """P(Σ z·Gamma(count) + extra·E* ≥ 0), z = unit·value, by the Lugannani–Rice formula."""
    total = extra
    for place in range(values.size):
        total += factor * counts[place] * unit * values[place]
    if total >= 0.0:
        return 1.0
    low, high = 0.0, 1.0 / max(extra, unit * values[-1])
    t = 0.0
    square = 0.0
    # K' rises from below 0 to infinity: Newton's steps, halving where one leaves the bracket
    for _ in range(200):
        share = extra / (1.0 - t * extra)
        slope, square = share, share * share
        for place in range(values.size):
            share = unit * values[place] / (1.0 - t * unit * values[place])
            slope += factor * counts[place] * share
            square += factor * counts[place] * share * share
        # in standard deviations of the tilted sum: a short step may be one next to the pole
        if abs(slope) <= 1e-13 * math.sqrt(square):
            break
        if slope < 0.0:
            low = t
        else:
            high = t
        proposal = t - slope / square
        if not (low < proposal < high):
            proposal = 0.5 * (low + high)
        if proposal == t:
            break
        t = proposal
    level = -math.log1p(-t * extra)
    for place in range(values.size):
        level -= factor * counts[place] * math.log1p(-t * unit * values[place])
    if -2.0 * level < 1e-4:
        # 1/u − 1/w cancels near the mean
        return 0.5
    w, u = math.sqrt(-2.0 * level), t * math.sqrt(square)
    upper = 0.5 * math.erfc(w / math.sqrt(2.0))
    density = math.exp(-0.5 * w * w) / _SQRT_TWO_PI
    return float(min(max(upper + density * (1.0 / u - 1.0 / w), 0.0), 1.0))


@_compiled
def pseudo_task_tails(  # noqa: PLR0917
    values: _Integers,
    counts: _Integers,
    offsets: _Integers,
    extra: _Floats,
    unit: float,
    factor: float,
) -> _Floats:
    """Tail of each histogram with one more exponential of weight ``extra``."""
    tails = np.empty(offsets.size - 1, np.float64)
    for threshold in range(tails.size):
        part = slice(offsets[threshold], offsets[threshold + 1])
        tails[threshold] = _pseudo_task_tail(
            values[part], counts[part], extra[threshold], unit, factor
        )
    return tails


#: bytes used of a wide row (the default grid has 40 thresholds), bytes from one wide row to the
#: next (a cache line), bytes of a narrow row
LANES, STRIDE, NARROW = 40, 64, 8
#: rows of bytes that a 16-bit lane can hold: 257 · 255 = 65,535
_ROWS = 257


def _row_adder(widths: tuple[int, ...]) -> Callable[..., Any]:
    """Make lanes ← sum of byte rows flat[base + rows[i] …], i < count, in vector registers."""
    # LLVM turns the same loop in Python into gathers down the columns, four times slower; hence the
    # explicit vectors of the given numbers of lanes.

    @intrinsic
    def add_rows(  # noqa: PLR0917
        context: Any, lanes: Any, flat: Any, rows: Any, count: Any, base: Any
    ) -> Any:
        def generate(target: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            out, table, starts = (
                target.make_array(kind)(target, builder, value).data
                for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
            )
            byte, lane, word = ir.IntType(8), ir.IntType(16), ir.IntType(64)
            places = [sum(widths[:part]) for part in range(len(widths))]
            empty = [ir.Constant(ir.VectorType(lane, width), [0] * width) for width in widths]
            allocate: Any = cgutils.alloca_once_value
            sums = [allocate(builder, value) for value in empty]
            with cgutils.for_range(builder, arguments[3]) as loop:
                row = builder.add(builder.load(builder.gep(starts, [loop.index])), arguments[4])
                for width, place, total in zip(widths, places, sums, strict=True):
                    start = builder.gep(table, [builder.add(row, ir.Constant(word, place))])
                    loaded = builder.load(
                        builder.bitcast(start, ir.VectorType(byte, width).as_pointer()), align=1
                    )
                    builder.store(
                        builder.add(
                            builder.load(total), builder.zext(loaded, ir.VectorType(lane, width))
                        ),
                        total,
                    )
            for width, place, total in zip(widths, places, sums, strict=True):
                start = builder.gep(out, [ir.Constant(word, place)])
                builder.store(
                    builder.load(total),
                    builder.bitcast(start, ir.VectorType(lane, width).as_pointer()),
                    align=2,
                )
            return target.get_dummy_value()

        return types.void(lanes, flat, rows, count, base), generate

    return add_rows


_add_wide = _row_adder((32, 8))
_add_narrow = _row_adder((8,))


@_compiled
def task_sums(
    table: NDArray[np.uint8], draws: int, seed: np.uint64, first: int
) -> NDArray[np.int64]:
    """Sums of byte columns over tasks drawn with replacement, from draw first on."""
    # table has shape (blocks, tasks, STRIDE), of which the first LANES bytes count, or (blocks,
    # tasks, NARROW); the answer has shape (draws, blocks * lanes). The task at place i of draw b is
    # a pure function of (seed, b, i): splitmix64 at counter b * tasks + i.
    blocks, tasks, width = table.shape
    lanes = min(width, LANES)
    flat = table.reshape(-1)
    sums = np.zeros((draws, blocks * lanes), np.int64)
    part = np.zeros(lanes, np.uint16)
    rows = np.empty(_ROWS, np.uint64)
    for draw in range(draws):
        counter = np.uint64(first + draw) * np.uint64(tasks)
        for start in range(0, tasks, _ROWS):
            places = min(_ROWS, tasks - start)
            for place in range(places):
                z = _splitmix(seed, counter + np.uint64(start + place))
                rows[place] = (
                    ((z >> np.uint64(32)) * np.uint64(tasks)) >> np.uint64(32)
                ) * np.uint64(width)
            for block in range(blocks):
                base = np.uint64(block * tasks * width)
                if lanes == LANES:
                    _add_wide(part, flat, rows, places, base)
                else:
                    _add_narrow(part, flat, rows, places, base)
                for lane in range(lanes):
                    sums[draw, block * lanes + lane] += part[lane]
    return sums


@_compiled
def weighted_wealth(  # noqa: PLR0917
    errors: _Integers,
    drawn: _Integers,
    weights: _Floats,
    risks: _Floats,
    limit: int,
    strength: float,
) -> _Floats:
    """Log wealth, label by label, of betting that fewer than `limit` runs of a set are wrong.

    Runs are drawn by weight without replacement. The bet maximises the expected growth under the
    predicted errors, scaled by the errors found so far; +inf once too many errors are impossible.
    """
    alive = np.ones(weights.size, np.bool_)
    wealth = np.zeros(errors.size)
    left, log_wealth, found, expected = weights.size, 0.0, 0, 0.0
    for step in range(errors.size):
        rest = limit - found
        if rest <= 0:
            wealth[step:] = -np.inf
            break
        if left < rest:
            wealth[step:] = np.inf
            break
        total, smallest = 0.0, np.inf
        for run in range(weights.size):
            if alive[run]:
                total += weights[run]
                smallest = min(smallest, weights[run])
        scale = (strength + found) / (strength + expected)
        largest = total / smallest
        high = 0.999999 / (largest - rest) if largest > rest else 1e6
        low = 0.0
        for _ in range(30):
            bet = (low + high) / 2
            slope = 0.0
            for run in range(weights.size):
                if alive[run]:
                    chance = weights[run] / total
                    risk = min(0.95, scale * risks[run])
                    loss = rest - 1.0 / chance
                    slope += chance * (
                        risk * loss / (1.0 + bet * loss) + (1.0 - risk) * rest / (1.0 + bet * rest)
                    )
            if slope > 0.0:
                low = bet
            else:
                high = bet
        run = drawn[step]
        payoff = rest - errors[step] * total / weights[run]
        log_wealth += np.log(1.0 + low * payoff)
        found += errors[step]
        expected += risks[run]
        alive[run] = False
        left -= 1
        wealth[step] = np.inf if left < limit - found else log_wealth
    return wealth
