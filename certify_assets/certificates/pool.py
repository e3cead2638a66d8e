"""The pool: scores and sizes of unlabelled tasks, from which `pseudo_task` takes its size ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.inputs import (
    Observations,
    PoolInputs,
    checked_scores,
    content_hash,
    task_codes,
)
from certify_assets.errors import InputError
from certify_assets.names import in_both, shared_names

#: who chose the tasks of a pool, as a certificate says it: who gave it, or the rule of the
#: platform, which takes every task that is not in the calibration table
GIVEN: Final = "given"
EVERY_TASK: Final = "every_task"


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows by score (unscored last), then task; no outcome is among them.

    Attributes
    ----------
    scores : float64 array
    tasks : int32 array
        Index of each row's task in the sorted labels.
    labels : tuple of str
    scored : int
    sha256 : str
        Hash of the content; does not depend on row order, file format or outcomes.
    origin : str
        `GIVEN` or `EVERY_TASK`.
    """

    scores: NDArray[np.float64]
    tasks: NDArray[np.int32]
    labels: tuple[str, ...]
    scored: int
    sha256: str
    origin: str = GIVEN

    @property
    def unscored(self) -> int:
        """Number of rows without a score, which count for nothing."""
        return int(self.scores.size) - self.scored

    @property
    def scored_tasks(self) -> int:
        """Number of tasks with a score."""
        return int(np.unique(self.tasks[: self.scored]).size)

    @property
    def fingerprint(self) -> PoolInputs:
        """The ``inputs.pool`` entry of a certificate."""
        return {"sha256": self.sha256, "rows": int(self.scores.size), "origin": self.origin}


#: a pool, or the scores and tasks of one that is given by hand
GivenPool: TypeAlias = Pool | tuple[ArrayLike, Sequence[Any] | NDArray[Any]]


def as_pool(given: GivenPool | None) -> Pool | None:
    """Return a pool that is given in either form; None where none is."""
    if given is None or isinstance(given, Pool):
        return given
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(
            f"pool is a {type(given).__name__}; give pool=(scores, tasks) of unlabelled runs."
        )
    return observe_pool(*given)


def observe_pool(
    scores: ArrayLike, tasks: Sequence[Any] | NDArray[Any], *, origin: str = GIVEN
) -> Pool:
    """Validate the scores and tasks of unlabelled runs and bring them into canonical order.

    Parameters
    ----------
    scores : array_like
        Judge scores, of a judge that did not train on the task; NaN = unscored.
    tasks : sequence of hashables
        Task of each run.
    origin : {"given", "every_task"}

    Raises
    ------
    InputError
        If lengths differ, a value cannot be used, or no run has a score.
    """
    values = checked_scores(scores)
    labels, codes = task_codes(tasks)
    if values.size != codes.size:
        raise InputError(
            f"The pool has {values.size} scores and {codes.size} tasks; give one of each for every "
            "run."
        )
    scored = int(np.count_nonzero(~np.isnan(values)))
    if not scored:
        raise InputError("No row of the pool has a score; score its runs first or leave it out.")
    order = np.lexsort((codes, values))
    ordered, owner = values[order], codes[order].astype(np.int32)
    digest = content_hash("pool/1", [int(values.size), labels], [(ordered, "<f8"), (owner, "<i4")])
    return Pool(ordered, owner, labels, scored, digest, origin)


def check_pool(pool: Pool, table: Observations) -> None:
    """Refuse a pool that shares a task with the calibration table."""
    shared = shared_names(pool.labels, table.labels)
    if not shared:
        return
    size = (int(pool.scores.size), pool.scored)
    if len(shared) == len(pool.labels) and size == (table.rows, table.scored):
        raise InputError(
            "The pool holds the runs of the calibration table itself; give the runs of other "
            "tasks, or leave the pool out."
        )
    raise InputError(
        f"The pool shares {len(shared)} task(s) with the calibration table, the first being "
        f"{in_both(*shared[0])}; take them out of the pool."
    )
