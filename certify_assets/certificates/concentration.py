"""Whether so few tasks carry the covered trajectories that resampling tasks says nothing.

Two rules, both of which the bootstrap itself cannot see, because a table on which the heavy tasks happen to be right has a tail of zero
whatever the number of light ones.

* **Even odds.** Let the L largest covered tasks hold a share W_L of the covered trajectories. Suppose that only tasks as large as these are
  ever wrong, each throughout and with probability α/W_L: the error is α, and all L are right with probability (1 − α/W_L)^L. Where that
  exceeds one half, a judge that breaks the budget passes more often than not. For L = 1 it says that one task holds more than 2α.
* **A resample must be able to look away.** It holds a given task with probability about 1 − 1/e, so all of G_eff effective ones with about
  (1 − 1/e)^G_eff. Where that exceeds δ, the bootstrap law at δ has left no task out: fewer than ln δ / ln(1 − 1/e) effective tasks, 6.5 at
  δ = .05.

Neither refuses twenty or more equal tasks: a share W_L ≤ L/20 passes the first, and the second asks for at most twenty. They are the least
that a guard can ask, no test at δ; against a few large tasks that are wrong, declare ``size_ratio`` or ``max_task_size``.

Measured at α = .1 (100 tasks of one trajectory and some of 400, the large ones wrong with a true error of .15; share of 300 tables certified
by the floor without and with these rules, standard error at most .03; benchmarks/guards.py): 1 large task .84 → 0, 2 .69 → 0, 3 .60 → 0,
5 .41 → 0, 8 .32 → .32, 20 .02 → .02. On tasks of Poisson size at 20 to 50 tasks, α of .05, .1 and .2, no coverage changed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.counts import TaskCounts

__all__ = ["concentrated", "factor_needed", "largest_shares"]

_EQUAL = 20
_ODDS = 0.5
_ROUNDING = 1e-9


def least_effective(delta: float) -> float:
    """Effective tasks that the second rule asks for."""
    return min(float(_EQUAL), math.log(delta) / math.log1p(-math.exp(-1.0)))


def _limits(alpha: float) -> NDArray[np.float64]:
    """Largest W_L that the first rule allows, for L = 1, 2, …; beyond L = 20 anything is allowed."""
    places = np.arange(1, _EQUAL + 1, dtype=np.float64)
    return np.maximum(alpha / -np.expm1(math.log(_ODDS) / places), places / _EQUAL)


def largest_shares(counts: TaskCounts) -> NDArray[np.float64]:
    """Share of the covered trajectories that the largest covered task holds, at each threshold; 0 where nothing is covered."""
    return np.asarray(
        counts.covered.max(axis=1) / np.maximum(counts.covered_trajectories, 1), dtype=np.float64
    )


def concentrated(counts: TaskCounts, alpha: float, delta: float) -> NDArray[np.bool_]:
    """Say of every threshold whether too few tasks carry it.

    Parameters
    ----------
    counts : TaskCounts
    alpha, delta : float

    Returns
    -------
    bool array, shape (thresholds,)
    """
    found = counts.effective_tasks < least_effective(delta)
    # W_L is at most L times the largest share, so a largest share of a twentieth passes at every L
    for place in np.flatnonzero(largest_shares(counts) > 1.0 / _EQUAL):
        row = counts.covered[place]
        top = np.partition(row, max(row.size - _EQUAL, 0))[-_EQUAL:] if row.size > _EQUAL else row
        shares = (
            np.cumsum(np.sort(top)[::-1], dtype=np.float64) / counts.covered_trajectories[place]
        )
        found[place] |= bool((shares > _limits(alpha)[: shares.size] + _ROUNDING).any())
    return found


def factor_needed(counts: TaskCounts, place: int, alpha: float, delta: float) -> float:
    """How many times as many tasks like these would pass both rules at a threshold, at least 1."""
    if not bool(concentrated(counts.at(place), alpha, delta)[0]):
        return 1.0
    limits = _limits(alpha)
    places = np.arange(1, _EQUAL + 1, dtype=np.float64)
    shares = float(largest_shares(counts)[place]) * (places / limits)[limits < 1.0]
    return max(
        1.0,
        float(shares.max(initial=0.0)),
        least_effective(delta) / float(counts.effective_tasks[place]),
    )
