"""Clustered judge scores with known truth."""

import numpy as np
import pandas as pd


def score_table(
    tasks: int = 80,
    *,
    seed: int = 1,
    spread: float = 2.6,
    signal: float = 2.2,
    mean_attempts: float = 7,
    name: str = "task",
) -> pd.DataFrame:
    """Draw a score table from the task-effect model of the validity study, scores as log-odds.

    ``spread`` is the deviation of task effects (ICC about .1, .5, .8 at .9, 2.6, 5), ``signal``
    what the judge knows of an outcome.
    """
    rng = np.random.default_rng(seed)
    effects = rng.normal(0, spread, tasks)
    sizes = 1 + rng.poisson(mean_attempts, tasks)
    task = np.repeat(np.arange(tasks), sizes)
    outcome = (rng.random(task.size) < 1 / (1 + np.exp(-(-0.8 + effects[task])))).astype("int8")
    score = signal * (2 * outcome - 1.0) + 0.9 * effects[task] + rng.normal(0, 1, task.size)
    attempt = np.concatenate([np.arange(size) for size in sizes])
    return pd.DataFrame(
        {
            "task_id": [f"{name}-{number:04d}" for number in task],
            "trajectory_id": [
                f"{name}-{number:04d}/{turn}" for number, turn in zip(task, attempt, strict=True)
            ],
            "agent": [("careful", "hasty", "scripted")[turn % 3] for turn in attempt],
            "score": score,
            "outcome": outcome,
        }
    )
