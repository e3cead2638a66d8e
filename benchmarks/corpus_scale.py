"""Profile, manifest, splits and leak controls of a corpus of 100,000 tasks and 1,000,000
trajectories: CPU seconds and peak memory.

python benchmarks/corpus_scale.py [--quick] [--tasks 100000] [--attempts 10] [--controls]

The table is made in memory: two short steps a trajectory. Leak controls are timed on request.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from certify_assets.corpora.leakage import check_leaks
from certify_assets.corpora.profile import duplicated, profile_corpus
from certify_assets.corpora.splits import SPLITS, make_manifest, select


def table(tasks: int, attempts: int) -> pd.DataFrame:
    """Trajectories with two short steps each; tasks differ in difficulty, one trajectory in a
    hundred is a copy.
    """
    rng = np.random.default_rng(0)
    rows = tasks * attempts
    task, attempt = np.repeat(np.arange(tasks), attempts), np.tile(np.arange(attempts), tasks)
    outcome = (rng.random(rows) < np.repeat(rng.beta(0.6, 1.4, tasks), attempts)).astype(np.int8)
    other = np.where(rng.random(rows) < 0.01, np.maximum(np.arange(rows) - 1, 0), np.arange(rows))
    steps = [
        (
            {
                "action": f"click('item {number % 9}')",
                "observation": f"page {number} of the catalogue",
            },
            {"action": "submit()", "observation": "confirmed" if right else "no element matches"},
        )
        for number, right in zip(other.tolist(), outcome.tolist(), strict=True)
    ]
    names = [f"task-{number:06d}" for number in task.tolist()]
    return pd.DataFrame(
        {
            "corpus": "scale",
            "task_id": names,
            "trajectory_id": [
                f"{name}/{number}" for name, number in zip(names, attempt.tolist(), strict=True)
            ],
            "agent": [f"agent-{number % 5}" for number in attempt.tolist()],
            "attempt": attempt.astype(np.int32),
            "instruction": [f"Put things in order, number {number}" for number in task.tolist()],
            "steps": pd.Series(steps, dtype=object),
            "outcome": pd.array(outcome, dtype="Int8"),
            "source_file": "",
            "source_sha256": "",
        }
    )


def timed(name: str, call: Callable[[], Any]) -> Any:
    start, wall = time.process_time(), time.perf_counter()
    result = call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{name:<24}{time.process_time() - start:8.2f} CPU-s {time.perf_counter() - wall:8.2f} s  "
        f" peak {peak:.2f} GiB",
        flush=True,
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--attempts", type=int, default=10)
    parser.add_argument("--controls", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the tasks")
    options = parser.parse_args()
    options.tasks = options.tasks // 50 if options.quick else options.tasks
    frame = timed("table", lambda: table(options.tasks, options.attempts))
    print(f"{len(frame):,} trajectories of {options.tasks:,} tasks")
    manifest = timed("make_manifest", lambda: make_manifest(frame["task_id"].unique(), "scale"))
    timed("select, four splits", lambda: [len(select(frame, manifest, split)) for split in SPLITS])
    timed("duplicated", lambda: int(duplicated(frame).sum()))
    profile = timed("profile_corpus", lambda: profile_corpus(frame, manifest))
    print(f"duplicates {profile.duplicates:,}, ICC {profile.icc:.3f}, n_eff {profile.n_eff:,.0f}")
    if options.controls:
        timed("controls", lambda: check_leaks(frame))


if __name__ == "__main__":
    main()
