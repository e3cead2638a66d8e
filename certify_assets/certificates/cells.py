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
#: cells a task up to which pairs are counted in a table of all that there could be
_DENSE = 4


@dataclass(frozen=True, eq=False)
class Cells:
    """Pairs of counts, ascending, and how many tasks have each."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    tasks: NDArray[np.int64]

    @classmethod
    def of(cls, first: NDArray[np.integer[Any]], second: NDArray[np.integer[Any]]) -> Cells:
        """Count the pairs of two columns with a value a task."""
        width = int(second.max(initial=0)) + 1
        if int(first.max(initial=0)) * width > _DENSE * first.size:
            return cls._of(first.astype(np.int64) * _HALF + second, np.ones(first.size, np.int64))
        often = np.bincount(first.astype(np.int64) * width + second)
        found = np.flatnonzero(often)
        return cls(found // width, found % width, often[found])

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

    @cached_property
    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return both columns with a value a task, ascending."""
        return np.repeat(self.first, self.tasks), np.repeat(self.second, self.tasks)


@dataclass(frozen=True, eq=False)
class SizeCounts:
    """Covered runs, and covered tasks, among the tasks of every size, at every threshold."""

    classes: NDArray[np.int64]  # sizes, ascending
    runs: NDArray[np.int64]  # shape (thresholds, sizes)
    tasks: NDArray[np.int64]

    def __add__(self, other: SizeCounts) -> SizeCounts:
        """Return the counts of the tasks of both."""
        one, two = (item.among(np.union1d(self.classes, other.classes)) for item in (self, other))
        return SizeCounts(one.classes, one.runs + two.runs, one.tasks + two.tasks)

    def among(self, classes: NDArray[np.int64]) -> SizeCounts:
        """Return the same counts among more sizes."""
        places = np.searchsorted(classes, self.classes)
        runs, tasks = np.zeros((2, self.runs.shape[0], classes.size), np.int64)
        runs[:, places], tasks[:, places] = self.runs, self.tasks
        return SizeCounts(classes, runs, tasks)


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
            *outcomes.columns,
        )
        object.__setattr__(found, "histograms", histograms)
        object.__setattr__(found, "outcomes", outcomes)
        return found

    def part(self, part: slice | NDArray[np.int64]) -> CellCounts:
        """Return the counts of some thresholds."""
        places = np.arange(len(self.histograms))[part].tolist()
        histograms = [self.histograms[place] for place in places]
        return CellCounts.of(self.side, self.thresholds[part], histograms, self.outcomes)

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

    def covered_sizes(self, place: int) -> NDArray[np.int64]:
        """Return how many tasks have none, one, two, … covered trajectories at one threshold."""
        cells = self.histograms[place]
        return np.bincount(cells.first, weights=cells.tasks).astype(np.int64)

    @cached_property
    def covered_squares(self) -> NDArray[np.int64]:
        """Σ n_g² at each threshold."""
        return self._each(lambda cells: np.square(cells.first) @ cells.tasks)


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
    sizes : mapping from (side, number of thresholds) to SizeCounts
    shared : tuple of str
        Tasks that a pool has as well, sorted.
    area : callable
        Computes the AUROC of the scored rows.
    """

    rows: int
    scored: int
    sha256: str
    at_ends: int
    repeats: int
    counts: Mapping[tuple[str, int], CellCounts]
    sizes: Mapping[tuple[str, int], SizeCounts]
    shared: tuple[str, ...]
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
