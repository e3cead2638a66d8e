"""Sizes that the calibration tasks say too little of: a share of the covered runs charged as wrong.

The pseudo-task takes one size, that beyond which tasks hold α/2 of the covered runs. Where tasks
that are wrong throughout hold less, amid errors that are seen, they can all be larger, and nothing
speaks against them if no calibration task is. And where sizes vary a little at every task, the
calibration tasks do hold large ones, and these were right.

So count, for every size M, the calibration tasks that stand for tasks of M runs and more. If there
are L, and none was wrong, the others are wrong at a rate of at most 1 − ε^(1/L), at confidence
1 − ε, and throughout where L = 0. That rate times W(M), the share of covered runs in such tasks, is
charged, less the rate of all tasks alike, for which the tails themselves answer; equal sizes are
charged nothing. W comes from calibration tasks and pool; j tasks show it, so it is taken
(1 + 2/j) times, a bound from above. A task stands for tasks of up to √2 times its runs: wrong tasks
do not begin within half a doubling of the size. But where larger ones exist, whatever is larger
than calibration tasks may belong to them: the charge is the smaller of the one in which a task
stands for its own size alone and four times the other.

With a charge w the tails are taken at α′ = (α − w)/(1 − w), and the clustered tail has no size
ratio from sizes alone: the charge stands for it. Measured in benchmarks/validity.py.
"""

from __future__ import annotations

import operator
from fractions import Fraction
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import kernels
from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.pseudo_task import (
    PseudoTask,
    PseudoTaskTails,
    SizedScores,
    covered_by_size,
    pseudo_task_tails,
    supposed_errors,
)

#: tasks of a pool from which on sizes are charged; fewer show too little of rare large tasks, and
#: both tails keep the size ratio
POOL_TASKS = 100
_EPSILON = 0.3
#: squares of how much larger tasks may be than the one that stands for them
_ITSELF, _HALF_A_DOUBLING = 1, 2
_OUTLYING = 4.0
_UNSEEN_TASKS = 2.0
_TIE = 1e-9
#: α′ is rounded down to a multiple of this part of α's last digit: thresholds share a few budgets
_PARTS = 200


def size_charges(counts: TaskCounts, tables: tuple[SizedScores, ...]) -> NDArray[np.float64]:
    """Share of the covered runs that is charged as wrong, at every threshold.

    Parameters
    ----------
    counts : TaskCounts
    tables : tuple of SizedScores
        The calibration table, and any pool.
    """
    each = covered_by_size(counts, tables)
    found = reduce(operator.add, each)
    calibration = each[0].among(found.classes).tasks
    total = np.maximum(found.runs.sum(axis=1, keepdims=True), 1)
    # from each size on: share of the covered runs, and tasks that show it
    share = _from(found.runs) / total
    shown = np.minimum(share * (1.0 + _UNSEEN_TASKS / np.maximum(_from(found.tasks), 1)), 1.0)
    narrow, wide = (
        _charges(shown, _standing(calibration, found.classes, square), counts)
        for square in (_ITSELF, _HALF_A_DOUBLING)
    )
    return np.minimum(narrow, _OUTLYING * wide)


def _from(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums from each column on."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1]


def _standing(
    tasks: NDArray[np.int64], classes: NDArray[np.int64], square: int
) -> NDArray[np.int64]:
    """Calibration tasks that stand for each size and larger ones, shape (thresholds, sizes)."""
    least = np.searchsorted(square * classes**2, classes**2)
    return np.asarray(_from(tasks)[:, least])


def _charges(
    shown: NDArray[np.float64], standing: NDArray[np.int64], counts: TaskCounts
) -> NDArray[np.float64]:
    rate = np.where(standing > 0, _rate(standing), 1.0)
    alike = np.where(standing > 0, _rate(counts.covered_tasks)[:, None], 0.0)
    return np.asarray((shown * rate - alike).max(axis=1).clip(0.0, 1.0))


def _rate(tasks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Largest rate of wrong tasks, at confidence 1 − ε, of which so many tasks show none."""
    return np.asarray(1.0 - _EPSILON ** (1.0 / np.maximum(tasks, 1)))


def charged_tails(
    counts: TaskCounts,
    budget: Fraction,
    pseudo: PseudoTask,
    *,
    level: float,
    factor: float = 1.0,
) -> PseudoTaskTails:
    """Return p1 and p2 as `pseudo_task_tails` does, at what the charges leave of the budget."""
    asked = partial(pseudo_task_tails, level=level, factor=factor)
    if pseudo.charges is None or not pseudo.charges.any():
        return asked(counts, budget, pseudo)
    found = PseudoTaskTails(*np.ones((2, counts.thresholds.size)))
    numerators, parts = charged_numerators(budget, pseudo.charges)
    for numerator in np.unique(numerators[numerators > 0]).tolist():
        places = np.flatnonzero(numerators == numerator)
        part = asked(counts.part(places), Fraction(numerator, parts), pseudo.part(places))
        found.whole[places], found.clustered[places] = part.whole, part.clustered
    return found


def charged_tails_at(
    counts: TaskCounts, numerators: NDArray[np.int64], steps: int, pseudo: PseudoTask
) -> NDArray[np.float64]:
    """Return the joined tail by the saddlepoint, at a budget of each threshold's own in steps."""
    charges = np.zeros(numerators.size) if pseudo.charges is None else pseudo.charges
    left = np.floor((numerators - steps * charges) / np.maximum(1.0 - charges, 1.0 / steps) + _TIE)
    inside = left >= 1
    parts = np.maximum(left, 1).astype(np.int64)
    lattice = kernels.lattice_histogram(counts.covered, counts.errors, parts, steps)
    supposed = supposed_errors(counts, parts / steps, pseudo)
    found = [
        kernels.pseudo_task_tails(*lattice, extra, unit=1.0 / steps, factor=1.0)
        for extra in supposed
    ]
    return np.where(inside, PseudoTaskTails(*found).joined, 1.0)


def charged_numerators(
    budget: Fraction, charges: NDArray[np.float64]
) -> tuple[NDArray[np.int64], int]:
    """α′ = (α − w)/(1 − w) of every threshold, rounded down, in parts; 0 where nothing is left."""
    parts, alpha = budget.denominator * _PARTS, float(budget)
    left = (alpha - charges) / np.maximum(1.0 - charges, 1.0 - alpha)
    rounded = np.floor(np.maximum(left, 0.0) * parts).astype(np.int64)
    return np.where(charges > 0, rounded, budget.numerator * _PARTS), parts
