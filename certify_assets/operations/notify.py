"""Telling somebody: an alarm, a certificate that has expired, a closed gate, a failed audit. Each event once, and never in the way of the work.

What was sent and what failed stands in ``operations/<corpus>/notifications.jsonl``. What failed is tried again with the next delivery. A delivery that
was killed between sending and writing it down is repeated: a receiver may see an event twice, told by its id, and never misses one.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.operations.notify_config import Target, read_notifications
from certify_assets.storage.journal import UNCHAINED, Journal

__all__ = ["SIGNATURE", "Delivery", "Event", "deliver", "notifications_key", "read_deliveries"]

SIGNATURE: Final = "X-Certify-Signature"


@dataclass(frozen=True)
class Event:
    """What somebody should know.

    Parameters
    ----------
    kind : {"alarm", "expiry", "closed_gate", "failed_audit"}
    corpus, judge : str
    subject : str
        What it is about: the hash of a certificate, the number of a deployment. An event of one kind and subject is told once.
    message : str
        One sentence.
    """

    kind: str
    corpus: str
    judge: str
    subject: str
    message: str

    @property
    def id(self) -> str:
        """Hash of all but the message, by which a receiver tells it."""
        return sha256_bytes(canonical_json([self.kind, self.corpus, self.judge, self.subject]))[:32]


@dataclass(frozen=True)
class Delivery:
    """An attempt to tell somebody.

    Parameters
    ----------
    event, kind, target : str
    sent : bool
    why : str
        What went wrong, in a word or a number; nothing of address, key or answer.
    time : str
    """

    event: str
    kind: str
    target: str
    sent: bool
    why: str
    time: str


def notifications_key(corpus: str) -> str:
    """Return the journal of deliveries."""
    return f"operations/{corpus}/notifications.jsonl"


def read_deliveries(corpus: Corpus) -> list[Delivery]:
    """Return every attempt, the oldest first."""
    return _journal(corpus).read()


def deliver(corpus: Corpus, events: Iterable[Event]) -> list[str]:
    """Tell every target the events that it was not told yet; return a sentence on each that could not be told.

    Nothing is raised: the work that found the event goes on, and what failed is tried again next time.
    """
    try:
        return _deliver(corpus, list(events))
    except (CertifyError, OSError, ValueError, TypeError) as error:
        return [f"nobody was told: {error}"]


def _deliver(corpus: Corpus, events: Sequence[Event]) -> list[str]:
    if not events:
        return []
    told = {(item.event, item.target) for item in read_deliveries(corpus) if item.sent}
    failed = []
    for target in read_notifications(corpus.store).targets:
        for event in events:
            if event.kind not in target.events or (event.id, target.name) in told:
                continue
            why = _tell(target, event)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            _journal(corpus).append(Delivery(event.id, event.kind, target.name, not why, why, now))
            told.add((event.id, target.name))
            failed += (
                [f"{target.name} was not told of {event.kind} ({why}); it is tried again."]
                if why
                else []
            )
    return failed


def _journal(corpus: Corpus) -> Journal[Delivery]:
    return Journal(
        corpus.store,
        notifications_key(corpus.name),
        lambda entry: Delivery(**entry),
        replace(UNCHAINED, entry="a delivery"),
    )


def _tell(target: Target, event: Event) -> str:
    """Tell it, some times if need be; return "" or why it did not work."""
    body = canonical_json({**asdict(event), "id": event.id, "schema": "certify_assets/event/1"})
    why = ""
    for _ in range(target.attempts):
        try:
            why = _run(target, body) if target.command else _post(target, body)
        except (OSError, ValueError, InputError, http.client.HTTPException) as error:
            # the text of such errors may hold the address
            why = type(error).__name__
        if not why:
            break
    return why


def _run(target: Target, body: bytes) -> str:
    # a session of its own, so that what it started ends with it
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        list(target.command),
        stdin=subprocess.PIPE,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    ) as process:
        try:
            process.communicate(body, timeout=target.timeout)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return "timeout"
    return "" if process.returncode == 0 else f"exit {process.returncode}"


class _Stay(urllib.request.HTTPRedirectHandler):
    """An answer that points elsewhere is a failure: the event goes where the document says, and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post(target: Target, body: bytes) -> str:
    headers = {"Content-Type": "application/json", "User-Agent": "certify_assets"}
    if target.secret_variable:
        secret = os.environ.get(target.secret_variable, "")
        if not secret:
            return "no secret in the environment"
        headers[SIGNATURE] = (
            "sha256=" + hmac.new(secret.encode("utf-8"), body, hashlib.sha256).hexdigest()
        )
    request = urllib.request.Request(target.webhook, data=body, headers=headers, method="POST")
    # no proxy of the environment: it would see what http is kept to this machine for
    opener = (
        urllib.request.build_opener(_Stay, urllib.request.ProxyHandler({}))
        if target.webhook.startswith("http:")
        else urllib.request.build_opener(_Stay)
    )
    try:
        with opener.open(request, timeout=target.timeout) as answer:
            return "" if 200 <= answer.status < 300 else f"status {answer.status}"
    except urllib.error.HTTPError as error:
        with suppress(OSError):
            error.close()
        return f"status {error.code}"
    except TimeoutError:
        return "timeout"
    except urllib.error.URLError as error:
        return (
            "timeout"
            if isinstance(error.reason, TimeoutError)
            else f"not reached: {type(error.reason).__name__}"
        )
