"""Loops that numba compiles; tests hold each equal to a plain twin in numpy."""

# None is on the way of a certificate in its default form (kernels.py): they draw resamples, certify
# batches, and number the labels of large tables. Every caller passes C-contiguous arrays of one
# dtype, so that each has exactly one signature: a small first call compiles (or loads from numba's
# cache) what a large later call runs. They release the interpreter lock and use no threading layer
# of numba: threads come from the caller, and results do not depend on their number.
#
# In the Monte-Carlo kernel a task is a row of bytes, one byte a column (a base-256 digit of its
# value). Rows are added into 16-bit lanes of vector registers, which hold 257 rows without
# overflow, and the lanes into int64: every sum is an exact integer in whatever order it is taken.

from __future__ import annotations

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


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        # neither the package folder nor the user's cache folder can be written: compile again in
        # each process
        return numba.njit(nogil=True, error_model="numpy")(function)


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
def _splitmix(seed: np.uint64, counter: np.uint64) -> np.uint64:
    """The counter-th number of the splitmix64 stream of a seed (Steele, Lea and Flood, 2014)."""
    z = seed + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


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


def compile_all() -> None:
    """Compile every loop, or load it, so that numba's cache holds what later processes need."""
    distinct_rows(np.zeros((1, 1), np.uint32))
    task_sums(np.zeros((1, 1, NARROW), np.uint8), 1, np.uint64(0), 0)
    one, half = np.ones(1, np.int64), np.full(1, 0.5)
    weighted_wealth(one, 0 * one, half, half, 1, 1.0)
