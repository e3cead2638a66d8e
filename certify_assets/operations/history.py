"""The history of the certificates of a corpus: what each certified, its realised error, alarms."""

# The realised error of a certificate is that of the runs that it decided, over the tasks that were
# labelled whatever the judge decided, every task weighing by the share of its runs that was
# decided. The order is that of the events, not of the clock.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import Document
from certify_assets.judges.specs import DELTA
from certify_assets.operations.audit_sample import completed_at, drawn_decisions, with_labels
from certify_assets.operations.batches import operation_key
from certify_assets.operations.deployment import (
    Alarm,
    deployed_spending,
    kept_certificates,
    read_deployments,
    strictest_certificates,
)
from certify_assets.operations.labels import Label, LabelPrefix, labels_head, read_labels
from certify_assets.operations.recertification_record import RecertificationRecord, recertifications
from certify_assets.storage.events import Event, Head

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate


@dataclass(frozen=True)
class SideHistory:
    """One certificate: its figures, and its error on the drawn tasks that are labelled."""

    certificate_sha256: str
    side: str
    alpha: float
    delta: float
    coverage: float
    threshold: float | None
    tasks: int = 0  # labelled; runs and errors are among those that it decided
    runs: int = 0
    errors: int = 0
    error: float | None = None  # realised, with its confidence sequence
    interval: tuple[float, float] = (0.0, 1.0)
    alarm: int | None = None  # labelled tasks after which its first alarm was raised


@dataclass(frozen=True)
class HistoryStep:
    """One set of certificates."""

    label: str
    judge: str
    time: str
    number: int  # of the recertification; 0 for the certificates on CAL
    deployed: tuple[int, ...] = ()  # numbers of its deployments
    sides: tuple[SideHistory, ...] = ()


@dataclass(frozen=True)
class RaisedAlarm:
    """An alarm as the history lists it."""

    judge: str
    side: str
    alpha: float
    at: int
    time: str


@dataclass(frozen=True)
class SpentDelta:
    """What a later certificate or a recertification spent."""

    number: int
    delta: float
    time: str
    kind: str = "recertification"  # or certificate: on CAL


class OperationHistory(Document):
    """The history of a corpus."""

    SCHEMA = "certify_assets/operation_history/1"
    TITLE = "history"

    corpus: str
    steps: tuple[HistoryStep, ...]
    alarms: tuple[RaisedAlarm, ...]
    first_delta: float
    claims: tuple[SpentDelta, ...]
    spent: float
    promised: float
    schedule: str
    joint: str
    ledger: Head  # the last event that it is about


def history_key(corpus: str, name: str = "history.json") -> str:
    """Return the key of the history of a corpus."""
    return operation_key(corpus, name)


def write_history(corpus: Corpus) -> OperationHistory:
    """Gather the history, store it and return it."""
    history = operation_history(corpus)
    corpus.store.write_json(history_key(corpus.name), history.to_dict())
    return history


def operation_history(corpus: Corpus) -> OperationHistory:
    """Return the history of a corpus."""
    spending, alarms, labels = deployed_spending(corpus), corpus.events(Alarm), read_labels(corpus)
    decided = with_labels(drawn_decisions(corpus), labels)
    first = {entry.content.certificate_sha256: entry.content.at for entry in reversed(alarms)}
    steps: dict[tuple[str, ...], HistoryStep] = {}
    for step, certificates in _sets(corpus):
        name = step.label, *(item.sha256 for item in certificates)
        if name in steps:
            steps[name] = replace(steps[name], deployed=(*steps[name].deployed, *step.deployed))
        else:
            sides = (_side(item, decided, labels, first.get(item.sha256)) for item in certificates)
            steps[name] = replace(step, sides=tuple(sides))
    return OperationHistory(
        corpus=corpus.name,
        steps=tuple(steps.values()),
        alarms=tuple(map(_alarm, alarms)),
        first_delta=DELTA,
        claims=tuple(
            SpentDelta(item.number, item.delta, item.time, item.purpose)
            for item in spending.tests
            if not item.first
        ),
        spent=spending.spent,
        promised=spending.promised,
        schedule="" if spending.schedule is None else spending.schedule.words(),
        joint=spending.joint(),
        ledger=_last_seen(corpus, alarms),
    )


