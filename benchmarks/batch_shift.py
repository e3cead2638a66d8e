"""How often batches of runs like those of CAL are called shifted, and how often others are.

    python benchmarks/batch_shift.py [--trials 300] [--quick]

Scores are normal with a share rho of their variance between tasks; the threshold is a quantile of
CAL. Rates of p-values at most .001 and .01, of batches alike (144 designs) and moved by one
standard deviation. Then how often the scores or lengths of an agent are called others, of runs
alike (characters and steps, 1 to 4 agents) and of runs half as long again.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from certify_assets.certificates.shift import decided_shift
from certify_assets.operations.coverage import changed_agents

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


def length_rate(trials: int, factor: float) -> tuple[float, int]:
    """Return the share of batches in which the lengths of an agent are called others."""
    rng, found, total = np.random.default_rng(11), 0, 0
    for agents, before, after, median in product((1, 4), (30, 100), (15, 60), (12, 3000)):
        for _ in range(trials):
            frames = []
            for tasks, times in ((before, 1.0), (after, factor)):
                effect = rng.normal(0, 0.4, tasks)[:, None] + rng.normal(0, 0.4, (tasks, agents))
                lengths = np.round(times * median * np.exp(effect))
                places = np.indices(lengths.shape).reshape(2, -1)
                frames.append(
                    pd.DataFrame({"task_id": places[0], "agent": places[1], "attempt": 0}).assign(
                        trajectory_id=np.arange(lengths.size), length=lengths.ravel()
                    )
                )
            found += bool(changed_agents(frames[0], frames[1], "length"))
            total += 1
    return found / total, total


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
    for name, factor in (("alike", 1.0), ("half as long again", 1.5)):
        rate, total = length_rate(max(1, trials // 4), factor)
        error = np.sqrt(rate * (1 - rate) / total)
        print(f"lengths {name}: found in {rate:.4f} +- {error:.4f} of {total} batches")


if __name__ == "__main__":
    main()
