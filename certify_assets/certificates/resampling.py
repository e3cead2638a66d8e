"""The compiled kernel of the Monte-Carlo engine: sums over tasks drawn with replacement, many columns at once.

A task is a row of bytes, one byte a column (a base-256 digit of its value). Rows are added into 16-bit lanes of vector registers,
which hold 257 rows without overflow, and the lanes into int64: every sum is an exact integer in whatever order it is taken.
:func:`certify_assets.certificates.reference.task_sums` is the plain numpy twin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.core.cgutils import ir  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray

from certify_assets.certificates.kernels import _compiled, _splitmix

__all__ = ["LANES", "NARROW", "STRIDE", "task_sums"]

#: bytes used of a wide row (the default grid has 40 thresholds), bytes from one wide row to the next (a cache line), bytes of a narrow row
LANES, STRIDE, NARROW = 40, 64, 8
#: rows of bytes that a 16-bit lane can hold: 257 · 255 = 65,535
_ROWS = 257


def _row_adder(widths: tuple[int, ...]) -> Callable[..., Any]:
    """Make lanes ← sum of byte rows flat[base + rows[i] …], i < count, kept in vector registers of the given numbers of lanes.

    LLVM turns the same loop in Python into gathers down the columns, four times slower; hence the explicit vectors.
    """

    @intrinsic
    def add_rows(context: Any, lanes: Any, flat: Any, rows: Any, count: Any, base: Any) -> Any:  # noqa: PLR0917
        def generate(target: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            out, table, starts = (
                target.make_array(kind)(target, builder, value).data
                for kind, value in zip(signature.args[:3], arguments[:3], strict=True)
            )
            byte, lane, word = ir.IntType(8), ir.IntType(16), ir.IntType(64)
            places = [sum(widths[:part]) for part in range(len(widths))]
            empty = [ir.Constant(ir.VectorType(lane, width), [0] * width) for width in widths]
            sums = [cgutils.alloca_once_value(builder, value) for value in empty]  # type: ignore[no-untyped-call]
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
    """Sums of byte columns over tasks drawn with replacement, for draws first … first + draws − 1.

    table has shape (blocks, tasks, STRIDE), of which the first LANES bytes count, or (blocks, tasks, NARROW); the answer has shape
    (draws, blocks * lanes). The task at place i of draw b is a pure function of (seed, b, i): splitmix64 at counter b * tasks + i.
    """
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
