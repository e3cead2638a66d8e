"""How often batches of runs like those of CAL are called shifted, and how often others are.

    python benchmarks/batch_shift.py [--trials 300] [--quick]

Scores are normal with a share rho of their variance between tasks; the threshold is a quantile of
CAL. Rates of p-values at most .001 and .01, of batches alike (144 designs) and moved by one
standard deviation.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.shift import decided_shift

_SIZES = ("equal", "poisson", "heavy")


def runs(
    rng: np.random.Generator, kind: str, tasks: int, rho: float, mean: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw scores and tasks of a sample of tasks."""
    sizes = {
        "equal": np.full(tasks, 4),
        "poisson": 1 + rng.poisson(7, tasks),
        "heavy": np.minimum(60, 1 + rng.geometric(0.12, tasks)),
    }[kind]
    task = np.repeat(np.arange(tasks), sizes)
    effect = mean + np.sqrt(rho) * rng.normal(size=tasks)
    return effect[task] + np.sqrt(1 - rho) * rng.normal(size=task.size), task


def rates(trials: int, mean: float) -> list[tuple[float, float]]:
    """Return the rates at .001 and .01 of every design."""
    rng, found = np.random.default_rng(7), []
    for kind, rho, before, after, share in product(
        _SIZES, (0.2, 0.8), (40, 100), (10, 15, 50, 400), (0.05, 0.3, 0.7)
    ):
        values = []
        for _ in range(trials):
            scores, task = runs(rng, kind, before, rho)
            threshold = np.quantile(scores, share)
            others, other = runs(rng, kind, after, rho, mean)
            shift = decided_shift((scores <= threshold, task), (others <= threshold, other))
            values.append(1.0 if shift is None else shift.p_value)
        found.append((np.mean(np.array(values) <= 0.001), np.mean(np.array(values) <= 0.01)))
    return [(float(low), float(high)) for low, high in found]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    trials = 4 if given.quick else given.trials
    for name, mean, number in (("alike", 0.0, trials), ("moved", -1.0, max(2, trials // 10))):
        table = np.array(rates(number, mean))
        total = number * len(table)
        for place, level in enumerate((0.001, 0.01)):
            rate = table[:, place].mean()
            error = np.sqrt(rate * (1 - rate) / total)
            print(
                f"{name}: p <= {level:g} in {rate:.4f} +- {error:.4f} of {total} batches, "
                f"{table[:, place].min():.3f} to {table[:, place].max():.3f} of a design"
            )


if __name__ == "__main__":
    main()
