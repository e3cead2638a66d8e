"""What ingest, score, certify and decide cost a row, how that grows with the number of rows, and
what follows for 10⁹ rows.

    python benchmarks/capacity.py [--quick] [--rows 100000 1000000 10000000] [--seed 0]

Every figure is CPU seconds and peak memory of a process of its own that does one step once, after a
small one that compiles; start-up is left out. Score tables are made (seeded, the paper's process,
ten rows a task, ids as text) and lie on disk as Parquet. The floor of certify is reading the file
with pandas and one stable sort of the scores; that of decide is reading and writing the file. The
growth exponent is that of the last decade of rows, and what is printed for 10⁹ rows is an
extrapolation by it. --quick takes a tenth of the first two sizes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from certify_assets.corpora.corpus import Corpus

ROWS = (100_000, 1_000_000, 10_000_000)
A_TASK = 10
FAR = 10**9
# trajectories are a thousand times as large as score rows
FEWER = 100
SMALL = 1000


def write_scores(path: Path, rows: int, seed: int) -> None:
    """Write a score table in which a judge certifies the reject side."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    tasks = rows // A_TASK
    effect = np.repeat(rng.normal(0, 2.6, tasks), A_TASK)
    outcome = (rng.random(rows) < 1 / (1 + np.exp(0.8 - effect))).astype(np.int8)
    score = 2.2 * (2 * outcome - 1) + 0.9 * effect + rng.normal(size=rows)
    order = rng.permutation(rows)
    names = pa.array([f"task-{number:09d}" for number in range(tasks)])
    columns = {
        "task_id": names.take(pa.array(np.repeat(np.arange(tasks), A_TASK)[order])),
        "trajectory_id": pa.array([f"run-{number:010d}" for number in order.tolist()]),
        "agent": pa.array([f"agent-{number}" for number in range(5)]).take(pa.array(order % 5)),
        "score": score[order],
        "outcome": outcome[order],
    }
    pq.write_table(pa.table(columns), path, compression="zstd")


def write_runs(path: Path, rows: int, seed: int) -> None:
    """Write trajectories of about 1 kB as JSON Lines."""
    rng = np.random.default_rng(seed)
    said = [
        f"page {number} of the catalogue lists item {number % 97} at {number % 13} coins and says "
        f"what it is made of"
        for number in range(5000)
    ]
    with path.open("w", encoding="utf-8") as stream:
        for number in range(rows):
            right = bool(rng.random() < 0.4)
            steps = [
                {"action": f"click('item {pick % 97}')", "observation": said[pick]}
                for pick in rng.integers(0, 5000, 6).tolist()
            ]
            steps.append(
                {
                    "action": "submit()",
                    "observation": "order confirmed"
                    if right != (rng.random() < 0.1)
                    else "no element matches",
                }
            )
            run = {
                "task_id": f"t{number // A_TASK}",
                "trajectory_id": f"r{number}",
                "agent": f"a{number % 3}",
                "attempt": number % A_TASK,
            }
            stream.write(
                json.dumps(
                    {
                        **run,
                        "instruction": f"Put list {number // A_TASK} in order",
                        "steps": steps,
                        "outcome": int(right),
                    }
                )
                + "\n"
            )


def ingest(path: Path) -> Callable[[], int]:
    from certify_assets.corpora.config import CorpusConfig, save_config
    from certify_assets.storage.store import Store

    store = Store(str(path.with_name(f"root-{path.stem}")))
    save_config(store, CorpusConfig("runs", format="table", paths=(str(path),)))
    return lambda: Corpus(store, "runs").import_trajectories().trajectories


def score(path: Path) -> Callable[[], int]:
    from certify_assets.corpora.formats import import_corpus
    from certify_assets.corpora.rendering import Renderer, render_frame
    from certify_assets.judges.base import score_table
    from certify_assets.judges.lexical import LexicalJudge

    frame, renderer = import_corpus(path, name="runs").frame, Renderer()
    first = frame.head(1000)
    judge = LexicalJudge.train(
        [item.text for item in render_frame(first, renderer)],
        first["outcome"].to_numpy(),
        renderer_sha256=renderer.sha256,
    )
    return lambda: len(score_table(judge, frame, renderer))


