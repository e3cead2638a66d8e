"""What the first certificate of an installation costs, as ratios measured in one run.

    python benchmarks/first_call.py [--quick]

CPU seconds of processes of their own, the least of several, next to importing
`certify_assets.certificates`: certificates of 1,500 rows in 150 tasks by the command and from
Python, with an empty cache of numba and with the one that this leaves behind. The default procedure
compiles nothing; the Monte-Carlo engine does, unless `make setup` or the image has filled the cache
(`certify_assets.certificates.compiled.compile_all`).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from taskboot import table

IMPORT = "import certify_assets.certificates"
CALL = """
import csv, sys
from certify_assets.certificates import certify
with open(sys.argv[1]) as file:
    tasks, scores, outcomes = zip(*list(csv.reader(file))[1:])
certify([float(score) for score in scores], [int(one) for one in outcomes], tasks)
"""


def write_table(path: Path) -> None:
    """A score table of 1,500 rows in 150 tasks."""
    scores, outcomes, tasks = table(150, 10)
    rows = [
        f"{task},{score},{one}" for task, score, one in zip(tasks, scores, outcomes, strict=True)
    ]
    path.write_text("\n".join(["task_id,score,outcome", *rows[:1500]]) + "\n", "utf-8")


def cpu_seconds(command: list[str], cache: Path) -> float:
    """CPU seconds of one process and its children, with numba's cache at a path."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one process of each instead of ten")
    times = 1 if parser.parse_args().quick else 10
    with tempfile.TemporaryDirectory() as folder:
        scores = Path(folder) / "scores.csv"
        write_table(scores)
        command = [sys.executable, "-m", "certify_assets.cli", "certificate", str(scores)]
        guarded = ("--procedure", "guarded_taskboot")
        imported = min(
            cpu_seconds([sys.executable, "-c", IMPORT], Path(folder)) for _ in range(times)
        )
        print(f"import: {imported:.2f} CPU-s (least of {times})")
        for name, call in (
            ("from Python", [sys.executable, "-c", CALL, str(scores)]),
            ("command", command),
            ("command, --procedure guarded_taskboot", [*command, *guarded]),
            ("command, --engine montecarlo", [*command, *guarded, "--engine", "montecarlo"]),
        ):
            caches = [Path(folder) / f"{name}-{place}" for place in range(times)]
            first = min(cpu_seconds(call, cache) for cache in caches)
            later = min(cpu_seconds(call, caches[0]) for _ in range(times))
            print(
                f"{name}: first {first:.2f} CPU-s, {first / imported:.1f} imports; later "
                f"{later:.2f} CPU-s, {later / imported:.1f} imports"
            )


if __name__ == "__main__":
    main()
