"""The stored document of a monitor, its status in words, and the alarms that stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from certify_assets.certificates import Certificate, monitor_certificate, n_min
from certify_assets.certificates.monitor import Monitoring, MonitorPath, monitor_path
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import Document
from certify_assets.storage.events import Event, Payload


@dataclass(frozen=True)
class LabelPrefix:
    """The labels up to one of them, by number and hash of its event."""

    sequence: int  # 0 without labels
    sha256: str


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

    SCHEMA = "certify_assets/monitor/1"
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
    result, where = entry.result, f"{entry.side} at {entry.alpha:g}"
    if result.alarm:
        return f"{where}: alarm after {result.first_alarm_at} tasks, issue a new certificate"
    seen = f"{result.covered_tasks} covered tasks"
    if result.covered_tasks < entry.needed:
        needed = f"{entry.needed}, too few to say much"
        return f"{where}: no alarm, but {seen} are fewer than {needed}"
    return f"{where}: no alarm on {seen}"


class Alarm(Payload):
    """A monitor raised an alarm, which stays whatever becomes of its labels."""

    kind = "alarm"
    judge: str
    side: str
    alpha: float
    certificate_sha256: str
    at: int  # number of tasks after which it was raised
    e_value: float
    interval: tuple[float, float]  # for the error, when it was recorded

    @property
    def subject(self) -> str:
        """Certificate that it is about, which has one alarm."""
        return self.certificate_sha256


def read_alarms(corpus: Corpus) -> list[Event[Alarm]]:
    """Return every alarm of a corpus, the oldest first."""
    return corpus.store.events(corpus.name, Alarm)


def open_alarm(corpus: Corpus, certificates: Collection[str]) -> Event[Alarm] | None:
    """Return the first alarm of certificates, by their hashes; None where there is none."""
    alarms = read_alarms(corpus)
    return next((item for item in alarms if item.content.certificate_sha256 in certificates), None)


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
    known = {entry.content.subject for entry in read_alarms(corpus)} if raised else set()
    corpus.store.append(corpus.name, *(alarm for alarm in raised if alarm.subject not in known))
