"""Two-way resampling: tasks and agents are drawn again, each with replacement, independently.

The task bootstrap holds the agents fixed. Here the run of agent a at task g weighs W_g·V_a in a
resample, W and V multinomial with one draw for each task and for each agent. Given V, the tail over
tasks is that of the task bootstrap in the limit of infinitely many resamples, so only V is drawn,
or enumerated where agents are few.

References
----------
Owen (2007), The pigeonhole bootstrap.
McCullagh (2000), Resampling and exchangeable arrays: no resampling of a two-way table is consistent
for the variance; this one is conservative where both effects are weak.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.bootstrap import bootstrap_tails, error_lattice

Counts = NDArray[np.int32]


def two_way_tails(
    cells: tuple[Counts, Counts],
    budget: Fraction,
    *,
    level: float,
    draws: int,
    seed: int,
    tasks: int | None = None,
) -> NDArray[np.float64]:
    """Return P*(resampled error > budget) at every threshold, over tasks and agents.

    Parameters
    ----------
    cells : int32 arrays, shape (thresholds, agents, tasks)
        Covered runs and errors: `TaskCounts.cells`.
    budget : Fraction
    level : float
        At which the tail over tasks need not be refined further.
    draws : int
        Of agents. Where no more than these are possible all are enumerated; else one more, which
        exceeds, is supposed.
    seed : int
    tasks : int, optional
        Size of a resample of tasks; by default as many as there are.
    """
    agents = cells[0].shape[1]
    few = math.comb(2 * agents - 1, agents) <= draws
    weights = _compositions(agents) if few else _drawn(agents, draws, seed)
    tails = np.zeros(cells[0].shape[0])
    for weight, probability in weights:
        covered, errors = (
            np.tensordot(part, weight, axes=(1, 0)).astype(np.int32) for part in cells
        )
        lattice = error_lattice(covered, errors, budget)
        tails += probability * bootstrap_tails(lattice, level, "saddlepoint", tasks)
    return tails if few else (draws * tails + 1.0) / (draws + 1.0)


def _drawn(agents: int, draws: int, seed: int) -> Iterator[tuple[NDArray[np.int64], float]]:
    rng = np.random.default_rng([seed, agents, draws])
    for weight in rng.multinomial(agents, np.full(agents, 1.0 / agents), size=draws):
        yield weight, 1.0 / draws


def _compositions(agents: int) -> Iterator[tuple[NDArray[np.int64], float]]:
    """Every way in which as many draws fall on the agents, with its probability."""
    for bars in combinations(range(2 * agents - 1), agents - 1):
        weight = np.diff([-1, *bars, 2 * agents - 1]) - 1
        ways = math.factorial(agents)
        for often in weight.tolist():
            ways //= math.factorial(often)
        yield weight, ways / agents**agents
