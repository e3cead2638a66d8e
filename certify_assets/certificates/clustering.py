"""Information in clustered trajectories: intraclass correlation, design effect, effective sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from certify_assets.arrays import Integers


@dataclass(frozen=True)
class ClusterSummary:
    """Clustering of the outcomes of a corpus by task.

    Attributes
    ----------
    trajectories, tasks : int
    success_rate : float
        π.
    mean_task_size : float
        Size-weighted mean cluster size Σ m_g² / Σ m_g.
    icc : float
        ANOVA ICC(1) of the outcomes, in [0, 1].
    deff : float
        1 + (m̃ − 1)·ICC.
    n_eff : float
        Trajectories divided by the design effect.
    """

    trajectories: int
    tasks: int
    success_rate: float
    mean_task_size: float
    icc: float
    deff: float
    n_eff: float


def anova_icc(sizes: Integers, successes: Integers) -> float:
    """One-way ANOVA ICC(1) of binary outcomes with the unequal-size n₀, clipped to [0, 1].

    References
    ----------
    Ridout, Demétrio and Firth (1999), Estimating intraclass correlation for binary data.
    """
    total, tasks = int(sizes.sum()), int(sizes.size)
    if tasks < 2 or total == tasks:
        return 0.0
    # summed over distinct (size, successes) pairs in ascending order: relabelled tasks give the
    # same bits
    width = int(sizes.max()) + 1
    pairs, often = np.unique(sizes * width + successes, return_counts=True)
    split = [
        (*divmod(pair, width), count)
        for pair, count in zip(pairs.tolist(), often.tolist(), strict=True)
    ]
    within = math.fsum(count * k * (m - k) / m for m, k, count in split)
    right = int(successes.sum())
    between = right * (total - right) / total - within
    spread = (total - int(sizes @ sizes) / total) / (tasks - 1)
    ms_between, ms_within = between / (tasks - 1), within / (total - tasks)
    scale = ms_between + (spread - 1) * ms_within
    return min(max((ms_between - ms_within) / scale, 0.0), 1.0) if scale > 0 else 0.0


def design_effect(mean_task_size: float, icc: float) -> float:
    """Return 1 + (m̃ − 1)·ICC."""
    return 1.0 + (mean_task_size - 1.0) * icc


def summarise_clusters(sizes: Integers, successes: Integers) -> ClusterSummary:
    """Summarise the clustering of outcomes: a row of Table 1."""
    total = int(sizes.sum())
    if not total:
        return ClusterSummary(0, 0, 0.0, 0.0, 0.0, 1.0, 0.0)
    wide = sizes.astype(np.float64)
    weighted = float(wide @ wide) / total
    icc = anova_icc(sizes, successes)
    deff = design_effect(weighted, icc)
    return ClusterSummary(
        total, int(sizes.size), int(successes.sum()) / total, weighted, icc, deff, total / deff
    )


def n_min(alpha: float, level: float) -> int:
    """Smallest error-free sample to exclude an error of α: ⌈ln level / ln(1 − α)⌉ (after Eq. 7)."""
    return math.ceil(math.log(level) / math.log1p(-alpha))
