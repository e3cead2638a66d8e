"""The monitor of a deployed judge: labelled drawn tasks, compared with its certificates."""

# A drawn task comes with every drawn run, and has its place where its last missing label came;
# neither a later batch nor a clock set back moves it. Runs that the corpus certificate does not
# cover are no part of what it promises, nor of its tasks here.

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.certificates import Certificate, monitor_certificate, n_min
from certify_assets.certificates.monitor import Monitoring, MonitorPath, monitor_path
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import Document
from certify_assets.errors import StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit_sample import (
    first_faults,
    monitored_rows,
    not_covered,
    rows_in_order,
    with_labels,
)
from certify_assets.operations.batches import REFUSALS, BatchRecord, Refusal, UndoneBatch
from certify_assets.operations.deployment import (
    Alarm,
    certificates_in_use,
    certified_judge,
    deployment_of,
    labels_before,
    load_deployment,
)
from certify_assets.operations.labels import LabelPrefix, read_labels
from certify_assets.operations.outcomes import known_head, read_outcomes, standing_in, stream_places
from certify_assets.words import WORDS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_REWRITTEN = {
    "code": "stream_rewritten",
    "message": (
        "Labels that the monitor had read were changed or removed. The probability of a false "
        "alarm holds only if labels are appended."
    ),
}


@dataclass(frozen=True)
class StreamFigures:
    """The figures of a stream of operation, and the hash of its rows in their order."""

    rows: int
    tasks: int
    left_out: Mapping[str, int]
    sha256: str


@dataclass(frozen=True)
class MonitoredOperation:
    """The streams of operation, one a certificate by its hash, and what they depend on."""

    labels: LabelPrefix
    decisions: str  # version of those of all batches
    streams: Mapping[str, StreamFigures]


@dataclass(frozen=True)
class MonitorEntry:
    """The monitoring of one certificate on one stream, with all that its page draws."""

    side: str
    alpha: float
    delta: float
    promise: str
    certificate_sha256: str
    needed: int  # covered tasks below which silence means little
    result: Monitoring
    path: MonitorPath


def monitor_entry(
    certificate: Certificate,
    scores: NDArray[Any],
    outcomes: NDArray[Any],
    tasks: NDArray[Any],
) -> MonitorEntry:
    """Monitor one certificate, with all that its page draws."""
    result = monitor_certificate(certificate, scores, outcomes, tasks)
    return MonitorEntry(
        side=certificate.side,
        alpha=certificate.alpha,
        delta=certificate.delta,
        promise=certificate.statement,
        certificate_sha256=certificate.sha256,
        needed=n_min(certificate.alpha, certificate.delta),
        result=result,
        path=monitor_path(certificate, scores, outcomes, tasks),
    )


class MonitorRecord(Document):
    """The document of a monitor; `operation` for the deployed judge alone."""

    SCHEMA = "certify_assets/monitor/2"
    TITLE = "monitor"

    corpus: str
    judge: str
    status: str
    reason: str
    certificates: tuple[str, ...]
    monitors: tuple[MonitorEntry, ...] = ()
    findings: tuple[dict[str, str], ...] = ()
    operation: MonitoredOperation | None = None


def describe_monitors(entries: Sequence[MonitorEntry]) -> tuple[str, str]:
    """Return alarm, too_few or quiet for some monitors, and the reason for it in words."""
    if any(entry.result.alarm for entry in entries):
        status = "alarm"
    else:
        few = any(entry.result.covered_tasks < entry.needed for entry in entries)
        status = "too_few" if few else "quiet"
    return status, "; ".join(_sentence(entry) for entry in entries) + "."


def _sentence(entry: MonitorEntry) -> str:
    result, where = entry.result, f"{WORDS[entry.side]} at {entry.alpha:g}"
    if result.alarm:
        return f"{where}: alarm after {result.first_alarm_at:,} tasks, issue a new certificate"
    seen = f"{result.covered_tasks:,} covered tasks"
    if result.covered_tasks < entry.needed:
        return f"{where}: no alarm, but {seen} are too few to say much ({entry.needed:,} needed)"
    return f"{where}: no alarm on {seen}"


