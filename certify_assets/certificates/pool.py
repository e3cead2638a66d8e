"""The pool: scores and sizes of unlabelled tasks, from which `pseudo_task` takes its size ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.inputs import (
    OrderedRows,
    PoolInputs,
    checked_scores,
    content_hash,
    task_codes,
)
from certify_assets.errors import InputError

#: who chose the tasks of a pool, as a certificate says it: who gave it, or the rule of the
#: platform, which takes every task that is not in the calibration table
GIVEN: Final = "given"
EVERY_TASK: Final = "every_task"


@dataclass(frozen=True, eq=False)
class Pool(OrderedRows):
    """Rows without outcomes; `origin` is `GIVEN` or `EVERY_TASK`."""

    origin: str = GIVEN

    @property
    def scored_tasks(self) -> int:
        """Number of tasks with a score."""
        return int(np.unique(self.tasks[: self.scored]).size)

    @property
    def fingerprint(self) -> PoolInputs:
        """The ``inputs.pool`` entry of a certificate."""
        return {"sha256": self.sha256, "rows": self.rows, "origin": self.origin}


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
        If lengths differ, or a value cannot be used.
    """
    values = checked_scores(scores)
    labels, codes = task_codes(tasks)
    if values.size != codes.size:
        raise InputError(
            f"The pool has {values.size} scores and {codes.size} tasks; give one of each for every "
            "run."
        )
    order = np.lexsort((codes, values))
    ordered, owner = values[order], codes[order].astype(np.int32)
    digest = content_hash("pool/1", [int(values.size), labels], [(ordered, "<f8"), (owner, "<i4")])
    return Pool(ordered, owner, labels, digest, origin)
