"""Tests of a bounded mean over tasks: betting, at any number of tasks, and Gaffke's test.

A task's payoff is x_g = z_g/z_max ≤ 1, with z_g = k_g − α·n_g over its trajectories (z_max = (1 −
α)·M for at most M of them), or z_g = (k_g − α·n_g)/m_g when every task weighs the same (z_max = 1 −
α). Where the error is at least α, E[x] ≥ 0.

* **Betting.** E[Π(1 − λ·x_g)] ≤ 1 for any bet λ in [0, 1] that does not depend on the tasks, so a
  wealth of 1/δ certifies. Thresholds, start and bets come from a pilot table of other tasks;
  thresholds are then tested one after the other.
* **Gaffke.** P(Σ E_g z_g + E* z_max ≥ 0) with independent standard exponentials E, by numerical
  inversion: the Bayesian bootstrap of the tasks' excess, plus one supposed task that is wrong
  throughout. For tasks of one trajectory it is the Clopper–Pearson test exactly; that it keeps its
  level for every bounded distribution is conjectured, and checked by simulation only.

References
----------
Ville (1939), Étude critique de la notion de collectif.
Kelly (1956), A new interpretation of information rate.
Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables by betting.
Gaffke (2005), Three test statistics for a nonparametric one-sided hypothesis on the mean of a
nonnegative variable.
Learned-Miller and Thomas (2019), A new confidence interval for the mean of a bounded random
variable.
Trefethen and Weideman (2014), The exponentially convergent trapezoidal rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.counts import TaskCounts, count_tasks
from certify_assets.certificates.inputs import Observations
from certify_assets.errors import InputError, quoted

#: weight of one supposed task that is wrong throughout: without it a pilot without errors bets
#: everything
_DOUBT = 0.25
_BET_STEPS = 60


@dataclass(frozen=True, eq=False)
class BettingPlan:
    """What a pilot table fixes before the calibration table is seen."""

    thresholds: NDArray[np.float64]  # pilot scores, from the narrowest threshold to the widest
    bets: NDArray[np.float64]  # λ in [0, 1), one a threshold
    start: int  # tested first: the largest growth of wealth a task in the pilot
    tasks: int
    sha256: str  # of the pilot table


def payoffs(counts: TaskCounts, alpha: float, cap: int | None) -> NDArray[np.float64]:
    """Return z_g/z_max of every task at every threshold."""
    # over trajectories where a cap is given, else with every task weighing the same
    sizes = counts.sizes.astype(np.float64) if cap is None else float(cap)
    excess = counts.errors - alpha * counts.covered
    return np.asarray(np.minimum(excess / (sizes * (1.0 - alpha)), 1.0))


def check_pilot(pilot: Observations, observations: Observations) -> None:
    """Refuse a pilot that shares a task with the calibration table, or has no score."""
    if not pilot.scored:
        raise InputError(
            "No row of the pilot table has a score; score the pilot trajectories first."
        )
    shared = sorted(set(pilot.labels) & set(observations.labels))
    if shared:
        raise InputError(
            f"The pilot table shares {len(shared)} task(s) with the calibration table, the first "
            f"being {quoted(shared[0])}; bets must be fixed "
            "on other tasks: take the shared ones out of the pilot table."
        )


def make_plan(
    pilot: Observations, side: str, grid: int, alpha: float, cap: int | None
) -> BettingPlan:
    """Fix thresholds, bets and start from a pilot table."""
    counts = count_tasks(pilot, side, grid)
    table = payoffs(counts, alpha, cap)
    bets = np.array([float(f"{_bet(row):.6g}") for row in table])
    growth = np.log1p(-bets[:, None] * table).sum(axis=1) + _DOUBT * np.log1p(-bets)
    # tied thresholds have equal growth, and the rounding keeps machines from telling them apart
    start = int(np.argmax(np.round(growth, 9)))
    return BettingPlan(counts.thresholds, bets, start, counts.tasks, pilot.sha256)


def _bet(row: NDArray[np.float64]) -> float:
    """Return λ of the largest growth Σ log(1 − λ·x) + doubt·log(1 − λ)."""
    # bisection of the derivative, which falls
    low, high = 0.0, 1.0
    for _ in range(_BET_STEPS):
        bet = (low + high) / 2
        slope = -float((row / (1.0 - bet * row)).sum()) - _DOUBT / (1.0 - bet)
        low, high = (bet, high) if slope > 0 else (low, bet)
    return low if low > 1e-6 else 0.0


def wealth_tails(
    table: NDArray[np.float64], bets: NDArray[np.float64], factor: float = 1.0
) -> NDArray[np.float64]:
    """Return 1/wealth, at most 1: where the error is at least α, so much wealth is as unlikely."""
    log_wealth = factor * np.log1p(-bets[:, None] * table).sum(axis=1)
    return np.asarray(np.exp(-np.maximum(log_wealth, 0.0)))


_NEGLIGIBLE = -46.0
_NODES, _MOST_NODES, _AGREE = 100, 100_000, 1e-11
_BISECTIONS = 40
_MOST_CELLS = 2_000_000


def gaffke_tails(table: NDArray[np.float64], factor: float = 1.0) -> NDArray[np.float64]:
    """P(Σ E_g x_g + E* ≥ 0) at every threshold."""
    tails = np.ones(table.shape[0])
    for place, row in enumerate(table):
        weights, often = np.unique(np.append(row, 1.0), return_counts=True)
        multiplicity = often.astype(np.float64)
        multiplicity[-1] -= 1.0
        multiplicity *= factor
        multiplicity[-1] += 1.0
        tails[place] = exponential_sum_tail(weights, multiplicity)
    return tails


def exponential_sum_tail(weights: NDArray[np.float64], often: NDArray[np.float64]) -> float:
    """Return P(Σ_i w_i·Gamma(c_i) ≥ 0) for distinct weights w with shapes c."""
    # With K(t) = −Σ c_i log(1 − t·w_i) the tail is the integral of exp(K(t))/t over a line c + iy,
    # 0 < c < 1/w_max. The line passes the saddlepoint of K(t) − log t, and y = d·sinh(u) makes the
    # trapezoidal rule converge exponentially; nodes are doubled until two results agree to 1e-11.
    keep = (weights != 0.0) & (often > 0.0)
    w, c = weights[keep], often[keep]
    if not w.size or w.min() > 0.0:
        return 1.0
    if w.max() < 0.0:
        return 0.0
    if float(c @ w) > 0.0:
        # on the far side of the mean the integrand would oscillate
        return 1.0 - exponential_sum_tail(-w, c)
    point = _saddlepoint(w, c)
    room = 1.0 - point * w
    width = 1.0 / np.sqrt(float(c @ np.square(w / room)) + point**-2)
    base = -float(c @ np.log(room)) - float(np.log(point))

    def size(u: float) -> float:
        """Log of the integrand's size at u, relative to u = 0."""
        square = (width * np.sinh(u)) ** 2
        return float(
            np.log(np.cosh(u))
            - 0.5 * (c @ np.log1p(square * np.square(w / room)) + np.log1p(square / point**2))
        )

    reach = 1.0
    while size(reach) > _NEGLIGIBLE:
        reach *= 1.25

    def integral(nodes: int) -> float:
        return _trapezoid(np.linspace(0.0, reach, nodes + 1), w / room, c, (point, width))

    nodes, last, found = _NODES, np.inf, integral(_NODES)
    while abs(found - last) > _AGREE * abs(found) and nodes < _MOST_NODES:
        nodes *= 2
        last, found = found, integral(nodes)
    return float(min(max(np.exp(base) * found / np.pi, 0.0), 1.0))


