"""The tests that certify a threshold: from task counts to one tail probability for each threshold.

A tail is compared with δ/(|Θ|·candidates). Every test also answers for another number of tasks like
those observed, which serves planning. A procedure states its estimand, its assumptions and its
validity; a certificate carries these words.

References
----------
Clopper and Pearson (1934), The use of confidence or fiducial limits illustrated in the case of the
binomial.
Kish (1965), Survey Sampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats
from certify_assets.certificates.asked import Test
from certify_assets.certificates.betting import payoffs, wealth_tails
from certify_assets.certificates.bootstrap import bootstrap_tails, error_lattice
from certify_assets.certificates.clustering import summarise_clusters
from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.one_run import ASSUMPTIONS, average_tails, one_run_tails
from certify_assets.certificates.path_limits import binomial_tails
from certify_assets.certificates.pseudo_task import GRID, joined_tails, pseudo_task_tails
from certify_assets.certificates.taskboot import taskboot_tails
from certify_assets.errors import InputError, quoted


def clopper_pearson_upper(errors: float, covered: float, level: float) -> float:
    """One-sided Clopper–Pearson upper bound at confidence 1 − level, also for real counts."""
    from scipy.special import betaincinv

    if covered <= 0 or errors >= covered:
        return 1.0
    return float(betaincinv(errors + 1.0, covered - errors, 1.0 - level))


def _naive(counts: TaskCounts, test: Test, tasks: float) -> Floats:
    """Clopper–Pearson as if trajectories were independent."""
    factor = tasks / counts.tasks
    return binomial_tails(
        factor * counts.error_totals, factor * counts.covered_trajectories, test.alpha
    )


def _deff(counts: TaskCounts, test: Test, tasks: float) -> Floats:
    """Clopper–Pearson at k/DEFF of n/DEFF, with the design effect of all outcomes."""
    return _naive(counts, test, tasks / summarise_clusters(counts.sizes, counts.successes).deff)


def _task_hoeffding(counts: TaskCounts, test: Test, tasks: int) -> Floats:
    """Hoeffding's exp(−2 G slack²) over covered tasks, slack = α − their mean error rate."""
    tails = np.ones(counts.thresholds.size)
    for place, (covered, errors) in enumerate(zip(counts.covered, counts.errors, strict=True)):
        inside = covered > 0
        # sorted, so that relabelled tasks give the same bits
        rates = np.sort(errors[inside] / covered[inside])
        slack = test.alpha - (math.fsum(rates) / rates.size if rates.size else 1.0)
        if slack > 0:
            tails[place] = math.exp(-2.0 * rates.size * tasks / counts.tasks * slack * slack)
    return tails


_TASKS_IID = (
    "Tasks are drawn independently from those that the certificate is used on, with all their "
    "attempts."
)
_FRESH = "The judge was made without these outcomes; candidates compared on them are counted."


_Numbers = NDArray[np.number[Any]]
#: errors and covered rows of thresholds, all rows, what is asked → tails
RowTails = Callable[[_Numbers, _Numbers, int, Test], Floats]
#: what a certificate promises, the weakest first
Promise = Literal["average", "confident", "proved"]
AVERAGE: Final = "average"
CONFIDENT: Final = "confident"
PROVED: Final = "proved"
PROMISES: Final = (AVERAGE, CONFIDENT, PROVED)


@dataclass(frozen=True)
class Procedure:
    """A certification procedure."""

    # tails takes (TaskCounts, Test, tasks) and returns the tail of each threshold if there were so
    # many tasks like those observed; certified where tail ≤ level

    name: str
    tails: Callable[[TaskCounts, Test, int], Floats]
    # asymptotic, finite-sample, calibrated by simulation or none under clustering
    validity: str
    estimand: str  # trajectory, or task, where every task weighs the same
    assumptions: tuple[str, ...]
    guarded: bool = False  # a guard is applied on top
    one_draw: bool = False  # the test sees one seeded trajectory a task
    pilot: bool = False  # thresholds, start and bets come from a pilot table
    resamples: bool = False  # the task bootstrap, which can also be drawn
    # grid, level and pseudo-task are calibrated as a whole: no other guard or correction applies,
    # and scores of a pool of unlabelled tasks are taken
    calibrated: bool = False
    # of what is proved for one random run a task: the tails of errors, covered rows, all rows
    row_tails: RowTails | None = None
    promise: Promise = CONFIDENT

    @property
    def by_rows(self) -> bool:
        """Whether it is proved for one random run a task, where some of the runs need no label."""
        return self.row_tails is not None

    @property
    def grid(self) -> int:
        """Number of thresholds by default."""
        return GRID if self.calibrated else 40


def _taskboot(counts: TaskCounts, test: Test, tasks: int) -> Floats:
    if test.engine == "montecarlo" and tasks == counts.tasks:
        return taskboot_tails(counts, test.budget, test.draws, test.seed)
    lattice = error_lattice(counts, *test.budget.as_integer_ratio())
    return bootstrap_tails(lattice, test.level, tasks)


