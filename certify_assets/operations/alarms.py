"""Alarms of monitors: an alarm stays whatever becomes of its labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.monitor_record import MonitorEntry
from certify_assets.storage.events import Payload, TypedEvent


class Alarm(Payload):
    """A monitor raised an alarm."""

    kind = "alarm"
    judge: str
    side: str
    alpha: float
    certificate_sha256: str
    source: str  # files or operation: the stream of labels that raised it
    at: int  # number of tasks after which it was raised
    e_value: float
    interval: tuple[float, float]  # for the error, when it was recorded

    @property
    def subject(self) -> str:
        """Certificate that it is about, and the source: each has one alarm."""
        return f"{self.certificate_sha256}:{self.source}"

    @classmethod
    def of(cls, judge: str, entry: MonitorEntry) -> Alarm:
        """Return the alarm of an entry of a monitor's document."""
        return cls(
            judge=judge,
            side=entry.side,
            alpha=entry.alpha,
            certificate_sha256=entry.certificate_sha256,
            source=entry.source,
            at=entry.result.first_alarm_at or 0,
            e_value=entry.result.e_value,
            interval=entry.result.interval,
        )


def read_alarms(corpus: Corpus) -> list[TypedEvent[Alarm]]:
    """Return every alarm of a corpus, the oldest first."""
    return corpus.store.events(corpus.name, Alarm)


def open_alarm(corpus: Corpus, certificates: Collection[str]) -> TypedEvent[Alarm] | None:
    """Return the first alarm of certificates, by their hashes; None where there is none."""
    found = (
        item for item in read_alarms(corpus) if item.content.certificate_sha256 in certificates
    )
    return next(found, None)


def record_alarms(judge: JudgedCorpus, entries: Sequence[MonitorEntry]) -> None:
    """Append the alarms of a monitor, once for each certificate and source."""
    raised = [Alarm.of(judge.name, entry) for entry in entries if entry.result.alarm]
    known = {entry.content.subject for entry in read_alarms(judge.corpus)} if raised else set()
    new = [alarm for alarm in raised if alarm.subject not in known]
    judge.store.append(judge.corpus.name, *new)
