"""Evidence: a calibration table, a pool of unlabelled tasks, and all else that certificates depend
on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from certify_assets.arrays import Floats, Names
from certify_assets.certificates.certificate import LedgerHead
from certify_assets.certificates.inputs import (
    Inputs,
    Observations,
    OrderedRows,
    PoolInputs,
    SampleInputs,
    checked_scores,
    content_hash,
    observe,
    repeated_rows,
    task_codes,
)
from certify_assets.certificates.procedures import Procedure
from certify_assets.errors import InputError

#: who chose the tasks of a pool, as a certificate says it: who gave it, or the rule of the
#: platform, which takes every task that is not in the calibration table
GIVEN = "given"
EVERY_TASK = "every_task"


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
GivenPool: TypeAlias = Pool | tuple[ArrayLike, Names]
#: scores, outcomes and tasks
GivenTable: TypeAlias = tuple[ArrayLike, ArrayLike, Names]


def as_pool(given: GivenPool | None) -> Pool | None:
    """Return a pool given in either form; None without one."""
    if given is None or isinstance(given, Pool):
        return given
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(
            f"pool is a {type(given).__name__}; give pool=(scores, tasks) of unlabelled runs."
        )
    return observe_pool(*given)


def observe_pool(scores: ArrayLike, tasks: Names, *, origin: str = GIVEN) -> Pool:
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


class DeltaClaim(Protocol):
    """A share of δ that was claimed before anything was computed."""

    @property
    def delta(self) -> float:
        """δ of each side and budget."""

    @property
    def ledger(self) -> LedgerHead:
        """The event that claimed it."""


def _scored_twice(scores: ArrayLike, again: ArrayLike) -> tuple[Floats, Floats]:
    first, second = checked_scores(scores), checked_scores(again)
    if first.size != second.size:
        raise InputError(
            f"again has {second.size} scores for {first.size} runs; give one for every run, NaN "
            "where there is none."
        )
    return first, second


@dataclass(frozen=True, eq=False)
class Evidence:
    """A calibration table, and all else that its certificates depend on besides their settings.

    Attributes
    ----------
    table : Observations
    pilot : Observations, optional
        Other tasks, from which betting takes thresholds, start and bets.
    pool : Pool, optional
        Unlabelled runs of other tasks, from which pseudo_task takes how unequal tasks are in size.
    repeats : int
        Rows that repeat an earlier one, which a finding counts.
    alone : bool
        Whether the task of every row is the id of its run; a finding reports it.
    again : pair of float arrays, optional
        First and second scores of the same judge on the same runs, whose flips a finding counts.
    selection : str, optional
        The rule by which this judge was chosen among candidates, for the reader.
    provenance : mapping of str to str, optional
        Names and hashes of what produced the scores; carried as they are.
    sample : SampleInputs, optional
        The draw that chose the runs of the table; runs without a label are then allowed.
    left_out : int
        Runs left out of the table because they have no label; one_run and average then prove
        nothing.
    after : str, optional
        The procedure of a stronger promise that certified nothing on these labels, on any side.
    claim : DeltaClaim, optional
        The δ that the ledger of a data root granted, and the event that claimed it. Without a
        claim, δ is that of the settings.
    """

    table: Observations
    pilot: Observations | None = None
    pool: Pool | None = None
    repeats: int = 0
    alone: bool = False
    again: tuple[Floats, Floats] | None = None
    selection: str | None = None
    provenance: Mapping[str, str] | None = None
    sample: SampleInputs | None = None
    left_out: int = 0
    after: str | None = None
    claim: DeltaClaim | None = None

    @classmethod
    def of(
        cls,
        scores: ArrayLike,
        outcomes: ArrayLike,
        tasks: Names,
        *,
        pilot: GivenTable | None = None,
        pool: GivenPool | None = None,
        agents: Names | None = None,
        named: bool = False,
        again: ArrayLike | None = None,
        **about: Any,
    ) -> Self:
        """Read arrays; for the parameters see :func:`certify`."""
        table = observe(scores, outcomes, tasks, partly=about.get("sample") is not None)
        return cls(
            table,
            pilot=None if pilot is None else observe(*pilot),
            pool=as_pool(pool),
            repeats=0 if named else repeated_rows(table, scores, outcomes, tasks, agents),
            again=None if again is None else _scored_twice(scores, again),
            **about,
        )

    def read_by(self, method: Procedure) -> Self:
        """Return the evidence that one of several procedures reads; most read no pool."""
        return self if method.calibrated else replace(self, pool=None)

    @cached_property
    def names(self) -> dict[str, str]:
        """The provenance, checked to be text."""
        named = dict(self.provenance or {})
        if not all(isinstance(key, str) and isinstance(of, str) for key, of in named.items()):
            raise InputError("provenance maps names to text; give every value as text.")
        return named

    @property
    def inputs(self) -> Inputs:
        """The ``inputs`` entry of a certificate."""
        found = self.table.fingerprint
        if self.pool is not None:
            found = {**found, "pool": self.pool.fingerprint}
        if self.sample is None:
            return found
        return {**found, "sample": self.sample, "labels": self.table.labels_read}
