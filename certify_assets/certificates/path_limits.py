"""Limits on the errors among the narrowest rows, valid at every threshold at once.

Rows are read in the order of their scores. If each were wrong with chance α, independently, the
number of errors among the first N would be a random walk. The limits are binomial, at the largest
level λ* for which the walk stays above all of them with probability 1 − δ. This is Theorem 1 of
docs/few-labels-proofs.md.

References
----------
Armitage, McPherson and Rowe (1969), Repeated significance tests on accumulating data.
Moscovich, Nadler and Spiegelman (2016), On the exact Berk-Jones statistics and their p-value
calculation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.clustering import n_min

#: equal tails may differ in their last bits
_SAME = 1 + 1e-12
#: limits are flat beyond this number of rows, which bounds the time of the recursion
_MOST_PLANNED = 1_500


def binomial_tails(
    errors: NDArray[np.number[Any]], covered: NDArray[np.number[Any]], alpha: float
) -> NDArray[np.float64]:
    """P(Binomial(n, α) ≤ k), also for real counts; 1 where every row is an error."""
    # at most the level exactly when the Clopper–Pearson bound is at most α
    from scipy.special import betainc

    errors, covered = np.broadcast_arrays(errors, covered)
    tails = np.ones(errors.shape)
    some = errors < covered
    tails[some] = betainc(covered[some] - errors[some], errors[some] + 1.0, 1.0 - alpha)
    return tails


@dataclass(frozen=True, eq=False)
class Limits:
    """How many errors the narrowest rows may hold.

    Attributes
    ----------
    most : int64 array, shape (rows + 1,)
        Most errors among the N narrowest rows; −1 where N rows certify nothing.
    level : float
        λ*, the level of each binomial limit; 0 where no limit is possible.
    path : float
        Probability that a walk of error α meets a limit; at most δ.
    """

    most: NDArray[np.int64]
    level: float
    path: float

    @property
    def stop(self) -> int:
        """Most errors of any width: after one more, no wider threshold passes (Lemma 2)."""
        return int(self.most[-1])


def planned_rows(rows: int, alpha: float, delta: float, share: float) -> int:
    """Return n′ = max(⌈share·n⌉, min(n, n₀)), the rows for which limits are computed.

    n₀ is the smallest number of rows that allows a certificate without errors. Limits stay as they
    are beyond n′, which leaves the path probability unchanged.
    """
    # a share such as .6 of 5 rows is 3 rows, whatever its last bits are
    planned = max(math.ceil(share * rows - 1e-9), min(rows, n_min(alpha, delta)))
    return min(planned, max(_MOST_PLANNED, n_min(alpha, delta)))


# the numbers of tasks that a diagnosis tries are the same for every judge of a corpus
@lru_cache(maxsize=512)
def path_limits(rows: int, alpha: float, delta: float) -> Limits:
    """Return the limits of a number of rows (Theorem 1).

    Parameters
    ----------
    rows : int
        n, the drawn rows for which limits are wanted.
    alpha, delta : float
        Error budget, and the largest path probability allowed.
    """
    tails = _all_tails(rows, alpha)
    tails = tails[:, : np.count_nonzero(tails[-1] <= delta)]
    levels = np.unique(tails[tails <= delta])
    found = Limits(np.full(rows + 1, -1), 0.0, 0.0)
    low, high = 0, levels.size
    while low < high:
        middle = (low + high) // 2
        # the tail rises with the errors
        limits = np.count_nonzero(tails <= levels[middle] * _SAME, axis=1) - 1
        path = path_probability(limits, alpha)
        if path <= delta:
            low, found = middle + 1, Limits(limits, float(levels[middle]), path)
        else:
            high = middle
    return found


def _all_tails(rows: int, alpha: float) -> NDArray[np.float64]:
    """P(Binomial(n, α) ≤ k) for n up to `rows` and k up to its median, shape (rows + 1, k + 1)."""
    # n by n, in less time than it takes to load the incomplete beta function
    tails = np.ones((rows + 1, math.ceil(alpha * rows) + 1))
    law = np.eye(1, tails.shape[1])[0]
    for number in range(1, rows + 1):
        law[1:] = (1.0 - alpha) * law[1:] + alpha * law[:-1]
        law[0] *= 1.0 - alpha
        tails[number] = law.cumsum()
    return tails


def path_probability(limits: NDArray[np.int64], alpha: float) -> float:
    """P(S_N ≤ limits[N] for some N), S_N the sum of N independent errors of chance α.

    The recursion keeps the law of S_N on the paths that have met no limit yet.
    """
    law = np.zeros(int(limits.max()) + 2)
    law[0], met, before = 1.0, 0.0, -1
    for limit in limits[1:].tolist():
        # what exceeds every limit never comes back
        law[1:] = (1.0 - alpha) * law[1:] + alpha * law[:-1]
        law[0] *= 1.0 - alpha
        # errors never become fewer, so a path meets a limit only where that rises
        if limit > before:
            met += float(law[: limit + 1].sum())
            law[: limit + 1] = 0.0
        before = limit
    return met
