"""The stream that feeds the monitor of the deployed judge: tasks that people labelled whatever the judge said of them, in the order of their completion.

Tasks drawn "audit" come with every attempt. Tasks drawn "spot" come with the attempts that were decided without a person; of their other attempts only
the score is known, which is all that an attempt outside the certified region needs. A batch that was decided under narrower thresholds than those that
are monitored has spot tasks with unlabelled attempts inside the region: leaving such tasks out by themselves would keep the easy ones, so the spot tasks
of the whole batch are.

A task stands in the stream with the attempts of its first batch, where its last missing label stands in the journal. Neither a later batch nor a clock
that was set back changes a place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit_sample import completed_at, drawn_decisions, with_labels
from certify_assets.operations.in_use import complete_before, deployed_document
from certify_assets.operations.journal import read_labels
from certify_assets.operations.layout import batch_key, batch_names, labels_key
from certify_assets.operations.standing import REFUSALS
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate

__all__ = [
    "OperationStream",
    "feed",
    "feed_source",
    "grown_at_its_end",
    "operation_stream",
    "stream_source",
]


@dataclass(frozen=True, eq=False)
class OperationStream:
    """Labelled tasks for one certificate.

    Parameters
    ----------
    scores, outcomes, tasks : arrays, shape (rows,)
        Tasks in the order of their completion. An attempt that the certificate does not decide may have no label; it then stands with outcome 0,
        which nothing reads.
    audit_tasks, spot_tasks : int
    left_out : mapping of str to int
        Drawn tasks that are not in the stream, by reason.
    """

    scores: np.ndarray[Any, np.dtype[np.float64]]
    outcomes: np.ndarray[Any, np.dtype[np.int8]]
    tasks: np.ndarray[Any, np.dtype[np.object_]]
    audit_tasks: int
    spot_tasks: int
    left_out: Mapping[str, int]

    def about(self) -> dict[str, Any]:
        """Return the figures as JSON values, and a hash of the rows in their order."""
        return {
            "rows": len(self.scores),
            "audit_tasks": self.audit_tasks,
            "spot_tasks": self.spot_tasks,
            "left_out": dict(self.left_out),
            "sha256": self.sha256(len(self.scores)),
        }

    def sha256(self, rows: int) -> str:
        """Return the hash of the first rows."""
        scores = [None if np.isnan(score) else float(score) for score in self.scores[:rows]]
        told = [scores, self.outcomes[:rows].tolist(), [str(task) for task in self.tasks[:rows]]]
        return sha256_bytes(canonical_json(told))


def stream_source(corpus: Corpus) -> dict[str, Any]:
    """Return what the stream of a corpus stands on: lines and hash of the journal of labels, and the hash of every batch's decisions."""
    key = labels_key(corpus.name)
    data = corpus.store.read_bytes(key) if corpus.store.exists(key) else b""
    whole = data[: data.rfind(b"\n") + 1]
    batches = {
        name: corpus.store.sha256(batch_key(corpus.name, name, "decisions.parquet"))
        for name in batch_names(corpus)
    }
    return {"labels": whole.count(b"\n"), "labels_sha256": sha256_bytes(whole), "batches": batches}


