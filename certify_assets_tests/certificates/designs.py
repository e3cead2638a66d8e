"""Data with known truth: the clustered process of the paper, and designs in which a few tasks are wrong throughout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: label ICC named in the paper → standard deviation of the task effect
TAU = {0.1: 0.9, 0.5: 2.6, 0.8: 5.0}
_BASE, _SEPARATION, _LOADING = -0.8, 2.2, 0.9


@dataclass(frozen=True)
class Sample:
    scores: NDArray[np.float64]
    outcomes: NDArray[np.int64]
    tasks: NDArray[np.int64]

    def __iter__(self) -> Any:
        return iter((self.scores, self.outcomes, self.tasks))


def paper_process(tasks: int, rho: float, rng: np.random.Generator) -> Sample:
    effect = rng.normal(0, TAU[rho], tasks)
    owner = np.repeat(np.arange(tasks), 1 + rng.poisson(7, tasks))
    outcomes = (rng.random(owner.size) < 1 / (1 + np.exp(-(_BASE + effect[owner])))).astype(np.int64)
    scores = _SEPARATION * (2 * outcomes - 1) + _LOADING * effect[owner] + rng.normal(size=owner.size)
    return Sample(scores, outcomes, owner)


def paper_truth(threshold: float, rho: float, side: str = "reject") -> float:
    """True selective error of a threshold under the paper's process, by quadrature over the task effect."""
    from scipy.special import ndtr, roots_hermitenorm

    nodes, weights = roots_hermitenorm(301)
    effect = TAU[rho] * nodes
    success = 1 / (1 + np.exp(-(_BASE + effect)))
    sign = 1.0 if side == "reject" else -1.0
    covered = [ndtr(sign * (threshold - _LOADING * effect - way * _SEPARATION)) for way in (1.0, -1.0)]
    right, wrong = float(weights @ (success * covered[0])), float(weights @ ((1 - success) * covered[1]))
    return (right if side == "reject" else wrong) / (right + wrong)


def fooled(tasks: int, share: float, rng: np.random.Generator, size: int = 8) -> Sample:
    """Whole-task errors that the score cannot see: the true error of every threshold is ``share`` on either side."""
    owner = np.repeat(np.arange(tasks), 1 + rng.poisson(size - 1, tasks))
    outcomes = (rng.random(tasks) < share).astype(np.int64)[owner]
    return Sample(rng.normal(size=owner.size), outcomes, owner)
