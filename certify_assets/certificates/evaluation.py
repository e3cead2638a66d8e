"""Settings of a certificate, the payment for a grid of thresholds, and each threshold's answer.

References
----------
Maurer, Hothorn and Lehmacher (1995), Multiple comparisons in drug clinical trials (fixed sequence).
Wiens (2003), A fixed sequence Bonferroni procedure for testing multiple endpoints (fallback).
Westfall and Young (1993), Resampling-based multiple testing (step-down max-T).
Angelopoulos and others (2025), Learn then test: calibrating predictive algorithms to achieve risk
control.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.betting import BettingPlan, check_pilot, make_plan
from certify_assets.certificates.bootstrap import as_fraction, draws_needed, resample_sums
from certify_assets.certificates.charge import POOL_TASKS, size_charges
from certify_assets.certificates.counts import SIDES, TaskCounts, count_at, count_tasks
from certify_assets.certificates.guard import GUARDS, GuardTest, apply_guard, no_guard
from certify_assets.certificates.inputs import Observations
from certify_assets.certificates.pool import Pool, check_pool
from certify_assets.certificates.procedures import (
    DEFAULT,
    ENGINES,
    PROCEDURES,
    Procedure,
    Test,
    find_procedure,
)
from certify_assets.certificates.pseudo_task import (
    WHOLE_SHARE,
    PseudoTask,
    SizedScores,
    covered_ratios,
    error_icc,
    observed_ratio,
)
from certify_assets.errors import InputError, quoted

MULTIPLICITIES = ("bonferroni", "fixed", "fallback", "maxt")
#: how a certificate names the payment of a procedure that is calibrated over its whole grid
CALIBRATED = "calibrated"
DEFAULT_STARTS = {"fixed": (0.3,), "fallback": (0.1, 0.3, 0.5, 0.7)}
_QUANTILES = (0.02, 0.98)
_MAXT_CELLS = 4_000_000
_TIE = 1e-9


def level_shares(multiplicity: str, grid: int, starts: Sequence[float] | None) -> int:
    """Number of equal shares into which δ is cut: one a threshold, one a start, or one."""
    if multiplicity == "bonferroni":
        return grid
    if multiplicity == CALIBRATED:
        return WHOLE_SHARE
    return len(starts) if multiplicity == "fallback" and starts else 1


def start_places(starts: Sequence[float], grid: int) -> tuple[int, ...]:
    """First threshold of the grid whose quantile is at least each start, else the last one."""
    quantiles = np.linspace(*_QUANTILES, grid)
    # .3 lies within rounding of a quantile of some grids
    first = (int(np.searchsorted(quantiles, start - _TIE)) for start in starts)
    return tuple(sorted({min(place, grid - 1) for place in first}))


def chain(
    tails: NDArray[np.float64], places: Sequence[int], share: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Test upward from each start, carrying on what earlier starts have not lost."""
    # A threshold that passes hands its level to the next one, a start adds its own, a threshold
    # that fails loses what it had: the probability of passing any threshold whose error is at least
    # α is at most the sum of the shares.
    levels, passed = np.zeros(tails.size), np.zeros(tails.size, dtype=bool)
    shares = 0
    for place, tail in enumerate(tails):
        shares += place in places
        levels[place] = shares * share
        passed[place] = shares > 0 and tail <= levels[place]
        shares = shares if passed[place] else 0
    return levels, passed


