"""The tests that certify a threshold: each turns task counts into one tail probability a threshold, compared with δ/(|Θ|·candidates).

Every procedure says its estimand, its assumptions and how far it is valid; a certificate carries these words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.baselines import (
    deff_tails,
    hoeffding_tails,
    korn_graubard_tails,
    naive_tails,
)
from certify_assets.certificates.betting import payoffs, wealth_tails
from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.gaffke import gaffke_tails
from certify_assets.certificates.lattice import bootstrap_tails, error_lattice
from certify_assets.certificates.montecarlo import montecarlo_tails
from certify_assets.certificates.shown import shown
from certify_assets.errors import InputError

__all__ = [
    "EVERY_PROCEDURE",
    "PROCEDURES",
    "RANK_INVARIANCE",
    "Procedure",
    "Test",
    "find_procedure",
]

RANK_INVARIANCE = (
    "Rank invariance: grid, counts, tail and decision depend on the scores only through comparisons, so every strictly increasing "
    "map of the scores (temperature, Platt scaling) leaves the certificate as it is; isotonic regression ties scores and does not."
)
_TASKS_IID = "Tasks are drawn independently from the population that the certificate is used on, attempts of one task together."
_FRESH = "The judge was trained and chosen without these outcomes; candidates compared on them are counted in `candidates`."


@dataclass(frozen=True)
class Test:
    """What a procedure is asked: budget α as a fraction, level, and how to compute the bootstrap tail.

    ``cap`` is the declared number of trajectories of the largest task, None where every task weighs the same; ``bets`` are those of a pilot.
    """

    __test__ = False

    budget: Fraction
    level: float
    engine: str = "auto"
    draws: int = 2000
    seed: int = 42
    cap: int | None = None
    bets: NDArray[np.float64] | None = field(default=None, compare=False)

    def at(self, place: int) -> Test:
        """Return what is asked at one threshold."""
        return self if self.bets is None else replace(self, bets=self.bets[place : place + 1])

    @property
    def alpha(self) -> float:
        """α as a float."""
        return float(self.budget)


@dataclass(frozen=True)
class Procedure:
    """A certification procedure.

    Attributes
    ----------
    name : str
    tails : callable
        (TaskCounts, Test, tasks) → tail a threshold if there were so many tasks like those observed; certified where tail ≤ level.
    validity : str
        "asymptotic", "finite-sample", "conjectured" (at any number of tasks, by a conjecture) or "none under clustering".
    estimand : str
        "trajectory" (error over trajectories) or "task" (every task weighs the same).
    assumptions : tuple of str
    guarded : bool
        Whether a guard is applied on top.
    one_draw : bool
        Whether the test sees one seeded trajectory a task instead of all.
    weighted : bool
        Whether the other estimand can be asked for: over trajectories, which takes a declared ``max_task_size``.
    pilot : bool
        Whether thresholds, start and bets come from a pilot table.
    joint : bool
        Whether there is a joint bootstrap of the thresholds, which max-T takes.
    """

    name: str
    tails: Callable[[TaskCounts, Test, int], NDArray[np.float64]]
    validity: str
    estimand: str
    assumptions: tuple[str, ...]
    guarded: bool = False
    one_draw: bool = False
    weighted: bool = False
    pilot: bool = False
    joint: bool = False

    @property
    def estimands(self) -> tuple[str, ...]:
        """What it can certify, its own first."""
        return ("task", "trajectory") if self.weighted else (self.estimand,)


def _taskboot(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    if test.engine == "montecarlo" and tasks == counts.tasks:
        return montecarlo_tails(counts, test.budget, test.draws, test.seed)
    engine = "auto" if test.engine == "montecarlo" else test.engine
    return bootstrap_tails(
        error_lattice(counts.covered, counts.errors, test.budget), test.level, engine, tasks
    )


def _naive(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    return naive_tails(counts, test.alpha, tasks)


def _deff(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    return deff_tails(counts, test.alpha, tasks)


def _task_hoeffding(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    return hoeffding_tails(counts, test.alpha, tasks)


def _korn_graubard(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    return korn_graubard_tails(counts, test.alpha, tasks, test.level)


def _betting(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    if test.bets is None:
        return np.ones(counts.thresholds.size)
    return wealth_tails(payoffs(counts, test.alpha, test.cap), test.bets, tasks / counts.tasks)


def _gaffke(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    return gaffke_tails(payoffs(counts, test.alpha, test.cap), tasks / counts.tasks)


_COMMON = (_FRESH, RANK_INVARIANCE)
_BOOTSTRAP = (
    _TASKS_IID,
    "The task-bootstrap law of the error approximates its sampling law: true as the number of tasks grows, no finite-sample theorem.",
    *_COMMON,
)
_RARE = "Errors do not come as rare tasks that are wrong throughout: without a guard they can be missed."
_INDEPENDENT = "Trajectories are independent (Clopper–Pearson), which attempts at one task are not."
_SAME_DEFF = "The design effect of all outcomes stands for that of the errors at every threshold."
_ONE = "The test sees one trajectory a task, drawn by the seed; the coverage is over all trajectories, the error that of a task's random attempt."
_TASK_MEAN = "The error is the mean over tasks of each task's error rate, not over trajectories."
_LINEAR = "The linearised variance between covered tasks stands for the sampling variance; where no error is seen it says nothing."

_PILOT = "The pilot tasks are others than these, and the pilot table was fixed before these outcomes were seen."
_CONJECTURE = "Gaffke's conjecture: the test keeps its level for every distribution of the tasks. It is proved for tasks of one trajectory only."

PROCEDURES: dict[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        Procedure(
            "guarded_taskboot",
            _taskboot,
            "asymptotic",
            "trajectory",
            _BOOTSTRAP,
            guarded=True,
            joint=True,
        ),
        Procedure(
            "taskboot", _taskboot, "asymptotic", "trajectory", (*_BOOTSTRAP, _RARE), joint=True
        ),
        Procedure("naive", _naive, "none under clustering", "trajectory", (_INDEPENDENT, *_COMMON)),
        Procedure("deff", _deff, "asymptotic", "trajectory", (_TASKS_IID, _SAME_DEFF, *_COMMON)),
        Procedure(
            "one_per_task",
            _naive,
            "finite-sample",
            "task",
            (_TASKS_IID, _ONE, *_COMMON),
            one_draw=True,
        ),
        Procedure(
            "task_hoeffding",
            _task_hoeffding,
            "finite-sample",
            "task",
            (_TASKS_IID, _TASK_MEAN, *_COMMON),
        ),
        Procedure(
            "betting",
            _betting,
            "finite-sample",
            "task",
            (_TASKS_IID, _PILOT, *_COMMON),
            weighted=True,
            pilot=True,
        ),
        Procedure(
            "gaffke",
            _gaffke,
            "conjectured",
            "task",
            (_TASKS_IID, _CONJECTURE, *_COMMON),
            weighted=True,
        ),
        Procedure(
            "korn_graubard",
            _korn_graubard,
            "asymptotic",
            "trajectory",
            (_TASKS_IID, _LINEAR, _RARE, *_COMMON),
        ),
    )
}


#: in the order in which they are listed side by side
EVERY_PROCEDURE = tuple(PROCEDURES)


def find_procedure(name: str) -> Procedure:
    """Return a procedure by name.

    Raises
    ------
    InputError
        If there is none; the message lists those available.
    """
    if not isinstance(name, str) or name not in PROCEDURES:
        raise InputError(
            f"procedure {shown(name)} is not available; give one of {', '.join(PROCEDURES)}."
        )
    return PROCEDURES[name]
