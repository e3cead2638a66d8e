"""A decided batch, written by hand: runs, and a row of decision for each."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import write_trajectories
from certify_assets.corpora.trajectory import Step, Trajectory
from certify_assets.operations.decisions import DECISION_COLUMNS
from certify_assets.operations.labels import Label, read_labels
from certify_assets.operations.review_queue import Queue, ask_twice, load_queue
from certify_assets.storage.store import Store
from certify_assets_tests.batch_builders import store_batch

__all__ = ["decided", "labels_of", "queue_of", "session_batch", "write_batch", "write_runs"]

REJECT, RELEASE = -1.0, 1.5


def decided(
    trajectory_id: str,
    *,
    asked: str = "",
    score: float = 0.0,
    task_id: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a row of decision: the thresholds are -1 and 1.5."""
    decision = "reject" if score <= REJECT else "release" if score >= RELEASE else "human"
    row = {
        "corpus": "c",
        "batch": "0001",
        "trajectory_id": trajectory_id,
        "task_id": task_id or trajectory_id.partition("/")[0],
        "agent": "agent-a",
        "attempt": 0,
        "judge": "lexical",
        "score": score,
        "decision": decision,
        "reason": {"reject": "below_threshold", "release": "above_threshold", "human": "middle"}[
            decision
        ],
        "asked": asked,
        "reject_threshold": REJECT,
        "release_threshold": RELEASE,
        "certificate_sha256": "a" * 64,
        "adapter_sha256": "b" * 64,
        "source_file": "runs.jsonl",
        "source_sha256": "c" * 64,
    }
    assert tuple(row) == DECISION_COLUMNS
    return row | more


def write_batch(
    store: Store,
    rows: Sequence[dict[str, Any]],
    runs: Sequence[Trajectory] | None = None,
    *,
    batch: str = "0001",
) -> None:
    """Write a decided batch of the corpus c; runs say little where none are given."""
    made = [_run(row) for row in rows] if runs is None else runs
    frame = pd.DataFrame([{**row, "batch": batch} for row in rows], columns=list(DECISION_COLUMNS))
    store_batch(store, "c", batch, frame, runs=made)


def labels_of(store: Store) -> list[Label]:
    """Return the labels of the corpus c."""
    return read_labels(Corpus(store, "c"))


def queue_of(store: Store, *, double: float | None = None) -> Queue:
    """Return the queue of the corpus c, of a share of whose runs two reviewers are asked."""
    ask_twice(Corpus(store, "c"), double)
    return load_queue(Corpus(store, "c"))


def write_runs(store: Store, key: str, runs: Sequence[Trajectory]) -> None:
    """Store runs under a key."""
    store.write_stream(key, lambda sink: write_trajectories(sink, runs))


def session_batch(store: Store, *, audits: int = 2, undecided: int = 4) -> list[str]:
    """Write a batch with audit tasks of two attempts, undecided runs and three that nobody is asked about; return who is asked."""
    rows = [
        decided(f"audit-{task}/{attempt}", asked="audit_sample", score=-2.0, attempt=attempt)
        for task in range(audits)
        for attempt in (0, 1)
    ]
    rows += [decided("near-0/0", asked="undecided", score=1.499)]
    rows += [
        decided(f"open-{number}/0", asked="undecided", score=0.1 * (number % 10))
        for number in range(undecided)
    ]
    asked = [row["trajectory_id"] for row in rows]
    write_batch(store, [*rows, *(decided(f"auto-{number}/0", score=-3.0) for number in range(3))])
    return asked


def _run(row: dict[str, Any]) -> Trajectory:
    steps = (Step("click('the button')", f"a page of {row['task_id']}"), Step("claim(done)", ""))
    return Trajectory(
        "c",
        row["task_id"],
        row["trajectory_id"],
        row["agent"],
        int(row["attempt"]),
        f"Do {row['task_id']}",
        steps,
        None,
    )
