"""What an ingest costs where many batches are stored, as CPU seconds of the command.

    python benchmarks/ingest.py [--batches 20 2000] [--runs 40] [--times 3] [--profile] [--quick]

A corpus gets a judge, which is deployed. A first batch is delivered. The others are copies of it
with runs and tasks of their own, and are stored as receiving and deciding store theirs. Then new
runs are ingested with the command, in this process, and the median of some times is printed. A
reviewer labels a run before each ingest, so that the monitor has something new to read. The last
line is the ratio between the most and the fewest batches.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from capacity import command, write_runs

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.audit_sample import RunDraw, RunsOfTask, asked_rows
from certify_assets.operations.batches import batch_names, decided, identities_of, received
from certify_assets.operations.decisions import first_decisions_of
from certify_assets.operations.deployment import load_deployment
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.review_index import ReviewState
from certify_assets.storage.store import Store

NAMES = ("trajectory_id", "task_id")
_AT_ONCE = 200


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


def copy_batches(store: Store, wanted: int) -> None:
    """Store copies of the first batch until there are as many as wanted."""
    stored = len(batch_names(Corpus(store, "c")))
    while stored < wanted:
        corpus = Corpus(store, "c")
        first = batch_names(corpus)[0]
        upto = min(wanted, stored + _AT_ONCE)
        with corpus.writing():
            for number in range(stored + 1, upto + 1):
                _copy(corpus, first, number)
        stored = upto
    # as at the end of the processes that stored them, the log of the database is written back
    store.database.engine.dispose()


def _copy(corpus: Corpus, first: str, number: int) -> None:
    name, put = f"{number:06d}-{number:012d}", corpus.store.objects
    about, made = received(corpus, first), decided(corpus, first).content
    deployed = load_deployment(corpus)
    rows = _renamed(first_decisions_of(corpus, first), number)
    names = zip(rows["task_id"].tolist(), rows["trajectory_id"].tolist(), strict=True)
    plan = deployed.sampling
    of_task = RunsOfTask.of(corpus.config, plan)
    draw = RunDraw.of(deployed.number, plan, of_task, names, corpus=corpus.name)
    drawn = np.isin(rows["trajectory_id"].to_numpy(str), draw.drawn)
    asked = asked_rows(drawn, rows["decision"].to_numpy(object), np.zeros(len(rows), bool))
    of_runs = {
        "identities": put.put_table(_renamed(identities_of(corpus, first), number)),
        "draw": put.put_json(draw.to_dict()),
    }
    of_decisions = {
        "decisions": put.put_table(rows.assign(batch=name, asked=asked)),
        "comparison": put.put_json(put.get_json(made.objects["comparison"]) | {"batch": name}),
    }
    corpus.store.append(
        corpus.name,
        about.model_copy(
            update={"batch": name, "number": number, "objects": about.objects | of_runs}
        ),
        made.model_copy(update={"batch": name, "objects": made.objects | of_decisions}),
    )


def _renamed(table: pd.DataFrame, number: int) -> pd.DataFrame:
    return table.assign(**{name: f"copy-{number}-" + table[name] for name in NAMES})


def label_one(store: Store) -> None:
    """Label the first run of the queue."""
    corpus = Corpus(store, "c")
    (name,) = ReviewState(corpus).next_runs("ann", 1)
    append_labels(corpus, [Label(name, 1, "ann", "file", f"ann:{name}")])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[20, 2000])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="also say where the time goes")
    parser.add_argument("--quick", action="store_true", help="4 and 12 batches, once each")
    given = parser.parse_args()
    if given.quick:
        given.batches, given.times = [4, 12], 1
    taken = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = certified(folder)
        path = folder / "new.jsonl"
        write_runs(path, given.runs, "first-")
        command("ops", "ingest", "c", path)
        for batches in given.batches:
            copy_batches(store, batches)
            profile, times = cProfile.Profile(), []
            for number in range(given.times):
                label_one(store)
                write_runs(path, given.runs, f"new-{batches}-{number}-")
                times.append(command("ops", "ingest", "c", path))
            taken[batches] = statistics.median(times)
            print(
                f"ingest of {given.runs} runs with {batches:,} batches: {taken[batches]:.2f} CPU-s",
                flush=True,
            )
            if given.profile:
                label_one(store)
                write_runs(path, given.runs, f"profiled-{batches}-")
                profile.runcall(command, "ops", "ingest", "c", path)
                pstats.Stats(profile).sort_stats("cumulative").print_stats("certify_assets", 45)
    print(f"ratio: {taken[max(taken)] / taken[min(taken)]:.2f}")


if __name__ == "__main__":
    main()
