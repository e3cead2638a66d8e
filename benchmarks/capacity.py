"""What a row costs to ingest, score, certify and decide, and what a label and a batch cost when
many are stored.

    python benchmarks/capacity.py [--quick] [--rows 100000 1000000 10000000] [--labels 100 50000]
                                  [--batches 1 30]

Rows: CPU seconds and peak memory of a process of its own that does one step once, after a small one
that compiles; start-up is left out. Score tables are made (seeded, the paper's process, ten rows a
task, ids as text) and lie on disk as Parquet; a hundredth of their rows are runs of about 1 kB. The
floor of certify is reading the file with pandas and one stable sort of the scores; that of decide
is reading and writing the file.

Labels and batches: CPU seconds of the commands, in this process, on a corpus with a deployed judge.
Deliveries of 100 runs come one after the other, and ingest is timed where so many are stored.
Labels of them are then imported, and one more is timed where so many are stored, and the queue.
--quick: 50,000 rows, 100 labels and two batches.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

A_TASK = 10
# trajectories are a thousand times as large as score rows
FEWER = 100
SMALL = 1000
DELIVERED = 100


def write_scores(path: Path, rows: int) -> None:
    """Write a score table in which a judge certifies both sides."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    tasks = rows // A_TASK
    effect = np.repeat(rng.normal(0, 2.6, tasks), A_TASK)
    outcome = (rng.random(rows) < 1 / (1 + np.exp(0.8 - effect))).astype(np.int8)
    score = 2.2 * (2 * outcome - 1) + 0.9 * effect + rng.normal(size=rows)
    order = rng.permutation(rows)
    names = pa.array([f"task-{number:09d}" for number in range(tasks)])
    columns = {
        "task_id": names.take(pa.array(np.repeat(np.arange(tasks), A_TASK)[order])),
        "trajectory_id": pa.array([f"run-{number:010d}" for number in order.tolist()]),
        "score": score[order],
        "outcome": outcome[order],
    }
    pq.write_table(pa.table(columns), path, compression="zstd")


def write_runs(path: Path, rows: int, new: str = "") -> list[str]:
    """Write trajectories of about 1 kB as JSON Lines, new ones without outcomes; return ids."""
    rng = np.random.default_rng(len(new))
    said = [
        f"page {number} of the catalogue lists item {number % 97} at {number % 13} coins and says "
        f"what it is made of"
        for number in range(5000)
    ]
    names = [f"{new}r{number}" for number in range(rows)]
    with path.open("w", encoding="utf-8") as stream:
        for number, name in enumerate(names):
            right = bool(rng.random() < 0.4)
            steps = [
                {"action": f"click('item {pick % 97}')", "observation": said[pick]}
                for pick in rng.integers(0, 5000, 6).tolist()
            ]
            seen = right != (rng.random() < 0.1)
            end = "order confirmed" if seen else "no element matches"
            run = {
                "task_id": f"{new}t{number // A_TASK}",
                "trajectory_id": name,
                "agent": f"a{number % 3}",
                "attempt": number % A_TASK,
                "instruction": f"Put list {new} {number // A_TASK} in order",
                "steps": [*steps, {"action": "submit()", "observation": end}],
            }
            stream.write(json.dumps(run if new else {**run, "outcome": int(right)}) + "\n")
    return names


def ingest(path: Path) -> Callable[[], int]:
    from certify_assets.corpora.config import CorpusConfig, save_config
    from certify_assets.corpora.corpus import Corpus
    from certify_assets.storage.store import Store

    store = Store(str(path.with_name(f"root-{path.stem}")))
    save_config(store, CorpusConfig("runs", format="table", paths=(str(path),)))
    return lambda: Corpus(store, "runs").import_trajectories().trajectories


def score(path: Path) -> Callable[[], int]:
    from certify_assets.corpora.formats import import_corpus
    from certify_assets.corpora.rendering import Renderer, render_frame
    from certify_assets.judges.base import score_table
    from certify_assets.judges.families.lexical import LexicalJudge

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
    from certify_assets.tables.score_table import read_score_table

    def run() -> int:
        table = read_score_table(path)
        found = issue(table.scores, table.labels, table.tasks)
        assert found.certified
        return found.trajectories

    return run