def _betting(counts: TaskCounts, test: Test, tasks: int) -> Floats:
    if test.bets is None:
        return np.ones(counts.thresholds.size)
    return wealth_tails(payoffs(counts, test.alpha), test.bets, tasks / counts.tasks)


def _pseudo_task(counts: TaskCounts, test: Test, tasks: int) -> Floats:
    if test.pseudo is None:
        return np.ones(counts.thresholds.size)
    found = pseudo_task_tails(
        counts,
        *test.budget.as_integer_ratio(),
        test.pseudo,
        level=test.level,
        factor=tasks / counts.tasks,
    )
    return joined_tails(*found)


def _by_rows(name: str, validity: str, promise: Promise, row_tails: RowTails) -> Procedure:
    """Return a procedure that is proved for one random run a task."""

    def tails(counts: TaskCounts, test: Test, tasks: int) -> Floats:
        # one random run of each of so many tasks, on average
        factor = tasks / counts.trajectories
        errors, covered = factor * counts.error_totals, factor * counts.covered_trajectories
        return row_tails(errors, covered, tasks, test)

    return Procedure(
        name, tails, validity, _TASKS, ASSUMPTIONS, row_tails=row_tails, promise=promise
    )


_BOOTSTRAP = (
    _TASKS_IID,
    "The task bootstrap approximates the sampling law of the error: no finite-sample theorem.",
    _FRESH,
)
_RARE = "No rare tasks are wrong throughout: without a guard they can be missed."
_INDEPENDENT = "Runs are independent (Clopper–Pearson), which attempts at one task are not."
_SAME_DEFF = "The design effect of all outcomes is that of the errors at every threshold."
_ONE = (
    "The test sees one run a task, drawn by the seed; the coverage is over all runs, the error "
    "that of a task's random attempt."
)
_TASK_MEAN = "The error is the mean over tasks of each task's error rate, not over runs."
_PILOT = "The pilot tasks are others, and the pilot was fixed before these outcomes were seen."
_WEIGHED = "The error is that of a random attempt at a random task, among those decided."
SIMULATED = (
    "Calibrated by simulation, not proved: docs/certificates.md says in which designs the rate "
    "of wrong certificates is near delta, and in which it is not."
)

_ROWS, _TASKS = "trajectory", "task"
_ASYMPTOTIC, _FINITE = "asymptotic", "finite-sample"
_BOOT, _NAIVE = (*_BOOTSTRAP, _RARE), (_INDEPENDENT, _FRESH)
_DEFF, _ONCE = (_TASKS_IID, _SAME_DEFF, _FRESH), (_TASKS_IID, _ONE, _FRESH)
_MEAN, _BET = (_TASKS_IID, _TASK_MEAN, _FRESH), (_TASKS_IID, _PILOT, _FRESH, _WEIGHED)

PROCEDURES: dict[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        Procedure(
            "pseudo_task",
            _pseudo_task,
            "calibrated by simulation",
            _ROWS,
            (_TASKS_IID, SIMULATED, _FRESH),
            calibrated=True,
        ),
        Procedure(
            "guarded_taskboot",
            _taskboot,
            _ASYMPTOTIC,
            _ROWS,
            _BOOTSTRAP,
            guarded=True,
            resamples=True,
        ),
        Procedure("taskboot", _taskboot, _ASYMPTOTIC, _ROWS, _BOOT, resamples=True),
        Procedure("naive", _naive, "none under clustering", _ROWS, _NAIVE),
        Procedure("deff", _deff, _ASYMPTOTIC, _ROWS, _DEFF),
        Procedure("one_per_task", _naive, _FINITE, _TASKS, _ONCE, one_draw=True),
        Procedure("task_hoeffding", _task_hoeffding, _FINITE, _TASKS, _MEAN),
        Procedure("betting", _betting, _FINITE, _TASKS, _BET, pilot=True),
        _by_rows("one_run", "finite-sample, proved", PROVED, one_run_tails),
        _by_rows("average", "finite-sample, proved, on average", AVERAGE, average_tails),
    )
}

#: in the order in which they are listed side by side, the default first
EVERY_PROCEDURE = tuple(PROCEDURES)
DEFAULT = EVERY_PROCEDURE[0]
#: the procedure of each promise
PROMISED: Final = {CONFIDENT: DEFAULT, PROVED: "one_run", AVERAGE: "average"}


def find_procedure(name: str) -> Procedure:
    """Return a procedure by name."""
    if name not in PROCEDURES:
        raise InputError(
            f"procedure {quoted(name)} is not available; give one of {', '.join(PROCEDURES)}."
        )
    return PROCEDURES[name]


_CONFIDENCE = {
    "asymptotic": "about {} confidence",
    "finite-sample": "{} confidence",
    "calibrated by simulation": "{} confidence by simulation",
    "none under clustering": "{} confidence for independent runs only",
    "finite-sample, proved": "{} confidence",
    "finite-sample, proved, on average": "{} confidence",
}


def confidence_words(level: float, validity: str) -> str:
    """Write a confidence in the words that its validity allows."""
    return _CONFIDENCE[validity].format(f"{100 * level:.4g} %")
