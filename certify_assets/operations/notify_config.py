"""Who is told of what: ``notifications.yaml`` of the data root, or the file that ``CERTIFY_NOTIFICATIONS`` names.

::

    certificate_days: 90
    targets:
      - name: on-call
        events: [alarm, closed_gate]
        command: [/usr/local/bin/page, --team, evaluation]     # the event as JSON on standard input; no shell
      - name: channel
        webhook: https://hooks.example.org/certify              # the event as JSON in a POST
        secret_variable: CERTIFY_HOOK_SECRET                    # its value signs the body; it never stands in a file
        timeout: 5
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from certify_assets.errors import InputError
from certify_assets.storage.store import Store

__all__ = ["EVENTS", "FILE", "VARIABLE", "Notifications", "Target", "read_notifications"]

FILE: Final = "notifications.yaml"
VARIABLE: Final = "CERTIFY_NOTIFICATIONS"
EVENTS: Final = ("alarm", "expiry", "closed_gate", "failed_audit")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,39}")
_DAYS = 90
_LONGEST = 120


@dataclass(frozen=True)
class Target:
    """Somebody who is told.

    Parameters
    ----------
    name : str
        Stands in the journal, where neither the command nor the address does.
    events : tuple of str
        Of ``EVENTS``.
    command : tuple of str
        Program and arguments; empty for a webhook.
    webhook : str
        https, or http to this machine alone.
    secret_variable : str
        Name of the environment variable that holds the key of the signature; empty for none.
    timeout : float
        Seconds for one attempt.
    attempts : int
        In one delivery; what fails is tried again with the next.
    """

    name: str
    events: tuple[str, ...] = EVENTS
    command: tuple[str, ...] = ()
    webhook: str = ""
    secret_variable: str = ""
    timeout: float = 10.0
    attempts: int = 2

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError("a target has no name of letters, digits, '_' and '-'; give one.")
        if bool(self.command) == bool(self.webhook):
            raise InputError(f"target {self.name}: give either a command or a webhook.")
        if not self.events or not set(self.events) <= set(EVENTS):
            raise InputError(f"target {self.name}: events are some of {', '.join(EVENTS)}.")
        if self.command and not all(
            isinstance(part, str) and part and "\0" not in part for part in self.command
        ):
            raise InputError(
                f"target {self.name}: the command is a list of texts, the program first."
            )
        if not 0.0 < self.timeout <= _LONGEST or not 1 <= self.attempts <= 5:
            raise InputError(
                f"target {self.name}: timeout is up to {_LONGEST} seconds, attempts 1 to 5."
            )
        if self.webhook:
            _require_safe(self.name, self.webhook)


@dataclass(frozen=True)
class Notifications:
    """The document.

    Parameters
    ----------
    targets : tuple of Target
    certificate_days : float
        Age at which a deployment is said to have expired.
    """

    targets: tuple[Target, ...] = ()
    certificate_days: float = _DAYS


def read_notifications(store: Store) -> Notifications:
    """Return who is told of what; nobody where there is no document.

    Raises
    ------
    InputError
        If the document cannot be used; the sentence shows nothing of an address.
    """
    where, text = _text(store)
    if text is None:
        return Notifications()
    import yaml

    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise InputError(f"{where} is not YAML; correct it.") from None
    if not isinstance(document, Mapping) or not set(document) <= {"targets", "certificate_days"}:
        raise InputError(
            f"{where} has other keys than targets and certificate_days; docs/recertification.md shows one."
        )
    days, targets = document.get("certificate_days", _DAYS), document.get("targets") or []
    if (
        isinstance(days, bool)
        or not isinstance(days, int | float)
        or not 0 < days < 36_500
        or not isinstance(targets, list)
    ):
        raise InputError(
            f"{where}: certificate_days is a number of days above zero, and targets is a list."
        )
    found = tuple(_target(where, entry) for entry in targets)
    if len({target.name for target in found}) < len(found):
        raise InputError(f"{where}: two targets have one name; each is journalled by its own.")
    return Notifications(found, float(days))


def _text(store: Store) -> tuple[str, str | None]:
    named = os.environ.get(VARIABLE)
    where = named or store.locate(FILE)
    try:
        if named:
            return where, Path(named).read_text(encoding="utf-8")
        return where, store.read_bytes(FILE).decode("utf-8") if store.exists(FILE) else None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{where} cannot be read ({type(error).__name__}); correct {VARIABLE} or the file."
        ) from None


def _target(where: str, entry: Any) -> Target:
    if not isinstance(entry, Mapping):
        raise InputError(f"{where}: a target is a mapping with a name and a command or webhook.")
    values = dict(entry)
    for name in ("events", "command"):
        if name in values:
            if not isinstance(values[name], list):
                raise InputError(f"{where}: {name} of a target is a list.")
            values[name] = tuple(values[name])
    try:
        return Target(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except TypeError:
        raise InputError(
            f"{where}: a target has a key that is not known, or a value of another kind; docs/recertification.md shows one."
        ) from None


def _require_safe(name: str, url: str) -> None:
    parts = urlsplit(url)
    if (
        parts.username
        or parts.password
        or not parts.hostname
        or parts.scheme not in {"http", "https"}
    ):
        raise InputError(f"target {name}: the webhook is an https address without a user in it.")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise InputError(f"target {name}: http goes to this machine alone (127.0.0.1); use https.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # names are looked up later, by whoever answers then
        return host == "localhost"
