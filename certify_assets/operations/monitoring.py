"""The monitor of a judge: labelled audit samples, compared with the certificates that decide."""

# The score tables of monitoring/<corpus>/<judge>/ are read in the order of their names, so a file
# that is added later must have a later name. The labelled tasks of operation are a stream with an
# e-process of its own. A drawn task comes with every drawn run, and has its place where its last
# missing label came; neither a later batch nor a clock set back moves it. Runs that the corpus
# certificate does not cover are no part of what it promises, nor of its tasks here.

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.names import in_both, shared_names
from certify_assets.operations.audit_sample import (
    first_faults,
    not_covered,
    rows_in_order,
    with_labels,
)
from certify_assets.operations.batches import REFUSALS, BatchRecord, Refusal, UndoneBatch
from certify_assets.operations.certifier import load_certificates
from certify_assets.operations.deployment import (
    certificates_in_use,
    certified_judge,
    deployment_of,
    labels_before,
    load_deployment,
    strictest_certificates,
)
from certify_assets.operations.labels import read_labels
from certify_assets.operations.monitor_record import (
    LabelPrefix,
    MonitoredOperation,
    MonitorEntry,
    MonitorRecord,
    SampleFile,
    StreamFigures,
    describe_monitors,
    monitor_entry,
    record_alarms,
)
from certify_assets.operations.monitored_rows import monitored_rows
from certify_assets.operations.outcomes import known_head, read_outcomes, standing_in, stream_places
from certify_assets.operations.recertification_record import recertification_number
from certify_assets.tables.score_table import (
    NOT_STATED,
    ScoreTable,
    read_score_table,
    require_audit_sample,
)

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from certify_assets.certificates import Certificate

_ENDINGS = (".csv", ".parquet", ".pq", ".jsonl", ".ndjson")
_REWRITTEN = {
    "code": "stream_rewritten",
    "message": (
        "Labels that were read before were changed, removed, or preceded by a file of an earlier "
        "name. The probability of a false alarm holds for a stream that only grows at its end."
    ),
}
_BATCH_DRAWS = (
    "{} runs have labels of batch draws, which are left out: the certificates monitored here do "
    "not cover these runs; the certificates of their batches say how often they were decided "
    "wrongly."
)
_SEVERAL = {
    "code": "several_monitors",
    "message": (
        "Each certificate's monitor raises a false alarm with probability at most its own delta; "
        "together at most their sum."
    ),
}


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows that a monitor reads, in their order."""

    scores: NDArray[np.float64]
    outcomes: NDArray[np.int8]  # 0 for an attempt without a label, which no certificate decides
    tasks: NDArray[np.object_]

    def monitor(self, certificate: Certificate, source: str = "") -> MonitorEntry:
        """Compare the rows with a certificate."""
        return monitor_entry(certificate, self.scores, self.outcomes, self.tasks, source=source)

    def sha256(self, rows: int | None = None) -> str:
        """Return the hash of all rows, or of the first ones."""
        scores = [None if np.isnan(score) else float(score) for score in self.scores[:rows]]
        tasks = [str(task) for task in self.tasks[:rows]]
        return sha256_bytes(canonical_json([scores, self.outcomes[:rows].tolist(), tasks]))


@dataclass(frozen=True, eq=False)
class AuditSample(LabelledRows):
    """Labelled rows of all files, in order."""

    files: tuple[SampleFile, ...]
    stated: bool  # every file states that its rows are an audit sample


@dataclass(frozen=True, eq=False)
class OperationStream(LabelledRows):
    """Labelled tasks of operation for one certificate, in the order of their completion."""

    figures: StreamFigures


def monitor_judge(judge: JudgedCorpus) -> MonitorRecord:
    """Compare the labels of a judge with its certificates; store and return the document."""
    # labels that come meanwhile are no part of it: the document names the last one that is
    with judge.corpus.writing():
        return _monitor(certified_judge(judge))


def _monitor(judge: JudgedCorpus) -> MonitorRecord:
    certificates, sample, deployed = (
        _monitored(judge),
        read_audit_sample(judge),
        deployment_of(judge),
    )
    # a stream of its own: files that come later would otherwise precede or divide its tasks
    streams, operation = dict[str, OperationStream](), None
    if deployed is not None:
        after = labels_before(judge, deployed.certificates_key)
        for item in certificates:
            streams[item.sha256] = operation_stream(judge.corpus, item, after=after)
        figures = {name: stream.figures for name, stream in streams.items()}
        operation = MonitoredOperation(*_stream_source(judge.corpus), streams=figures)
    entries = [] if sample is None else [sample.monitor(item, "files") for item in certificates]
    for item in certificates:
        if item.sha256 in streams and len(streams[item.sha256].tasks):
            entries.append(streams[item.sha256].monitor(item, "operation"))
    status, reason = "nothing", "nothing is certified, so there is nothing to monitor."
    if entries:
        status, reason = describe_monitors(entries)
    elif certificates:
        reason = (
            f"no labelled audit sample is in {_folder(judge)} or came from operation, so nothing "
            "was monitored."
        )
    record = MonitorRecord(
        corpus=judge.corpus.name,
        judge=judge.name,
        status=status,
        reason=reason,
        certificates=tuple(item.sha256 for item in certificates),
        files=() if sample is None else sample.files,
        monitors=tuple(entries),
        operation=operation,
    )
    findings = [_SEVERAL] if len(entries) > 1 else []
    findings += [NOT_STATED] if sample is not None and not sample.stated else []
    before = _stored(judge)
    if before is not None and _rewritten(before, record, streams):
        findings.append(_REWRITTEN)
    if drawn := max((stream.figures.batch_draws for stream in streams.values()), default=0):
        findings.append({"code": "batch_draws", "message": _BATCH_DRAWS.format(drawn)})
    record = record.replace(findings=tuple(findings))
    judge.store.write_json(judge.key("monitor.json"), record.to_dict())
    record_alarms(judge.corpus, record)
    return record


def _rewritten(
    before: MonitorRecord, now: MonitorRecord, streams: Mapping[str, OperationStream]
) -> bool:
    """Whether labels that a certificate's monitor has read were ever changed since."""
    same = before.certificates == now.certificates
    read = {} if before.operation is None else before.operation.streams
    both = read.keys() & {*now.certificates}
    if _REWRITTEN in before.findings and (same or both):
        return True
    if same and before.files != now.files[: len(before.files)]:
        return True
    return any(
        name not in streams or streams[name].sha256(read[name].rows) != read[name].sha256
        for name in both
    )