@dataclass(frozen=True, eq=False)
class OperationStream:
    """Labelled tasks of operation for one certificate, in the order of their completion."""

    scores: NDArray[np.float64]
    outcomes: NDArray[np.int8]
    tasks: NDArray[np.object_]
    left_out: Mapping[str, int]  # drawn tasks, by the reason

    def monitor(self, certificate: Certificate) -> MonitorEntry:
        """Compare the tasks with a certificate."""
        return monitor_entry(certificate, self.scores, self.outcomes, self.tasks)

    def sha256(self, rows: int | None = None) -> str:
        """Return the hash of all rows, or of the first ones."""
        scores = [None if np.isnan(score) else float(score) for score in self.scores[:rows]]
        tasks = [str(task) for task in self.tasks[:rows]]
        return sha256_bytes(canonical_json([scores, self.outcomes[:rows].tolist(), tasks]))

    @property
    def figures(self) -> StreamFigures:
        """What the document keeps of it."""
        tasks = len(set(self.tasks.tolist()))
        return StreamFigures(len(self.scores), tasks, self.left_out, self.sha256())


def monitor_judge(judge: JudgedCorpus) -> MonitorRecord:
    """Compare the labels of a judge with its certificates; store and return the document."""
    # labels that come meanwhile are no part of it: the document names the last one that is
    with judge.corpus.writing():
        return _monitor(certified_judge(judge))


def _monitor(judge: JudgedCorpus) -> MonitorRecord:
    certificates, streams = _monitored(judge), dict[str, OperationStream]()
    operation, deployed = None, deployment_of(judge)
    if deployed is not None:
        after = labels_before(judge.corpus, deployed.recertification)
        for item in certificates:
            streams[item.sha256] = operation_stream(judge.corpus, item, after=after)
        figures = {name: stream.figures for name, stream in streams.items()}
        operation = MonitoredOperation(*_stream_source(judge.corpus), streams=figures)
    entries = [
        streams[item.sha256].monitor(item)
        for item in certificates
        if len(streams[item.sha256].tasks)
    ]
    status, reason = "nothing", f"{judge} decides nothing, so there is nothing to monitor."
    if entries:
        status, reason = describe_monitors(entries)
    elif deployed is None:
        reason = f"The monitor starts once {judge} is deployed and the audit sample is labelled."
    elif certificates:
        reason = "No drawn task has all its labels yet, so nothing was monitored."
    before = stored_monitor(judge)
    rewritten = before is not None and _rewritten(before, streams)
    record = MonitorRecord(
        corpus=judge.corpus.name,
        judge=judge.name,
        status=status,
        reason=reason,
        certificates=tuple(item.sha256 for item in certificates),
        monitors=tuple(entries),
        findings=(_REWRITTEN,) if rewritten else (),
        operation=operation,
    )
    judge.store.write_json(judge.key("monitor.json"), record.to_dict())
    record_alarms(judge.corpus, record)
    return record


def _rewritten(before: MonitorRecord, streams: Mapping[str, OperationStream]) -> bool:
    """Whether labels that a certificate's monitor has read were ever changed since."""
    read = {} if before.operation is None else before.operation.streams
    both = read.keys() & streams.keys()
    changed = (streams[name].sha256(read[name].rows) != read[name].sha256 for name in both)
    return any(changed) or (_REWRITTEN in before.findings and bool(both))


def stored_monitor(judge: JudgedCorpus) -> MonitorRecord | None:
    """Return the stored monitor of a judge, also one of earlier labels or decisions, or None."""
    key = judge.key("monitor.json")
    found = judge.store.exists(key)
    return MonitorRecord.from_dict(judge.store.read_json(key)) if found else None


def load_monitor(judge: JudgedCorpus) -> MonitorRecord:
    """Return the stored monitor of a judge, if it is of the certificates and labels stored now."""
    judge = certified_judge(judge)
    record = MonitorRecord.from_dict(judge.store.read_json(judge.key("monitor.json")))
    then = record.operation
    now = None if deployment_of(judge) is None else _stream_source(judge.corpus)
    if (then and (then.labels, then.decisions)) != now or not _is_of_now(record, judge):
        raise StaleCertificateError(
            f"the monitor of {judge} on {judge.corpus} is out of date: certificates or labels have "
            f"changed. Materialize judges/{judge}/monitor again."
        )
    return record


def _is_of_now(record: MonitorRecord, judge: JudgedCorpus) -> bool:
    """Whether a monitor is of the certificates in use."""
    return record.certificates == tuple(item.sha256 for item in _monitored(judge))


def monitor_new_labels(corpus: Corpus) -> None:
    """Monitor the deployed judge where labels came since: runs without labels raise no alarm."""
    deployed, now = load_deployment(corpus), known_head(corpus)
    if deployed is None or not now.sequence:
        return
    judge = deployed.judge_on(corpus)
    record = stored_monitor(judge)
    read = record and record.operation and record.operation.labels
    if record is None or read != now or not _is_of_now(record, judge):
        monitor_judge(judge)


