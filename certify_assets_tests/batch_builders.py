"""A batch that was received and decided, made by hand."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import write_trajectories
from certify_assets.corpora.trajectory import Trajectory
from certify_assets.operations.audit_sample import RunDraw
from certify_assets.operations.batches import (
    BatchRecord,
    ProvisionalBatch,
    ReceivedBatch,
    decided,
    is_decided,
    ready_batches,
)
from certify_assets.operations.decisions import DECISION_COLUMNS, PROVISIONAL
from certify_assets.storage.store import Store

__all__ = ["decide_again", "receive_batch", "store_batch", "stored_object"]


def store_batch(
    store: Store,
    corpus: str,
    batch: str,
    frame: pd.DataFrame,
    *,
    runs: Sequence[Trajectory] = (),
    draw: RunDraw | None = None,
    changed: bool = False,
    **about: Any,
) -> None:
    """Store decisions as those of a batch, which is received before where it is not there."""
    opened = Corpus(store, corpus)
    if batch not in ready_batches(opened, undone=True):
        receive_batch(opened, batch, frame, runs, draw=draw, changed=changed)
    objects = {
        "decisions": store.objects.put_table(frame[list(DECISION_COLUMNS)]),
        "scores": store.objects.put_table(frame[["trajectory_id", "task_id", "score"]]),
        "comparison": store.objects.put_json({"batch": batch, "certificates": [], "compared": []}),
    }
    record = BatchRecord(
        batch=batch,
        decided=True,
        refusal=None,
        deployment=1,
        judge="lexical",
        certificates=(),
        rows=len(frame),
        tasks=frame["task_id"].nunique(),
        decisions=frame["decision"].value_counts().to_dict(),
        reasons=frame["reason"].value_counts().to_dict(),
        asked=frame["asked"].value_counts().to_dict(),
        drawn_tasks=0,
        **dict.fromkeys(("runs", "new", "changed", "known", "outcomes_left_out"), 0),
        dropped={},
        findings=(),
        bill=None,
        promises=(),
        ledger=opened.store.ledger(corpus),
        objects=objects,
    )
    store.append(corpus, record.model_copy(update=about))
    if waiting := record.decisions.get(PROVISIONAL, 0):
        store.append(corpus, ProvisionalBatch(batch=batch, runs=waiting, deployment=1))


def decide_again(store: Store, corpus: str, batch: str, **objects: str) -> None:
    """Let a batch be decided with some other objects, past every check."""
    record = decided(Corpus(store, corpus), batch).content
    assert is_decided(Corpus(store, corpus), batch)
    store.append(corpus, record.model_copy(update={"objects": {**record.objects, **objects}}))


def stored_object(store: Store, corpus: str, batch: str, name: str) -> str:
    """Return the hash of an object of a batch, such as ``runs`` or ``decisions``."""
    opened = Corpus(store, corpus)
    found = opened.store.last(corpus, ReceivedBatch, batch)
    assert found is not None
    if name in found.content.objects:
        return found.content.objects[name]
    return decided(opened, batch).content.objects[name]


def receive_batch(
    corpus: Corpus,
    batch: str,
    frame: pd.DataFrame,
    runs: Sequence[Trajectory] = (),
    *,
    draw: RunDraw | None = None,
    changed: bool = False,
) -> None:
    """Store runs as those of a batch that nobody decided."""
    objects, names = corpus.store.objects, frame["trajectory_id"].drop_duplicates().index
    identities = frame.loc[names, ["trajectory_id", "task_id", "agent"]].assign(
        source_sha256="", content_sha256="", changed=changed
    )
    corpus.store.append(
        corpus.name,
        ReceivedBatch(
            batch=batch,
            number=len(ready_batches(corpus, undone=True)) + 1,
            delivery_sha256="",
            paths=(),
            dropped={},
            rows=len(frame),
            **dict.fromkeys(("runs", "new", "changed", "known", "outcomes_left_out"), 0),
            sentences=(),
            objects={
                "runs": objects.put_stream(lambda sink: write_trajectories(sink, runs)),
                "identities": objects.put_table(identities),
                "draw": objects.put_json((draw or RunDraw(drawn=())).to_dict()),
                "files": objects.put_json({}),
            },
        ),
    )
