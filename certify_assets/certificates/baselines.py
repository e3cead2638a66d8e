"""The tests that the bootstrap is compared with: closed forms, from Clopper–Pearson to a cluster-linearised bound.

Each takes task counts and answers for ``tasks`` tasks like those observed, so that the same function serves planning.

References
----------
Clopper and Pearson (1934), The use of confidence or fiducial limits illustrated in the case of the binomial.
Kish (1965), Survey Sampling.
Korn and Graubard (1998), Confidence intervals for proportions with small expected number of positive counts estimated from survey data.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.clustering import summarise_clusters
from certify_assets.certificates.counts import TaskCounts

__all__ = [
    "binomial_tails",
    "clopper_pearson_upper",
    "deff_tails",
    "hoeffding_tails",
    "korn_graubard_tails",
    "naive_tails",
]


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


def binomial_tails(
    errors: NDArray[np.floating[Any]], covered: NDArray[np.floating[Any]], alpha: float
) -> NDArray[np.float64]:
    """P(Binomial(n, α) ≤ k) with real-valued counts: at most the level exactly when the Clopper–Pearson bound is at most α."""
    from scipy.special import betainc

    tails = np.ones(errors.size)
    some = errors < covered
    tails[some] = betainc(covered[some] - errors[some], errors[some] + 1.0, 1.0 - alpha)
    return tails


def naive_tails(counts: TaskCounts, alpha: float, tasks: int) -> NDArray[np.float64]:
    """Clopper–Pearson as if trajectories were independent."""
    factor = tasks / counts.tasks
    return binomial_tails(factor * counts.error_totals, factor * counts.covered_trajectories, alpha)


def deff_tails(counts: TaskCounts, alpha: float, tasks: int) -> NDArray[np.float64]:
    """Clopper–Pearson at k/DEFF of n/DEFF, with the design effect of all outcomes."""
    factor = tasks / counts.tasks / summarise_clusters(counts.sizes, counts.successes).deff
    return binomial_tails(factor * counts.error_totals, factor * counts.covered_trajectories, alpha)


def hoeffding_tails(counts: TaskCounts, alpha: float, tasks: int) -> NDArray[np.float64]:
    """Hoeffding's exp(−2 G slack²) over covered tasks, slack = α minus the mean of their error rates."""
    tails = np.ones(counts.thresholds.size)
    for place, (covered, errors) in enumerate(zip(counts.covered, counts.errors, strict=True)):
        inside = covered > 0
        # sorted, so that relabelled tasks give the same bits
        rates = np.sort(errors[inside] / covered[inside])
        slack = alpha - (math.fsum(rates) / rates.size if rates.size else 1.0)
        if slack > 0:
            tails[place] = math.exp(-2.0 * rates.size * tasks / counts.tasks * slack * slack)
    return tails


def korn_graubard_tails(
    counts: TaskCounts, alpha: float, tasks: int, level: float
) -> NDArray[np.float64]:
    """Clopper–Pearson at the effective size p(1 − p)/v, v the linearised variance between tasks, times the squared ratio of t quantiles.

    The effective size stays at most the number of covered trajectories, and is that number where no error is seen (v = 0).
    """
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
        ratio = stdtrit(max(factor * total - 1, 1), 1 - level) / stdtrit(
            factor * seen - 1, 1 - level
        )
        size = min(factor * size * float(ratio) ** 2, factor * total)
        tails[place] = binomial_tails(np.array([size * wrong / total]), np.array([size]), alpha)[0]
    return tails