def certify(path: Path) -> Callable[[], int]:
    from certify_assets.certificates import certify as issue
    from certify_assets.certificates.compiled import compile_all
    from certify_assets.evaluation.score_table import read_score_table

    def run() -> int:
        table = read_score_table(path)
        found = issue(table.scores, table.labelled(), table.tasks)
        assert found.certified
        return found.trajectories

    # the labels of large tables alone take a compiled loop
    compile_all()
    return run


def decide(path: Path) -> Callable[[], int]:
    from certify_assets.certificates import certify as issue
    from certify_assets.evaluation.decisions import decide_table
    from certify_assets.evaluation.score_table import read_score_table
    from certify_assets.tables.table_files import write_table_file

    rng = np.random.default_rng(1)
    right = np.arange(4000) % 2
    certificates = [
        issue(3.0 * (2 * right - 1) + rng.normal(size=4000), right, np.arange(4000) // 4, side=side)
        for side in ("reject", "release")
    ]

    def run() -> int:
        decided = decide_table(certificates, read_score_table(path))
        assert decided.count("reject") and decided.count("release") and decided.count("human")
        write_table_file(path.with_name("decisions.parquet"), decided.frame)
        return len(decided.frame)

    return run


def certify_floor(path: Path) -> Callable[[], int]:
    import pandas as pd

    return lambda: int(np.argsort(pd.read_parquet(path)["score"].to_numpy(), kind="stable").size)


def decide_floor(path: Path) -> Callable[[], int]:
    import pandas as pd

    def run() -> int:
        frame = pd.read_parquet(path)
        frame.to_parquet(path.with_name("copy.parquet"), index=False)
        return len(frame)

    return run


STEPS = {
    step.__name__: step for step in (ingest, score, certify, decide, certify_floor, decide_floor)
}


def measure(name: str, path: Path) -> None:
    # what is imported late and compiled costs the same at any size
    STEPS[name](path.with_name(f"small-{path.name}"))()
    run = STEPS[name](path)
    wall, cpu = time.perf_counter(), time.process_time()
    rows = run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"rows": rows, "cpu": cpu, "seconds": wall, "peak": peak / 2**20}))


def measured(name: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", name, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def show(name: str, figures: list[dict[str, float]]) -> None:
    """Print a row a size, and what the last decade says of 10⁹ rows."""
    for found in figures:
        used = (
            f"{found['cpu']:9.2f} CPU-s {found['seconds']:8.2f} s "
            f"{found['rows'] / found['cpu']:12,.0f} rows/CPU-s"
        )
        print(
            f"{name:14}{found['rows']:>12,.0f} rows {used}   peak {found['peak']:6.2f} GiB",
            flush=True,
        )
    if len(figures) < 2:
        return
    before, last = figures[-2:]
    if last["rows"] == before["rows"]:  # runs have a least number, which --quick meets twice
        return
    exponent = math.log(last["cpu"] / before["cpu"]) / math.log(last["rows"] / before["rows"])
    bytes_a_row = (last["peak"] - before["peak"]) * 2**30 / (last["rows"] - before["rows"])
    hours = last["cpu"] * (FAR / last["rows"]) ** exponent / 3600
    memory = last["peak"] + bytes_a_row * (FAR - last["rows"]) / 2**30
    print(
        f"{name:14}grows as rows^{exponent:.2f}, {bytes_a_row:,.0f} bytes a further row; "
        f"extrapolated to 10⁹ rows: {hours:.1f} CPU-h, {memory:,.0f} GiB at once"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--quick", action="store_true", help="a tenth of the first two sizes")
    parser.add_argument("--measure", nargs=2, metavar=("STEP", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], Path(arguments.measure[1]))
        return
    sizes = [rows // 10 for rows in arguments.rows[:2]] if arguments.quick else arguments.rows
    print(
        f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} "
        f"cores"
    )
    found: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.steps}
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            for prefix, count in (("small-", SMALL), ("", rows)):
                runs, scores = (
                    Path(folder) / f"{prefix}runs.jsonl",
                    Path(folder) / f"{prefix}scores.parquet",
                )
                write_runs(runs, max(SMALL, count // FEWER), arguments.seed)
                write_scores(scores, count, arguments.seed)
            for name in arguments.steps:
                found[name].append(measured(name, runs if name in ("ingest", "score") else scores))
    for name, figures in found.items():
        show(name, figures)


if __name__ == "__main__":
    main()
