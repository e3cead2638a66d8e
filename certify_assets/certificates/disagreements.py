"""Decisions that labels contradict: how many of each side, and the worst first."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.arrays import Integers
from certify_assets.certificates.counts import SIDES

#: decisions, the outcome that contradicts each, and the words of both outcomes
_WRONG = {"reject": 1, "release": 0}
OUTCOME_WORDS = ("failure", "success")


def confusion(decisions: NDArray[np.str_], outcomes: ArrayLike) -> dict[str, dict[str, int]]:
    """Count labelled failures and successes of every decision.

    Parameters
    ----------
    decisions : array of str, shape (rows,)
        reject, release or human, as :func:`decide` has them.
    outcomes : array_like, shape (rows,)
        1 success, 0 failure; rows with any other value count nowhere.

    Returns
    -------
    dict
        By decision, {"failure": int, "success": int}.
    """
    labels = np.asarray(outcomes)
    return {
        name: {
            word: int(np.count_nonzero((decisions == name) & (labels == outcome)))
            for outcome, word in enumerate(OUTCOME_WORDS)
        }
        for name in ("reject", "human", "release")
    }


def disagreements(decisions: NDArray[np.str_], scores: ArrayLike, outcomes: ArrayLike) -> Integers:
    """Return the places of decided rows whose label says otherwise, the worst first.

    A row is as bad as its decision was sure: it is ordered by the share of the decided rows of its
    side that lie at least as far from the threshold, so that both sides can be compared.

    Parameters
    ----------
    decisions, outcomes
        As for :func:`confusion`.
    scores : array_like of float, shape (rows,)

    Returns
    -------
    int64 array
    """
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(outcomes)
    surer = np.full(values.size, np.inf)
    for side in SIDES:
        mine = np.flatnonzero(decisions == side)
        outward = values[mine] if side == "reject" else -values[mine]
        found = np.searchsorted(np.sort(outward), outward, side="right") / max(1, mine.size)
        wrong = labels[mine] == _WRONG[side]
        surer[mine[wrong]] = found[wrong]
    places = np.flatnonzero(np.isfinite(surer))
    return places[np.argsort(surer[places], kind="stable")]
