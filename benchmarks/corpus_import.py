"""How long the import of a large InterCode dump takes, and how much memory, next to
pandas.read_json of the same file.

    python benchmarks/corpus_import.py [--trajectories 15000] [--megabytes 40] [--seed 0]
    [--profile] python benchmarks/corpus_import.py --runs 5000 20000 67000 [--kilobytes 40]

The dump is made up (seeded) in a temporary folder. Import and pandas run in processes of their own,
one after the other in this run; what is compared is their CPU time and peak memory on the same
file. --profile prints where the import spends its time instead. --runs writes tables of so many
long runs, as SWE-rebench publishes them, and imports each into a data root with its profile, as
`certify corpus import` does: what matters is how peak memory grows with the number of runs.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from certify_assets.corpora.corpus import Corpus

WORDS = (
    "find",
    "grep",
    "-type",
    "f",
    "sort",
    "uniq",
    "/testbed",
    "-name",
    "wc",
    "-l",
    "awk",
    "'{print $1}'",
    "xargs",
    "head",
    "log",
    "dir1",
    "é",
)
TURNS = 10
STEPS = 40


def write_dump(path: Path, trajectories: int, megabytes: float, seed: int) -> None:
    """Write a result file of that many episodes and about that size, some of which repeat an
    earlier command.
    """
    generator = np.random.default_rng(seed)
    turns = generator.integers(1, TURNS + 1, size=trajectories)
    # what is left for the texts when field names and numbers are written
    length = max(1.0, (megabytes * 1e6 - 520 * trajectories) / turns.sum() - 85) / 2
    episodes = {
        str(index): _episode(generator, index, count, length)
        for index, count in enumerate(turns.tolist())
    }
    path.write_text(json.dumps(episodes, indent=2, ensure_ascii=False), encoding="utf-8")


def _episode(
    generator: np.random.Generator, index: int, count: int, length: float
) -> dict[str, object]:
    texts = [_text(generator, length) for _ in range(2 * count)]
    rewards = np.round(generator.random(count), 2).tolist()
    if generator.random() < 0.3:
        rewards[-1] = 1.0
    return {
        "environment": "ic_bash",
        "dataset": f"./data/made/made_fs_{index % 4}.json",
        "task_id": index // 4 % 50,
        "query": f"Do what folder {index // 4 % 50} of set {index % 4} says.",
        "turn_history": {
            "actions": texts[:count],
            "observations": texts[count:],
            "rewards": rewards,
            "valid_action": [True] * count,
        },
        "summary": {
            "max_reward": max(rewards),
            "max_reward_idx": 0,
            "turns_taken": count,
            "turns_max": TURNS,
        },
    }


def _text(generator: np.random.Generator, length: float) -> str:
    words = generator.choice(WORDS, size=max(1, int(generator.exponential(length) / 5)))
    return " ".join(words.tolist())


def run_import(path: Path) -> dict[str, float]:
    from certify_assets.corpora.formats import import_corpus
    from certify_assets.corpora.schema import write_trajectories

    wall, cpu = time.perf_counter(), time.process_time()
    imported = import_corpus(path, name="dump")
    read = {
        "rows": len(imported.frame),
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
    }
    write_trajectories(path.with_suffix(".parquet"), imported.frame)
    return read | {
        "seconds_written": time.perf_counter() - wall,
        "cpu_written": time.process_time() - cpu,
    }


def run_pandas(path: Path) -> dict[str, float]:
    import pandas as pd

    wall, cpu = time.perf_counter(), time.process_time()
    frame = pd.read_json(path, orient="index")
    return {
        "rows": len(frame),
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
    }


def write_runs(path: Path, runs: int, kilobytes: float, seed: int) -> None:
    """Write a Parquet table of so many runs of 40 steps, each of about that size, a hundred at a
    time.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(seed)
    pool = " ".join(generator.choice(WORDS, size=2_000_000).tolist())
    call = pa.struct([("function", pa.struct([("name", pa.string()), ("arguments", pa.string())]))])
    message = pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.string()),
            ("tool_calls", pa.list_(call)),
            ("name", pa.string()),
        ]
    )
    schema = pa.schema(
        [
            ("trajectory_id", pa.string()),
            ("instance_id", pa.string()),
            ("trajectory", pa.list_(message)),
            ("resolved", pa.int32()),
        ]
    )
    length = int(kilobytes * 1000 / (2 * STEPS + 1))

    def text() -> str:
        start = int(generator.integers(len(pool) - 2 * length))
        return pool[start : start + int(generator.integers(1, 2 * length))]

    def row(number: int) -> dict[str, object]:
        said: list[dict[str, object]] = [
            {"role": "user", "content": f"Solve issue {number // 10} of the project: {text()}"}
        ]
        for _ in range(STEPS):
            said.append({"role": "assistant", "content": text()})
            said.append({"role": "tool", "content": text(), "name": "execute_bash"})
        resolved = int(generator.random() < 0.4)
        return {
            "trajectory_id": f"run-{number}",
            "instance_id": f"org__name-{number // 10}",
            "trajectory": said,
            "resolved": resolved,
        }

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, runs, 100):
            rows = [row(number) for number in range(start, min(start + 100, runs))]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def run_store(path: Path) -> dict[str, float]:
    """Import into a data root and profile, as the command does."""
    from certify_assets.corpora.config import CorpusConfig, save_config
    from certify_assets.corpora.profile import profile_corpus
    from certify_assets.storage.store import Store

    wall, cpu = time.perf_counter(), time.process_time()
    store = Store(str(path.with_name("root")))
    config = CorpusConfig("runs", format="swe_rebench", paths=(str(path),))
    save_config(store, config)
    summary = Corpus(store, "runs").import_trajectories()
    read = {
        "rows": summary.trajectories,
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "read_mb": peak_mb(),
    }
    profile_corpus(
        Corpus(store, "runs").columns(),
        dropped=summary.dropped,
        rendered=Corpus(store, "runs").outlines(),
    )
    size = store.local_path("corpora/runs/trajectories.parquet").stat().st_size / 1e6
    return read | {"cpu_profiled": time.process_time() - cpu, "table_mb": size}


