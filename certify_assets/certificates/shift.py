"""Whether new runs look like those of CAL: their scores, and the share that a threshold decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.counts import covers

#: chance of a finding on runs of tasks like those of CAL over the life of a deployment
LIFE_LEVEL: Final = 0.02
#: tasks of new runs, and of CAL, from which on they are compared
LEAST_NEW_TASKS, LEAST_CAL_TASKS = 5, 10
# new tasks after which half of the level is spent
_HALF_SPENT: Final = 60
# parts of the level of a comparison; that of the shares is divided by the sides
_ORDER, _DISTRIBUTION, _DECIDED = 0.5, 0.25, 0.25
# tasks of CAL that are compared at most, and the work of one exact test, which gives it a bound
_MOST_CAL_TASKS, _WORK = 300, 2e8
# scaled distance of two distributions that is reached with probability .2 in large samples
_COMMON_DISTANCE: Final = 1.073
# steps into which ranks and shares are rounded, at most and at least
_STEPS, _FEWEST_STEPS = 20, 4
#: the same of a single batch, a side and batch, of runs that no certificate of the corpus decides
SHIFT_LEVEL: Final = 0.001
_LEAST_TASKS: Final = 10
_DRAWS, _CHUNK, _SEED = 4999, 500, 0
_Decided = tuple[NDArray[np.bool_], Sequence[Any]]
_Scored = tuple[NDArray[np.float64], Sequence[Any]]


@dataclass(frozen=True)
class Shift:
    """The share of runs that a threshold decides, in CAL and in new runs."""

    calibration: float
    batch: float
    p_value: float  # two-sided, of tasks drawn alike


@dataclass(frozen=True)
class TaskTest:
    """One test of new tasks against those of CAL."""

    name: str  # "order", "distribution", or the side whose share is compared
    calibration: float  # median over tasks, or the mean share that is decided
    batch: float
    p_value: float  # two-sided, of tasks drawn alike
    part: float  # of the level of a comparison; those of its tests add up to 1


def spent_level(tasks: int) -> float:
    """Return the level that is spent once so many new tasks were compared.

    A comparison has what its tasks add, so that deliveries of any sizes, however many, spend at
    most `LIFE_LEVEL` (a spending function with tasks as information; Lan and DeMets, Biometrika
    70, 1983).
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
    A task counts once, whatever runs it has, by the mean over them. A mean over fewer runs varies
    more, so a task of CAL with more runs than the median new task is cut to as many. Each test is
    a permutation test over tasks, exact where tasks are drawn alike, ties included:

    * order: the sum of the ranks of the new tasks by mean score;
    * distribution: the largest distance of the two distribution functions of mean scores
      (Kolmogorov and Smirnov), which sees what leaves their order as it was;
    * a side: the sum of the shares that its threshold decides. The threshold comes from CAL, which
      makes it cautious.

    Ranks and shares are rounded to steps, which leaves a test exact. Within two standard deviations
    a sum has the normal approximation, and a distance that is as likely as .2 that of Kolmogorov:
    no level that is asked for is near.
    """
    new = _Tasks.of(*batch)
    cal = _Tasks.of(*calibration, most=int(np.median(new.sizes)) if len(new) else 1)
    if len(new) < LEAST_NEW_TASKS or len(cal) < LEAST_CAL_TASKS:
        return []
    chosen = np.sort(np.random.default_rng(_SEED).permutation(len(cal))[:_MOST_CAL_TASKS])
    before, after = cal.means(cal.scores)[chosen], new.means(new.scores)
    middle = (float(np.median(before)), float(np.median(after)))
    ranks = _ranks(np.concatenate([before, after]))
    order = sum_p_value(ranks[: before.size], ranks[before.size :])
    found = [
        TaskTest("order", *middle, order, _ORDER),
        TaskTest("distribution", *middle, distance_p_value(before, after), _DISTRIBUTION),
    ]
    for side, threshold in thresholds.items():
        shares = [part.means(covers(side, threshold, part.scores)) for part in (cal, new)]
        shares[0] = shares[0][chosen]
        every = (float(shares[0].mean()), float(shares[1].mean()))
        found.append(TaskTest(side, *every, sum_p_value(*shares), _DECIDED / len(thresholds)))
    return found


def sum_p_value(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return how likely the sum over so many of all values, all in [0, 1], is as far out.

    Two-sided: twice the smaller tail of the sums over all choices of as many values.
    """
    few, many = sorted((before, after), key=len)
    every, size = np.concatenate([few, many]), few.size
    # variance of the sum of so many of all without replacement
    spread = math.sqrt(size * many.size / (every.size - 1) * float(every.var()))
    ratio = 0.0 if spread == 0.0 else abs(float(few.sum()) - size * float(every.mean())) / spread
    if ratio < 2.0:
        return math.erfc(ratio / math.sqrt(2))
    steps = int(np.clip(_WORK / (every.size * size * size), _FEWEST_STEPS, _STEPS))
    values = np.rint(every * steps).astype(np.int64)
    chances = _sums(values, size)
    seen = int(values[:size].sum())
    return min(1.0, 2 * min(float(chances[: seen + 1].sum()), float(chances[seen:].sum())))


