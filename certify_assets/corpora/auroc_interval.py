"""AUROC with an interval over tasks: of all pairs, and of the pairs of one group alone (one task, one agent)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Area", "PairRanking", "area_of", "codes", "interval", "task_resamples"]

_DRAWS = 500
_LEVEL = 0.95
_CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class Area:
    """An AUROC and its 95 % percentile interval over resampled tasks.

    Attributes
    ----------
    value, low, high : float or None
        None where no pair of a success and a failure exists.
    pairs : int
        Pairs of a success and a failure that it is over.
    """

    value: float | None
    low: float | None
    high: float | None
    pairs: int

    def to_dict(self) -> dict[str, Any]:
        """Return the area as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class PairRanking:
    """Scores put in order once, so that the AUROC over the pairs of equal group costs no sorting under many weightings of the rows.

    Parameters
    ----------
    order : int array, shape (n,)
        Rows by group, then by score.
    starts : int array
        Where in that order a new group or a new score begins.
    heads : int array
        For every start, the start at which its group begins.
    outcomes : float array, shape (n,)
        In that order; 1 = success.
    """

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    heads: NDArray[np.int64]
    outcomes: NDArray[np.float64]

    @classmethod
    def of(
        cls, scores: ArrayLike, outcomes: ArrayLike, groups: NDArray[np.int64] | None = None
    ) -> PairRanking:
        """Order finite scores; without groups all rows are one."""
        values, right = np.asarray(scores, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
        owner = np.zeros(values.size, dtype=np.int64) if groups is None else groups
        order = np.lexsort((values, owner))
        values, owner = values[order], owner[order]
        new_group = np.concatenate([[True], owner[1:] != owner[:-1]])[: values.size]
        new = new_group | np.concatenate([[True], values[1:] != values[:-1]])[: values.size]
        starts = np.flatnonzero(new)
        heads = np.maximum.accumulate(np.where(new_group[starts], np.arange(starts.size), 0))
        return cls(order, starts, heads, right[order])

    def won_and_all(
        self, weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return, for each row of weights, the pairs won (a tie is half a pair) and all pairs.

        Parameters
        ----------
        weights : float array, shape (draws, n)
            How often each row counts.
        """
        if not self.starts.size:
            return np.zeros(len(weights)), np.zeros(len(weights))
        taken = weights[:, self.order]
        successes = np.add.reduceat(taken * self.outcomes, self.starts, axis=1)
        failures = np.add.reduceat(taken * (1.0 - self.outcomes), self.starts, axis=1)
        before = np.cumsum(failures, axis=1) - failures
        before -= before[:, self.heads]
        won = (successes * (before + failures / 2)).sum(axis=1)
        # the last start of a group holds the failures of all of it
        last = np.concatenate([np.flatnonzero(np.diff(self.heads)), [self.starts.size - 1]])
        in_group = np.add.reduceat(successes, np.unique(self.heads), axis=1)
        return won, (in_group * (before[:, last] + failures[:, last])).sum(axis=1)

    def areas(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the AUROC under each row of weights; NaN where it has no pair."""
        step = max(1, _CELLS // max(1, self.order.size))
        parts = [self.won_and_all(weights[at : at + step]) for at in range(0, len(weights), step)]
        won, pairs = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
        found: NDArray[np.float64] = np.divide(
            won, pairs, out=np.full(won.shape, np.nan), where=pairs > 0
        )
        return found


def codes(names: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
    """Number the names in the order of their sorting."""
    return np.unique(np.asarray([str(name) for name in names], dtype=object), return_inverse=True)[
        1
    ].astype(np.int64)


def task_resamples(
    tasks: NDArray[np.int64], *, draws: int = _DRAWS, seed: int = 42
) -> NDArray[np.float64]:
    """Return how often every row is in every resample of tasks with replacement.

    Parameters
    ----------
    tasks : int array, shape (n,)
        Task of every row, numbered from 0.

    Returns
    -------
    float array, shape (draws, n)
        The same for the same tasks and seed, so that two judges on the same rows are compared draw by draw.
    """
    number = int(tasks.max()) + 1 if tasks.size else 0
    if number < 2:
        return np.empty((0, tasks.size))
    drawn = np.random.Generator(np.random.PCG64([seed, number])).multinomial(
        number, np.full(number, 1 / number), size=draws
    )
    often: NDArray[np.float64] = drawn[:, tasks].astype(np.float64)
    return often


def interval(values: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Return the 95 % percentile interval of the values that are known; None twice where none is."""
    known = values[np.isfinite(values)]
    if not known.size:
        return None, None
    low, high = np.quantile(known, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]).tolist()
    return low, high


def area_of(ranking: PairRanking, resamples: NDArray[np.float64]) -> Area:
    """Return the AUROC of all rows with its interval over resamples."""
    won, pairs = (
        float(value[0]) for value in ranking.won_and_all(np.ones((1, ranking.order.size)))
    )
    if pairs == 0:
        return Area(None, None, None, 0)
    low, high = interval(ranking.areas(resamples)) if len(resamples) else (None, None)
    return Area(won / pairs, low, high, round(pairs))
