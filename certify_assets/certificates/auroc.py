"""The area under the ROC curve (AUROC), ties counted half: weighted, within groups, with an
interval.

References
----------
Hanley and McNeil (1982), The meaning and use of the area under a receiver operating characteristic
(ROC) curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from certify_assets.arrays import Floats, Integers, Names

_DRAWS = 500
_LEVEL = 0.95
_CELLS = 4_000_000


def auroc(scores: ArrayLike, outcomes: ArrayLike) -> float:
    """Probability that a success scores above a failure, a tie counting one half.

    Parameters
    ----------
    scores : array_like, shape (n,)
        Higher = more likely a success. Rows with NaN are left out.
    outcomes : array_like, shape (n,)
        1 = success, 0 = failure.

    Returns
    -------
    float
        In [0, 1]; NaN when one of the two classes is absent.
    """
    values, right = np.asarray(scores, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    kept = ~np.isnan(values)
    return float(Ranking.of(values[kept], right[kept]).aurocs(np.ones((1, kept.sum())))[0])


class Interval(TypedDict):
    """A figure with its 95 % interval."""

    value: float | None
    low: float | None
    high: float | None


class AurocFigures(Interval):
    """An AUROC with its 95 % percentile interval over resampled tasks; None without a pair."""

    # of a success and a failure
    pairs: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """Scores sorted once, so that the AUROC under many weightings of the rows needs no sorting."""

    order: Integers  # rows by group, then by score
    starts: Integers  # where in that order a new group or score begins
    heads: Integers  # for every start, the start at which its group begins
    outcomes: Floats  # in that order; 1 = success

    @classmethod
    def of(cls, scores: ArrayLike, outcomes: ArrayLike, groups: Integers | None = None) -> Ranking:
        """Sort finite scores; with groups (tasks, agents) only pairs of equal group count."""
        values, right = np.asarray(scores, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
        owner = np.zeros(values.size, dtype=np.int64) if groups is None else groups
        order = np.lexsort((values, owner))
        values, owner = values[order], owner[order]
        # from the second row on; the first begins a group
        new_group, new_score = (np.diff(each, prepend=np.nan) != 0 for each in (owner, values))
        starts = np.flatnonzero(new_group | new_score)
        heads = np.maximum.accumulate(np.where(new_group[starts], np.arange(starts.size), 0))
        return cls(order, starts, heads, right[order])

    def pair_counts(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return pairs won (a tie is half a pair) and all pairs, for each row of weights."""
        # with whole weights every count is exact, in whatever order it is summed
        if not self.starts.size:
            return np.zeros(len(weights)), np.zeros(len(weights))
        taken, groups = weights[:, self.order], np.unique(self.heads)
        successes = np.add.reduceat(taken * self.outcomes, self.starts, axis=1)
        failures = np.add.reduceat(taken * (1.0 - self.outcomes), self.starts, axis=1)
        below = np.cumsum(failures, axis=1) - failures
        won = (successes * (below - below[:, self.heads] + failures / 2)).sum(axis=1)
        in_group = (np.add.reduceat(kind, groups, axis=1) for kind in (successes, failures))
        return won, np.multiply(*in_group).sum(axis=1)

    def aurocs(self, weights: Floats) -> Floats:
        """Return the AUROC under each row of weights; NaN where it has no pair."""
        # a few resamples at a time, so that the intermediate matrices stay small
        step = max(1, _CELLS // max(1, self.order.size))
        parts = [self.pair_counts(weights[at : at + step]) for at in range(0, len(weights), step)]
        won, pairs = np.concatenate(parts, axis=1)
        return np.divide(won, pairs, out=np.full(won.shape, np.nan), where=pairs > 0)

    def estimate(self, resamples: Floats) -> AurocFigures:
        """Return the AUROC of all rows with its interval over resamples."""
        won, pairs = (float(value[0]) for value in self.pair_counts(np.ones((1, self.order.size))))
        if pairs == 0:
            return {"value": None, "low": None, "high": None, "pairs": 0}
        low, high = percentile_interval(self.aurocs(resamples)) if len(resamples) else (None, None)
        return {"value": won / pairs, "low": low, "high": high, "pairs": round(pairs)}


def name_codes(names: Names) -> Integers:
    """Number the names in the order of their sorting."""
    return np.unique([str(name) for name in names], return_inverse=True)[1].astype(np.int64)


def task_resamples(tasks: Integers, *, draws: int = _DRAWS, seed: int = 42) -> Floats:
    """Return how often each row occurs in each resample of tasks with replacement."""
    number = int(tasks.max()) + 1 if tasks.size else 0
    if number < 2:
        return np.empty((0, tasks.size))
    drawn = np.random.Generator(np.random.PCG64([seed, number])).multinomial(
        number, np.full(number, 1 / number), size=draws
    )
    return drawn[:, tasks].astype(np.float64)


def percentile_interval(values: Floats) -> tuple[float | None, float | None]:
    """Return the 95 % percentile interval of the known values; (None, None) without any."""
    known = values[np.isfinite(values)]
    if not known.size:
        return None, None
    low, high = np.quantile(known, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]).tolist()
    return low, high
