"""E-processes over tasks in order: evidence for or against an error rate that holds at every task at once.

With n_g covered trajectories and k_g errors in task g, and a weight a task s_g (its scored trajectories m_g, or one declared cap M on n_g),
let x_g(c) = (k_g − c·n_g)/s_g, which lies in [−c, 1−c]. The error of the estimand is at most c exactly when E[x_g(c)] ≤ 0, so that

    W↑_t(c) = ∏ (1 + (u/c)·x_g(c))  is a test martingale where the error is c and a supermartingale below,
    W↓_t(c) = ∏ (1 − (u/(1−c))·x_g(c))  the same from above, for every share 0 < u < 1 of the largest bet.

Mixed over fixed u they stay so, and by Ville's inequality one exceeds 1/δ at any time with probability at most δ. The alarm is W↑(α),
started anew at every task under weights that sum to one, so that a long good past does not hide a change; certification is W↓(α); the
interval is every c that neither W↑(c) nor W↓(c) excludes at 2/δ; the Shiryaev–Roberts detector starts W↑(α) at every task with weight one.

References
----------
Ville, J. (1939). Étude critique de la notion de collectif. Gauthier-Villars.
Waudby-Smith, I. and Ramdas, A. (2024). Estimating means of bounded random variables by betting. J. R. Stat. Soc. B 86(1), 1–27.
Shin, J., Ramdas, A. and Rinaldo, A. (2024). E-detectors: a nonparametric framework for sequential change detection. NEJSDS 2(2), 229–260.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.certificate import significant

__all__ = [
    "TaskStream",
    "alarm_process",
    "certification_process",
    "error_interval",
    "shiryaev_roberts",
]

_STEPS = 30
# a bet for an error above c is small (the excess over 1 − c), one for an error below is a share of c itself: hence the two spacings
_UPWARD: NDArray[np.float64] = np.geomspace(0.0025, 0.95, 9)
_DOWNWARD: NDArray[np.float64] = np.array([0.05, 0.15, 0.3, 0.5, 0.7, 0.9, 0.99])


@dataclass(frozen=True, eq=False)
class TaskStream:
    """Tasks in the order in which they came.

    Attributes
    ----------
    covered, errors : int64 arrays, shape (tasks,)
        n_g and k_g: rows that the certified threshold decides, and those of them that it decides wrongly.
    scale : float64 array, shape (tasks,)
        s_g ≥ n_g: scored trajectories of the task, or the declared cap; at least 1.
    labels : tuple of str
    """

    covered: NDArray[np.int64]
    errors: NDArray[np.int64]
    scale: NDArray[np.float64]
    labels: tuple[str, ...] = ()

    @property
    def realized_error(self) -> float | None:
        """Σ k_g/s_g over Σ n_g/s_g; None when nothing is covered."""
        weight = float((self.covered / self.scale).sum())
        return float((self.errors / self.scale).sum()) / weight if weight else None

    def excess(self, level: float) -> NDArray[np.float64]:
        """Return x_g(c) = (k_g − c·n_g)/s_g, from −c to 1 − c; 0 for a task of which nothing is covered."""
        return np.asarray((self.errors - level * self.covered) / self.scale)


def alarm_process(stream: TaskStream, alpha: float) -> NDArray[np.float64]:
    """E-process against "the error is at most α", after each task.

    Half of the capital is bet from the first task on, and 1/(2j(j−1)) of it from task j on; what is not yet bet is kept.

    Parameters
    ----------
    stream : TaskStream
    alpha : float

    Returns
    -------
    float64 array, shape (tasks,)
        Its logarithm. It reaches ln(1/δ) at any time with probability at most δ if the error is at most α.
    """
    places = np.arange(1, stream.covered.size + 1, dtype=np.float64)
    starts = np.log(0.5 / np.maximum(places * (places - 1), 1.0))
    return np.asarray(np.logaddexp(_started(stream, alpha, starts), np.log(0.5 / places)))


def shiryaev_roberts(stream: TaskStream, alpha: float) -> NDArray[np.float64]:
    """Shiryaev–Roberts e-detector of a change to an error above α, after each task.

    Parameters
    ----------
    stream : TaskStream
    alpha : float

    Returns
    -------
    float64 array, shape (tasks,)
        Its logarithm. While the error is at most α, the mean number of tasks before it reaches ln A is at least A.
    """
    return _started(stream, alpha, np.zeros(stream.covered.size))


def certification_process(stream: TaskStream, alpha: float) -> NDArray[np.float64]:
    """E-process against "the error is at least α", after each task.

    Parameters
    ----------
    stream : TaskStream
    alpha : float

    Returns
    -------
    float64 array, shape (tasks,)
        Its logarithm. Where it reaches ln(1/δ), an error of at most α is certified at 1 − δ, however often it was looked at.
    """
    from scipy.special import logsumexp

    capital = np.cumsum(np.log1p(np.outer(-_DOWNWARD / (1 - alpha), stream.excess(alpha))), axis=1)
    return np.asarray(logsumexp(capital, axis=0) - math.log(_DOWNWARD.size))


def _started(
    stream: TaskStream, alpha: float, log_starts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Logarithm of Σ_j w_j·W↑(tasks j to t), mixed over the bets."""
    from scipy.special import logsumexp

    growth = np.log1p(np.outer(_UPWARD / alpha, stream.excess(alpha)))
    capital = np.cumsum(growth, axis=1)
    sums = np.logaddexp.accumulate(log_starts - (capital - growth), axis=1)
    return np.asarray(logsumexp(capital + sums, axis=0) - math.log(_UPWARD.size))


def error_interval(stream: TaskStream, delta: float) -> tuple[float, float]:
    """Confidence sequence for the error, at the last task.

    Parameters
    ----------
    stream : TaskStream
    delta : float
        The true error lies outside at any task ever with probability at most δ, if it stays the same.

    Returns
    -------
    tuple of float
        Lower and upper end; contains the realised error. (0, 1) when nothing is covered.

    Notes
    -----
    W↑(c) falls and W↓(c) rises in c, whatever the data, so each end is found by bisection.
    """
    from scipy.special import logsumexp

    point = stream.realized_error
    if point is None:
        return 0.0, 1.0
    table = np.stack([stream.errors / stream.scale, stream.covered / stream.scale])[
        :, stream.covered > 0
    ]
    kinds, numbers = np.unique(table, axis=1, return_counts=True)
    limit = math.log(2 / delta)

    def rejected(level: float, upward: bool) -> bool:

        shares = _UPWARD / level if upward else -_DOWNWARD / (1 - level)
        capital = np.log1p(np.outer(shares, kinds[0] - level * kinds[1])) @ numbers
        return float(logsumexp(capital)) - math.log(shares.size) >= limit

    def end(outer: float, upward: bool) -> float:
        inner = point
        for _ in range(_STEPS):
            middle = (outer + inner) / 2
            outer, inner = (middle, inner) if rejected(middle, upward) else (outer, middle)
        return outer

    return significant(end(0.0, True)) if point > 0 else 0.0, significant(
        end(1.0, False)
    ) if point < 1 else 1.0
