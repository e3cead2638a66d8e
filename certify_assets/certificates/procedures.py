"""The tests that certify a threshold: each turns task counts into one tail probability a threshold, compared with δ/(|Θ|·candidates).

Every procedure says its estimand, its assumptions and how far it is valid; a certificate carries these words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.clustering import summarise_clusters
from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.lattice import bootstrap_tails, error_lattice
from certify_assets.certificates.montecarlo import montecarlo_tails
from certify_assets.errors import InputError

__all__ = ["PROCEDURES", "RANK_INVARIANCE", "Procedure", "Test", "clopper_pearson_upper", "find_procedure"]

RANK_INVARIANCE = (
    "Rank invariance: grid, counts, tail and decision depend on the scores only through comparisons, so every strictly increasing "
    "map of the scores (temperature, Platt scaling) leaves the certificate as it is; isotonic regression ties scores and does not."
)
_TASKS_IID = "Tasks are drawn independently from the population that the certificate is used on, attempts of one task together."
_FRESH = "The judge was trained and chosen without these outcomes; candidates compared on them are counted in `candidates`."


@dataclass(frozen=True)
class Test:
    """What a procedure is asked: budget α as a fraction, level, and how to compute the bootstrap tail."""

    budget: Fraction
    level: float
    engine: str = "auto"
    draws: int = 2000
    seed: int = 42


@dataclass(frozen=True)
class Procedure:
    """A certification procedure.

    Attributes
    ----------
    name : str
    tails : callable
        (TaskCounts, Test) → tail a threshold; certified where tail ≤ level.
    grown : callable
        (TaskCounts, Test, threshold, tasks) → tail at one threshold if there were so many tasks like those observed.
    validity : str
        "asymptotic", "finite-sample" or "none under clustering".
    estimand : str
        "trajectory" (error over trajectories) or "task" (mean error over tasks).
    assumptions : tuple of str
    guarded : bool
        Whether a guard is applied on top.
    """

    name: str
    tails: Callable[[TaskCounts, Test], NDArray[np.float64]]
    grown: Callable[[TaskCounts, Test, int, int], float]
    validity: str
    estimand: str
    assumptions: tuple[str, ...]
    guarded: bool = False


def clopper_pearson_upper(errors: float, covered: float, level: float) -> float:
    """One-sided Clopper–Pearson upper bound at confidence 1 − level; real-valued counts are allowed.

    Parameters
    ----------
    errors, covered : float
    level : float
        In (0, 1).

    Returns
    -------
    float
        1 when nothing is covered or every covered trajectory is an error.
    """
    from scipy.special import betaincinv

    if covered <= 0 or errors >= covered:
        return 1.0
    return float(betaincinv(errors + 1.0, covered - errors, 1.0 - level))


def _binomial_tails(errors: NDArray[np.float64], covered: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """P(Binomial(n, α) ≤ k) with real-valued counts: at most the level exactly when the Clopper–Pearson bound is at most α."""
    from scipy.special import betainc

    tails = np.ones(errors.size)
    some = errors < covered
    tails[some] = betainc(covered[some] - errors[some], errors[some] + 1.0, 1.0 - alpha)
    return tails


def _taskboot(counts: TaskCounts, test: Test) -> NDArray[np.float64]:
    if test.engine == "montecarlo":
        return montecarlo_tails(counts, test.budget, test.draws, test.seed)
    return bootstrap_tails(error_lattice(counts.covered, counts.errors, test.budget), test.level, test.engine)


def _naive(counts: TaskCounts, test: Test) -> NDArray[np.float64]:
    return _binomial_tails(counts.error_totals.astype(float), counts.covered_trajectories.astype(float), float(test.budget))


def _deff(counts: TaskCounts, test: Test) -> NDArray[np.float64]:
    deff = summarise_clusters(counts.sizes, counts.successes).deff
    return _binomial_tails(counts.error_totals / deff, counts.covered_trajectories / deff, float(test.budget))


def _task_hoeffding(counts: TaskCounts, test: Test) -> NDArray[np.float64]:
    return np.array([_hoeffding_tail(n, k, test, 1.0) for n, k in zip(counts.covered, counts.errors, strict=True)])


def _hoeffding_tail(covered: NDArray[np.int32], errors: NDArray[np.int32], test: Test, factor: float) -> float:
    """exp(−2 G slack²) for G times ``factor`` covered tasks, slack = α minus the mean of their error rates."""
    inside = covered > 0
    # sorted, so that relabelled tasks give the same bits
    rates = np.sort(errors[inside] / covered[inside])
    slack = float(test.budget) - (math.fsum(rates) / rates.size if rates.size else 1.0)
    return math.exp(-2.0 * factor * rates.size * slack * slack) if slack > 0 else 1.0


def _taskboot_grown(counts: TaskCounts, test: Test, place: int, tasks: int) -> float:
    lattice = error_lattice(counts.covered[place : place + 1], counts.errors[place : place + 1], test.budget)
    return float(bootstrap_tails(lattice, test.level, "auto", tasks)[0])


def _naive_grown(counts: TaskCounts, test: Test, place: int, tasks: int) -> float:
    return _binomial_grown(counts, test, place, tasks / counts.tasks)


def _deff_grown(counts: TaskCounts, test: Test, place: int, tasks: int) -> float:
    return _binomial_grown(counts, test, place, tasks / counts.tasks / summarise_clusters(counts.sizes, counts.successes).deff)


def _binomial_grown(counts: TaskCounts, test: Test, place: int, factor: float) -> float:
    scaled = factor * np.array([counts.error_totals[place], counts.covered_trajectories[place]], dtype=float)
    return float(_binomial_tails(scaled[:1], scaled[1:], float(test.budget))[0])


def _task_hoeffding_grown(counts: TaskCounts, test: Test, place: int, tasks: int) -> float:
    return _hoeffding_tail(counts.covered[place], counts.errors[place], test, tasks / counts.tasks)


_BOOTSTRAP_WORDS = (
    _TASKS_IID,
    "The task-bootstrap law of the error approximates its sampling law: true as the number of tasks grows, no finite-sample theorem.",
    _FRESH,
    RANK_INVARIANCE,
)

PROCEDURES: dict[str, Procedure] = {
    procedure.name: procedure
    for procedure in (
        Procedure("guarded_taskboot", _taskboot, _taskboot_grown, "asymptotic", "trajectory", _BOOTSTRAP_WORDS, guarded=True),
        Procedure(
            "taskboot",
            _taskboot,
            _taskboot_grown,
            "asymptotic",
            "trajectory",
            (*_BOOTSTRAP_WORDS, "Errors do not come as rare tasks that are wrong throughout: without a guard they can be missed."),
        ),
        Procedure(
            "naive",
            _naive,
            _naive_grown,
            "none under clustering",
            "trajectory",
            ("Trajectories are independent (Clopper–Pearson), which attempts at one task are not.", _FRESH, RANK_INVARIANCE),
        ),
        Procedure(
            "deff",
            _deff,
            _deff_grown,
            "asymptotic",
            "trajectory",
            (_TASKS_IID, "The design effect of all outcomes stands for that of the errors at every threshold.", _FRESH, RANK_INVARIANCE),
        ),
        Procedure(
            "task_hoeffding",
            _task_hoeffding,
            _task_hoeffding_grown,
            "finite-sample",
            "task",
            (_TASKS_IID, "The error is the mean over tasks of each task's error rate, not over trajectories.", _FRESH, RANK_INVARIANCE),
        ),
    )
}


def find_procedure(name: str) -> Procedure:
    """Return a procedure by name.

    Raises
    ------
    InputError
        If there is none; the message lists those available.
    """
    if not isinstance(name, str) or name not in PROCEDURES:
        raise InputError(f"procedure {name!r} is not available; give one of {', '.join(PROCEDURES)}.")
    return PROCEDURES[name]