def operation_stream(
    corpus: Corpus, certificate: Certificate, *, after: int = 0
) -> OperationStream:
    """Return what operation feeds the monitor of a certificate.

    Parameters
    ----------
    store : Store
    corpus : str
    certificate : Certificate
        Certified. Its adapter is that of the rows.
    after : int
        Line of the journal up to which tasks were complete when the certificate was made: they may be in it, and stay out.

    Raises
    ------
    InputError
        If rows are of mixed provenance.
    """
    every = drawn_decisions(corpus)
    narrow = _narrow_batches(every, certificate)
    every["twice"] = every["trajectory_id"].duplicated(keep=False)
    first = every.groupby("task_id", sort=False)["batch"].transform("first")
    labels = read_labels(corpus)
    frame = with_labels(every[(every["drawn"] != "") & (every["batch"] == first)], labels)
    assignment = corpus.assignment
    adapter = certificate.provenance.get("adapter_sha256", "")
    needed: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    left_out: dict[str, int] = {}
    for task, part in frame.groupby("task_id", sort=False):
        kinds[str(task)] = drawn = str(part["drawn"].iloc[0])
        wanted = part if drawn == "audit" else part[part["asked"] == "spot_check"]
        tests = {
            "in_splits": task in assignment,
            "changed_run": bool(part["twice"].any()),
            "not_scored": bool(part["reason"].isin(REFUSALS).any()),
            "other_adapter": bool((part["adapter_sha256"] != adapter).any()),
            "other_threshold": drawn == "spot" and part["batch"].iloc[0] in narrow,
            "nothing_decided": wanted.empty,
            "open": bool(wanted["outcome"].isna().any()),
        }
        reason = next((name for name, holds in tests.items() if holds), "")
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            needed[str(task)] = [str(name) for name in wanted["trajectory_id"]]
    order = {task: place for task, place in completed_at(labels, needed).items() if place > after}
    if len(order) < len(needed):
        left_out["before_certificate"] = len(needed) - len(order)
    return _stream(frame, order, kinds, left_out)


def _stream(
    frame: pd.DataFrame,
    order: Mapping[str, int],
    kinds: Mapping[str, str],
    left_out: Mapping[str, int],
) -> OperationStream:
    places = frame["task_id"].map(order)
    rows = frame[places.notna()].iloc[np.argsort(places[places.notna()].to_numpy(), kind="stable")]
    spots = sum(kinds[task] == "spot" for task in order)
    return OperationStream(
        scores=rows["score"].to_numpy(np.float64),
        outcomes=rows["outcome"].fillna(0).to_numpy(np.int8),
        tasks=rows["task_id"].to_numpy(object),
        audit_tasks=len(order) - spots,
        spot_tasks=spots,
        left_out=left_out,
    )


def _narrow_batches(frame: pd.DataFrame, certificate: Certificate) -> set[str]:
    """Return the batches in which a run inside the certified region went to a person, so that spot tasks have no label for it."""
    scores, threshold = frame["score"].to_numpy(np.float64), certificate.threshold
    if threshold is None:
        return set()
    inside = scores <= threshold if certificate.side == "reject" else scores >= threshold
    return {
        str(name)
        for name in frame.loc[inside & (frame["decision"] != certificate.side).to_numpy(), "batch"]
    }


def feed(judge: JudgedCorpus, certificate: Certificate) -> OperationStream | None:
    """Return the stream of a certificate in use; None where the judge is not deployed."""
    document = deployed_document(judge.corpus)
    if document is None or document["judge"] != judge.name:
        return None
    return operation_stream(judge.corpus, certificate, after=complete_before(judge))


def feed_source(
    judge: JudgedCorpus, streams: Mapping[str, OperationStream]
) -> dict[str, Any] | None:
    """Return what a monitor read of operation, as JSON values; None where the judge is not deployed."""
    document = deployed_document(judge.corpus)
    if document is None or document["judge"] != judge.name:
        return None
    return {
        **stream_source(judge.corpus),
        "streams": {name: stream.about() for name, stream in streams.items()},
    }


def grown_at_its_end(store: Store, key: str, streams: Mapping[str, OperationStream | None]) -> bool:
    """Whether every stream begins with what the stored monitor read of it, if it read any.

    Parameters
    ----------
    store : Store
    key : str
        Of the monitor's document.
    streams : mapping of str to OperationStream or None
        By the hash of the certificate.
    """
    stored = store.read_json(key) if store.exists(key) else {}
    told = any(finding["code"] == "stream_rewritten" for finding in stored.get("findings", []))
    before = (stored.get("operation") or {}).get("streams", {})
    both = [(about, streams[name]) for name, about in before.items() if name in streams]
    grown = all(
        stream is not None and stream.sha256(about["rows"]) == about["sha256"]
        for about, stream in both
    )
    return grown and not (told and both)
