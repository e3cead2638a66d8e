"""Notifications: alarms, expiry, closed gates and failed audits, each sent once.

``notifications.yaml``, or the file of CERTIFY_NOTIFICATIONS, says who gets which. Apprise sends.
"""

# What failed is tried again with the next delivery, and stops nothing. A delivery killed between
# sending and logging is repeated: a receiver may get an event twice, with the same id, and never
# misses one.

from __future__ import annotations

import ipaddress
import logging
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, parse_yaml, sha256_bytes
from certify_assets.operations.deployment import Alarm, DeploymentRecord, open_deployment
from certify_assets.storage.events import Payload
from certify_assets.storage.store import Store
from certify_assets.words import WORDS

_TIMEOUT_S: Final = 10.0
#: how a service shows a kind; others are warnings
_LEVELS: Final = {"alarm": "failure", "failed_audit": "failure"}
FILE: Final = "notifications.yaml"
VARIABLE: Final = "CERTIFY_NOTIFICATIONS"
EventKind = Literal["alarm", "expiry", "closed_gate", "failed_audit"]
EVENTS: Final = get_args(EventKind)
EXPIRY_DAYS: Final = 90.0
_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)


class Target(BaseModel):
    """A receiver of notifications."""

    model_config = _STRICT

    name: str = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_\-]{0,39}$",
        description="Name of the receiver in the log, which never holds the address.",
    )
    events: Annotated[tuple[EventKind, ...], Field(strict=False, min_length=1)] = Field(
        EVENTS, description="Kinds of events to send."
    )
    apprise: str = Field(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Environment variable with the Apprise URL of a webhook, chat or mail.",
    )


class Notifications(BaseModel):
    """Who is notified of what."""

    model_config = _STRICT

    certificate_days: float = Field(
        EXPIRY_DAYS, gt=0, lt=36_500, description="Age in days at which a deployment has expired."
    )
    targets: Annotated[tuple[Target, ...], Field(strict=False)] = Field(
        (), description="Receivers, each with its own name."
    )

    @model_validator(mode="after")
    def _check(self) -> Notifications:
        if len({target.name for target in self.targets}) < len(self.targets):
            raise ValueError("two targets have the same name; give each its own.")
        return self


def read_notifications(store: Store) -> Notifications:
    """Return the configuration; without targets where there is no document."""
    where, text = store.read_settings(FILE, VARIABLE)
    if text is None:
        return Notifications.model_validate({})
    try:
        document = parse_yaml(text)
    except ValueError as error:
        raise InputError(f"{where} is not YAML ({error}). Correct it.") from None
    try:
        return Notifications.model_validate(document)
    except ValidationError as error:
        # neither an address nor another value
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise InputError(
            f"{where}: {place}: {first['msg'].removeprefix('Value error, ')}. Correct it as "
            "docs/recertification.md shows."
        ) from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # the resolver answers for any other name
        return host == "localhost"


@dataclass(frozen=True)
class NotifiedEvent:
    """An event that a user should know; one a kind and subject is sent."""

    kind: str  # one of `EVENTS`
    corpus: str
    judge: str
    subject: str  # hash of a certificate, or number of a deployment
    message: str

    @property
    def id(self) -> str:
        """Hash of all but the message, by which a receiver recognizes it."""
        return sha256_bytes(canonical_json([self.kind, self.corpus, self.judge, self.subject]))[:32]


class DeliveryAttempt(Payload):
    """It was tried to send an event to a target."""

    kind = "notified"
    event: str
    about: str  # kind of the event
    target: str
    sent: bool
    why: str  # what went wrong, in a word; nothing of address, key or answer

    @property
    def subject(self) -> str:
        """Identifier of the event, and the target."""
        return f"{self.event}:{self.target}"


def certificate_age(record: DeploymentRecord, *, now: datetime | None = None) -> timedelta:
    """Return the age of a deployment; zero where its time is in the future."""
    made = datetime.fromisoformat(record.time)
    return max(timedelta(0), (now or datetime.now(UTC)) - made)


