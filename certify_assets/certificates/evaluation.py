"""Settings of a certificate, the payment for a grid of thresholds, and each threshold's answer.

References
----------
Maurer, Hothorn and Lehmacher (1995), Multiple comparisons in drug clinical trials (fixed sequence).
Angelopoulos and others (2025), Learn then test: calibrating predictive algorithms to achieve risk
control.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.betting import BettingPlan, check_pilot, make_plan
from certify_assets.certificates.bootstrap import as_fraction
from certify_assets.certificates.charge import POOL_TASKS, size_charges
from certify_assets.certificates.counts import SIDES, TaskCounts, count_at, count_tasks
from certify_assets.certificates.guard import GUARDS, GuardTest, apply_guard, no_guard
from certify_assets.certificates.inputs import Observations
from certify_assets.certificates.pool import Pool, check_pool
from certify_assets.certificates.procedures import DEFAULT, ENGINES, Procedure, Test, find_procedure
from certify_assets.certificates.pseudo_task import (
    WHOLE_SHARE,
    PseudoTask,
    SizedScores,
    covered_ratios,
    error_icc,
    observed_ratio,
)
from certify_assets.certificates.taskboot import draws_needed
from certify_assets.errors import InputError, quoted

#: how a certificate names the payment of a procedure that is calibrated over its whole grid
CALIBRATED = "calibrated"
BONFERRONI, FIXED = "bonferroni", "fixed"


def level_shares(multiplicity: str, grid: int) -> int:
    """Number of equal shares into which δ is cut: one a threshold, or those of the calibration."""
    return {BONFERRONI: grid, CALIBRATED: WHOLE_SHARE}.get(multiplicity, 1)


def in_sequence(passed: NDArray[np.bool_], start: int) -> NDArray[np.bool_]:
    """Return which thresholds pass when they are tested upward from one until one fails."""
    found = np.zeros_like(passed)
    found[start:] = np.logical_and.accumulate(passed[start:])
    return found


_MOST_THRESHOLDS, _MOST_DRAWS = 1_000, 10_000_000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that a certificate depends on next to the table; the keywords of `certify`, validated."""

    alpha: float = 0.1
    delta: float = 0.05
    side: str = "reject"
    procedure: str = DEFAULT
    guard: str = "floor"
    size_ratio: float = 1.0
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
        _check_calibrated(self)
        for name, value, most in (
            ("grid", self.applied_grid, _MOST_THRESHOLDS),
            ("draws", self.draws, _MOST_DRAWS),
            ("candidates", self.candidates, 10**9),
        ):
            _whole(name, value, 1, most)
        _whole("seed", self.seed, 0, 2**63 - 1)
        _between("size_ratio", self.size_ratio, 1.0, 1e6, closed=True)

    @property
    def applied_grid(self) -> int:
        """The number of thresholds asked for, by default the procedure's own."""
        return self.method.grid if self.grid is None else self.grid

    @property
    def multiplicity(self) -> str:
        """How the grid is paid for: a procedure with a pilot has a fixed sequence of its own."""
        if self.method.calibrated:
            return CALIBRATED
        return FIXED if self.method.pilot else BONFERRONI

    @property
    def budget(self) -> Fraction:
        """α as the exact decimal that was given."""
        return as_fraction(self.alpha)

    @property
    def level(self) -> float:
        """δ / (shares · candidates): a share a threshold, those of a calibration, or one."""
        return self.delta / (level_shares(self.multiplicity, self.applied_grid) * self.candidates)

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
        drawn = self.method.resamples and self.engine == "montecarlo"
        return drawn and self.draws < draws_needed(self.level)

    @property
    def test(self) -> Test:
        """What the procedure is asked."""
        return Test(self.budget, self.level, self.engine, self.draws, self.seed)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Every threshold's answer.

    Attributes
    ----------
    counts : TaskCounts
    tested : TaskCounts
        What the procedure saw: the counts, or those of one trajectory a task.
    tails : float64 array, shape (thresholds,)
    passed_test : bool array, shape (thresholds,)
        Thresholds that the procedure certifies before the guard.
    guard : GuardTest
    test : Test
    plan : BettingPlan or None
        What the pilot fixed.
    lacks_pilot : bool
        Whether nothing was tested, for want of a pilot.
    """

    counts: TaskCounts
    tested: TaskCounts
    tails: NDArray[np.float64]
    passed_test: NDArray[np.bool_]
    guard: GuardTest
    test: Test
    plan: BettingPlan | None = None
    lacks_pilot: bool = False

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
    side = settings.side
    if pool is not None and not settings.method.calibrated:
        raise InputError(
            f"A pool of unlabelled tasks is for pseudo_task, and {settings.method.name} does "
            "not read it; leave it out or name pseudo_task."
        )
    if pool is not None:
        check_pool(pool, observations)
    plan = None
    if settings.method.pilot and pilot is not None:
        check_pilot(pilot, observations)
        plan = make_plan(pilot, side, settings.applied_grid, settings.alpha)
    lacks_pilot = settings.method.pilot and plan is None
    counts = (
        count_tasks(observations, side, settings.applied_grid)
        if plan is None
        else count_at(observations, side, plan.thresholds)
    )
    tested = counts
    if settings.method.one_draw:
        tested = count_at(observations.one_a_task(settings.seed), side, counts.thresholds)
    test = settings.test if plan is None else replace(settings.test, bets=plan.bets)
    if settings.method.calibrated and counts.tasks:
        test = replace(test, pseudo=pseudo_task(observations, counts, settings, pool))
    tails = np.ones(counts.thresholds.size)
    if not lacks_pilot and tested.tasks:
        tails = settings.method.tails(tested, test, tested.tasks)
    passed = tails <= settings.level
    return Evaluation(
        counts=counts,
        tested=tested,
        tails=tails,
        passed_test=passed if plan is None else in_sequence(passed, plan.start),
        guard=guard_of(counts, settings),
        test=test,
        plan=plan,
        lacks_pilot=lacks_pilot,
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
        size_ratio=settings.size_ratio,
    )


def pseudo_task(
    observations: Observations,
    counts: TaskCounts,
    settings: Settings,
    pool: Pool | None,
) -> PseudoTask:
    """Return the size of the pseudo-task, from the table, a pool and what is declared."""
    tables: tuple[SizedScores, ...] = (observations,) if pool is None else (observations, pool)
    least = np.full(
        counts.thresholds.size, max(1.0, float(settings.size_ratio), observed_ratio(counts))
    )
    charged = pool is not None and pool.scored_tasks >= POOL_TASKS
    return PseudoTask(
        error_icc(observations, counts.side),
        np.maximum(least, covered_ratios(counts, tables, settings.budget)),
        least if charged else None,
        size_charges(counts, tables) if charged else None,
    )


def coverage_under(pseudo: PseudoTask, evaluation: Evaluation, settings: Settings) -> float:
    """Return the coverage that another pseudo-task leaves certified."""
    counts, test = evaluation.counts, replace(evaluation.test, pseudo=pseudo)
    passed = settings.method.tails(counts, test, counts.tasks) <= settings.level
    places = np.flatnonzero(passed)
    return float(counts.coverage[places[-1]]) if places.size else 0.0


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name} is {quoted(value)}; give one of {', '.join(allowed)}.")


def _check_calibrated(settings: Settings) -> None:
    """Refuse an engine that does not apply to a procedure that is calibrated as a whole."""
    if settings.method.calibrated and settings.engine not in settings.method.engines:
        raise InputError(inapplicable(f"engine {settings.engine}", settings.method))


def inapplicable(what: str, method: Procedure) -> str:
    """Say that a setting is of other procedures, and of which."""
    return (
        f"{what} does not apply to {method.name}, which is calibrated as a whole; leave it out, or "
        "name another procedure (--procedure guarded_taskboot)."
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
