"""What certifying and deciding a Parquet score table in pieces costs: CPU, memory, temporary disk.

    python benchmarks/out_of_core.py [--quick] [--rows 1000000 10000000 100000000] [--seed 0]

Every figure is of one run of the command line, `certify certificate|verify|decide … --stream`, of
both sides, start-up and compilation included: CPU seconds of user and system together, peak memory
of the process, and the most that its temporary files held (seen every tenth of a second, on Linux).
The tables are made (seeded, the paper's process, ten rows a task, ids as text, rows in scattered
order). The least table is certified and decided in memory as well: the certificate must be the same
but for the name of its table, and the decisions and the queue the same rows; and the hash that
names its table is timed next to that of tables in pieces, which is of their tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROWS = (1_000_000, 10_000_000, 100_000_000)
QUICK = (20_000,)
PROCEDURES = ("guarded_taskboot", "pseudo_task")
A_TASK = 10
PIECE = 1_000_000
GIB = 2**30


def write_scores(path: Path, rows: int, seed: int) -> None:
    """Write a score table in which a judge certifies both sides, a piece at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    effect = rng.normal(0, 2.6, rows // A_TASK)
    # multiples of a number without a common factor go through all places once, far from each other
    step = next(n for n in range(int(rows * 0.618) | 1, rows * 2) if np.gcd(n, rows) == 1)
    writer = None
    for start in range(0, rows, PIECE):
        places = np.arange(start, min(rows, start + PIECE)) * step % rows
        own = effect[places // A_TASK]
        outcome = (rng.random(places.size) < 1 / (1 + np.exp(0.8 - own))).astype(np.int8)
        columns = {
            "task_id": [f"task-{task:09d}" for task in (places // A_TASK).tolist()],
            "trajectory_id": [f"run-{place:010d}" for place in places.tolist()],
            "score": 2.2 * (2 * outcome - 1) + 0.9 * own + rng.normal(size=places.size),
            "outcome": outcome,
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()


def temporary_bytes(process: int) -> int:
    """Return what the unnamed files that a process has open hold."""
    found = 0
    try:
        for file in Path(f"/proc/{process}/fd").iterdir():
            if str(file.readlink()).endswith("(deleted)"):
                found += file.stat().st_blocks * 512
    except OSError:
        # files are closed, and processes end, while one looks
        pass
    return found


def measured(*arguments: str | Path) -> dict[str, float]:
    """Run the command line; return its cost."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "certify_assets.cli", *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        disk = 0
        while True:
            done, status, used = os.wait4(child.pid, os.WNOHANG)
            if done:
                break
            disk = max(disk, temporary_bytes(child.pid))
            time.sleep(0.1)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            raise SystemExit(errors.read().decode())
    return {
        "cpu": used.ru_utime + used.ru_stime,
        "seconds": time.perf_counter() - began,
        "peak": used.ru_maxrss * 1024 / GIB,
        "disk": disk / GIB,
    }


def show(step: str, rows: int, cost: dict[str, float]) -> None:
    print(
        f"{step:28}{rows:>12,} rows {cost['cpu']:9.1f} CPU-s {cost['seconds']:8.1f} s   peak "
        f"{cost['peak']:5.2f} GiB   temporary {cost['disk']:6.2f} GiB",
        flush=True,
    )


def run(folder: Path, rows: int, seed: int, *, compare: bool) -> None:
    """Certify, verify and decide a table of so many rows."""
    scores = folder / "scores.parquet"
    write_scores(scores, rows, seed)
    cost(folder, scores, rows, compare=compare)
    for path in folder.iterdir():
        path.unlink()


def cost(folder: Path, scores: Path, rows: int, *, compare: bool) -> None:
    """Measure every step on a table."""
    pieces = folder / "pieces.json"
    # what is verified and decided is the last one
    for procedure in PROCEDURES:
        show(f"certify ({procedure})", rows, certified(scores, pieces, procedure, "--stream"))
    show("verify", rows, measured("verify", pieces, scores, "--stream"))
    outputs = {name: folder / f"{name}.parquet" for name in ("decisions", "queue")}
    written = [item for name, path in outputs.items() for item in (f"--{name}", path)]
    show("decide", rows, measured("decide", pieces, scores, "--stream", *written))
    if compare:
        compare_with_memory(folder, scores, pieces, outputs)
        hash_cost(scores, rows)


def certified(scores: Path, out: Path, procedure: str, *options: str) -> dict[str, float]:
    """Certify both sides; return the cost."""
    return measured(
        "certificate", scores, "--procedure", procedure, "--json", "--out", out, *options
    )


def compare_with_memory(folder: Path, scores: Path, pieces: Path, outputs: dict[str, Path]) -> None:
    """Do the same in memory, and refuse any difference."""
    import pyarrow.parquet as pq

    whole = folder / "whole.json"
    certified(scores, whole, PROCEDURES[-1])
    found, expected = (
        json.loads(path.read_text("utf-8"))["certificates"] for path in (pieces, whole)
    )
    for document in (*found, *expected):
        for name in ("inputs", "schema", "digest"):
            del document[name]
    assert found == expected
    measured("verify", pieces, scores)
    again = {name: folder / f"whole-{name}.parquet" for name in outputs}
    written = [item for name, path in again.items() for item in (f"--{name}", path)]
    measured("decide", pieces, scores, *written)
    assert all(pq.read_table(outputs[name]).equals(pq.read_table(again[name])) for name in outputs)
    print("in memory: the same certificates, decisions and queue", flush=True)


def hash_cost(scores: Path, rows: int) -> None:
    """Show what naming a table in memory by its tasks would cost, next to its certificate."""
    from certify_assets.certificates import Settings, issue, observe
    from certify_assets.certificates.inputs import content_hash
    from certify_assets.evaluation.score_table import read_score_table

    table = read_score_table(scores)
    data = (table.scores, table.labelled(), table.tasks)
    seen, settings = observe(*data), Settings(procedure=PROCEDURES[-1])
    # as the hash of schema 1 is made
    columns = [(seen.scores, "<f8"), (seen.outcomes, "|i1"), (seen.tasks, "<i4")]
    for step, call in (
        ("certify, read already", lambda: issue(observe(*data), settings)),
        ("hash of all rows", lambda: content_hash("rows/1", [rows, seen.labels], columns)),
        ("hash by tasks", lambda: seen.task_fingerprint),
    ):
        began = time.process_time()
        call()
        print(f"{step:28}{rows:>12,} rows {time.process_time() - began:9.3f} CPU-s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="twenty thousand rows")
    arguments = parser.parse_args()
    for place, rows in enumerate(QUICK if arguments.quick else arguments.rows):
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder), rows, arguments.seed, compare=place == 0)


if __name__ == "__main__":
    main()
