"""The events of a corpus in operation: what its documents say that somebody should know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.operations.alarms import read_alarms
from certify_assets.operations.deployment import Deployment, standing
from certify_assets.operations.journal import read_labels
from certify_assets.operations.notify import Event, deliver
from certify_assets.operations.notify_config import read_notifications
from certify_assets.storage.store import Store

__all__ = ["certificate_age", "gather_events", "latest_time", "notify"]


def latest_time(corpus: Corpus, *, now: datetime | None = None) -> datetime:
    """Return the time of now, or the latest that is written down where the clock was set back: an expired certificate does not get young again."""
    written = [label.time for label in read_labels(corpus)[-1:]] + [
        alarm.time for alarm in read_alarms(corpus)[-1:]
    ]
    return max([now or datetime.now(UTC), *(_parsed(text) for text in written if text)])


def certificate_age(
    store: Store, deployment: Deployment, *, now: datetime | None = None
) -> timedelta:
    """Return how long ago a deployment was made; nothing where its time lies ahead."""
    return max(
        timedelta(0),
        latest_time(Corpus(store, deployment.corpus), now=now) - _parsed(deployment.time),
    )


def gather_events(corpus: Corpus, *, now: datetime | None = None) -> list[Event]:
    """Return the events of a corpus as its documents stand; none where nothing was ever deployed."""
    found = [
        Event(
            "alarm",
            corpus.name,
            alarm.judge,
            f"{alarm.certificate_sha256}:{alarm.source}",
            f"{corpus}: the monitor of {alarm.judge} raised an alarm on the {alarm.side} side at {alarm.alpha:g} after {alarm.at} labelled tasks.",
        )
        for alarm in read_alarms(corpus)
    ]
    deployment, _, refusal = standing(corpus)
    judge, subject = (
        ("", "deployment")
        if deployment is None
        else (deployment.judge, f"deployment {deployment.number}")
    )
    # where nothing was ever deployed, nothing is closed; where the deployment cannot be read, it is
    if refusal is not None and refusal.code != "not_deployed":
        kind = "failed_audit" if refusal.code == "failed_audit" else "closed_gate"
        message = f"{corpus}: {judge or 'the judge'} decides nothing, every run goes to people ({refusal.code}): {refusal.sentence}"
        found.append(Event(kind, corpus.name, judge, f"{subject}: {refusal.code}", message))
    if deployment is None:
        return found
    days = _days(corpus.store)
    age = certificate_age(corpus.store, deployment, now=now)
    if age > timedelta(days=days):
        text = f"{corpus}: {judge} decides under certificates of {age.days} days ago, more than {days:g}; recertify."
        found.append(Event("expiry", corpus.name, judge, subject, text))
    return found


def notify(corpus: Corpus, *, now: datetime | None = None) -> list[str]:
    """Tell those who are to be told what they were not told yet; return a sentence on each that could not be. Nothing is raised."""
    try:
        events = gather_events(corpus, now=now)
    except (CertifyError, OSError, ValueError) as error:
        return [f"nobody was told: {error}"]
    return deliver(corpus, events)


def _days(store: Store) -> float:
    try:
        return read_notifications(store).certificate_days
    except CertifyError:
        # said by the delivery; expiry is looked for all the same
        return 90.0


def _parsed(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
