"""The tests that certify a threshold: task counts in, one tail probability a threshold out.

A tail is compared with δ/(|Θ|·candidates). Every test also answers for another number of tasks like
those observed, which serves planning. A procedure states its estimand, its assumptions and how far
it is valid; a certificate carries these words.

References
----------
Clopper and Pearson (1934), The use of confidence or fiducial limits illustrated in the case of the
binomial.
Kish (1965), Survey Sampling.
Korn and Graubard (1998), Confidence intervals for proportions with small expected number of
positive counts estimated from survey data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.betting import gaffke_tails, payoffs, wealth_tails
from certify_assets.certificates.bootstrap import bootstrap_tails, error_lattice, montecarlo_tails
from certify_assets.certificates.charge import charged_tails
from certify_assets.certificates.clustering import summarise_clusters
from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.pseudo_task import GRID, PseudoTask
from certify_assets.certificates.two_way import two_way_tails
from certify_assets.errors import InputError, quoted

#: how a tail is computed
ENGINES = ("auto", "exact", "saddlepoint", "montecarlo")


def clopper_pearson_upper(errors: float, covered: float, level: float) -> float:
    """One-sided Clopper–Pearson upper bound at confidence 1 − level, also for real counts."""
    from scipy.special import betaincinv

    if covered <= 0 or errors >= covered:
        return 1.0
    return float(betaincinv(errors + 1.0, covered - errors, 1.0 - level))


def binomial_tails(
    errors: NDArray[np.floating[Any]], covered: NDArray[np.floating[Any]], alpha: float
) -> NDArray[np.float64]:
    """P(Binomial(n, α) ≤ k) with real-valued counts."""
    # at most the level exactly when the Clopper–Pearson bound is at most α
    from scipy.special import betainc

    tails = np.ones(errors.size)
    some = errors < covered
    tails[some] = betainc(covered[some] - errors[some], errors[some] + 1.0, 1.0 - alpha)
    return tails


def _naive(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    """Clopper–Pearson as if trajectories were independent."""
    factor = tasks / counts.tasks
    return binomial_tails(
        factor * counts.error_totals, factor * counts.covered_trajectories, test.alpha
    )


def _deff(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    """Clopper–Pearson at k/DEFF of n/DEFF, with the design effect of all outcomes."""
    factor = tasks / counts.tasks / summarise_clusters(counts.sizes, counts.successes).deff
    return binomial_tails(
        factor * counts.error_totals, factor * counts.covered_trajectories, test.alpha
    )


def _task_hoeffding(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
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


def _korn_graubard(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    """Clopper–Pearson at the effective size p(1 − p)/v times the squared ratio of t quantiles."""
    # v is the linearised variance between tasks. The effective size stays at most the number of
    # covered trajectories, and is that number where no error is seen (v = 0).
    from scipy.special import stdtrit

    factor = tasks / counts.tasks
    tails = np.ones(counts.thresholds.size)
    for place, (covered, errors) in enumerate(zip(counts.covered, counts.errors, strict=True)):
        seen, total, wrong = (
            int(np.count_nonzero(covered)),
            int(covered.sum(dtype=np.int64)),
            int(errors.sum(dtype=np.int64)),
        )
        if seen * factor <= 1 or wrong == total:
            continue
        n, k = covered.astype(np.int64), errors.astype(np.int64)
        # Σ(k_g − p n_g)² · n², in integers: no cancellation, no order
        squares = int(k @ k) * total**2 - 2 * wrong * total * int(k @ n) + wrong**2 * int(n @ n)
        size = float(total)
        if squares and seen > 1:
            size = min(size, wrong * (total - wrong) * total**2 * (seen - 1) / (seen * squares))
        ratio = stdtrit(max(factor * total - 1, 1), 1 - test.level) / stdtrit(
            factor * seen - 1, 1 - test.level
        )
        size = min(factor * size * float(ratio) ** 2, factor * total)
        tails[place] = binomial_tails(
            np.array([size * wrong / total]), np.array([size]), test.alpha
        )[0]
    return tails


RANK_INVARIANCE = (
    "Rank invariance: grid, counts, tail and decision depend on the scores only through "
    "comparisons, so every strictly increasing map of the scores (temperature, Platt scaling) "
    "leaves the certificate as it is; isotonic regression ties scores and does not."
)
_TASKS_IID = (
    "Tasks are drawn independently from the population that the certificate is used on, attempts "
    "of one task together."
)
_FRESH = (
    "The judge was trained and chosen without these outcomes; candidates compared on them are "
    "counted in `candidates`."
)


@dataclass(frozen=True)
class Test:
    """What a procedure is asked: budget α, level, and how to compute the bootstrap tail."""

    __test__ = False

    budget: Fraction
    level: float
    engine: str = "auto"
    draws: int = 2000
    seed: int = 42
    # declared size of the largest task; None where every task weighs the same
    cap: int | None = None
    bets: NDArray[np.float64] | None = field(default=None, compare=False)  # of a pilot
    pseudo: PseudoTask | None = field(default=None, compare=False)  # how large it is

    def at(self, place: int) -> Test:
        """Return what is asked at one threshold."""
        return self.part(slice(place, place + 1))

    def part(self, part: slice | NDArray[np.int64]) -> Test:
        """Return what is asked at some thresholds."""
        bets = None if self.bets is None else self.bets[part]
        pseudo = None if self.pseudo is None else self.pseudo.part(part)
        return replace(self, bets=bets, pseudo=pseudo)

    @property
    def alpha(self) -> float:
        """α as a float."""
        return float(self.budget)


@dataclass(frozen=True)
class Procedure:
    """A certification procedure."""

    # tails takes (TaskCounts, Test, tasks) and returns the tail of each threshold if there were so
    # many tasks like those observed; certified where tail ≤ level

    name: str
    tails: Callable[[TaskCounts, Test, int], NDArray[np.float64]]
    # asymptotic, finite-sample, conjectured, calibrated by simulation or none under clustering
    validity: str
    estimand: str  # trajectory, or task, where every task weighs the same
    assumptions: tuple[str, ...]
    guarded: bool = False  # a guard is applied on top
    one_draw: bool = False  # the test sees one seeded trajectory a task
    weighted: bool = False  # the other estimand can be asked for, with a declared max_task_size
    pilot: bool = False  # thresholds, start and bets come from a pilot table
    joint: bool = False  # there is a joint bootstrap of the thresholds, for max-T
    agents: bool = False  # the table has the agent of every row
    # grid, level and pseudo-task are calibrated as a whole: no other guard or correction applies,
    # and scores of a pool of unlabelled tasks are taken
    calibrated: bool = False

    @property
    def estimands(self) -> tuple[str, ...]:
        """What it can certify, its own first."""
        return ("task", "trajectory") if self.weighted else (self.estimand,)

    @property
    def engines(self) -> tuple[str, ...]:
        """How its tail can be computed; none where there is one way only."""
        if self.calibrated:
            return ENGINES[:-1]
        return ENGINES if self.joint or self.agents else ()

    def reads(self, setting: str, value: object) -> bool:
        """Whether a setting, given as this value, can change what it certifies."""
        if setting == "guard":
            return self.guarded
        if setting in ("error_icc_cap", "size_ratio"):
            return self.guarded or self.calibrated
        if setting in ("multiplicity", "starts"):
            return not (self.calibrated or self.pilot)
        if setting == "draws":
            return "montecarlo" in self.engines
        return setting != "engine" or value in self.engines

    @property
    def grid(self) -> int:
        """Number of thresholds where none is given."""
        return GRID if self.calibrated else 40


def _taskboot(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    if test.engine == "montecarlo" and tasks == counts.tasks:
        return montecarlo_tails(counts, test.budget, test.draws, test.seed)
    engine = "auto" if test.engine == "montecarlo" else test.engine
    lattice = error_lattice(counts.covered, counts.errors, test.budget)
    return bootstrap_tails(lattice, test.level, engine, tasks)


def _two_way(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    tails = _taskboot(counts, test, tasks)
    # agents are drawn only where the tasks alone pass: elsewhere nothing is certified anyway
    places = np.flatnonzero(tails <= test.level)
    if counts.cells is not None and places.size:
        cells = (counts.cells[0][places], counts.cells[1][places])
        both = two_way_tails(
            cells, test.budget, level=test.level, draws=test.draws, seed=test.seed, tasks=tasks
        )
        tails[places] = np.maximum(tails[places], both)
    return tails


def _betting(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    if test.bets is None:
        return np.ones(counts.thresholds.size)
    return wealth_tails(payoffs(counts, test.alpha, test.cap), test.bets, tasks / counts.tasks)


def _gaffke(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    return gaffke_tails(payoffs(counts, test.alpha, test.cap), tasks / counts.tasks)


def _pseudo_task(counts: TaskCounts, test: Test, tasks: int) -> NDArray[np.float64]:
    if test.pseudo is None:
        return np.ones(counts.thresholds.size)
    return charged_tails(
        counts,
        test.budget,
        test.pseudo,
        level=test.level,
        engine=test.engine,
        factor=tasks / counts.tasks,
    ).joined


_COMMON = (_FRESH, RANK_INVARIANCE)
_BOOTSTRAP = (
    _TASKS_IID,
    "The task-bootstrap law of the error approximates its sampling law: true as the number of "
    "tasks grows, no finite-sample theorem.",
    *_COMMON,
)
RARE = (
    "Errors do not come as rare tasks that are wrong throughout: without a guard they can be "
    "missed."
)
_INDEPENDENT = "Trajectories are independent (Clopper–Pearson), which attempts at one task are not."
_SAME_DEFF = "The design effect of all outcomes stands for that of the errors at every threshold."
_ONE = (
    "The test sees one trajectory a task, drawn by the seed; the coverage is over all "
    "trajectories, the error that of a task's random attempt."
)
_TASK_MEAN = "The error is the mean over tasks of each task's error rate, not over trajectories."
_LINEAR = (
    "The linearised variance between covered tasks stands for the sampling variance; where no "
    "error is seen it says nothing."
)

_AGENTS_IID = (
    "Agents are drawn independently from the population that the certificate is used on, and tasks "
    "apart from them: in fact agents are chosen, so this is a supposition."
)
_PIGEONHOLE = (
    "The law of the error when tasks and agents are drawn again approximates its sampling law: "
    "true as both grow in number. With two agents that differ much it has been seen to fail "
    "(docs/certificates.md)."
)
_PILOT = (
    "The pilot tasks are others than these, and the pilot table was fixed before these outcomes "
    "were seen."
)
_CONJECTURE = (
    "Gaffke's conjecture: the test keeps its level for every distribution of the tasks. It is "
    "proved for tasks of one trajectory only."
)

_SIMULATED = (
    "Calibrated by simulation, not proved: the shares of delta at which the two tails pass keep "
    "the rate of wrong certificates near delta in the simulated designs (docs/certificates.md says "
    "which, and where it does not). Proved for one fixed threshold and equal tasks that are wrong "
    "throughout or not at all."
)

_ROWS, _TASKS = "trajectory", "task"
_ASYMPTOTIC, _FINITE = "asymptotic", "finite-sample"
_BOOT, _KG = (*_BOOTSTRAP, RARE), (_TASKS_IID, _LINEAR, RARE, *_COMMON)
_DEFF, _ONCE = (_TASKS_IID, _SAME_DEFF, *_COMMON), (_TASKS_IID, _ONE, *_COMMON)
_MEAN, _BET = (_TASKS_IID, _TASK_MEAN, *_COMMON), (_TASKS_IID, _PILOT, *_COMMON)
_BOTH = (_TASKS_IID, _AGENTS_IID, _PIGEONHOLE, *_COMMON)
_GAFFKE, _NAIVE = (_TASKS_IID, _CONJECTURE, *_COMMON), (_INDEPENDENT, *_COMMON)

PROCEDURES: dict[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        Procedure(
            "pseudo_task",
            _pseudo_task,
            "calibrated by simulation",
            _ROWS,
            (_TASKS_IID, _SIMULATED, *_COMMON),
            calibrated=True,
        ),
        Procedure(
            "guarded_taskboot",
            _taskboot,
            _ASYMPTOTIC,
            _ROWS,
            _BOOTSTRAP,
            guarded=True,
            joint=True,
        ),
        Procedure("taskboot", _taskboot, _ASYMPTOTIC, _ROWS, _BOOT, joint=True),
        Procedure("naive", _naive, "none under clustering", _ROWS, _NAIVE),
        Procedure("deff", _deff, _ASYMPTOTIC, _ROWS, _DEFF),
        Procedure("one_per_task", _naive, _FINITE, _TASKS, _ONCE, one_draw=True),
        Procedure("task_hoeffding", _task_hoeffding, _FINITE, _TASKS, _MEAN),
        Procedure("betting", _betting, _FINITE, _TASKS, _BET, weighted=True, pilot=True),
        Procedure("gaffke", _gaffke, "conjectured", _TASKS, _GAFFKE, weighted=True),
        Procedure("korn_graubard", _korn_graubard, _ASYMPTOTIC, _ROWS, _KG),
        Procedure("two_way", _two_way, _ASYMPTOTIC, _ROWS, _BOTH, guarded=True, agents=True),
    )
}

#: in the order in which they are listed side by side, the default first
EVERY_PROCEDURE = tuple(PROCEDURES)
DEFAULT = EVERY_PROCEDURE[0]


def find_procedure(name: str) -> Procedure:
    """Return a procedure by name."""
    if not isinstance(name, str) or name not in PROCEDURES:
        raise InputError(
            f"procedure {quoted(name)} is not available; give one of {', '.join(PROCEDURES)}."
        )
    return PROCEDURES[name]
