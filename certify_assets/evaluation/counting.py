"""What a certificate needs of a Parquet score table of any size, in little memory.

Two passages. The first checks every row, and sets it aside by its task's hash in temporary files,
each of which holds whole tasks and fits in memory; the scores apart, whose order statistics are the
grid. The second counts each file as a table of its own: numbers and certificate are those of the
whole table in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from certify_assets.evaluation.pieces import ScorePieces, hashes
from certify_assets.evaluation.score_table import no_outcome
from certify_assets.evaluation.spill import (
    NumberFile,
    Ranges,
    Spill,
    order_statistics,
    temporary_room,
)
from certify_assets.tables.table_files import texts_of

if TYPE_CHECKING:
    from certify_assets.certificates.cells import CountedTable
    from certify_assets.certificates.inputs import Observations
    from certify_assets.certificates.pool import Pool

    Thresholds = dict[tuple[str, int], npt.NDArray[np.float64]]

#: pieces whose scores are sorted at once for the AUROC
_SORTED = 8


@contextmanager
def counted_table(
    source: ScorePieces, asked: Collection[tuple[str, int]], pool: Pool | None = None
) -> Iterator[CountedTable]:
    """Count a Parquet score table; the temporary files are there until the context ends.

    Parameters
    ----------
    source : ScorePieces
    asked : collection of (side, number of thresholds)
        The grids on which certificates will be issued.
    pool : Pool, optional
        Of which tasks are looked for.

    Yields
    ------
    CountedTable

    Raises
    ------
    InputError
        As for :func:`read_score_table`, or where the temporary files find no room.
    ChangedInputError
        If the file changed meanwhile.
    """
    with temporary_room(source.path), Spill(source.parts) as rows, NumberFile() as scores:
        aside = _set_aside(source, rows, scores)
        labels = frozenset() if pool is None else frozenset(pool.labels)
        yield _count(aside, _thresholds(scores, asked), labels, _SORTED * source.size)


@dataclass(frozen=True)
class _Aside:
    """The temporary files; the number of rows, and whether each has an id."""

    rows: Spill
    scores: NumberFile
    count: int
    named: bool


def _set_aside(source: ScorePieces, rows: Spill, scores: NumberFile) -> _Aside:
    """Fill the temporary files."""
    import pyarrow as pa

    count, missing, first, named = 0, 0, "", False
    with Spill(source.parts) as ids:
        for table in source.chosen(ids):
            outcomes = table.labelled() if table.outcomes is None else table.outcomes
            if (outcomes < 0).any():
                first = first or table.row_name(int(np.argmax(outcomes < 0)))
                missing += int(np.count_nonzero(outcomes < 0))
            batch = {
                "task": pa.array(table.tasks, type=pa.large_string()),
                "score": table.scores,
                "outcome": outcomes,
            }
            named = table.trajectories is not None
            # of rows without an id their agents say whether they are the same
            if not named and table.agents is not None:
                batch["agent"] = pa.array(table.agents, type=pa.large_string())
            rows.add(pa.record_batch(batch), hashes(table.tasks) % rows.parts)
            # one zero, as among the observations
            scores.add(table.scores[~np.isnan(table.scores)] + 0.0)
            count += len(table)
    if missing:
        raise no_outcome(source.path, first, missing)
    return _Aside(rows, scores, count, named)


def _thresholds(scores: NumberFile, asked: Collection[tuple[str, int]]) -> Thresholds:
    """Return the grid of each side."""
    from certify_assets.certificates.counts import grid_places

    places = {key: grid_places(scores.count, *key) for key in asked}
    ranks = np.unique(np.concatenate([np.empty(0, np.int64), *places.values()]))
    values = order_statistics(scores.chunks, ranks)
    return {key: values[np.searchsorted(ranks, place)] for key, place in places.items()}


def _count(aside: _Aside, thresholds: Thresholds, pool: frozenset[str], most: int) -> CountedTable:
    """Count the tasks that were set aside, one file after the other."""
    from certify_assets.certificates.cells import CellCounts, Cells, CountedTable
    from certify_assets.certificates.inputs import observe, repeated_rows, tasks_sha256

    digests, ends, repeats = bytearray(), [_End(min), _End(max)], 0
    shared: set[str] = set()
    none = np.empty(0, np.int64)
    outcomes = Cells.of(none, none)
    sums = {key: _Sums(key[0], grid) for key, grid in thresholds.items()}
    for part in range(aside.rows.parts):
        if (piece := aside.rows.table(part)) is None:
            continue
        tasks = texts_of(piece["task"].combine_chunks()).rows()
        data = (piece["score"].to_numpy(), piece["outcome"].to_numpy(), tasks)
        agents = piece["agent"].to_pylist() if "agent" in piece.schema.names else None
        seen = observe(*data)
        digests += seen.task_digests()
        repeats += 0 if aside.named else repeated_rows(seen, *data, agents)
        for end in ends:
            end.add(seen.scores[: seen.scored])
        shared.update(pool.intersection(seen.labels))
        outcomes += Cells.of(seen.task_sizes, seen.task_successes)
        for found in sums.values():
            found.add(seen)
    return CountedTable(
        rows=aside.count,
        scored=aside.scores.count,
        sha256=tasks_sha256(np.frombuffer(digests, dtype="S32")),
        at_ends=max(end.often for end in ends),
        repeats=repeats,
        counts={
            key: CellCounts.of(key[0], found.thresholds, found.cells, outcomes)
            for key, found in sums.items()
        },
        sizes={key: found.sizes for key, found in sums.items()},
        shared=tuple(sorted(shared)),
        area=partial(_area, aside.rows, aside.scores, most),
    )


class _Sums:
    """Histograms of the tasks of every file so far, and their sizes, on one grid."""

    def __init__(self, side: str, thresholds: npt.NDArray[np.float64]) -> None:
        from certify_assets.certificates.cells import Cells, SizeCounts

        none = np.empty(0, np.int64)
        self.side, self.thresholds = side, thresholds
        self.cells = [Cells.of(none, none)] * thresholds.size
        empty = np.empty((thresholds.size, 0), np.int64)
        self.sizes = SizeCounts(none, empty, empty)

    def add(self, seen: Observations) -> None:
        """Count the tasks of another file."""
        from certify_assets.certificates.cells import Cells
        from certify_assets.certificates.counts import count_at
        from certify_assets.certificates.pseudo_task import count_sizes

        counts = count_at(seen, self.side, self.thresholds)
        for place, (covered, errors) in enumerate(zip(counts.covered, counts.errors, strict=True)):
            self.cells[place] += Cells.of(covered, errors)
        self.sizes += count_sizes(seen, self.side, self.thresholds)


class _End:
    """The lowest or highest score so far, and how many rows have it."""

    def __init__(self, furthest: Callable[..., float]) -> None:
        self._furthest, self._value, self.often = furthest, math.nan, 0

    def add(self, scores: npt.NDArray[np.float64]) -> None:
        if not scores.size:
            return
        # ascending, so its own end is the first or the last
        value = self._furthest(float(scores[0]), float(scores[-1]))
        if not self.often or self._furthest(value, self._value) != self._value:
            self._value, self.often = value, 0
        self.often += int(np.count_nonzero(scores == self._value))


def _area(rows: Spill, scores: NumberFile, most: int) -> float | None:
    """Return the AUROC of the scored rows, ties counted half: sorted a range at a time."""
    import pyarrow as pa

    ranges = Ranges.of(scores, most)
    successes = failures = 0
    # pairs won, twice: a tie is half a pair
    won = 0
    with Spill(ranges.parts) as by_score:
        for batch in (batch for part in range(rows.parts) for batch in rows.batches(part)):
            values, right = (batch[name].to_numpy() for name in ("score", "outcome"))
            known = ~np.isnan(values)
            columns = {"score": values[known], "right": right[known]}
            by_score.add(pa.record_batch(columns), ranges.places(columns["score"]))
        for part in range(ranges.parts):
            # rows of one score may be many, and need no sorting
            batches = by_score.batches(part) if ranges.tied(part) else [by_score.table(part)]
            for right, wrong in map(_levels, filter(None, batches)):
                before = 2 * failures + 2 * np.cumsum(wrong) - wrong
                won += int(right @ before)
                successes, failures = successes + int(right.sum()), failures + int(wrong.sum())
    return won / 2 / (successes * failures) if successes and failures else None


def _levels(rows: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Count the successes and failures of each score, ascending."""
    found, places = np.unique(rows["score"].to_numpy(), return_inverse=True)
    right = np.bincount(places[rows["right"].to_numpy() == 1], minlength=found.size)
    return right, np.bincount(places, minlength=found.size) - right