def _alarm(raised: Event[Alarm]) -> RaisedAlarm:
    said = raised.content
    return RaisedAlarm(said.judge, said.side, said.alpha, said.at, raised.time)


def _last_seen(corpus: Corpus, alarms: Iterable[Event[Alarm]]) -> Head:
    """Return the last event that the history is about; later ones do not change it."""
    heads = [entry.head for entry in alarms]
    heads += [item.ledger for item in read_deployments(corpus)]
    last = max(
        [labels_head(corpus), *(LabelPrefix(head["sequence"], head["sha256"]) for head in heads)]
    )
    return Head(corpus=corpus.name, sequence=last.sequence, sha256=last.sha256)


def _sets(corpus: Corpus) -> Iterator[tuple[HistoryStep, Sequence[Certificate]]]:
    """Iterate over certificates in the order of use or, if they were never used, of issue."""
    from certify_assets.certificates import Certificate

    made = {item.number: item for item in recertifications(corpus)}
    waiting, scores = dict(made), dict[str, str]()

    def undeployed(record: RecertificationRecord) -> tuple[HistoryStep, Sequence[Certificate]]:
        documents = corpus.store.read_json(record.certificates_key)
        certificates = [Certificate.from_dict(item) for item in documents["certificates"]]
        return _recertified(record), strictest_certificates(certificates)

    for item in read_deployments(corpus):
        used = made.get(item.recertification)
        waiting.pop(item.recertification, None)
        for key in [key for key in waiting if used and key < used.number]:
            yield undeployed(waiting.pop(key))
        now = item.fingerprint.get("scores_sha256", "")
        order = "first" if scores.setdefault(item.judge, now) == now else "later"
        step = HistoryStep(f"{item.judge}, {order}", item.judge, item.time, 0)
        if used:
            step = _recertified(used)
        yield replace(step, deployed=(item.number,)), kept_certificates(corpus, item)
    yield from map(undeployed, waiting.values())


def _recertified(record: RecertificationRecord) -> HistoryStep:
    return HistoryStep(f"recertification {record.number}", record.judge, record.time, record.number)


def _side(
    certificate: Certificate,
    frame: pd.DataFrame,
    labels: Iterable[Label],
    alarm: int | None,
) -> SideHistory:
    """Measure a certificate over drawn tasks whose every decided run is labelled."""
    import pandas as pd

    from certify_assets.certificates.monitor import TaskStream, error_interval

    mine = frame["certificate_sha256"].astype(str).str.contains(certificate.sha256, regex=False)
    rows = frame[mine & frame["drawn"].astype(bool)]
    decided = rows[rows["decision"] == certificate.side]
    wrong = decided["outcome"] == (certificate.side == "reject")
    parts = decided.assign(wrong=wrong).groupby("task_id")
    runs = parts["trajectory_id"].agg(list).to_dict()
    tasks = parts.agg(
        covered=("outcome", "size"), known=("outcome", "count"), errors=("wrong", "sum")
    )
    tasks = tasks.assign(
        scale=rows[rows["score"].notna()].groupby("task_id").size(),
        place=pd.Series(completed_at(labels, runs), dtype="float64"),
    )
    tasks = tasks[(tasks["known"] == tasks["covered"]) & tasks["place"].notna()]
    tasks = tasks.sort_values("place", kind="stable")
    stream = TaskStream(
        tasks["covered"].to_numpy(np.int64),
        tasks["errors"].to_numpy(np.int64),
        tasks["scale"].to_numpy(np.float64),
    )
    return SideHistory(
        certificate_sha256=certificate.sha256,
        side=certificate.side,
        alpha=certificate.alpha,
        delta=certificate.delta,
        coverage=certificate.coverage,
        threshold=certificate.threshold,
        tasks=len(tasks),
        runs=int(stream.covered.sum()),
        errors=int(stream.errors.sum()),
        error=stream.realized_error,
        interval=error_interval(stream, certificate.delta),
        alarm=alarm,
    )
