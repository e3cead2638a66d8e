"""Tests whether new runs look like those of CAL: by scores, and by the share that is decided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats, Integers
from certify_assets.certificates.counts import covers

#: chance of a finding on runs of tasks like those of CAL over the life of a deployment
LIFE_LEVEL = 0.02
#: tasks of new runs, and of CAL, from which on they are compared
LEAST_NEW_TASKS, LEAST_CAL_TASKS = 5, 10
# new tasks after which half of the level is spent
_HALF_SPENT = 60
# parts of the level of a comparison; that of the shares is divided by the sides
_ORDER, _DECIDED = 0.5, 0.5
# tasks of CAL that are compared at most, which bounds the work of a test
_MOST_CAL_TASKS = 300
# steps into which ranks and shares are rounded
_STEPS = 10
_SEED = 0
_Scored = tuple[Floats, Sequence[Any]]


@dataclass(frozen=True)
class TaskTest:
    """One test of new tasks against those of CAL."""

    name: str  # "order", or the side whose share is compared
    calibration: float  # median over tasks, or the mean share that is decided
    batch: float
    p_value: float  # two-sided, of tasks drawn alike
    part: float  # of the level of a comparison; those of its tests add up to 1


def spent_level(tasks: int) -> float:
    """Return the level that is spent once `tasks` new tasks were compared.

    A comparison is tested at the level that its tasks add. All deliveries together, of any sizes,
    spend at most `LIFE_LEVEL` (a spending function with tasks as information; Lan and DeMets,
    Biometrika 70, 1983).
    """
    return LIFE_LEVEL * tasks / (tasks + _HALF_SPENT)


def compare_tasks(
    calibration: _Scored, batch: _Scored, thresholds: Mapping[str, float]
) -> list[TaskTest]:
    """Compare the scores of new tasks with those of CAL.

    Parameters
    ----------
    calibration, batch : pair of (n,) arrays
        The score of each run, and its task.
    thresholds : mapping of str to float
        The threshold of each side that decides.

    Returns
    -------
    list of TaskTest
        Empty with fewer than `LEAST_NEW_TASKS` new tasks or `LEAST_CAL_TASKS` of CAL.

    Notes
    -----
    A task counts once, by the mean over its runs. A mean over fewer runs varies more, so a task of
    CAL with more runs than the median new task is cut to as many. Each test is a permutation test
    over tasks, exact where tasks are drawn alike, ties included:

    * order: the sum of the ranks of the new tasks by mean score;
    * a side: the sum of the shares that its threshold decides. The threshold comes from CAL, which
      makes it cautious.

    Ranks and shares are rounded to steps, which leaves a test exact. Within two standard deviations
    a sum has the normal approximation, far from any level in use.
    """
    from scipy.stats import rankdata

    new = _Tasks.of(*batch)
    cal = _Tasks.of(*calibration, most=int(np.median(new.sizes)) if len(new) else 1)
    if len(new) < LEAST_NEW_TASKS or len(cal) < LEAST_CAL_TASKS:
        return []
    chosen = np.sort(np.random.default_rng(_SEED).permutation(len(cal))[:_MOST_CAL_TASKS])
    before, after = cal.means(cal.scores)[chosen], new.means(new.scores)
    middle = (float(np.median(before)), float(np.median(after)))
    ranks = (rankdata([*before, *after]) - 1) / (before.size + after.size - 1)
    order = sum_p_value(ranks[: before.size], ranks[before.size :])
    found = [TaskTest("order", *middle, order, _ORDER)]
    for side, threshold in thresholds.items():
        shares = [part.means(covers(side, threshold, part.scores)) for part in (cal, new)]
        shares[0] = shares[0][chosen]
        every = (float(shares[0].mean()), float(shares[1].mean()))
        found.append(TaskTest(side, *every, sum_p_value(*shares), _DECIDED / len(thresholds)))
    return found


def sum_p_value(before: Floats, after: Floats) -> float:
    """Return the p-value of a sample's sum among all choices of as many values in [0, 1].

    Two-sided: twice the smaller tail of the sums over all choices.
    """
    few, many = sorted((before, after), key=len)
    every, size = np.concatenate([few, many]), few.size
    # variance of the sum of so many of all without replacement
    spread = math.sqrt(size * many.size / (every.size - 1) * float(every.var()))
    ratio = 0.0 if spread == 0.0 else abs(float(few.sum()) - size * float(every.mean())) / spread
    if ratio < 2.0:
        return math.erfc(ratio / math.sqrt(2))
    values = np.rint(every * _STEPS).astype(np.int64)
    chances = _sums(values, size)
    seen = int(values[:size].sum())
    return min(1.0, 2 * min(float(chances[: seen + 1].sum()), float(chances[seen:].sum())))


def _sums(values: Integers, size: int) -> Floats:
    """Return the distribution of the sum over `size` of all values, each choice as likely."""
    most = int(np.sort(values)[-size:].sum())
    # row k: the values so far of which k were chosen, by their sum
    table = np.zeros((size + 1, most + 1))
    table[0, 0] = 1.0
    for place, value in enumerate(values.tolist()):
        # how likely the value is chosen, by the number chosen before it
        chances = np.clip((size - np.arange(size + 1)) / (values.size - place), 0.0, 1.0)
        chosen = table * chances[:, None]
        table -= chosen
        table[1:, value:] += chosen[:-1, : most + 1 - value]
    return table[size]


@dataclass(frozen=True, eq=False)
class _Tasks:
    """The finite scores of tasks, in the order of the tasks, and where each task begins."""

    scores: Floats
    starts: Integers
    sizes: Integers

    @classmethod
    def of(cls, scores: Floats, tasks: Sequence[Any], most: int = 0) -> _Tasks:
        """Sort runs by task; with `most`, keep as many of a task, chosen by a fixed seed."""
        _, places = np.unique(np.asarray(tasks, dtype=object).astype(str), return_inverse=True)
        mixed = np.random.default_rng(_SEED).permutation(scores.size)
        mixed = mixed[np.isfinite(scores[mixed])]
        order = mixed[np.argsort(places[mixed], kind="stable")]
        _, starts, sizes = np.unique(places[order], return_index=True, return_counts=True)
        if most:
            kept = np.arange(order.size) - np.repeat(starts, sizes) < most
            order, sizes = order[kept], np.minimum(sizes, most)
            starts = np.cumsum(sizes) - sizes
        return cls(scores[order], starts, sizes)

    def __len__(self) -> int:
        return self.starts.size

    def means(self, values: NDArray[Any]) -> Floats:
        """Return the mean over the runs of each task."""
        return np.add.reduceat(values.astype(np.float64), self.starts) / self.sizes
