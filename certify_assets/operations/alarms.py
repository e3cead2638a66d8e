"""The journal of alarms: which certificate raised one, after how many tasks and when; an alarm stays there whatever becomes of its labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import IntegrityError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.journal import documents

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


class _NothingNewError(Exception):
    """Every alarm stands in the journal already."""


def alarms_key(corpus: str) -> str:
    """Return the journal of alarms."""
    return f"operations/{corpus}/alarms.jsonl"


def read_alarms(corpus: Corpus) -> list[Alarm]:
    """Return every alarm of a corpus, the oldest first."""
    key = alarms_key(corpus.name)
    return (
        _parsed(corpus.store.read_bytes(key), corpus.store.locate(key))
        if corpus.store.exists(key)
        else []
    )


def record_alarms(judge: JudgedCorpus, entries: Sequence[Mapping[str, Any]]) -> None:
    """Append the alarms of a monitor that are not in the journal yet: one for each certificate and source.

    Parameters
    ----------
    store, corpus, judge
    entries : sequence of mapping
        ``monitors`` of a monitor's document.
    """
    raised = [entry for entry in entries if entry["result"]["alarm"]]
    if not raised:
        return

    def lines(old: bytes) -> str:
        known = {
            (item.certificate_sha256, item.source)
            for item in _parsed(old, judge.store.locate(alarms_key(judge.corpus.name)))
        }
        new = [
            entry for entry in raised if (entry["certificate_sha256"], entry["source"]) not in known
        ]
        if not new:
            raise _NothingNewError
        return "\n".join(
            json.dumps(asdict(_alarm(judge.name, entry)), sort_keys=True) for entry in new
        )

    with suppress(_NothingNewError):
        judge.store.append_line(alarms_key(judge.corpus.name), lines)


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


def _parsed(data: bytes, where: str) -> list[Alarm]:
    try:
        return [
            Alarm(**{**entry, "interval": tuple(entry["interval"])})
            for entry in documents(data, where)
        ]
    except (TypeError, KeyError):
        raise IntegrityError(
            f"{where} holds a line that is no alarm; restore the file from a backup."
        ) from None
