"""The area under the ROC curve, ties counted half."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.errors import InputError

__all__ = ["Ranking", "auroc"]


def auroc(scores: ArrayLike, outcomes: ArrayLike) -> float:
    """Probability that a success scores above a failure, a tie counting one half.

    Parameters
    ----------
    scores : array_like, shape (n,)
        Higher = more likely a success. Rows with NaN are left out.
    outcomes : array_like, shape (n,)
        1 = success, 0 = failure.

    Returns
    -------
    float
        In [0, 1]; NaN when one of the two classes is absent.

    Raises
    ------
    InputError
        If the lengths differ or an outcome is neither 0 nor 1.

    Notes
    -----
    Computed from the mid-ranks r of the n₁ successes among n₀ + n₁ rows:  (Σ r − n₁(n₁+1)/2) / (n₀ n₁).

    References
    ----------
    Hanley and McNeil (1982), "The meaning and use of the area under a receiver operating characteristic (ROC) curve".
    """
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    if values.ndim != 1 or values.shape != labels.shape:
        raise InputError(
            f"scores {values.shape} and outcomes {labels.shape} are not two lists of one length; give one of each a row."
        )
    if not np.isin(labels, (0.0, 1.0)).all():
        raise InputError("an outcome is neither 0 nor 1; leave out rows without an outcome.")
    kept = ~np.isnan(values)
    values, labels = values[kept], labels[kept]
    successes = int(labels.sum())
    failures = labels.size - successes
    if successes == 0 or failures == 0:
        return float("nan")
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    mid_ranks = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = float(mid_ranks[inverse][labels == 1.0].sum())
    return (rank_sum - successes * (successes + 1) / 2) / (successes * failures)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Scores put in order once, so that the AUROC of many weightings of the rows costs no sorting.

    Parameters
    ----------
    places : int array, shape (n,)
        Place of every row's score among the distinct scores.
    outcomes : float array, shape (n,)
        1 = success, 0 = failure.
    """

    places: NDArray[np.int64]
    outcomes: NDArray[np.float64]

    @classmethod
    def of(cls, scores: ArrayLike, outcomes: ArrayLike) -> Ranking:
        """Order finite scores."""
        places = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True)[1].astype(
            np.int64
        )
        return cls(places, np.asarray(outcomes, dtype=np.float64))

    def auroc(self, weights: NDArray[np.float64]) -> float:
        """Return the AUROC of rows that count as often as their weight; NaN when one of the two classes is absent.

        Parameters
        ----------
        weights : float array, shape (n,)
            Not negative; all 1 gives `auroc`.
        """
        successes = np.bincount(self.places, weights=weights * self.outcomes)
        failures = np.bincount(self.places, weights=weights * (1.0 - self.outcomes))
        pairs = float(successes.sum() * failures.sum())
        if pairs == 0:
            return float("nan")
        below = np.cumsum(failures) - failures / 2
        return float(successes @ below) / pairs
