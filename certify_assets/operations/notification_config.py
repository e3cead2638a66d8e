"""Configuration of notifications: ``notifications.yaml``, or the file of CERTIFY_NOTIFICATIONS."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from certify_assets.errors import InputError
from certify_assets.files import parse_yaml
from certify_assets.storage.store import Store

FILE: Final = "notifications.yaml"
VARIABLE: Final = "CERTIFY_NOTIFICATIONS"
EventKind = Literal["alarm", "expiry", "closed_gate", "failed_audit", "deployment", "not_deployed"]
EVENTS: Final = get_args(EventKind)
EXPIRY_DAYS: Final = 90.0
_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)
_EXAMPLE = "docs/recertification.md shows one."

#: what is wrong with a field of a target, after its name
_FIELDS: Final = {
    "events": f"events are some of {', '.join(EVENTS)}.",
    "apprise": "apprise is the name of an environment variable, which holds the URL.",
}


class Target(BaseModel):
    """A receiver of notifications."""

    model_config = _STRICT

    name: str = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_\-]{0,39}$",
        description="Name in the log of what was sent, which holds no address.",
    )
    events: Annotated[tuple[EventKind, ...], Field(strict=False, min_length=1)] = Field(
        EVENTS, description="Kinds of events to send."
    )
    webhook: str = Field("", description="https address, or http to this machine.")
    secret_variable: str = Field(
        "", description="Environment variable with the key of the signature; empty for none."
    )
    apprise: str = Field(
        "",
        pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$",
        description="Environment variable with the Apprise URL of Slack, Teams, mail and others.",
    )

    @model_validator(mode="after")
    def _check(self) -> Target:
        if bool(self.webhook) == bool(self.apprise):
            raise ValueError(f"target {self.name}: give one of webhook and apprise.")
        if self.webhook:
            _require_safe(self.name, self.webhook)
        return self


class Notifications(BaseModel):
    """Who is notified of what."""

    model_config = _STRICT

    certificate_days: float = Field(
        EXPIRY_DAYS, gt=0, lt=36_500, description="Age in days at which a deployment has expired."
    )
    targets: Annotated[tuple[Target, ...], Field(strict=False)] = Field(
        (), description="Receivers, each with its own name."
    )

    @model_validator(mode="before")
    @classmethod
    def _without_targets(cls, values: Any) -> Any:
        # `targets:` without a value is None in YAML
        if isinstance(values, Mapping) and values.get("targets", ()) is None:
            return {**values, "targets": []}
        return values

    @model_validator(mode="after")
    def _check(self) -> Notifications:
        if len({target.name for target in self.targets}) < len(self.targets):
            raise ValueError("two targets have one name; give each its own.")
        return self


def read_notifications(store: Store) -> Notifications:
    """Return the configuration; without targets where there is no document."""
    # no sentence of an error shows anything of an address
    where, text = store.read_settings(FILE, VARIABLE)
    if text is None:
        return Notifications.model_validate({})
    import yaml

    try:
        document = parse_yaml(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise InputError(f"{where} is not YAML; correct it.") from None
    try:
        return Notifications.model_validate(document)
    except ValidationError as error:
        problem = _sentence(document, error)
        raise InputError(f"{where}{problem}") from None


def _sentence(document: Any, error: ValidationError) -> str:
    """Return the first problem of a document; the values of pydantic's messages may be secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    place, kind = first["loc"], first["type"]
    if kind == "value_error":
        return f": {first['ctx']['error']}"
    if not place or (len(place) == 1 and kind == "extra_forbidden"):
        return f" has other keys than targets and certificate_days; {_EXAMPLE}"
    if len(place) == 1:
        return ": certificate_days is a number of days above zero, and targets is a list."
    if len(place) == 2:
        return ": a target is a mapping with a name and a webhook or apprise."
    field = str(place[2])
    if field == "name":
        return ": a target has no name of letters, digits, '_' and '-'; give one."
    if kind == "tuple_type":
        return f": {field} of a target is a list."
    if field in _FIELDS and kind != "extra_forbidden":
        name = document["targets"][place[1]].get("name")
        return f": target {name}: {_FIELDS[field]}"
    return f": a target has a key that is not known, or a value of another kind; {_EXAMPLE}"


def _require_safe(name: str, url: str) -> None:
    parts = urlsplit(url)
    secret = parts.username or parts.password
    if secret or not parts.hostname or parts.scheme not in {"http", "https"}:
        raise ValueError(f"target {name}: the webhook is an https address without a user in it.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError(f"target {name}: http goes to this machine alone (127.0.0.1); use https.")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # the resolver answers for any other name
        return host == "localhost"
