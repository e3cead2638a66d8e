"""What is known of a corpus and its judge before a certificate: given, or read off a score table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certify_assets.certificates.clustering import design_effect, summarise_clusters
from certify_assets.certificates.inputs import Observations
from certify_assets.certificates.planning import auroc
from certify_assets.errors import InputError

__all__ = ["Facts", "facts_of", "within_task_auroc"]

_FEWEST_PAIRS, _FEWEST_MIXED = 50, 10
_MOST_SIZES = 200


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a corpus and its judge.

    Attributes
    ----------
    success_rate, auroc, icc : float
        π, A₀ and the label ICC.
    sizes : tuple of int
        Attempts a task: one number, or those of the observed tasks.
    within_auroc : float, optional
        AUROC among attempts at one task.
    tasks : int, optional
        Labelled tasks that are there.
    sft_auroc : float, optional
        AUROC of the fine-tuned judge.
    observed : Observations, optional
        The table, where there is one.
    bootstrapped : bool
        Whether A₀ is the table's own, so that its tasks can be resampled for a bound.
    """

    success_rate: float
    auroc: float
    icc: float
    sizes: tuple[int, ...] = (8,)
    within_auroc: float | None = None
    tasks: int | None = None
    sft_auroc: float | None = None
    observed: Observations | None = None
    bootstrapped: bool = False

    @property
    def attempts(self) -> float:
        """Mean attempts a task."""
        return sum(self.sizes) / len(self.sizes)

    def n_eff(self, tasks: int) -> float:
        """Effective trajectories of so many tasks."""
        weighted = sum(size * size for size in self.sizes) / sum(self.sizes)
        return tasks * self.attempts / design_effect(weighted, self.icc)


def facts_of(observations: Observations, **known: Any) -> Facts:
    """Read the facts off a table; what is given by name takes the place of what the table says.

    Parameters
    ----------
    observations : Observations
    **known
        ``success_rate``, ``auroc``, ``icc``, ``sizes``, ``within_auroc``, ``tasks``, ``sft_auroc``; None is not given.

    Raises
    ------
    InputError
        If all outcomes are equal and the success rate or the AUROC is not given.
    """
    given = {name: value for name, value in known.items() if value is not None}
    codes, right = (
        observations.tasks[: observations.scored],
        observations.outcomes[: observations.scored],
    )
    if not codes.size:
        raise InputError(
            "No row has a score; score the trajectories first, or plan from --success-rate, --auroc and --icc."
        )
    _, owner = np.unique(codes, return_inverse=True)
    sizes = np.bincount(owner)
    clusters = summarise_clusters(sizes, np.bincount(owner, weights=right).astype(np.int64))
    area = auroc(observations)
    if area is None and not {"success_rate", "auroc"} <= set(given):
        raise InputError(
            "All scored outcomes are equal, so success rate and AUROC cannot be read off; give --success-rate and --auroc."
        )
    ordered = np.sort(sizes)
    if ordered.size > _MOST_SIZES:
        ordered = ordered[
            (np.arange(_MOST_SIZES) + 0.5).astype(np.int64) * ordered.size // _MOST_SIZES
        ]
    read = {
        "success_rate": clusters.success_rate,
        "auroc": area,
        "icc": clusters.icc,
        "sizes": tuple(dict.fromkeys(ordered.tolist()))
        if ordered[0] == ordered[-1]
        else tuple(ordered.tolist()),
        # a given AUROC is of another judge, whose ranking within tasks is unknown
        "within_auroc": None if "auroc" in given else within_task_auroc(observations),
        "tasks": clusters.tasks,
    }
    return Facts(**{**read, **given}, observed=observations, bootstrapped="auroc" not in given)


def within_task_auroc(observations: Observations) -> float | None:
    """Share of the pairs of a success and a failure of one task in which the success scores higher, ties counted half.

    None where fewer than 50 pairs or 10 tasks with both outcomes are there.
    """
    from scipy.stats import rankdata

    scored = observations.scored
    scores, right, codes = (
        observations.scores[:scored],
        observations.outcomes[:scored] == 1,
        observations.tasks[:scored],
    )
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    wins, pairs, mixed = 0.0, 0, 0
    for part in parts:
        hits = int(right[part].sum())
        if 0 < hits < part.size:
            wins += float(rankdata(scores[part])[right[part]].sum()) - hits * (hits + 1) / 2
            pairs, mixed = pairs + hits * (part.size - hits), mixed + 1
    return wins / pairs if pairs >= _FEWEST_PAIRS and mixed >= _FEWEST_MIXED else None
