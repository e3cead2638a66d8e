"""Whether new runs look like those of CAL: the share of them that a threshold decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: chance of a finding on runs of tasks like those of CAL, a side and batch
SHIFT_LEVEL: Final = 0.001
_LEAST_TASKS: Final = 10
_DRAWS, _CHUNK, _SEED = 4999, 500, 0
_Decided = tuple[NDArray[np.bool_], Sequence[Any]]


@dataclass(frozen=True)
class Shift:
    """The share of runs that a threshold decides, in CAL and in new runs."""

    calibration: float
    batch: float
    p_value: float  # two-sided, of tasks drawn alike


def decided_shift(calibration: _Decided, batch: _Decided) -> Shift | None:
    """Compare the share of runs that a threshold decides in CAL and in new runs.

    Parameters
    ----------
    calibration, batch : pair of (n,) arrays
        Whether each run is decided, and its task.

    Returns
    -------
    Shift or None
        None with fewer than ten tasks in either.

    Notes
    -----
    Runs of a task are alike, so tasks are what is drawn. With r_g the decided runs of task g less
    its share of all decided runs, the sum of r_g over the new tasks is compared with what other
    choices of as many of all tasks give: by the normal approximation where it is within 2.5
    standard deviations, else by 4,999 of them (a permutation test, exact where tasks are drawn
    alike; the threshold comes from CAL, which makes it cautious).
    """
    residuals, new, shares = _residuals(calibration, batch)
    number, few = new.size, int(min(new.sum(), new.size - new.sum()))
    if few < _LEAST_TASKS:
        return None
    seen = abs(float(residuals[new].sum()))
    # variance of the sum of few of all without replacement
    variance = few * (number - few) / (number * (number - 1)) * float((residuals**2).sum())
    if variance == 0.0 or seen <= 2.5 * math.sqrt(variance):
        ratio = 0.0 if variance == 0.0 else seen / math.sqrt(variance)
        return Shift(*shares, math.erfc(ratio / math.sqrt(2)))
    rng, beyond = np.random.default_rng(_SEED), 0
    for start in range(0, _DRAWS, _CHUNK):
        order = rng.random((min(_CHUNK, _DRAWS - start), number), np.float32)
        chosen = order.argpartition(few, axis=1)[:, :few]
        beyond += int((np.abs(residuals[chosen].sum(axis=1)) >= seen * (1 - 1e-9)).sum())
    return Shift(*shares, (1 + beyond) / (1 + _DRAWS))


def _residuals(
    calibration: _Decided, batch: _Decided
) -> tuple[NDArray[np.float64], NDArray[np.bool_], tuple[float, float]]:
    """Return the residual of every task, which are of the batch, and both shares."""
    parts = []
    for decided, tasks in (calibration, batch):
        _, places = np.unique(np.asarray(tasks, dtype=object).astype(str), return_inverse=True)
        parts.append((np.bincount(places, weights=decided), np.bincount(places)))
    covered, sizes = (np.concatenate(both) for both in zip(*parts, strict=True))
    new = np.repeat([False, True], [part[0].size for part in parts])
    before, after = (float(count.sum() / max(1, total.sum())) for count, total in parts)
    return covered - sizes * (covered.sum() / sizes.sum()), new, (before, after)
