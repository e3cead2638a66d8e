"""Loops that numba compiles; tests hold each equal to its twin in numpy, to the byte."""

# They are not on the way of a certificate in its default form (kernels.py): they draw the
# resamples of the engine montecarlo. Every caller passes C-contiguous arrays of one dtype, so that
# each has exactly one signature: a small first call compiles (or loads from numba's cache) what a
# large later call runs.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from certify_assets.arrays import Integers


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        # neither the package folder nor the user's cache folder can be written: compile again in
        # each process
        return numba.njit(nogil=True, error_model="numpy")(function)


@_compiled
def drawn_sums(values: Integers, draws: int, key: np.uint64) -> Integers:
    """Sums of the rows of tasks drawn with replacement, shape (draws, columns)."""
    tasks, columns = values.shape
    sums, often = np.zeros((draws, columns), np.int64), np.empty(tasks, np.int64)
    number, count = key, np.uint64(tasks)
    for draw in range(draws):
        often[:] = 0
        for _ in range(tasks):
            # splitmix64, as kernels.task_draws
            number += np.uint64(0x9E3779B97F4A7C15)
            z = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = (z ^ (z >> np.uint64(31))) >> np.uint64(32)
            often[np.int64((z * count) >> np.uint64(32))] += 1
        # in the order of memory, whatever was drawn
        for task in range(tasks):
            for column in range(columns if often[task] else 0):
                sums[draw, column] += often[task] * values[task, column]
    return sums


def compile_all() -> None:
    """Compile the loops, or load them, so that numba's cache holds what later processes need."""
    drawn_sums(np.ones((1, 1), np.int64), 1, np.uint64(0))
