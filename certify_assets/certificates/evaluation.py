"""Every threshold's answer: counts, tail and guard under the settings of a certificate.

References
----------
Maurer, Hothorn and Lehmacher (1995), Multiple comparisons in drug clinical trials (fixed sequence).
Angelopoulos and others (2025), Learn then test: calibrating predictive algorithms to achieve risk
control.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from certify_assets.arrays import Booleans, Floats
from certify_assets.certificates.asked import Test
from certify_assets.certificates.betting import BettingPlan, make_plan
from certify_assets.certificates.counts import TaskCounts, count_at, count_tasks
from certify_assets.certificates.error_icc import error_icc
from certify_assets.certificates.evidence import Pool
from certify_assets.certificates.guard import apply_guard
from certify_assets.certificates.inputs import Observations, check_others
from certify_assets.certificates.one_run import row_counts, several_tails
from certify_assets.certificates.procedures import PROVED, RowTails
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.task_sizes import pseudo_task
from certify_assets.errors import InputError


def in_sequence(passed: Booleans, start: int) -> Booleans:
    """Return which thresholds pass when they are tested upward from one until one fails."""
    found = np.zeros_like(passed)
    found[start:] = np.logical_and.accumulate(passed[start:])
    return found


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Every threshold's answer.

    Attributes
    ----------
    counts : TaskCounts
    tested : TaskCounts
        The counts that the procedure tested: all, or those of one trajectory a task.
    tails : float64 array, shape (thresholds,)
    passed_test : bool array, shape (thresholds,)
        Thresholds that the procedure certifies before the guard.
    guarded : bool array, shape (thresholds,)
        Thresholds that the guard passes; all where there is no guard.
    test : Test
    plan : BettingPlan or None
        The plan that the pilot fixed.
    lacks_pilot : bool
        Whether nothing was tested because the pilot is missing.
    unscored, unread : int
        Runs in the counts that have no score, and scored ones without a label.
    """

    counts: TaskCounts
    tested: TaskCounts
    tails: Floats
    passed_test: Booleans
    guarded: Booleans
    test: Test
    plan: BettingPlan | None = None
    lacks_pilot: bool = False
    unscored: int = 0
    unread: int = 0

    @property
    def scored(self) -> int:
        """Number of runs with a score."""
        return self.counts.trajectories - self.unscored

    @property
    def passed(self) -> Booleans:
        """Thresholds that procedure and guard certify."""
        return self.passed_test & self.guarded

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
    """Count tasks on the grid, and apply procedure and guard to every threshold."""
    side = settings.side
    if pool is not None and not settings.method.calibrated:
        raise InputError(
            f"Only pseudo_task reads a pool of unlabelled tasks, not {settings.method.name}. Leave "
            "the pool out, or use pseudo_task."
        )
    if pool is not None:
        check_others("pool", pool, observations)
    if settings.method.row_tails is not None:
        return _evaluate_rows(observations, settings, settings.method.row_tails)
    if unclear := int(np.count_nonzero(observations.scored_rows[1] < 0)):
        raise InputError(
            f"{settings.method.name} needs a clear label of every run, and {unclear:,} have none. "
            "Label these, or take --promise proved, which counts an unclear label as wrong."
        )
    plan = None
    if settings.method.pilot and pilot is not None:
        check_others("pilot table", pilot, observations)
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
    asked = settings.test(counts.tasks)
    test = asked if plan is None else replace(asked, bets=plan.bets)
    if settings.method.calibrated and counts.tasks:
        test = replace(test, pseudo=pseudo_task(observations, counts, settings, pool))
    tails = np.ones(counts.thresholds.size)
    if not lacks_pilot and tested.tasks:
        tails = settings.method.tails(tested, test, tested.tasks)
    passed = tails <= test.level
    return Evaluation(
        counts=counts,
        tested=tested,
        tails=tails,
        passed_test=passed if plan is None else in_sequence(passed, plan.start),
        guarded=_guarded(observations, counts, settings),
        test=test,
        plan=plan,
        lacks_pilot=lacks_pilot,
    )


def _evaluate_rows(
    observations: Observations, settings: Settings, row_tails: RowTails
) -> Evaluation:
    """Test every drawn score by `one_run` or `average`; keep the grid and the widest pass."""
    side, test = settings.side, settings.test(len(observations.labels))
    table = observations.unknown_as_wrong(side)
    several = len(table.labels) < table.rows
    lemma = several and settings.method.promise == PROVED
    if several and table.scored and not lemma:
        table = table.one_a_task(settings.seed)
    ascending = np.unique(table.scored_rows[0])
    distinct = ascending if side == "reject" else ascending[::-1]
    if lemma:
        tails = several_tails(table, side, distinct, test)
    else:
        errors, covered = row_counts(table, side, distinct)
        tails = row_tails(errors, covered, table.rows, test)
    grid = np.searchsorted(ascending, count_tasks(table, side, settings.applied_grid).thresholds)
    places = grid if side == "reject" else distinct.size - 1 - grid
    chosen = np.union1d(places, np.flatnonzero(tails <= test.level)[-1:])
    thresholds, tails = distinct[chosen], tails[chosen]
    counts = count_at(table, side, thresholds, unscored=True)
    return Evaluation(
        counts=counts,
        tested=counts,
        tails=tails,
        passed_test=tails <= test.level,
        guarded=np.ones(thresholds.size, dtype=bool),
        test=test,
        unscored=table.unscored,
        unread=int(np.count_nonzero(observations.scored_rows[1] < 0)),
    )


def _guarded(observations: Observations, counts: TaskCounts, settings: Settings) -> Booleans:
    """Apply the guard to every threshold, if there is one."""
    if not settings.method.guarded or not counts.thresholds.size:
        return np.ones(counts.thresholds.size, dtype=bool)
    icc = error_icc(observations, settings.side, counts.thresholds, confident=True)
    return apply_guard(
        counts,
        icc,
        alpha=settings.alpha,
        delta=settings.delta / settings.candidates,
        size_ratio=settings.size_ratio,
    )
