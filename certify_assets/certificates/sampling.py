"""Drawing runs to label: by hash of seed, task and run, before any label (Lemma 1).

Where every task counts once, one run of each task is drawn, or of a given number of tasks. Where
every run counts once, a task of m runs is kept with probability min(m, C)/C, with C fixed
beforehand: a run then has the same chance in tasks of up to C runs, and no task counts more than C
of them. Further attempts of the drawn tasks come in rounds.

A draw depends on names, seed and options alone. Neither scores nor outcomes are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.inputs import SampleInputs, content_hash
from certify_assets.errors import InputError

Estimand = Literal["tasks", "runs"]
TASKS: Final = "tasks"
RUNS: Final = "runs"
ESTIMANDS: Final = (TASKS, RUNS)
_BITS: Final = 53


def unit(seed: int, *names: str) -> float:
    """Return a number in [0, 1): 53 bits of the SHA-256 of seed and names, joined by NUL."""
    digest = hashlib.sha256("\0".join([str(seed), *names]).encode("utf-8")).digest()
    number = int.from_bytes(digest[:8], "big") >> (64 - _BITS)
    return float(number / 2**_BITS)


@dataclass(frozen=True)
class Draw:
    """The options that decide which runs are drawn from a table.

    Attributes
    ----------
    count : int
        Most runs to draw.
    attempts : int
        Most runs of one task.
    estimand : {"tasks", "runs"}
        Whether every task counts once, or every run.
    most : int
        C: the most runs that a task counts as; 1 where every task counts once.
    seed : int
    sha256 : str
        Hash of the tasks, runs and scores of the table.
    """

    count: int
    attempts: int
    estimand: Estimand
    most: int
    seed: int
    sha256: str

    def __post_init__(self) -> None:
        if self.estimand == TASKS and self.most != 1:
            raise InputError(
                f"The draw says that every task counts once, and that one counts as {self.most} "
                "runs. Give the draw as certify sample wrote it."
            )

    @classmethod
    def of(
        cls,
        tasks: Sequence[str],
        runs: Sequence[str],
        scores: NDArray[np.float64],
        *,
        count: int,
        attempts: int | None = None,
        estimand: Estimand = TASKS,
        most: int | None = None,
        seed: int = 42,
    ) -> Self:
        """Plan a draw from a table.

        Parameters
        ----------
        tasks, runs : sequence of str, scores : float64 array
            The table: names of tasks and runs, and the scores, NaN where there is none.
        count, attempts, estimand, most, seed
            See the attributes. By default attempts is the number that the count needs, or one where
            every run counts once.

        Raises
        ------
        InputError
            If `most` is missing where every run counts once and tasks differ in runs. Also if
            `most` is given where every task counts once.
        """
        sizes = np.unique(np.asarray(tasks, dtype=str), return_counts=True)[1]
        if estimand == TASKS and most is not None:
            raise InputError(
                "--most is for --estimand runs; where every task counts once it has no meaning. "
                "Leave it out, or add --estimand runs."
            )
        if estimand == RUNS and most is None:
            if sizes.min() < sizes.max():
                raise InputError(
                    f"Tasks have from {sizes.min()} to {sizes.max()} runs, so --estimand runs "
                    "needs --most C: as how many runs a task counts at most. Fix it without these "
                    "labels."
                )
            most = int(sizes.max())
        if attempts is None:
            # as many as the count needs, where every task counts once
            enough = (b for b in range(1, sizes.max()) if np.minimum(b, sizes).sum() >= count)
            attempts = 1 if estimand == RUNS else next(enough, int(sizes.max()))
        return cls(count, attempts, estimand, most or 1, seed, table_hash(tasks, runs, scores))

    @classmethod
    def from_inputs(cls, inputs: SampleInputs) -> Self:
        """Return the draw that a certificate names."""
        return cls(**inputs)

    @property
    def inputs(self) -> SampleInputs:
        """Return the draw as a certificate records it."""
        return cast(SampleInputs, asdict(self))

    def rows(self, tasks: Sequence[str], runs: Sequence[str]) -> NDArray[np.int64]:
        """Return the places of the drawn runs, in the order in which they are drawn.

        First comes one run of every drawn task, then their second runs, and so on. A draw of fewer
        runs with the same seed is the beginning of one of more.
        """
        order = self._places(tasks)
        within: dict[str, list[tuple[float, int]]] = {task: [] for task in order}
        for place, (task, run) in enumerate(zip(tasks, runs, strict=True)):
            within[task].append((unit(self.seed, task, run), place))
        ranked = [
            (rank, order[task], task, place)
            for task, found in within.items()
            if order[task] < 1
            for rank, (_, place) in enumerate(sorted(found)[: self.attempts])
        ]
        return np.array([row[-1] for row in sorted(ranked)[: self.count]], dtype=np.int64)

    def _places(self, tasks: Sequence[str]) -> dict[str, float]:
        """Return a number for each task: below 1, and uniform there, if the task is kept."""
        sizes: dict[str, int] = {}
        for task in tasks:
            sizes[task] = sizes.get(task, 0) + 1
        shares = {task: min(size, self.most) / self.most for task, size in sizes.items()}
        # kept where u ≥ 1 − share; the rest of u, in units of the share, then orders the tasks
        return {
            task: place if (place := 1 - (1 - unit(self.seed, task)) / share) >= 0 else 1.0
            for task, share in shares.items()
        }


def table_hash(tasks: Sequence[str], runs: Sequence[str], scores: NDArray[np.float64]) -> str:
    """Return the hash of the table that a draw depends on; the order of rows does not matter."""
    order = sorted(range(len(runs)), key=lambda place: (tasks[place], runs[place]))
    names: list[Any] = [[tasks[place], runs[place]] for place in order]
    # a NaN has many bit patterns and a zero has two
    values = np.where(np.isnan(scores), np.nan, scores + 0.0)[order]
    return content_hash("sample/1", names, [(values, "<f8")])


def reading_batches(
    scores: NDArray[np.float64], sides: Sequence[str], *, first: int, later: int
) -> NDArray[np.int64]:
    """Return the batch, from 1 on, in which each drawn run is read.

    Batches follow the score from the narrow end of every side, so that reading may stop early
    (Lemma 2). Runs of one score are in one batch. Runs without a score are never decided and have
    batch 0.

    Parameters
    ----------
    scores : float64 array
        Of the drawn runs, NaN where there is none.
    sides : sequence of {"reject", "release"}
    first, later : int
        Runs of a side in its first batch, and in every later one.
    """
    scored = np.flatnonzero(~np.isnan(scores))
    found = np.zeros(scores.size, dtype=np.int64)
    if not scored.size:
        return found
    best = np.full(scored.size, np.iinfo(np.int64).max)
    for side in sides:
        values = scores[scored] if side == "reject" else -scores[scored]
        before = np.searchsorted(np.sort(values), values, side="left")
        best = np.minimum(best, before)
    numbers = np.where(best < first, 0, 1 + (best - first) // max(1, later))
    # runs of one score may skip a number
    found[scored] = 1 + np.unique(numbers, return_inverse=True)[1]
    return found


def shuffled(seed: int, runs: Sequence[str], batches: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return places in the order of the batches, by hash within each; unscored runs are last."""
    last = int(batches.max(initial=0)) + 1
    keys = [
        (batch or last, unit(seed, "order", run))
        for batch, run in zip(batches.tolist(), runs, strict=True)
    ]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
