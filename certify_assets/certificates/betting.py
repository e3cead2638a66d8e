"""Betting: a test of a bounded mean over tasks, at any number of tasks.

A task's payoff is x_g = z_g/z_max ≤ 1, with z_g = (k_g − α·n_g)/m_g over its m_g trajectories and
z_max = 1 − α. So every task weighs the same. Where the error is at least α, E[x] ≥ 0.
E[Π(1 − λ·x_g)] ≤ 1 for any bet λ in [0, 1] that does not depend on the tasks, so a wealth of 1/δ
certifies. Thresholds, start and bets come from a pilot table of other tasks; thresholds are then
tested one after the other.

References
----------
Ville (1939), Étude critique de la notion de collectif.
Kelly (1956), A new interpretation of information rate.
Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables by betting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from certify_assets.arrays import Floats
from certify_assets.certificates.counts import TaskCounts, count_tasks
from certify_assets.certificates.inputs import Observations
from certify_assets.certificates.kernels import rising_root

#: weight of one supposed task that is wrong throughout: without it a pilot without errors bets
#: everything
_DOUBT = 0.25
_LEAST_BET = 1e-6


@dataclass(frozen=True, eq=False)
class BettingPlan:
    """What a pilot table fixes before the calibration table is seen."""

    thresholds: Floats  # pilot scores, from the narrowest threshold to the widest
    bets: Floats  # λ in [0, 1), one a threshold
    start: int  # tested first: the largest growth of wealth a task in the pilot
    tasks: int
    sha256: str  # of the pilot table


def payoffs(counts: TaskCounts, alpha: float) -> Floats:
    """Return z_g/z_max of every task at every threshold, every task weighing the same."""
    excess = counts.errors - alpha * counts.covered
    return np.minimum(excess / (counts.sizes * (1.0 - alpha)), 1.0)


def make_plan(pilot: Observations, side: str, grid: int, alpha: float) -> BettingPlan:
    """Fix thresholds, bets and start from a pilot table."""
    counts = count_tasks(pilot, side, grid)
    table = payoffs(counts, alpha)
    bets = _bets(table)
    growth = np.log1p(-bets[:, None] * table).sum(axis=1) + _DOUBT * np.log1p(-bets)
    # tied thresholds have equal growth, and the rounding keeps machines from telling them apart
    start = int(np.argmax(np.round(growth, 9)))
    return BettingPlan(counts.thresholds, bets, start, counts.tasks, pilot.sha256)


def _bets(table: Floats) -> Floats:
    """Return the λ of largest growth Σ log(1 − λ·x) + doubt·log(1 − λ), by threshold."""

    def falling(bet: Floats) -> tuple[Floats, Floats]:
        """Minus the derivatives of the growth, which is concave."""
        parts, doubt = table / (1.0 - bet[:, None] * table), 1.0 / (1.0 - bet)
        slope = np.square(parts).sum(axis=1) + _DOUBT * doubt * doubt
        return parts.sum(axis=1) + _DOUBT * doubt, slope

    none = np.zeros(len(table))
    found = rising_root(falling, none, none, none + 1.0)
    # few digits, which are the same on every machine
    return np.array([float(f"{bet:.6g}") if bet > _LEAST_BET else 0.0 for bet in found])


def wealth_tails(table: Floats, bets: Floats, factor: float = 1.0) -> Floats:
    """Return min(1, 1/wealth), the p-value of "the error is at least α" (Ville)."""
    log_wealth = factor * np.log1p(-bets[:, None] * table).sum(axis=1)
    return np.exp(-np.maximum(log_wealth, 0.0))
