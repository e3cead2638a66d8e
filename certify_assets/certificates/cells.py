"""Task counts as histograms: what a certificate needs of a table too large to be held at once.

Most tests ask of a threshold only how many tasks have n covered trajectories with k errors, in
whatever order. Tasks can then be counted a piece of the table at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.inputs import BY_TASKS, Inputs

_HALF = np.int64(1) << np.int64(32)


@dataclass(frozen=True, eq=False)
class Cells:
    """Pairs of counts, ascending, and how many tasks have each."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    tasks: NDArray[np.int64]

    @classmethod
    def of(cls, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Cells:
        """Count the pairs of two columns with a value a task."""
        return cls._of(first.astype(np.int64) * _HALF + second, np.ones(first.size, np.int64))

    @classmethod
    def _of(cls, pairs: NDArray[np.int64], tasks: NDArray[np.int64]) -> Cells:
        found, places = np.unique(pairs, return_inverse=True)
        often = np.zeros(found.size, np.int64)
        np.add.at(often, places, tasks)
        return cls(found // _HALF, found % _HALF, often)

    def __add__(self, other: Cells) -> Cells:
        """Return the pairs of the tasks of both."""
        pairs = [item.first * _HALF + item.second for item in (self, other)]
        return self._of(np.concatenate(pairs), np.concatenate([self.tasks, other.tasks]))


class _Expanded:
    """A matrix (thresholds, tasks) of which only single rows are ever made, tasks in any order."""

    def __init__(self, cells: Sequence[Cells], column: str) -> None:
        self._cells, self._column = cells, column

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, place: int) -> NDArray[np.int32]:
        cells = self._cells[place]
        values: NDArray[np.int64] = getattr(cells, self._column)
        return np.repeat(values.astype(np.int32), cells.tasks)

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        return (self[place] for place in range(len(self)))


class CellCounts(TaskCounts):
    """Task counts that hold a histogram a threshold; `covered` and `errors` can only be gone
    through a threshold at a time.
    """

    histograms: Sequence[Cells]
    outcomes: Cells

    @classmethod
    def of(
        cls,
        side: str,
        thresholds: NDArray[np.float64],
        histograms: Sequence[Cells],
        outcomes: Cells,
    ) -> CellCounts:
        """Build from cells of (covered, errors) a threshold, and of (size, successes)."""
        found = cls(
            side,
            thresholds,
            cast("Any", _Expanded(histograms, "first")),
            cast("Any", _Expanded(histograms, "second")),
            np.repeat(outcomes.first, outcomes.tasks),
            np.repeat(outcomes.second, outcomes.tasks),
        )
        object.__setattr__(found, "histograms", histograms)
        object.__setattr__(found, "outcomes", outcomes)
        return found

    def at(self, place: int) -> CellCounts:
        """Return the counts of one threshold."""
        return CellCounts.of(
            self.side, self.thresholds[place : place + 1], [self.histograms[place]], self.outcomes
        )

    def _each(self, figure: Callable[[Cells], Any]) -> NDArray[np.int64]:
        return np.array([figure(cells) for cells in self.histograms], dtype=np.int64)

    @cached_property
    def covered_trajectories(self) -> NDArray[np.int64]:
        """Covered trajectories at each threshold."""
        return self._each(lambda cells: cells.first @ cells.tasks)

    @cached_property
    def error_totals(self) -> NDArray[np.int64]:
        """Errors at each threshold."""
        return self._each(lambda cells: cells.second @ cells.tasks)

    @cached_property
    def covered_tasks(self) -> NDArray[np.int64]:
        """Tasks with at least one covered trajectory at each threshold."""
        return self._each(lambda cells: cells.tasks[cells.first > 0].sum())

    @cached_property
    def largest(self) -> NDArray[np.int64]:
        """Covered trajectories of the task that has most of them, at each threshold."""
        return self._each(lambda cells: cells.first.max())

    @cached_property
    def effective_tasks(self) -> NDArray[np.float64]:
        """Kish's effective number of covered tasks, (Σ n_g)² / Σ n_g², at each threshold."""
        squares = self._each(lambda cells: np.square(cells.first) @ cells.tasks)
        return np.asarray(
            np.square(self.covered_trajectories, dtype=np.float64)
            / np.maximum(squares.astype(np.float64), 1.0)
        )


@dataclass(frozen=True, eq=False)
class CountedTable:
    """What a certificate needs of a table whose rows are not at hand.

    Attributes
    ----------
    rows, scored : int
        Number of rows, and of those with a score.
    sha256 : str
        As :func:`~certify_assets.certificates.inputs.tasks_sha256` defines it.
    at_ends : int
        How many scores share the lowest value, or the highest one: the larger number.
    repeats : int
        Scored rows that repeat an earlier one, where nothing says that they are other runs.
    counts : mapping from (side, number of thresholds) to CellCounts
    area : callable
        Computes the AUROC of the scored rows.
    """

    rows: int
    scored: int
    sha256: str
    at_ends: int
    repeats: int
    counts: Mapping[tuple[str, int], CellCounts]
    area: Callable[[], float | None]

    @property
    def unscored(self) -> int:
        """Number of rows without a score."""
        return self.rows - self.scored

    @cached_property
    def auroc(self) -> float | None:
        """AUROC of the scored rows, ties counted half; None with one class only."""
        return self.area()

    @property
    def fingerprint(self) -> Inputs:
        """The ``inputs`` entry of a certificate."""
        return {"sha256": self.sha256, "rows": self.rows, "digest": BY_TASKS}
