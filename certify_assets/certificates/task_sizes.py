"""The pseudo-task from task sizes: the size ratio R, and a share w of runs that is charged.

R is the largest of three numbers: the declared ratio; how much larger tasks with errors are at the
widest threshold; and M over the mean size of the covered tasks. Tasks larger than M hold at most
α/2 of the covered runs. The third needs only sizes and scores, so unlabelled tasks (a `Pool`)
inform it. Only a pool whose tasks have sizes like those of the table may lower it.

**The charge.** Tasks that are wrong throughout may hold less than α/2 of the runs, among other
errors. They can all be larger than M, and no evidence excludes them if no calibration task is.
Where sizes vary a little at every task, some calibration tasks are large, and these were right.

So count, for every size M, the calibration tasks that represent tasks of M runs and more. If L of
them were all right, the others are wrong at a rate of at most 1 − ε^(1/L), at confidence 1 − ε. The
rate is 1 where L = 0. The charge is that rate times W(M), the share of covered runs in such tasks,
less the rate of all tasks together. Equal sizes are charged nothing. W comes from calibration tasks
and pool. Where j tasks show it, it is multiplied by 1 + 2/j, which bounds it from above.

A task represents tasks of up to √2 times its runs: wrong tasks do not begin within half a doubling
of the size. Where larger ones exist, all runs beyond the calibration sizes may belong to them. The
charge is then the smaller of two: the one in which a task represents its own size only, and four
times the other. With a charge, the clustered tail has no size ratio from sizes: the charge replaces
it. Measured in benchmarks/validity.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats, Integers
from certify_assets.certificates import kernels
from certify_assets.certificates.counts import TaskCounts, covered_rows, grid_places
from certify_assets.certificates.error_icc import error_icc
from certify_assets.certificates.evidence import Pool
from certify_assets.certificates.inputs import Observations, OrderedRows
from certify_assets.certificates.pseudo_task import PseudoTask
from certify_assets.certificates.settings import Settings

#: tasks of a pool from which on sizes are charged; fewer show too little of rare large tasks, and
#: both tails keep the size ratio
POOL_TASKS = 100
#: thresholds of the coarser grid on which the correlation of errors is bounded
ICC_GRID = 40
_ENOUGH_TASKS = 5
_EPSILON = 0.3
#: squares of how much larger tasks may be than the one that stands for them
_ITSELF, _HALF_A_DOUBLING = 1, 2
_OUTLYING = 4.0
_UNSEEN_TASKS = 2.0
#: chance that a pool with the law of sizes of the table is taken for another
_UNLIKE = 0.1


def pseudo_task(
    observations: Observations, counts: TaskCounts, settings: Settings, pool: Pool | None
) -> PseudoTask:
    """Return the size of the pseudo-task, from the table, a pool and the declared ratio."""
    tables = (observations,) if pool is None else (observations, pool)
    sizes = covered_by_size(counts, tables)
    grid = observations.scores[grid_places(observations.scored, counts.side, ICC_GRID)]
    seen = max(1.0, settings.size_ratio, observed_ratio(counts))
    ratios = np.maximum(seen, covered_ratios(sizes, settings))
    alike = pool is None or alike_in_size(observations, pool)
    if not alike:
        ratios = np.maximum(ratios, covered_ratios(sizes.of_table(0), settings))
    charged = pool is not None and pool.scored_tasks >= POOL_TASKS
    return PseudoTask(
        error_icc(observations, counts.side, grid, confident=False),
        ratios,
        np.full_like(ratios, seen) if charged and alike else ratios,
        size_charges(counts, sizes) if charged else np.zeros_like(ratios),
        charged,
    )


def alike_in_size(table: OrderedRows, pool: OrderedRows) -> bool:
    """Whether scored tasks of a pool have as many runs as those of the table (Smirnov's test)."""
    first, second = (np.sort(_scored_sizes(each)[1]) for each in (table, pool))
    if not (first.size and second.size):
        return False
    at = np.union1d(first, second)
    below = (np.searchsorted(sizes, at, side="right") / sizes.size for sizes in (first, second))
    distance = np.abs(np.subtract(*below)).max()
    limit = math.sqrt(math.log(2 / _UNLIKE) / 2 * (1 / first.size + 1 / second.size))
    return bool(distance <= limit)


@dataclass(frozen=True, eq=False)
class SizeCounts:
    """Covered runs, and covered tasks, of tables by the size of their task."""

    classes: Integers  # sizes, ascending
    runs: Integers  # shape (tables, thresholds, sizes)
    tasks: Integers

    def of_table(self, place: int) -> SizeCounts:
        """Return those of one table."""
        return SizeCounts(self.classes, self.runs[[place]], self.tasks[[place]])


def covered_by_size(counts: TaskCounts, tables: Sequence[OrderedRows]) -> SizeCounts:
    """Count covered runs and tasks of every table by the size of their task."""
    sizes = [_scored_sizes(table)[0] for table in tables]
    classes = np.unique(np.concatenate(sizes))
    classes = classes[classes > 0]
    found = [
        _count_sizes(table, counts, np.searchsorted(classes, each), classes.size)
        for table, each in zip(tables, sizes, strict=True)
    ]
    runs, tasks = (np.stack(each).astype(np.int64) for each in zip(*found, strict=True))
    return SizeCounts(classes, runs, tasks)


def _scored_sizes(table: OrderedRows) -> tuple[Integers, Integers]:
    """Scored runs of every task, and those of the tasks that have any."""
    sizes = np.bincount(table.tasks[: table.scored])
    return sizes, sizes[sizes > 0]


def _count_sizes(
    table: OrderedRows, counts: TaskCounts, size_of: Integers, classes: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Covered runs and tasks of a table at every threshold, by the class of each task's size."""
    codes = table.tasks[: table.scored][:: 1 if counts.side == "reject" else -1]
    ends = covered_rows(table.scores[: table.scored], counts.side, counts.thresholds)
    # a task is covered from its first row on: of equal places the last that is written stays
    places = np.empty(size_of.size, dtype=np.int64)
    places[codes[::-1]] = np.arange(codes.size)[::-1]
    first = np.zeros(codes.size, dtype=bool)
    first[places[codes]] = True
    return kernels.count_rows(size_of[codes].astype(np.int32), first, ends, classes)


def observed_ratio(counts: TaskCounts) -> float:
    """R̂: how much larger tasks with errors are than others, at the widest threshold."""
    n, k = counts.covered[-1].astype(np.int64), counts.errors[-1].astype(np.int64)
    if np.count_nonzero(k) < _ENOUGH_TASKS:
        return 1.0
    return (int(k @ n) / int(k.sum())) / (int(n @ n) / int(n.sum()))


def covered_ratios(sizes: SizeCounts, settings: Settings) -> Floats:
    """R_T: the size beyond which tasks hold α/2 of the covered runs, over the mean covered size."""
    runs, tasks, budget = sizes.runs.sum(axis=0), sizes.tasks.sum(axis=0), settings.budget
    total = runs.sum(axis=1)
    # runs in tasks larger than each size; whole numbers, so that no rounding decides
    beyond = total[:, None] - np.cumsum(runs, axis=1)
    least = np.argmax(2 * budget.denominator * beyond <= budget.numerator * total[:, None], axis=1)
    mean = tasks @ sizes.classes / np.maximum(tasks.sum(axis=1), 1)
    return np.where(total > 0, sizes.classes[least] / np.maximum(mean, 1.0), 1.0)


def size_charges(counts: TaskCounts, sizes: SizeCounts) -> Floats:
    """Share of the covered runs that is charged as wrong, at every threshold.

    The first table of the sizes is the calibration table.
    """
    runs, tasks = sizes.runs.sum(axis=0), sizes.tasks.sum(axis=0)
    # from each size on: share of the covered runs, and tasks that show it
    share = _from(runs) / np.maximum(runs.sum(axis=1, keepdims=True), 1)
    shown = np.minimum(share * (1.0 + _UNSEEN_TASKS / np.maximum(_from(tasks), 1)), 1.0)
    calibration = _from(sizes.tasks[0])
    alike = _rate(counts.covered_tasks)[:, None]
    charges = []
    for square in (_ITSELF, _HALF_A_DOUBLING):
        # calibration tasks that stand for each size and larger ones
        standing = calibration[:, np.searchsorted(square * sizes.classes**2, sizes.classes**2)]
        charge = np.where(standing > 0, shown * _rate(standing) - alike, shown)
        charges.append(charge.max(axis=1).clip(0.0, 1.0))
    narrow, wide = charges
    return np.minimum(narrow, _OUTLYING * wide)


def _from(values: Integers) -> Integers:
    """Sums from each column on."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1]


def _rate(tasks: Integers) -> Floats:
    """Upper bound, at confidence 1 − ε, of the rate of wrong tasks where this many show none."""
    return 1.0 - _EPSILON ** (1.0 / np.maximum(tasks, 1))
