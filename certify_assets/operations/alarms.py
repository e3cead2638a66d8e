"""The journal of alarms: an alarm stays there whatever becomes of its labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.layout import alarms_key
from certify_assets.operations.monitor_record import MonitorEntry
from certify_assets.storage.journal import UNCHAINED, Journal, heads_key


@dataclass(frozen=True)
class Alarm:
    """An alarm of a monitor."""

    judge: str
    side: str
    alpha: float
    certificate_sha256: str
    source: str  # files or operation: the stream of labels that raised it
    at: int  # number of tasks after which it was raised
    e_value: float
    interval: tuple[float, float]  # for the error, when it was recorded
    time: str  # UTC, ISO 8601

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
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def read_alarms(corpus: Corpus) -> list[Alarm]:
    """Return every alarm of a corpus, the oldest first."""
    return _journal(corpus).read()


def record_alarms(judge: JudgedCorpus, entries: Sequence[MonitorEntry]) -> None:
    """Append the alarms of a monitor, once for each certificate and source."""
    raised = [Alarm.of(judge.name, entry) for entry in entries if entry.result.alarm]

    def new(before: list[Alarm]) -> list[Alarm]:
        known = {(item.certificate_sha256, item.source) for item in before}
        return [item for item in raised if (item.certificate_sha256, item.source) not in known]

    if raised:
        _journal(judge.corpus).extend(new)


def _journal(corpus: Corpus) -> Journal[Alarm]:
    return Journal(
        corpus.store,
        alarms_key(corpus.name),
        lambda entry: Alarm(**{**entry, "interval": tuple(entry["interval"])}),
        replace(UNCHAINED, entry="an alarm"),
        heads=heads_key(corpus.name),
    )
