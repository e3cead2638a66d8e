"""TaskBoot, Algorithm 1 of the paper: it draws the tasks B times with replacement.

`taskboot` is the algorithm from the first line to the last. `certify` takes the same steps for
``procedure="taskboot", engine="montecarlo"``. Without that engine it takes the limit of infinitely
many draws (`bootstrap`).

References
----------
Davison and Hinkley (1997), Bootstrap Methods and their Application, section 4.2.
Phipson and Smyth (2010), Permutation p-values should never be zero.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

import numpy as np

from certify_assets.arrays import Floats, Integers
from certify_assets.certificates.bootstrap import as_fraction
from certify_assets.certificates.counts import TaskCounts, count_tasks
from certify_assets.certificates.inputs import Observations
from certify_assets.certificates.kernels import resample_sums


def taskboot(
    observations: Observations,
    *,
    side: Literal["reject", "release"] = "reject",
    alpha: float = 0.1,
    delta: float = 0.05,
    grid: int = 40,
    draws: int = 2000,
    seed: int = 42,
) -> float | None:
    """Return the certified threshold of largest coverage; None where nothing is certified.

    Parameters
    ----------
    observations : Observations
        Scores s_gj and outcomes y_gj by task.
    side : {"reject", "release"}
    alpha, delta : float
        Error budget α, of at most four decimals, and one minus the confidence.
    grid, draws : int
        |Θ| and B.
    seed : int
    """
    # lines 1 to 3: Θ are score quantiles, with the counts n_g(θ) and k_g(θ) of every task
    counts = count_tasks(observations, side, grid)
    # lines 4 to 8: q(θ) ≤ α exactly where P*(resampled error > α) ≤ δ/|Θ|
    certified = taskboot_tails(counts, as_fraction(alpha), draws, seed) <= delta / grid
    # line 10: thresholds are in the order of their coverage
    return float(counts.thresholds[certified][-1]) if certified.any() else None


def taskboot_tails(counts: TaskCounts, budget: Fraction, draws: int, seed: int) -> Floats:
    """Estimate P*(resampled error > α) at every threshold by (k + 1)/(B + 1).

    k of B resamples exceed the budget.
    """
    # The share k/B is 0 when no resample happens to exceed, so that a single draw would certify
    # noise. (k + 1)/(B + 1) supposes one more resample that exceeds: it lies above the exact tail p
    # by (1 − p)/(B + 1) on average (5e-4 at 2,000 draws), which errs on the side of not certifying.
    return (exceedances(counts, budget, draws, seed).astype(np.float64) + 1.0) / (draws + 1.0)


def exceedances(counts: TaskCounts, budget: Fraction, draws: int, seed: int) -> Integers:
    """Count the resamples whose error Σk_g/Σn_g (Eq. 3) is above the budget, at every threshold.

    All thresholds have the same resamples. A resample that covers nothing has error 0.
    """
    # Σk/Σn > num/den exactly where Σ(den·k − num·n) > 0, in whole numbers
    errors, covered = (each.astype(np.int64) for each in (counts.errors, counts.covered))
    excess = budget.denominator * errors - budget.numerator * covered
    return np.count_nonzero(resample_sums(excess.T, draws, seed) > 0, axis=0)


def draws_needed(level: float) -> int:
    """Fewest draws B at which a threshold can pass at all: 1/(B + 1) ≤ level."""
    draws = max(1, math.floor(1.0 / level) - 2)
    while 1.0 / (draws + 1) > level:
        draws += 1
    return draws
