"""What a million new runs cost: received, decided and queued, in batches of at most 100,000.

    python benchmarks/million.py [--runs 1000000] [--delivery 100000] [--limit 4] [--quick]

The runs have about 1 kB, and ten attempts are of one task. A corpus gets a judge, which is deployed.
Deliveries are received and decided one after the other by the functions of the command, in this
process. Seconds of each part, the next row of the review queue, the peak memory and the size of the
data root are printed. It ends with 1 where the peak is above the limit.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

from capacity import command, write_runs

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.receiving import receive
from certify_assets.operations.review_index import ReviewState
from certify_assets.storage.store import Store


def certified(folder: Path) -> Store:
    """Make a data root whose corpus has a deployed judge."""
    os.environ |= {"CERTIFY_ROOT": str(folder / "root"), "DAGSTER_HOME": str(folder / "home")}
    write_runs(folder / "runs.jsonl", 600)
    asked = ("judge=lexical", "accept_structural_leak=made for a measurement")
    settings = [word for one in asked for word in ("--set", one)]
    command("corpus", "import", folder / "runs.jsonl", "--name", "c", *settings)
    command("run", "c", "--judge", "lexical")
    command("ops", "deploy", "c", "lexical")
    return Store(str(folder / "root"))


def peak() -> float:
    """Return the most memory that this process had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--delivery", type=int, default=100_000, help="runs of a delivery")
    parser.add_argument("--limit", type=float, default=4.0, help="GiB of memory")
    parser.add_argument("--quick", action="store_true", help="4,000 runs in two deliveries")
    given = parser.parse_args()
    if given.quick:
        given.runs, given.delivery = 4000, 2000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = certified(folder)
        print(f"a deployed judge: peak {peak():.2f} GiB", flush=True)
        path, rows = folder / "new.jsonl", 0
        for first in range(0, given.runs, given.delivery):
            write_runs(path, min(given.delivery, given.runs - first), f"{first:07d}-")
            times = [time.process_time()]
            received = receive(Corpus(store, "c"), [str(path)])
            times.append(time.process_time())
            records = decide_ready(Corpus(store, "c"))
            times.append(time.process_time())
            rows += sum(record.rows for record in records)
            print(
                f"{rows:>10,} runs, {len(received.batches)} batches: received in "
                f"{times[1] - times[0]:.1f} CPU-s, decided in {times[2] - times[1]:.1f} CPU-s, "
                f"peak {peak():.2f} GiB",
                flush=True,
            )
        started = time.process_time()
        state = ReviewState(Corpus(store, "c"))
        shown, waiting = state.next_runs("ann", 1), state.count_waiting("ann")
        taken = 1000 * (time.process_time() - started)
        print(f"queue: {waiting:,} runs wait, {len(shown)} shown in {taken:.1f} CPU-ms")
        database = store.local_path("certify.db").stat().st_size / 2**20
        print(f"database: {database:.0f} MiB; peak {peak():.2f} GiB, limit {given.limit:g}")
        if rows != given.runs or peak() > given.limit:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
