"""Draws from populations of known truth, as tests of certificates take them."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from certify_assets.research.populations import Clustered, Fooled, Sample

#: a generator, or the seed of one
Seed: TypeAlias = np.random.Generator | int | Sequence[int]


def paper_process(tasks: int, rho: float, seed: Seed) -> Sample:
    """Draw a calibration set of the paper's process."""
    return Clustered(tasks=tasks, rho=rho).draw(np.random.default_rng(seed))


def paper_truth(threshold: float, rho: float) -> float:
    """True selective error of a threshold under the paper's process."""
    return float(Clustered(tasks=2, rho=rho).true_error(threshold))


def fooled(tasks: int, share: float, seed: Seed) -> Sample:
    """Draw tasks of which a share is wrong throughout, unseen by the score."""
    return Fooled(tasks=tasks, share=share).draw(np.random.default_rng(seed))
