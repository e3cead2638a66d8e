"""TaskBoot's speed as ratios measured in one run: against Algorithm 1 in loops, and against stable
argsorts of the scores.

    python benchmarks/taskboot.py [--quick]

Scores follow the paper's process (appendix "Synthetic validity study"). CPU seconds of this
process, median of several calls.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np

from certify_assets.certificates import bootstrap_errors, certify, threshold_curve

LEVELS = np.linspace(0.02, 0.98, 40)


def table(
    tasks: int, rows_a_task: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = 1 + rng.poisson(rows_a_task - 1, tasks)
    effect = np.repeat(rng.normal(0, 2.6, tasks), sizes)
    labels = (rng.random(effect.size) < 1 / (1 + np.exp(0.8 - effect))).astype(np.int8)
    scores = 2.2 * (2 * labels - 1) + 0.9 * effect + rng.normal(size=effect.size)
    return scores, labels, np.repeat(np.arange(tasks), sizes)


def seconds(call: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def algorithm_1(
    scores: np.ndarray, labels: np.ndarray, tasks: np.ndarray, draws: int = 2000, alpha: float = 0.1
) -> list[float]:
    """The paper's Algorithm 1 as printed: loops over thresholds and draws, a quantile each."""
    rng = np.random.default_rng(42)
    count = int(tasks.max()) + 1
    upper = []
    for threshold in np.quantile(scores, LEVELS):
        covered = np.bincount(tasks[scores <= threshold], minlength=count)
        wrong = np.bincount(tasks[(scores <= threshold) & (labels == 1)], minlength=count)
        errors = []
        for _ in range(draws):
            drawn = rng.integers(0, count, count)
            total = covered[drawn].sum()
            errors.append(wrong[drawn].sum() / total if total else 0.0)
        upper.append(float(np.quantile(errors, 1 - 0.05 / 40)))
    return upper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small tables and fewer draws")
    quick = parser.parse_args().quick
    largest, many = (5_000, 20_000) if quick else (100_000, 200_000)
    certify(*table(30, 8), procedure="guarded_taskboot")
    print(
        "against Algorithm 1 in loops (B = 2,000, 40 thresholds); certify() is the whole call, "
        "table to certificate"
    )
    for tasks in (84,) if quick else (84, 382, 5000):
        data = table(tasks, 8)
        whole = seconds(lambda data=data: certify(*data, procedure="taskboot"), 5)
        loops = seconds(lambda data=data: algorithm_1(*data), 1)
        print(
            f"  G={tasks:5d}: certify {1e3 * whole:8.2f} ms   loops {loops:7.2f} s   ratio "
            f"{loops / whole:8.0f}"
        )
    print(f"against one stable argsort of the scores, ten rows in each of {largest:,} tasks")
    scores, labels, tasks = table(largest, 10)
    certify(scores, labels, tasks, procedure="taskboot")
    argsort = seconds(lambda: np.argsort(scores, kind="stable"), 5)
    for name, named in (
        ("integer tasks", tasks),
        ("text tasks", np.array([f"task-{task}" for task in tasks], dtype=object)),
    ):
        whole = seconds(lambda named=named: certify(scores, labels, named, procedure="taskboot"), 3)
        print(
            f"  {scores.size} rows, {name}: certify {whole:.3f} s, argsort {argsort:.3f} s, ratio "
            f"{whole / argsort:.1f}"
        )
    for name in ("guarded_taskboot", "pseudo_task"):
        whole = seconds(lambda name=name: certify(scores, labels, tasks, procedure=name), 3)
        print(f"  {name}, integer tasks: {whole:.3f} s, ratio {whole / argsort:.1f}")
    print(
        f"  peak memory of this process "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"
    )
    data = table(84, 8)
    draws = seconds(
        lambda: bootstrap_errors(
            *data, threshold=float(np.median(data[0])), side="reject", draws=many, seed=42
        ),
        3,
    )
    curve = seconds(lambda: threshold_curve(*data, procedure="guarded_taskboot"), 5)
    print(
        f"Monte-Carlo kernel: {many:,} draws of 84 tasks in {draws:.3f} CPU-s; curve of 40 "
        f"thresholds in {1e3 * curve:.1f} ms"
    )


if __name__ == "__main__":
    main()