def decide(path: Path) -> Callable[[], int]:
    from certify_assets.certificates import certify as issue
    from certify_assets.tables.decisions import decide_table
    from certify_assets.tables.score_table import read_score_table
    from certify_assets.tables.writing import write_table_file

    rng = np.random.default_rng(1)
    right = np.arange(4000) % 2
    certificates = [
        issue(3.0 * (2 * right - 1) + rng.normal(size=4000), right, np.arange(4000) // 4, side=side)
        for side in ("reject", "release")
    ]

    def run() -> int:
        decided = decide_table(certificates, read_score_table(path))
        assert set(decided.rows.decisions) == {"reject", "release", "human"}
        write_table_file(path.with_name("decisions.parquet"), decided.columns(slice(None)))
        return len(decided.table)

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
    # what is imported late costs the same at any size
    STEPS[name](path.with_name(f"small-{path.name}"))()
    run = STEPS[name](path)
    cpu = time.process_time()
    rows = run()
    cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rate = rows / cpu
    print(f"{name:14}{rows:>12,} rows {cpu:9.2f} CPU-s {rate:12,.0f} rows/CPU-s  {peak:6.2f} GiB")


def show_rows(sizes: Sequence[int]) -> None:
    for name in STEPS:
        for rows in sizes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / ("runs.jsonl" if name in ("ingest", "score") else "scores.pq")
                for prefix, count in (("small-", SMALL), ("", rows)):
                    made = path.with_name(prefix + path.name)
                    if path.suffix == ".jsonl":
                        write_runs(made, max(SMALL, count // FEWER))
                    else:
                        write_scores(made, count)
                command = [sys.executable, __file__, "--measure", name, str(path)]
                subprocess.run(command, check=True)


def command(*words: object) -> float:
    """Run a command in this process; return its CPU seconds."""
    from certify_assets.cli import main as cli

    out, started = io.StringIO(), time.process_time()
    with redirect_stdout(out), redirect_stderr(out):
        try:
            cli([str(word) for word in words])
        except SystemExit as end:
            if end.code not in (None, 0):
                raise SystemExit(f"certify {words}: exit {end.code}\n{out.getvalue()}") from end
    return time.process_time() - started


def show_operation(labels: Sequence[int], batches: Sequence[int]) -> None:
    """Print what ingest costs by stored batches, and a label and the queue by stored labels."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"CERTIFY_ROOT": str(folder / "root"), "DAGSTER_HOME": str(folder / "home")}
        write_runs(folder / "runs.jsonl", 600)
        asked = ("judge=lexical", "accept_structural_leak=made for a measurement")
        settings = [word for one in asked for word in ("--set", one)]
        command("corpus", "import", folder / "runs.jsonl", "--name", "c", *settings)
        command("run", "c", "--judge", "lexical")
        command("ops", "deploy", "c", "lexical")
        known: list[str] = []
        for number in range(1, max(batches) + 1):
            path = folder / f"new-{number}.jsonl"
            known += write_runs(path, DELIVERED, f"new-{number}-")
            taken = command("ops", "ingest", "c", path)
            if number in batches:
                print(f"ingest of {DELIVERED} runs, batch {number}: {taken:.2f} CPU-s", flush=True)
        # several reviewers label every run, so that there are as many labels as are asked for
        answers = [
            (run, f"reviewer-{n}") for n in range(1 + max(labels) // len(known)) for run in known
        ]
        stored = 0
        for wanted in labels:
            path = folder / "labels.csv"
            for what, part in (
                (f"import of {wanted - stored:,} labels", answers[stored:wanted]),
                (f"one label more than {wanted:,}", answers[wanted : wanted + 1]),
            ):
                lines = [f"{run},1,{reviewer}" for run, reviewer in part]
                path.write_text("\n".join(["trajectory_id,outcome,reviewer", *lines]), "utf-8")
                print(f"{what}: {command('review', 'import', 'c', path):.2f} CPU-s", flush=True)
            stored = wanted + 1
            print(f"queue at {stored:,} labels: {command('review', 'queue', 'c'):.2f} CPU-s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--labels", type=int, nargs="+", default=[100, 50_000])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 30])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--measure", nargs=2, metavar=("STEP", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(given.measure[0], Path(given.measure[1]))
        return
    if given.quick:
        given.rows, given.labels, given.batches = [50_000], [100], [1, 2]
    show_rows(given.rows)
    show_operation(given.labels, given.batches)


if __name__ == "__main__":
    main()