def maxt_tails(counts: TaskCounts, budget: Fraction, draws: int, seed: int) -> NDArray[np.float64]:
    """Step-down max-T adjusted tails from the joint task bootstrap of every threshold."""
    # Threshold j has T_j = −Σz/s, s its standard deviation over tasks; a resample has T*_j = (Σz* −
    # Σz)/s. From the largest T on, k counts the resamples whose largest T* over the thresholds not
    # yet passed exceeds T_j; a tail is never below an earlier one.
    excess = (
        budget.denominator * counts.errors.astype(np.int64)
        - budget.numerator * counts.covered.astype(np.int64)
    ).T
    totals = excess.sum(axis=0)
    spread = np.sqrt(np.square(excess - excess.mean(axis=0)).sum(axis=0))
    scale = np.where(spread > 0, spread, 1.0)
    observed = np.where(spread > 0, -totals / scale, np.where(totals < 0, np.inf, -np.inf))
    order = np.argsort(-observed, kind="stable")
    exceeding = np.zeros(order.size, dtype=np.int64)
    sums = resample_sums(excess, draws, seed)
    for first in range(0, draws, max(1, _MAXT_CELLS // order.size)):
        moved = (sums[first : first + max(1, _MAXT_CELLS // order.size)] - totals) / scale
        largest = np.maximum.accumulate(moved[:, order[::-1]], axis=1)[:, ::-1]
        # machines differ in the last digit of a quotient, and a resample may equal the table
        exceeding += (largest > observed[order] + _TIE).sum(axis=0)
    tails = np.empty(order.size)
    tails[order] = np.maximum.accumulate((exceeding + 1.0) / (draws + 1.0))
    return tails


_MOST_STARTS = 40
_MOST_THRESHOLDS, _MOST_DRAWS = 1_000, 10_000_000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that a certificate depends on next to the table; the keywords of `certify`, validated."""

    alpha: float = 0.1
    delta: float = 0.05
    side: str = "reject"
    procedure: str = DEFAULT
    guard: str = "floor"
    error_icc_cap: float | None = None
    size_ratio: float = 1.0
    max_task_size: int | None = None
    estimand: str | None = None
    multiplicity: str = "bonferroni"
    starts: Sequence[float] | None = None
    grid: int | None = None
    engine: str = "auto"
    draws: int = 2000
    seed: int = 42
    candidates: int = 1

    def __post_init__(self) -> None:
        as_fraction(self.alpha)
        _between("delta", self.delta, 0.0, 1.0)
        _one_of("side", self.side, SIDES)
        _one_of("guard", self.guard, GUARDS)
        _one_of("engine", self.engine, ENGINES)
        _one_of("multiplicity", self.multiplicity, MULTIPLICITIES)
        _check_multiplicity(self.multiplicity, self.starts, self.method)
        _check_estimand(self.estimand, self.method)
        _check_calibrated(self)
        for name, value, most in (
            ("grid", self.applied_grid, _MOST_THRESHOLDS),
            ("draws", self.draws, _MOST_DRAWS),
            ("candidates", self.candidates, 10**9),
        ):
            _whole(name, value, 1, most)
        _whole("seed", self.seed, 0, 2**63 - 1)
        if self.error_icc_cap is not None:
            _between("error_icc_cap", self.error_icc_cap, 0.0, 1.0, closed=True)
        _between("size_ratio", self.size_ratio, 1.0, 1e6, closed=True)
        if self.max_task_size is not None:
            _whole("max_task_size", self.max_task_size, 1, 2**31 - 1)

    @property
    def applied_estimand(self) -> str:
        """The estimand asked for, by default the procedure's own."""
        return self.estimand or self.method.estimand

    @property
    def applied_grid(self) -> int:
        """The number of thresholds asked for, by default the procedure's own."""
        return self.method.grid if self.grid is None else self.grid

    @property
    def applied_multiplicity(self) -> str:
        """How the grid is paid for: a procedure with a pilot has a fixed sequence of its own."""
        if self.method.calibrated:
            return CALIBRATED
        return "fixed" if self.method.pilot else self.multiplicity

    @property
    def applied_starts(self) -> tuple[float, ...] | None:
        """Quantiles at which declared chains start, narrowest first; None without any."""
        if self.method.pilot or self.multiplicity not in DEFAULT_STARTS:
            return None
        return (
            tuple(sorted(float(start) for start in self.starts))
            if self.starts
            else DEFAULT_STARTS[self.multiplicity]
        )

    @property
    def budget(self) -> Fraction:
        """α as the exact decimal that was given."""
        return as_fraction(self.alpha)

    @property
    def level(self) -> float:
        """δ / (shares · candidates): a share a threshold, a start of a fallback chain, or one."""
        return self.delta / (
            level_shares(self.applied_multiplicity, self.applied_grid, self.applied_starts)
            * self.candidates
        )

    @property
    def lone_level(self) -> float:
        """Level at which one threshold alone is taken to pass."""
        # the tails of max-T are of all thresholds together: that of Bonferroni there
        return (
            self.delta / (self.applied_grid * self.candidates)
            if self.applied_multiplicity == "maxt"
            else self.level
        )

    @property
    def applied_guard(self) -> str:
        """The guard in force: none on procedures that take none."""
        return self.guard if self.method.guarded else "none"

    @property
    def method(self) -> Procedure:
        """The procedure itself."""
        return find_procedure(self.procedure)

    @property
    def coarse_draws(self) -> bool:
        """Whether the bootstrap is drawn so few times that no threshold can pass."""
        drawn = self.method.joint and (self.engine == "montecarlo" or self.multiplicity == "maxt")
        return drawn and self.draws < draws_needed(self.level)

    @property
    def test(self) -> Test:
        """What the procedure is asked."""
        capped = self.method.weighted and self.applied_estimand == "trajectory"
        cap = self.max_task_size if capped else None
        return Test(self.budget, self.lone_level, self.engine, self.draws, self.seed, cap)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Every threshold's answer.

    Attributes
    ----------
    counts : TaskCounts
    tested : TaskCounts
        What the procedure saw: the counts, or those of one trajectory a task.
    tails : float64 array, shape (thresholds,)
        Certified by the procedure where at most the level at which the threshold is tested.
    levels : float64 array, shape (thresholds,)
        0 where a chain does not come to the threshold.
    passed_test : bool array, shape (thresholds,)
        Thresholds that the procedure certifies before the guard.
    guard : GuardTest
    test : Test
    starts : tuple of int or None
        Thresholds at which chains start.
    plan : BettingPlan or None
        What the pilot fixed.
    missing_input : {None, "pilot_missing", "max_task_size_missing", "agents_missing"}
        The input for want of which nothing was tested.
    """

    counts: TaskCounts
    tested: TaskCounts
    tails: NDArray[np.float64]
    levels: NDArray[np.float64]
    passed_test: NDArray[np.bool_]
    guard: GuardTest
    test: Test
    starts: tuple[int, ...] | None = None
    plan: BettingPlan | None = None
    missing_input: str | None = None

    @property
    def passed(self) -> NDArray[np.bool_]:
        """Thresholds that procedure and guard certify."""
        return self.passed_test & self.guard.passed

    @property
    def chosen(self) -> int | None:
        """The widest certified threshold, None when there is none."""
        places = np.flatnonzero(self.passed)
        return int(places[-1]) if places.size else None

    @property
    def threshold(self) -> float | None:
        """The widest certified threshold as a score, None when there is none."""
        return None if self.chosen is None else float(self.counts.thresholds[self.chosen])

    @property
    def chosen_coverage(self) -> float:
        """Coverage of the widest certified threshold, 0 when there is none."""
        return 0.0 if self.chosen is None else float(self.counts.coverage[self.chosen])


def evaluate(
    observations: Observations,
    settings: Settings,
    pilot: Observations | None = None,
    pool: Pool | None = None,
) -> Evaluation:
    """Count tasks on the grid and put every threshold to procedure and guard."""
    side, most = settings.side, settings.max_task_size
    if pool is not None and not settings.method.calibrated:
        raise InputError(
            f"A pool of unlabelled tasks is for pseudo_task, and {settings.method.name} does "
            "not read it; leave it out or name pseudo_task."
        )
    if pool is not None:
        check_pool(pool, observations)
    missing_input, plan = _prepare(observations, settings, pilot)
    counts = (
        count_tasks(observations, side, settings.applied_grid)
        if plan is None
        else count_at(observations, side, plan.thresholds)
    )
    largest = int(counts.sizes.max(initial=0))
    if most is not None and largest > most:
        raise InputError(
            f"A task has {largest} scored trajectories, above max_task_size {most}; keep at most "
            f"{most} attempts a task."
        )
    tested = counts
    if settings.method.one_draw:
        tested = count_at(observations.one_a_task(settings.seed), side, counts.thresholds)
    test = settings.test if plan is None else replace(settings.test, bets=plan.bets)
    if settings.method.calibrated and counts.tasks:
        test = replace(test, pseudo=pseudo_task(observations, counts, settings, pool))
    tails = np.ones(counts.thresholds.size)
    if not missing_input and tested.tasks:
        tails = _tails(tested, test, settings)
    starts: tuple[int, ...] | None = None if plan is None else (plan.start,)
    if settings.applied_starts is not None:
        starts = start_places(settings.applied_starts, settings.applied_grid)
    levels = np.full(tails.size, settings.level)
    passed = tails <= levels
    if starts is not None:
        levels, passed = chain(tails, starts, settings.level)
    return Evaluation(
        counts=counts,
        tested=tested,
        tails=tails,
        levels=levels,
        passed_test=passed & (missing_input is None),
        guard=guard_of(counts, settings),
        test=test,
        starts=starts,
        plan=plan,
        missing_input=missing_input,
    )


def guard_of(counts: TaskCounts, settings: Settings, *, drawn: bool = False) -> GuardTest:
    """Put every threshold to the guard; a procedure that is calibrated as a whole has none.

    Where none is in force the floor is computed only to be `drawn`: it costs as much as the tails.
    """
    if settings.method.calibrated or (settings.applied_guard == "none" and not drawn):
        return no_guard(counts.thresholds.size)
    return apply_guard(
        counts,
        guard=settings.applied_guard,
        alpha=settings.alpha,
        delta=settings.delta / settings.candidates,
        error_icc_cap=settings.error_icc_cap,
        size_ratio=settings.size_ratio,
        max_task_size=settings.max_task_size,
    )


def _prepare(
    observations: Observations, settings: Settings, pilot: Observations | None
) -> tuple[str | None, BettingPlan | None]:
    method, test = settings.method, settings.test
    if method.pilot and pilot is not None:
        check_pilot(pilot, observations)
    if method.weighted and settings.applied_estimand == "trajectory" and test.cap is None:
        return "max_task_size_missing", None
    if method.agents and observations.agents is None:
        return "agents_missing", None
    if not method.pilot:
        return None, None
    if pilot is None:
        return "pilot_missing", None
    return None, make_plan(pilot, settings.side, settings.applied_grid, settings.alpha, test.cap)


def pseudo_task(
    observations: Observations,
    counts: TaskCounts,
    settings: Settings,
    pool: Pool | None,
    *,
    charge: bool = True,
) -> PseudoTask:
    """Return the size of the pseudo-task, from the table, a pool and what is declared.

    A pool of `POOL_TASKS` tasks charges sizes; tests leave that out to compare.
    """
    icc, cap, most = (
        error_icc(observations, counts.side),
        settings.error_icc_cap,
        settings.max_task_size,
    )
    tables: tuple[SizedScores, ...] = (observations,) if pool is None else (observations, pool)
    least = np.full(
        counts.thresholds.size, max(1.0, float(settings.size_ratio), observed_ratio(counts))
    )
    if most is not None:
        # a wrong task is then as large as is declared, at least
        mean = counts.covered_trajectories / np.maximum(counts.covered_tasks, 1)
        least = np.maximum(least, most / np.maximum(mean, 1.0))
    charged = charge and pool is not None and pool.scored_tasks >= POOL_TASKS
    return PseudoTask(
        icc if cap is None else min(icc, float(cap)),
        np.maximum(least, covered_ratios(counts, tables, settings.budget)),
        least if charged else None,
        size_charges(counts, tables) if charged else None,
    )


def _tails(tested: TaskCounts, test: Test, settings: Settings) -> NDArray[np.float64]:
    if settings.applied_multiplicity == "maxt":
        return maxt_tails(tested, settings.budget, settings.draws, settings.seed)
    return settings.method.tails(tested, test, tested.tasks)


def coverage_under(pseudo: PseudoTask, evaluation: Evaluation, settings: Settings) -> float:
    """Return the coverage that another pseudo-task leaves certified."""
    counts, test = evaluation.counts, replace(evaluation.test, pseudo=pseudo)
    passed = settings.method.tails(counts, test, counts.tasks) <= settings.level
    places = np.flatnonzero(passed)
    return float(counts.coverage[places[-1]]) if places.size else 0.0


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name} is {quoted(value)}; give one of {', '.join(allowed)}.")


def _check_estimand(estimand: object, method: Procedure) -> None:
    if estimand is None:
        return
    _one_of("estimand", estimand, ("trajectory", "task"))
    if estimand not in method.estimands:
        others = [item.name for item in PROCEDURES.values() if estimand in item.estimands]
        raise InputError(
            f"estimand is {estimand!r} and {method.name} certifies the error by {method.estimand}; "
            f"leave it out, or give one of the procedures {', '.join(others)}."
        )


def _check_calibrated(settings: Settings) -> None:
    """Refuse what does not apply to a procedure that is calibrated as a whole."""
    if not settings.method.calibrated:
        return
    for name, value, left in (
        ("guard", settings.guard, ("floor", "none")),
        ("multiplicity", settings.multiplicity, ("bonferroni",)),
        ("engine", settings.engine, settings.method.engines),
    ):
        if value not in left:
            raise InputError(inapplicable(f"{name} {value}", settings.method))


def inapplicable(what: str, method: Procedure) -> str:
    """Say that a setting is of other procedures, and of which."""
    return (
        f"{what} does not apply to {method.name}, which is calibrated as a whole; leave it out, or "
        "name another procedure (--procedure guarded_taskboot)."
    )


def _check_multiplicity(multiplicity: str, starts: object, method: Procedure) -> None:
    if multiplicity == "maxt" and not (method.joint or method.pilot):
        joint = ", ".join(item.name for item in PROCEDURES.values() if item.joint)
        raise InputError(
            f"multiplicity maxt is of the joint task bootstrap, which {method.name} has not; give "
            f"bonferroni, fixed or fallback, or one of the procedures {joint}."
        )
    if starts is None:
        return
    if multiplicity not in DEFAULT_STARTS:
        raise InputError(
            f"starts go with multiplicity fixed or fallback, not {multiplicity}; leave them out."
        )
    most = 1 if multiplicity == "fixed" else _MOST_STARTS
    if isinstance(starts, str) or not isinstance(starts, Sequence) or not 1 <= len(starts) <= most:
        words = "one quantile" if most == 1 else f"1 to {most} quantiles"
        raise InputError(f"starts is {quoted(starts)}; give {words}.")
    for start in starts:
        _between("start", start, 0.0, 1.0)
    if len(set(starts)) < len(starts):
        raise InputError(
            f"starts is {quoted(starts)}, which names a quantile twice; give each once."
        )


def _whole(name: str, value: object, least: int, most: int) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value <= most:  # type: ignore[operator]
        raise InputError(f"{name} is {quoted(value)}; give a whole number from {least} to {most}.")


def _between(name: str, value: object, low: float, high: float, *, closed: bool = False) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not (low <= number <= high if closed else low < number < high):
        words = f"from {low:g} to {high:g}" if closed else f"strictly between {low:g} and {high:g}"
        raise InputError(f"{name} is {quoted(value)}; give a number {words}.")