def peak_mb() -> float:
    # ru_maxrss of a process starts at that of the process that started it
    status = Path("/proc/self/status")
    if status.exists():
        high = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(high.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare_sizes(sizes: list[int], kilobytes: float, seed: int) -> None:
    """Print peak memory by the number of runs, and how much every further run takes."""
    before: dict[str, float] | None = None
    for runs in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs.parquet"
            subprocess.run(
                [
                    sys.executable,
                    __file__,
                    "--write",
                    str(runs),
                    str(kilobytes),
                    str(seed),
                    str(path),
                ],
                check=True,
            )
            figures = measured(path, "store")
        growth = (
            ""
            if before is None
            else f", "
            f"{1024 * (figures['peak_mb'] - before['peak_mb']) / (figures['rows'] - before['rows']):.2f} "
            f"kB a further run"
        )
        print(
            f"{figures['rows']:7.0f} runs, table {figures['table_mb']:5.0f} MB: "
            f"{figures['cpu']:6.1f} s CPU, peak {figures['read_mb']:4.0f} MB; "
            f"with profile {figures['cpu_profiled']:6.1f} s CPU, peak {figures['peak_mb']:4.0f} "
            f"MB{growth}",
            flush=True,
        )
        before = figures


def measured(path: Path, what: str) -> dict[str, float]:
    """Run one of the two in a process of its own."""
    command = [sys.executable, __file__, "--measure", what, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def measure(path: Path, what: str) -> None:
    figures = {"import": run_import, "pandas": run_pandas, "store": run_store}[what](path)
    figures["peak_mb"] = peak_mb()
    print(json.dumps(figures))


def profile(path: Path) -> None:
    profiler = cProfile.Profile()
    profiler.runcall(run_import, path)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trajectories", type=int, default=15_000)
    parser.add_argument("--megabytes", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--runs",
        type=int,
        nargs="+",
        help="import so many long runs instead; several numbers show the growth",
    )
    parser.add_argument("--kilobytes", type=float, default=40.0)
    parser.add_argument(
        "--write", nargs=4, metavar=("RUNS", "KILOBYTES", "SEED", "FILE"), help=argparse.SUPPRESS
    )
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the trajectories and bytes"
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.trajectories, arguments.megabytes = 1_500, 4.0
    if arguments.measure:
        measure(Path(arguments.measure[1]), arguments.measure[0])
        return
    if arguments.write:
        runs, kilobytes, seed, file = arguments.write
        write_runs(Path(file), int(runs), float(kilobytes), int(seed))
        return
    if arguments.runs:
        compare_sizes(arguments.runs, arguments.kilobytes, arguments.seed)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bash" / "made" / "ic_bash_react_fs_1.json"
        path.parent.mkdir(parents=True)
        write_dump(path, arguments.trajectories, arguments.megabytes, arguments.seed)
        if arguments.profile:
            profile(path)
            return
        ours, floor = measured(path, "import"), measured(path, "pandas")
        print(f"{ours['rows']:.0f} trajectories, {path.stat().st_size / 1e6:.1f} MB")
        for name, figures in (("import_corpus", ours), ("pandas.read_json", floor)):
            rate = figures["rows"] / figures["cpu"]
            print(
                f"{name:17} {figures['seconds']:6.2f} s, {figures['cpu']:6.2f} s CPU, {rate:8.0f} "
                f"rows/s of CPU, peak {figures['peak_mb']:5.0f} MB"
            )
        print(
            f"with write_trajectories {ours['seconds_written']:.2f} s, {ours['cpu_written']:.2f} "
            f"s CPU"
        )
        print(
            f"ratio to pandas: {ours['cpu'] / floor['cpu']:.2f} in CPU, "
            f"{ours['peak_mb'] / floor['peak_mb']:.2f} in peak memory"
        )


if __name__ == "__main__":
    main()