def gather_events(corpus: Corpus, *, now: datetime | None = None) -> Iterator[NotifiedEvent]:
    """Iterate over the events of a corpus; none where nothing was ever deployed."""

    def event(kind: str, judge: str, subject: str, message: str) -> NotifiedEvent:
        return NotifiedEvent(kind, corpus.name, judge, subject, f"{corpus}: {message}")

    for alarm in (entry.content for entry in corpus.events(Alarm)):
        text = (
            f"the monitor of {alarm.judge} raised an alarm for {WORDS[alarm.side]} at "
            f"{alarm.alpha:g} after {alarm.at:,} labelled tasks."
        )
        yield event("alarm", alarm.judge, alarm.subject, text)
    deployment = open_deployment(corpus)
    record, refusal = deployment.record, deployment.refusal
    judge = "" if record is None else record.judge
    subject = "deployment" if record is None else f"deployment {record.number}"
    # where nothing was ever deployed, nothing is closed; a deployment that cannot be read is
    if refusal is not None and refusal.code != "not_deployed":
        kind = "failed_audit" if refusal.code == "failed_audit" else "closed_gate"
        text = f"{judge or 'the judge'} decides nothing now ({refusal.code}): {refusal.sentence}"
        yield event(kind, judge, f"{subject}: {refusal.code}", text)
    days = read_notifications(corpus.store).certificate_days
    if record is not None and (age := certificate_age(record, now=now)) > timedelta(days=days):
        text = (
            f"{judge} decides under certificates that are {age.days} days old; the limit is "
            f"{days:g}. Recertify."
        )
        yield event("expiry", judge, subject, text)


def notify(corpus: Corpus, *, now: datetime | None = None) -> list[str]:
    """Send the events of a corpus; as `deliver`."""
    return deliver(corpus, gather_events(corpus, now=now))


def deliver(corpus: Corpus, events: Iterable[NotifiedEvent]) -> list[str]:
    """Send every target its new events; return a sentence on each failure. Nothing is raised."""
    try:
        return list(_failures(corpus, [*events]))
    except (CertifyError, OSError, ValueError) as error:
        return [f"no notification was sent: {error}"]


def _failures(corpus: Corpus, events: list[NotifiedEvent]) -> Iterator[str]:
    attempts = corpus.events(DeliveryAttempt, watched=False) if events else []
    made = [entry.content for entry in attempts]
    sent = {(item.event, item.target) for item in made if item.sent}
    for target in read_notifications(corpus.store).targets if events else ():
        for event in events:
            if event.kind not in target.events or (event.id, target.name) in sent:
                continue
            why = _send(os.environ.get(target.apprise, ""), event)
            attempt = DeliveryAttempt(
                event=event.id, about=event.kind, target=target.name, sent=not why, why=why
            )
            # it was sent whatever becomes of the step that is under way
            _log(corpus, attempt)
            sent.add((event.id, target.name))
            if why:
                yield (
                    f"{target.name} got no notification of {event.kind} ({why}). It will be tried "
                    "again."
                )


def _log(corpus: Corpus, attempt: DeliveryAttempt) -> None:
    corpus.store.short(corpus.name, lambda _: {uuid.uuid4().hex: attempt})


def _send(url: str, event: NotifiedEvent) -> str:
    """Send an event to the service of an Apprise URL; return "" or what went wrong."""
    try:
        import apprise
    except ImportError:
        return "Apprise is not installed; pip install 'certify_assets[notify]'"
    if not url:
        return "no address in the environment"
    # one event at a time, nothing kept on the disk, nothing sent where an answer points
    asset = apprise.AppriseAsset(
        app_id="certify_assets",
        async_mode=False,
        http_redirects=False,
        storage_mode="memory",
        service_timeout=_TIMEOUT_S,
    )
    try:
        return _sent(apprise, asset, url, event)
    # a service is somebody's code, and what it says may hold the address
    except Exception as error:
        return type(error).__name__


def _sent(apprise: Any, asset: Any, url: str, event: NotifiedEvent) -> str:
    with _silent("apprise", "urllib3.connectionpool"):
        service = apprise.Apprise.instantiate(url, asset=asset)
        if service is None:
            return "no address that Apprise knows"
        known: Any = service.protocol or ()
        plain = {known} if isinstance(known, str) else set(known)
        if url.partition(":")[0].lower() in plain and not is_loopback(service.host or ""):
            return "not encrypted"
        service.socket_connect_timeout = service.socket_read_timeout = _TIMEOUT_S
        sender = apprise.Apprise(asset=asset)
        sender.add(service)
        done = sender.notify(
            body=f"{event.message}\n\nEvent {event.id}",
            title=f"{event.kind.replace('_', ' ')}: {event.corpus}",
            notify_type=_LEVELS.get(event.kind, "warning"),
            body_format="text",
        )
    return "" if done else "the service refused it"


@contextmanager
def _silent(*names: str) -> Iterator[None]:
    """Switch loggers off that would write an address."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