def _sums(values: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Return the distribution of the sum over `size` of all values, each choice as likely."""
    # the smallest first, in whatever order they are taken: the table fills slowly
    values = np.sort(values)
    most, top = int(values[-size:].sum()), 0
    table = np.zeros((size + 1, most + 1))
    table[0, 0] = 1.0
    for place, value in enumerate(values.tolist()):
        # row k: the values so far of which k were chosen, by their sum; with too few it is empty
        left = values.size - place
        low, high = max(0, size - left), min(place, size) + 1
        chosen = np.clip((size - np.arange(low, high)) / left, 0.0, 1.0)[:, None]
        part = table[low:high, : top + 1]
        more = part * chosen
        part -= more
        above, upper = min(high, size), min(top + value, most)
        table[low + 1 : above + 1, value : upper + 1] += more[: above - low, : upper + 1 - value]
        top = upper
    return np.asarray(table[size])


def distance_p_value(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return how likely two parts of all values have distributions as far apart.

    The largest distance over all values, for all choices of as many of them, ties included.
    """
    few, many = sorted((before, after), key=len)
    every = np.concatenate([few, many])
    order = np.argsort(every, kind="stable")
    ends = np.append(np.diff(every[order]) > 0, True)
    counts, seen = np.arange(few.size + 1), np.cumsum(order < few.size)
    places = np.arange(1, every.size + 1)
    reached = float(np.abs(seen / few.size - (places - seen) / many.size)[ends].max()) - 1e-9
    scaled = reached * math.sqrt(few.size * many.size / every.size)
    if scaled < _COMMON_DISTANCE:
        return min(1.0, 2 * math.exp(-2 * max(scaled, 0.0) ** 2))
    # chance of k of the few among the values so far that were nowhere as far apart
    inside, beyond = np.zeros(few.size + 1), 0.0
    inside[0] = 1.0
    for place, end in enumerate(ends.tolist()):
        chosen = np.clip((few.size - counts) / (every.size - place), 0.0, 1.0)
        more = (inside * chosen)[:-1]
        inside *= 1.0 - chosen
        inside[1:] += more
        if end:
            far = np.abs(counts / few.size - (place + 1 - counts) / many.size) >= reached
            beyond += float(inside[far].sum())
            inside[far] = 0.0
    return min(1.0, beyond)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ranks of values between 0 and 1, the mean one of those that are alike."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(middle[places] / max(1, values.size - 1))


@dataclass(frozen=True, eq=False)
class _Tasks:
    """The finite scores of tasks, in the order of the tasks, and where each task begins."""

    scores: NDArray[np.float64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, scores: NDArray[np.float64], tasks: Sequence[Any], most: int = 0) -> _Tasks:
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

    def means(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean over the runs of each task."""
        return np.asarray(np.add.reduceat(values.astype(np.float64), self.starts) / self.sizes)


def decided_shift(calibration: _Decided, batch: _Decided) -> Shift | None:
    """Compare the share of runs that a threshold decides in CAL and in new runs.

    Parameters
    ----------
    calibration, batch : pair of (n,) arrays
        Whether each run is decided, and its task.

    Returns
    -------
    Shift or None
        None with fewer than ten tasks in either.

    Notes
    -----
    Runs of a task are alike, so tasks are what is drawn. With r_g the decided runs of task g less
    its share of all decided runs, the sum of r_g over the new tasks is compared with what other
    choices of as many of all tasks give: by the normal approximation where it is within 2.5
    standard deviations, else by 4,999 of them (a permutation test, exact where tasks are drawn
    alike; the threshold comes from CAL, which makes it cautious).
    """
    residuals, new, shares = _residuals(calibration, batch)
    number, few = new.size, int(min(new.sum(), new.size - new.sum()))
    if few < _LEAST_TASKS:
        return None
    seen = abs(float(residuals[new].sum()))
    # variance of the sum of few of all without replacement
    variance = few * (number - few) / (number * (number - 1)) * float((residuals**2).sum())
    if variance == 0.0 or seen <= 2.5 * math.sqrt(variance):
        ratio = 0.0 if variance == 0.0 else seen / math.sqrt(variance)
        return Shift(*shares, math.erfc(ratio / math.sqrt(2)))
    rng, beyond = np.random.default_rng(_SEED), 0
    for start in range(0, _DRAWS, _CHUNK):
        order = rng.random((min(_CHUNK, _DRAWS - start), number), np.float32)
        chosen = order.argpartition(few, axis=1)[:, :few]
        beyond += int((np.abs(residuals[chosen].sum(axis=1)) >= seen * (1 - 1e-9)).sum())
    return Shift(*shares, (1 + beyond) / (1 + _DRAWS))


def _residuals(
    calibration: _Decided, batch: _Decided
) -> tuple[NDArray[np.float64], NDArray[np.bool_], tuple[float, float]]:
    """Return the residual of every task, which are of the batch, and both shares."""
    parts = []
    for decided, tasks in (calibration, batch):
        _, places = np.unique(np.asarray(tasks, dtype=object).astype(str), return_inverse=True)
        parts.append((np.bincount(places, weights=decided), np.bincount(places)))
    covered, sizes = (np.concatenate(both) for both in zip(*parts, strict=True))
    new = np.repeat([False, True], [part[0].size for part in parts])
    before, after = (float(count.sum() / max(1, total.sum())) for count, total in parts)
    return covered - sizes * (covered.sum() / sizes.sum()), new, (before, after)
