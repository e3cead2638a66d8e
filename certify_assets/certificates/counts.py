"""Task counts: how many trajectories of each task a threshold covers, and how many are errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Booleans, Floats, Integers
from certify_assets.certificates import kernels
from certify_assets.certificates.inputs import Observations

SIDES = ("reject", "release")
_LEVELS = (0.02, 0.98)


@dataclass(frozen=True, eq=False)
class TaskCounts:
    """Covered trajectories and errors of every task at every threshold, from the narrowest
    threshold to the widest.

    Attributes
    ----------
    side : {"reject", "release"}
        Reject covers scores ≤ θ and errs on successes; release covers scores ≥ θ and errs on
        failures.
    thresholds : float64 array, shape (thresholds,)
        Observed scores; ascending on the reject side, descending on the release side; ties repeat.
    covered, errors : int32 arrays, shape (thresholds, tasks)
        n_g(θ) and k_g(θ).
    sizes, successes : int64 arrays, shape (tasks,)
        Scored trajectories and successes of each task.
    """

    side: str
    thresholds: Floats
    covered: NDArray[np.int32]
    errors: NDArray[np.int32]
    sizes: Integers
    successes: Integers

    def at(self, place: int) -> TaskCounts:
        """Return the counts of one threshold."""
        return self.part(slice(place, place + 1))

    def part(self, part: slice | Integers) -> TaskCounts:
        """Return the counts of some thresholds."""
        return TaskCounts(
            self.side,
            self.thresholds[part],
            self.covered[part],
            self.errors[part],
            self.sizes,
            self.successes,
        )

    @property
    def tasks(self) -> int:
        """Number of tasks with a scored trajectory."""
        return int(self.sizes.size)

    @property
    def trajectories(self) -> int:
        """Number of scored trajectories."""
        return int(self.sizes.sum())

    @cached_property
    def covered_trajectories(self) -> Integers:
        """Covered trajectories at each threshold."""
        return self.covered.sum(axis=1, dtype=np.int64)

    @cached_property
    def error_totals(self) -> Integers:
        """Errors at each threshold."""
        return self.errors.sum(axis=1, dtype=np.int64)

    @cached_property
    def coverage(self) -> Floats:
        """Share of the scored trajectories that each threshold covers (Eq. 2 where certified)."""
        return self.covered_trajectories / max(self.trajectories, 1)

    @cached_property
    def selective_error(self) -> Floats:
        """Observed error of trajectories at each threshold (Eq. 1); 0 if nothing is covered."""
        return self.error_totals / np.maximum(self.covered_trajectories, 1)

    @cached_property
    def covered_tasks(self) -> Integers:
        """Tasks with at least one covered trajectory at each threshold."""
        return np.count_nonzero(self.covered, axis=1)

    @cached_property
    def largest(self) -> Integers:
        """Covered trajectories of the task that has most, at each threshold."""
        return self.covered.max(axis=1).astype(np.int64)

    @cached_property
    def covered_squares(self) -> Integers:
        """Σ n_g² at each threshold."""
        return np.einsum("tg,tg->t", self.covered, self.covered, dtype=np.int64, casting="safe")

    @cached_property
    def effective_tasks(self) -> Floats:
        """Kish's effective number of covered tasks, (Σ n_g)² / Σ n_g², at each threshold."""
        return np.square(self.covered_trajectories, dtype=np.float64) / np.maximum(
            self.covered_squares.astype(np.float64), 1.0
        )


def count_tasks(observations: Observations, side: str = "reject", grid: int = 40) -> TaskCounts:
    """Count every task at a grid of observed score quantiles.

    Parameters
    ----------
    observations : Observations
        Rows in canonical order.
    side : {"reject", "release"}
    grid : int
        Number of thresholds; quantile levels are equally spaced from .02 to .98 and the count stays
        this when scores tie.

    Returns
    -------
    TaskCounts

    Notes
    -----
    The quantile is an observed score (numpy's method "lower" on the reject side, "higher" on the
    release side): it covers what the interpolated quantile covers, and a strictly increasing map of
    the scores leaves every count as it is.
    """
    places = grid_places(observations.scored, side, grid)
    return count_at(observations, side, observations.scores[places])


def grid_places(scored: int, side: str, grid: int) -> Integers:
    """Places of the grid among ascending scores, narrowest threshold first (Algorithm 1)."""
    if not scored:
        return np.empty(0, dtype=np.int64)
    places = np.linspace(*_LEVELS, grid) * (scored - 1)
    if side == "reject":
        return np.floor(places).astype(np.int64)
    return np.ceil(places).astype(np.int64)[::-1]


def covers(side: str, threshold: float, scores: Floats) -> Booleans:
    """Return which scores a threshold decides; an unscored run is never decided."""
    return scores <= threshold if side == "reject" else scores >= threshold


def covered_rows(scores: Floats, side: str, thresholds: Floats) -> Integers:
    """Return how many of ascending scores each threshold covers."""
    if side == "reject":
        return np.searchsorted(scores, thresholds, side="right").astype(np.int64)
    return scores.size - np.searchsorted(scores, thresholds, side="left").astype(np.int64)


def count_at(
    observations: Observations,
    side: str,
    thresholds: Floats,
    *,
    unscored: bool = False,
) -> TaskCounts:
    """Count every task at given thresholds, from the narrowest to the widest.

    With `unscored`, runs without a score count in the size of their tasks: as never decided.
    """
    scores, right, codes = observations.scored_rows
    counted = observations.tasks if unscored else codes
    sizes = np.bincount(counted, minlength=len(observations.labels))
    successes = np.bincount(codes[right == 1], minlength=len(observations.labels))
    if not sizes.all():
        present = sizes > 0
        codes = (np.cumsum(present) - 1).astype(np.int32)[codes]
        sizes, successes = sizes[present], successes[present]
    ends, wrong = covered_rows(scores, side, thresholds), right == (side == "reject")
    if side == "release":
        wrong, codes = wrong[::-1], codes[::-1]
    covered, errors = kernels.count_rows(codes, wrong, ends, sizes.size)
    return TaskCounts(
        side,
        np.ascontiguousarray(thresholds),
        covered,
        errors,
        sizes.astype(np.int64),
        successes.astype(np.int64),
    )