def label_alarm(
    judge: JudgedCorpus, recertification: int, certificates: Sequence[Certificate]
) -> Refusal | None:
    """Return the alarm that the present labels raise against certificates."""
    # An alarm of the certificate in use is no evidence on one with a wider budget or of another
    # day; these labels are, and the false alarms of each are bounded by its own δ.
    if not known_head(judge.corpus).sequence:
        return None
    after = labels_before(judge.corpus, recertification)
    for item in certificates:
        stream = operation_stream(judge.corpus, item, after=after)
        raised = stream.monitor(item).result if len(stream.tasks) else None
        if raised is not None and raised.alarm:
            return Refusal(
                "alarm",
                f"the present labels raise an alarm for {WORDS[item.side]} at {item.alpha:g} after "
                f"{raised.first_alarm_at:,} tasks. The error is above the budget. Recertify, or "
                "deploy another judge.",
            )
    return None


def monitor_deployed(corpus: Corpus) -> MonitorRecord | None:
    """Monitor the deployed judge; None where none is deployed."""
    record = load_deployment(corpus)
    return None if record is None else monitor_judge(JudgedCorpus(corpus, record.judge))


def _monitored(judge: JudgedCorpus) -> list[Certificate]:
    return [item for item in certificates_in_use(judge) or () if item.certified]


def _stream_source(corpus: Corpus) -> tuple[LabelPrefix, str]:
    """Return what the stream depends on: the last label that it knows, version of the decisions."""
    last = (corpus.last(kind) for kind in (BatchRecord, UndoneBatch))
    version = sha256_bytes(canonical_json([item and item.sha256 for item in last]))
    return known_head(corpus), version


def operation_stream(
    corpus: Corpus, certificate: Certificate, *, after: int = 0
) -> OperationStream:
    """Return the stream of operation for a certificate of the adapter that scored the rows."""
    # tasks that were complete up to label `after` may be in the certificate, and are left out
    every, labels = monitored_rows(corpus), read_labels(corpus)
    outcomes = read_outcomes(corpus)
    known = set(corpus.manifest.assignment)
    # those of known tasks stay, to be counted as such
    rows = every[~not_covered(every) | every["task_id"].isin(known)]
    uncovered = every["task_id"].nunique() - rows["task_id"].nunique()
    frame = with_labels(rows, [*labels, *standing_in(labels, outcomes)])
    reasons = _reasons(frame, known, certificate)
    left_out = {"not_covered": uncovered} if uncovered else {}
    left_out |= Counter(reason for reason in reasons if reason)
    # an open task holds back those after it that no reviewer settles
    counts = frame[frame["task_id"].map(reasons).isin(["", "open"])]
    needed = counts.groupby("task_id", sort=False)["trajectory_id"].agg(list).to_dict()
    settled = [task for task in needed if reasons[task] == ""]
    found = stream_places(labels, outcomes, needed)
    places = {task: found[task] for task in settled if task in found}
    order = {task: place for task, place in places.items() if place > after}
    rows = rows_in_order(frame, order)
    if len(order) < len(places):
        left_out["before_certificate"] = len(places) - len(order)
    if len(places) < len(settled):
        left_out["behind_open"] = len(settled) - len(places)
    return OperationStream(
        rows["score"].to_numpy(np.float64),
        rows["outcome"].to_numpy(np.int8),
        rows["task_id"].to_numpy(object),
        left_out,
    )


def _reasons(frame: pd.DataFrame, known: set[str], certificate: Certificate) -> pd.Series[str]:
    """Return why each task is left out; "" where it is not."""
    tasks = frame["task_id"]
    adapter = certificate.provenance.get("adapter_sha256", "")
    faults = {
        "in_splits": tasks.isin(known),
        "changed_run": frame["twice"].astype(bool),
        "not_scored": frame["reason"].isin(REFUSALS),
        "other_adapter": frame["adapter_sha256"] != adapter,
        "open": frame["outcome"].isna(),
    }
    return first_faults(faults, tasks)


def record_alarms(corpus: Corpus, record: MonitorRecord) -> None:
    """Append the alarms of a monitor, once for each certificate."""
    raised = [
        Alarm(
            judge=record.judge,
            side=entry.side,
            alpha=entry.alpha,
            certificate_sha256=entry.certificate_sha256,
            at=entry.result.first_alarm_at or 0,
            e_value=entry.result.e_value,
            interval=entry.result.interval,
        )
        for entry in record.monitors
        if entry.result.alarm
    ]
    known = {entry.content.subject for entry in corpus.events(Alarm)} if raised else set()
    corpus.append(*(alarm for alarm in raised if alarm.subject not in known))
