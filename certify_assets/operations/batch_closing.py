"""Closing an audit: what the labels of its draw decide of a provisional batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.batch_draws import ClosedBatch
from certify_assets.operations.batch_record import batch_names
from certify_assets.operations.labels import labels_up_to
from certify_assets.operations.layout import provisional_rows

if TYPE_CHECKING:
    import pandas as pd


def close_settled(corpus: Corpus) -> list[BatchAudit]:
    """Close the provisional batches whose labels settle them; return their audits."""
    closed = []
    for name in batch_names(corpus):
        try:
            audit = BatchAudit.load(corpus, name)
            if audit is not None and audit.closing is None and not audit.wanted:
                closed.append(_closed(audit))
        except CertifyError:
            # who asks for the audit gets the sentence; the other batches do not depend on it
            continue
    return closed


def _closed(audit: BatchAudit) -> BatchAudit:
    corpus, rows = audit.corpus, settled_rows(audit)
    certified = any(item.certified for item in audit.certificates)
    closing = ClosedBatch(
        batch=audit.record.batch,
        state="certified" if certified else "to_reviewers",
        labels_sequence=labels_up_to(corpus).sequence,
        labels_used=audit.labels_used,
        outcomes=audit.outcomes,
        certificates=tuple(item.to_dict() for item in audit.certificates),
        decisions=dict(Counter(rows["decision"].tolist())),
        reasons=dict(Counter(rows["reason"].tolist())),
        objects={"closed": corpus.store.objects.put_table(rows)},
    )
    corpus.store.append(corpus.name, closing)
    return replace(audit, closing=closing)


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
    """Whether a closing is what the labels said then, and decided what follows."""
    corpus, closing = audit.corpus, audit.closing
    if closing is None:
        return True
    stored = corpus.store.objects.get_table(closing.objects["closed"])
    again = settled_rows(audit)
    said = audit.said(labels_up_to(corpus, closing.labels_sequence).labels)
    return said == dict(closing.outcomes) and (
        stored.astype(str).to_numpy().tolist() == again.astype(str).to_numpy().tolist()
    )
