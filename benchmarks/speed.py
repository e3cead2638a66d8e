"""How fast certificates are made, mostly as ratios measured in one run.

    python benchmarks/speed.py [--quick]

CPU seconds on one thread, scores of the paper's process:
  call         certify() on ten rows in each of 100,000 tasks, table to certificate, against one
               stable argsort of the scores;
  engines      the tails of 40 thresholds: the exact and the Monte-Carlo engine (2,000 draws) and
               the paper's Algorithm 1 in loops, as multiples of the saddlepoint; "worst" is the
               largest relative error of the saddlepoint where the exact tail is above 1e-6;
  start        processes of their own: the first certificate of 1,500 rows by the command and from
               Python against importing `certify_assets.certificates`, and loading the Dagster
               definitions; the component of one certificate against importing dagster.
--quick: 5,000 tasks at most, one process of each.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from certify_assets.certificates import certify, observe
from certify_assets.certificates.bootstrap import (
    ErrorLattice,
    error_lattice,
    exact_tail,
    saddlepoint_tails,
)
from certify_assets.certificates.counts import TaskCounts, count_tasks
from certify_assets.certificates.taskboot import exceedances

DRAWS, BUDGET = 2_000, Fraction(1, 10)
#: draws of the loops, which are scaled to DRAWS
LOOPED = 20
CALL = """
import csv, sys
from certify_assets.certificates import certify
with open(sys.argv[1]) as file:
    tasks, scores, outcomes = zip(*list(csv.reader(file))[1:])
certify([float(score) for score in scores], [int(one) for one in outcomes], tasks)
"""
COMPONENT = """
import dagster as dg
from certify_assets.components import Certificate
made = Certificate.from_attributes_dict(attributes={"asset": "scores", "decisions": True})
made.build_defs(dg.ComponentTree.for_test().load_context)
"""


def table(tasks: int, rows_a_task: int) -> tuple[NDArray[np.float64], ...]:
    """Scores, outcomes and tasks of the paper's process."""
    rng = np.random.default_rng(0)
    sizes = 1 + rng.poisson(rows_a_task - 1, tasks)
    effect = np.repeat(rng.normal(0, 2.6, tasks), sizes)
    labels = (rng.random(effect.size) < 1 / (1 + np.exp(0.8 - effect))).astype(np.int8)
    scores = 2.2 * (2 * labels - 1) + 0.9 * effect + rng.normal(size=effect.size)
    return scores, labels, np.repeat(np.arange(tasks), sizes)


def seconds(call: Callable[[], object], times: int = 3) -> float:
    taken = []
    for _ in range(times):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def show_call(tasks: int) -> None:
    scores, labels, owner = table(tasks, 10)
    named = np.array([f"task-{task}" for task in owner], dtype=object)
    argsort = seconds(lambda: np.argsort(scores, kind="stable"), 5)
    print(f"{scores.size:,} rows in {tasks:,} tasks; one stable argsort takes {argsort:.3f} s")
    for title, procedure, given in (
        ("taskboot", "taskboot", owner),
        ("taskboot, text tasks", "taskboot", named),
        ("guarded_taskboot", "guarded_taskboot", owner),
        ("pseudo_task", "pseudo_task", owner),
    ):
        certify(scores[:3000], labels[:3000], given[:3000], procedure=procedure)
        taken = seconds(lambda p=procedure, g=given: certify(scores, labels, g, procedure=p))
        print(f"  {title:22} {taken:.3f} s, {taken / argsort:.1f} argsorts", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  peak memory of this process {peak:.2f} GiB")


def loops(counts: TaskCounts, draws: int) -> None:
    """The paper's Algorithm 1 as printed."""
    rng = np.random.default_rng(42)
    for covered, errors in zip(counts.covered, counts.errors, strict=True):
        for _ in range(draws):
            drawn = rng.integers(0, counts.tasks, counts.tasks)
            total = covered[drawn].sum()
            if total:
                errors[drawn].sum() / total


def show_engines(tasks: int) -> None:
    counts = count_tasks(observe(*table(tasks, 8)))

    def lattice() -> ErrorLattice:
        return error_lattice(counts, *BUDGET.as_integer_ratio())

    def near() -> NDArray[np.float64]:
        return saddlepoint_tails(lattice(), counts.tasks)

    def whole() -> NDArray[np.float64]:
        found = lattice()
        tails = [exact_tail(found.histogram(at), counts.tasks) for at in range(len(found))]
        return np.array(tails, np.float64)

    exact, saddle = whole(), near()
    inside = exact > 1e-6
    worst = np.abs(saddle[inside] / exact[inside] - 1).max(initial=0)
    base = seconds(near, 9)
    others = {
        "exact": seconds(whole),
        "montecarlo": seconds(lambda: exceedances(counts, BUDGET, DRAWS, 42)),
        "loops": seconds(lambda: loops(counts, LOOPED), 1) * DRAWS / LOOPED,
    }
    cells = "".join(f"  {name} {taken / base:,.1f}" for name, taken in others.items())
    print(f"{tasks:7,} tasks: saddlepoint {1e3 * base:.2f} ms, worst {worst:.1%};{cells}")


def process_seconds(command: list[str], cache: Path) -> float:
    """CPU seconds of one process and its children, with numba's cache at a path."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def show_start(times: int) -> None:
    python = [sys.executable, "-c"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.csv"
        scores, outcomes, tasks = table(150, 10)
        lines = [f"{t},{s},{o}" for t, s, o in zip(tasks, scores, outcomes, strict=True)]
        path.write_text("\n".join(["task_id,score,outcome", *lines[:1500]]) + "\n", "utf-8")

        def least(name: str, command: list[str]) -> float:
            return min(process_seconds(command, Path(folder) / f"{name}{n}") for n in range(times))

        imported = least("import", [*python, "import certify_assets.certificates"])
        print(f"import of certify_assets.certificates: {imported:.2f} CPU-s (least of {times})")
        command = [sys.executable, "-m", "certify_assets.cli", "certificate", str(path)]
        for name, call in (
            ("first certificate from Python", [*python, CALL, str(path)]),
            ("first certificate by the command", command),
            ("Dagster definitions", [*python, "from certify_assets.definitions import defs"]),
        ):
            taken = least(name, call)
            print(f"  {name}: {taken:.2f} CPU-s, {taken / imported:.1f} imports", flush=True)
        alone = least("dagster", [*python, "import dagster"])
        loaded = least("component", [*python, COMPONENT])
        print(f"component of a certificate: {loaded / alone:.2f} times import dagster", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with threadpool_limits(1):
        show_call(5_000 if quick else 100_000)
        for tasks in (84, 382, 5_000) if quick else (84, 382, 5_000, 100_000):
            show_engines(tasks)
    show_start(1 if quick else 10)


if __name__ == "__main__":
    main()
