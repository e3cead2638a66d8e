"""Closing an audit: what the labels of its draw decide of a provisional batch."""

# A closing is a document and a table of its own next to the decisions as they were made, which are
# never rewritten. It is stored once every side is settled, in an order in which a kill leaves the
# batch provisional, and the same labels close it alike.

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.operations.batch_audit import BatchAudit, ClosingRecord, decisions_sha256
from certify_assets.operations.batch_record import batch_names
from certify_assets.operations.labels import labels_up_to
from certify_assets.operations.layout import batch_key, provisional_rows

if TYPE_CHECKING:
    import pandas as pd


def close_settled(corpus: Corpus) -> list[ClosingRecord]:
    """Close the provisional batches whose labels settle them; one that was edited stays as it is.

    One process at a time may call it: `batches.close_batches` sees to that.
    """
    closed = []
    for name in batch_names(corpus):
        if corpus.store.exists(batch_key(corpus.name, name, "closing.json")):
            continue
        try:
            audit = BatchAudit.load(corpus, name)
            if audit is not None and not audit.wanted:
                closed.append(_closed(audit))
        except CertifyError:
            # who asks for the audit gets the sentence; the other batches do not depend on it
            continue
    return closed


def _closed(audit: BatchAudit) -> ClosingRecord:
    corpus, batch = audit.corpus, audit.record.batch
    store, rows = corpus.store, settled_rows(audit)

    def key(name: str) -> str:
        return batch_key(corpus.name, batch, name)

    record = ClosingRecord(
        corpus=corpus.name,
        batch=batch,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        state="certified" if any(item.certified for item in audit.certificates) else "to_reviewers",
        audit_sha256=store.sha256(key("audit.json")),
        decisions_sha256=decisions_sha256(corpus, audit.record.batches),
        closed_sha256=store.write_table(key("closed.parquet"), rows),
        labels_sequence=labels_up_to(corpus).sequence,
        labels_used=audit.labels_used,
        outcomes=audit.outcomes,
        certificates=tuple(item.to_dict() for item in audit.certificates),
        decisions=dict(Counter(rows["decision"].tolist())),
        reasons=dict(Counter(rows["reason"].tolist())),
    )
    # last: the batch is closed once this document is there
    store.write_json(key("closing.json"), asdict(record))
    return record


def settled_rows(audit: BatchAudit) -> pd.DataFrame:
    """Return what becomes of every provisional run: a label counts more than a certificate."""
    rows = provisional_rows(audit.corpus, audit.record.batches)
    rows = rows[rows["trajectory_id"].isin(audit.runs)]
    decisions = np.full(len(rows), "human", dtype=object)
    reasons = np.full(len(rows), "batch_not_certified", dtype=object)
    for draw, certificate in zip(audit.draw.sides, audit.certificates, strict=True):
        if certificate.threshold is not None:
            decided = draw.batch.decided(certificate.side, certificate.threshold).tolist()
            names = {
                name for name, hit in zip(draw.batch.trajectories, decided, strict=True) if hit
            }
            inside = rows["trajectory_id"].isin(names).to_numpy(bool)
            decisions[inside], reasons[inside] = certificate.side, "batch_certificate"
    labelled = rows["trajectory_id"].isin(list(audit.outcomes)).to_numpy(bool)
    decisions[labelled], reasons[labelled] = "human", "batch_draw"
    asked = np.where(decisions == "human", "undecided", "").astype(object)
    asked[labelled] = "batch_draw"
    drawn = (rows["asked"] == "audit_sample").to_numpy(bool)
    asked[drawn] = "audit_sample"
    return rows[["trajectory_id"]].assign(decision=decisions, reason=reasons, asked=asked)


def closing_holds(audit: BatchAudit) -> bool:
    """Whether a closing is what the journal of labels said then, and decided what follows."""
    corpus, closing = audit.corpus, audit.closing
    if closing is None:
        return True
    stored = corpus.store.read_table(batch_key(corpus.name, closing.batch, "closed.parquet"))
    again = settled_rows(audit)
    said = audit.said(labels_up_to(corpus, closing.labels_sequence).labels)
    return said == dict(closing.outcomes) and (
        stored.astype(str).to_numpy().tolist() == again.astype(str).to_numpy().tolist()
    )