def _stored(judge: JudgedCorpus) -> MonitorRecord | None:
    """Return the document that is stored, whatever is stored next to it now."""
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
            f"the monitor of {judge} on {judge.corpus} is of other certificates or labels than "
            f"those stored now; materialize judges/{judge}/monitor again."
        )
    return record


def _is_of_now(record: MonitorRecord, judge: JudgedCorpus) -> bool:
    """Whether a monitor is of the certificates in use and of the files that are there."""
    folder, files = _folder(judge), judge.store.folder
    hashes = {name: sha256_bytes(files.read(f"{folder}/{name}")) for name in files.names(folder)}
    return (
        record.certificates == tuple(item.sha256 for item in _monitored(judge))
        and {file.name: file.sha256 for file in record.files} == hashes
    )


def monitor_new_labels(corpus: Corpus) -> None:
    """Monitor the deployed judge where labels came since: runs without labels raise no alarm."""
    deployed = load_deployment(corpus)
    if deployed is None:
        return
    judge = certified_judge(JudgedCorpus(corpus, deployed.judge))
    if not known_head(corpus)[0] and not judge.store.folder.names(_folder(judge)):
        return
    record = _stored(judge)
    read = record and record.operation and record.operation.labels
    if record is None or read != LabelPrefix(*known_head(corpus)) or not _is_of_now(record, judge):
        monitor_judge(judge)


def label_alarm(
    judge: JudgedCorpus, key: str, certificates: Sequence[Certificate]
) -> Refusal | None:
    """Return the alarm that the present labels raise against certificates stored under a key."""
    # An alarm of the certificate in use is no evidence on one with a wider budget or of another
    # day; these labels are, and the false alarms of each are bounded by its own δ.
    sample = None if recertification_number(judge.corpus.name, key) else read_audit_sample(judge)
    if sample is None and not known_head(judge.corpus)[0]:
        return None
    after = labels_before(judge, key)
    for item in certificates:
        rows: list[LabelledRows] = [] if sample is None else [sample]
        stream = operation_stream(judge.corpus, item, after=after)
        rows += [stream] if len(stream.tasks) else []
        results = (part.monitor(item).result for part in rows)
        if raised := next((result for result in results if result.alarm), None):
            return Refusal(
                "alarm",
                f"the labels that are there raise an alarm for its {item.side} side at "
                f"{item.alpha:g} after {raised.first_alarm_at} tasks. The error is above the "
                "budget. Recertify, or deploy another judge.",
            )
    return None


def monitor_deployed(corpus: Corpus) -> MonitorRecord | None:
    """Monitor the deployed judge; None where none is deployed."""
    record = load_deployment(corpus)
    return None if record is None else monitor_judge(JudgedCorpus(corpus, record.judge))


