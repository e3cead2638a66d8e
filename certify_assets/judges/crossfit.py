"""Scores of training runs by judges of the other training tasks: their scale and ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_FOLDS, _SALT = 3, 0x5F0D
_Places = NDArray[np.int64]


class Fold(NamedTuple):
    """Rows of a training table: those of most tasks, and those of the tasks held out."""

    known: _Places
    held: _Places


def task_folds(tasks: NDArray[Any], labels: NDArray[np.int64], seed: int) -> list[Fold]:
    """Deal the tasks into folds; without those whose other runs have one outcome."""
    names, code = np.unique(tasks, return_inverse=True)
    dealt = np.random.default_rng([_SALT, seed, names.size]).permutation(names.size) % _FOLDS
    held = [dealt[code] == number for number in range(min(_FOLDS, names.size))]
    folds = [Fold(np.flatnonzero(~rows), np.flatnonzero(rows)) for rows in held]
    return [fold for fold in folds if np.unique(labels[fold.known]).size == 2]


@dataclass(frozen=True, slots=True)
class Scale:
    """Mean and standard deviation of a judge's scores."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> Scale:
        """Measure it; scores that are all equal keep their unit."""
        return cls(float(scores.mean()), float(scores.std()) or 1.0)

    @classmethod
    def held_out(cls, parts: Sequence[NDArray[np.float64]], fitted: NDArray[np.float64]) -> Scale:
        """Measure it on the scores of folds; where there is none, on those of the training."""
        # a judge spreads the runs that it was fitted to more than others, and a flexible one more
        # so, which would give it less weight in a mean than it deserves
        return cls.of(np.concatenate(parts) if len(parts) else fitted)

    def __call__(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standardise scores."""
        return (scores - self.mean) / self.deviation
