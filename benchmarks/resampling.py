"""The Monte-Carlo kernel against the machine's limits, measured in one run on one thread.

    python benchmarks/resampling.py [--quick]

Algorithm 1 draws G tasks with replacement, B times, and sums each draw at T thresholds. A drawn
task is called a place: there are B·G.

The floor is that of the matrix form W @ V, with W (B × G) how often each draw took each task and V
(G × T) the tasks' values:
  GEMM   2·T flops a place (80 at T = 40), at the rate of numpy's float32 GEMM of this very shape, W
  lying ready in memory; copy   4 bytes a place, W read once, at the rate of a copy of a large array
  (bytes read and written).
The larger of the two binds. Neither counts the drawing of tasks, so the floor is one that no
program can reach: W must be drawn first. The kernel's time has everything in it: random numbers,
drawn tasks, exact sums. The engine's time also has the table of values, the comparison with 0 and
the counts, at 2,000 draws; GEMM and kernel take fewer at 100,000 tasks, so that W fits the memory.

The kernel does not multiply: it adds one cache line of bytes (64) a place. "line rate" is its bytes
a second over those of a copy of an array as large as its table, thus out of the same cache.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from taskboot import table
from threadpoolctl import threadpool_limits

from certify_assets.certificates import observe
from certify_assets.certificates.bootstrap import _byte_table, exceedance_shares
from certify_assets.certificates.compiled import task_sums
from certify_assets.certificates.counts import count_tasks

SIZES = (84, 382, 5_000, 100_000)
DRAWS = 2_000


def best(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """CPU seconds of each call, the best of several rounds that take turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            found[name] = min(found[name], time.process_time() - start)
    return found


def repeated(call: Callable[[], object], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            call()

    return run


def copy_rate(size: int) -> float:
    """Bytes read and written a second in a copy of so many bytes."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    times = max(1, 200_000_000 // size)
    return (
        2
        * size
        * times
        / best({"copy": repeated(lambda: np.copyto(target, source), times)}, 5)["copy"]
    )


def measure(tasks: int, places: int, rounds: int, memory_rate: float) -> list[str]:
    counts = count_tasks(observe(*table(tasks, 8)))
    excess = (10 * counts.errors.astype(np.int64) - counts.covered).T
    draws = max(20, min(DRAWS, places // tasks))
    weights = np.random.default_rng(0).poisson(1.0, (draws, tasks)).astype(np.float32)
    values = np.ascontiguousarray(excess, dtype=np.float32)
    bytes_table = _byte_table((excess - excess.min(axis=0)).view(np.uint64), 1)
    times, often = (max(1, places // (made * tasks)) for made in (draws, DRAWS))
    seconds = best(
        {
            "gemm": repeated(lambda: weights @ values, times),
            "kernel": repeated(lambda: task_sums(bytes_table, draws, np.uint64(1), 0), times),
            "engine": repeated(
                lambda: exceedance_shares(counts, Fraction(1, 10), DRAWS, 1, 1), often
            ),
        },
        rounds,
    )
    gemm, kernel = (1e9 * seconds[name] / (times * draws * tasks) for name in ("gemm", "kernel"))
    engine = 1e9 * seconds["engine"] / (often * DRAWS * tasks)
    copy = 4e9 / memory_rate
    floor, binding = max((gemm, "GEMM"), (copy, "copy"))
    line = bytes_table.shape[2] / (1e-9 * kernel) / copy_rate(bytes_table.nbytes)
    return [
        f"{tasks}",
        f"{draws}",
        f"{gemm:.2f} ({2 * values.shape[1] / gemm:.0f} GF/s)",
        f"{copy:.2f}",
        binding,
        f"{kernel:.2f}",
        f"{floor / kernel:.0%}",
        f"{engine:.2f}",
        f"{floor / engine:.0%}",
        f"{line:.0%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer draws and rounds")
    quick = parser.parse_args().quick
    with threadpool_limits(1):
        memory_rate = copy_rate(200_000_000)
        print(
            f"40 thresholds, one thread, CPU nanoseconds a place, best of several; a large copy "
            f"moves {memory_rate / 1e9:.0f} GB/s"
        )
        form = "{:>8} {:>6} {:>16} {:>6} {:>7} {:>7} {:>9} {:>7} {:>9} {:>10}"
        print(
            form.format(
                "tasks",
                "draws",
                "GEMM",
                "copy",
                "binds",
                "kernel",
                "of limit",
                "engine",
                "of limit",
                "line rate",
            )
        )
        for tasks in SIZES:
            print(
                form.format(
                    *measure(
                        tasks, 2_000_000 if quick else 40_000_000, 3 if quick else 7, memory_rate
                    )
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
