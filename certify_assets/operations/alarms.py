"""The journal of alarms: which certificate raised one, after how many tasks and when; an alarm stays there whatever becomes of its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.journal import UNCHAINED, Journal

__all__ = ["Alarm", "alarms_key", "read_alarms", "record_alarms"]


@dataclass(frozen=True)
class Alarm:
    """An alarm of a monitor.

    Parameters
    ----------
    judge, side : str
    alpha : float
    certificate_sha256 : str
    source : {"files", "operation"}
        Whose labels raised it.
    at : int
        Number of tasks after which it was raised.
    e_value : float
        When it was recorded.
    interval : tuple of float
        For the error, when it was recorded.
    time : str
        UTC, ISO 8601.
    """

    judge: str
    side: str
    alpha: float
    certificate_sha256: str
    source: str
    at: int
    e_value: float
    interval: tuple[float, float]
    time: str


def alarms_key(corpus: str) -> str:
    """Return the journal of alarms."""
    return f"operations/{corpus}/alarms.jsonl"


def read_alarms(corpus: Corpus) -> list[Alarm]:
    """Return every alarm of a corpus, the oldest first."""
    return _journal(corpus).read()


def record_alarms(judge: JudgedCorpus, entries: Sequence[Mapping[str, Any]]) -> None:
    """Append the alarms of a monitor that are not in the journal yet: one for each certificate and source.

    Parameters
    ----------
    store, corpus, judge
    entries : sequence of mapping
        ``monitors`` of a monitor's document.
    """
    raised = [_alarm(judge.name, entry) for entry in entries if entry["result"]["alarm"]]
    if not raised:
        return

    def new(before: list[Alarm]) -> list[Alarm]:
        known = {(item.certificate_sha256, item.source) for item in before}
        return [item for item in raised if (item.certificate_sha256, item.source) not in known]

    _journal(judge.corpus).extend(new)


def _alarm(judge: str, entry: Mapping[str, Any]) -> Alarm:
    result = entry["result"]
    return Alarm(
        judge=judge,
        side=entry["side"],
        alpha=entry["alpha"],
        certificate_sha256=entry["certificate_sha256"],
        source=entry["source"],
        at=result["first_alarm_at"],
        e_value=result["e_value"],
        interval=tuple(result["interval"]),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _journal(corpus: Corpus) -> Journal[Alarm]:
    return Journal(
        corpus.store,
        alarms_key(corpus.name),
        lambda entry: Alarm(**{**entry, "interval": tuple(entry["interval"])}),
        replace(UNCHAINED, entry="an alarm"),
    )