def _monitored(judge: JudgedCorpus) -> list[Certificate]:
    deployed = certificates_in_use(judge)
    if deployed is not None:
        return [item for item in deployed if item.certified]
    return strictest_certificates(load_certificates(judge))


def _folder(judge: JudgedCorpus) -> str:
    return f"monitoring/{judge.corpus}/{judge}"


def read_audit_sample(judge: JudgedCorpus) -> AuditSample | None:
    """Read every file of a judge's audit sample, in the order of names; None without files."""
    folder = _folder(judge)
    names = judge.store.folder.names(folder)
    if not names:
        return None
    assignment = judge.corpus.manifest.assignment
    tables, files, stated = [], [], True
    owner: dict[str, str] = {}
    for name in names:
        where = f"{judge.store.folder.locate(folder)}/{name}"
        if Path(name).suffix.lower() not in _ENDINGS:
            raise InputError(
                f"{where} is no score table; keep only {', '.join(_ENDINGS)} files there."
            )
        data = judge.store.folder.read(f"{folder}/{name}")
        table, states = _read(data, name, where)
        stated &= states
        tasks = list(dict.fromkeys(str(task) for task in table.tasks))
        _refuse_seen(tasks, name, assignment, owner)
        owner.update(dict.fromkeys(tasks, name))
        files.append(SampleFile(name, sha256_bytes(data), len(table), len(tasks)))
        tables.append(table)
    return AuditSample(
        np.concatenate([table.scores for table in tables]),
        np.concatenate([table.labels for table in tables]),
        np.concatenate([table.tasks for table in tables]),
        tuple(files),
        stated,
    )


def _read(data: bytes, name: str, location: str) -> tuple[ScoreTable, bool]:
    # through a copy, so that a remote root works and the bytes hashed are those read
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            table = read_score_table(path)
            table.labelled()
            return table, require_audit_sample(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), location)) from None


def _refuse_seen(
    tasks: Sequence[str], name: str, assignment: Mapping[str, str], owner: Mapping[str, str]
) -> None:
    for task, known in shared_names(tasks, [*assignment]):
        raise InputError(
            f"{name}: task {in_both(task, known)} is in the {assignment[known]} split; only tasks "
            "that the judge and its certificate have not seen may feed the monitor, so take it out."
        )
    for task, known in shared_names(tasks, [*owner]):
        raise InputError(
            f"{name}: task {in_both(task, known)} is in {owner[known]} as well; all attempts of a "
            "task belong together, so give them in one file."
        )


def _stream_source(corpus: Corpus) -> tuple[LabelPrefix, str]:
    """Return what the stream depends on: the last label that it knows, version of the decisions."""
    last = (corpus.store.last(corpus.name, kind) for kind in (BatchRecord, UndoneBatch))
    version = sha256_bytes(canonical_json([item and item.sha256 for item in last]))
    return LabelPrefix(*known_head(corpus)), version


def operation_stream(
    corpus: Corpus, certificate: Certificate, *, after: int = 0
) -> OperationStream:
    """Return the stream of operation for a certificate of the adapter that scored the rows."""
    # tasks that were complete up to label `after` may be in the certificate, and are left out
    every, labels = monitored_rows(corpus), read_labels(corpus)
    outcomes = read_outcomes(corpus)
    by_batch = with_labels(every[every["kind"] == "batch_draw"], labels)
    known = set(corpus.manifest.assignment)
    rows, uncovered = _covered_rows(every, known)
    said = [*labels, *standing_in(labels, outcomes)]
    frame = with_labels(rows[rows["kind"] == "audit_sample"], said)
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
    stream = LabelledRows(
        rows["score"].to_numpy(np.float64),
        rows["outcome"].fillna(0).to_numpy(np.int8),
        rows["task_id"].to_numpy(object),
    )
    figures = StreamFigures(
        rows=len(rows),
        audit_tasks=len(order),
        left_out=left_out,
        sha256=stream.sha256(),
        batch_draws=int(by_batch["outcome"].notna().sum()),
    )
    return OperationStream(stream.scores, stream.outcomes, stream.tasks, figures)


def _covered_rows(every: pd.DataFrame, known: set[str]) -> tuple[pd.DataFrame, int]:
    """Return the rows that the corpus certificate covers, and how many drawn tasks have none."""
    # those of known tasks stay, to be counted as such
    rows = every[~not_covered(every) | every["task_id"].isin(known)]
    drawn = set(every.loc[every["kind"] == "audit_sample", "task_id"])
    return rows, len(drawn - set(rows["task_id"]))


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