def _trapezoid(
    u: NDArray[np.float64],
    slopes: NDArray[np.float64],
    c: NDArray[np.float64],
    place: tuple[float, float],
) -> float:
    """Trapezoidal rule of the real part of the integrand, relative to the saddlepoint."""
    point, width = place
    total = 0.0
    piece = max(1, _MOST_CELLS // slopes.size)
    for first in range(0, u.size, piece):
        part = u[first : first + piece]
        y = width * np.sinh(part)
        turn = np.multiply.outer(y, slopes)
        log_size = -0.5 * (np.log1p(np.square(turn)) @ c + np.log1p(np.square(y / point)))
        phase = np.arctan(turn) @ c - np.arctan(y / point)
        values = np.exp(log_size) * np.cos(phase) * width * np.cosh(part)
        total += float(values.sum()) - (0.5 * float(values[0]) if first == 0 else 0.0)
    return total * float(u[1] - u[0])


def _saddlepoint(w: NDArray[np.float64], c: NDArray[np.float64]) -> float:
    """Minimum of K(t) − log t on (0, 1/w_max), by bisection of its rising derivative."""
    low, high = 0.0, 1.0 / float(w.max())
    for _ in range(_BISECTIONS):
        t = (low + high) / 2
        slope = float(c @ (w / (1.0 - t * w))) - 1.0 / t
        low, high = (t, high) if slope < 0 else (low, t)
    return (low + high) / 2
