"""Events: what happened to a corpus, typed and chained by hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict  # pydantic reads those of `typing` from 3.12 on

from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import canonical_json, parse_json, sha256_bytes
from certify_assets.storage.database import blanked, events

_ROWS_AT_ONCE = 5000
_KINDS: dict[str, type[Payload]] = {}


class Payload(BaseModel):
    """The content of an event; its class is the kind of the event.

    Attributes
    ----------
    objects : Mapping[str, str]
        SHA-256 of the objects that must exist as long as the event, by their role.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ClassVar[str]
    objects: Mapping[str, str] = {}

    @property
    def subject(self) -> str:
        """The subject, by which the event is found."""
        return ""

    @classmethod
    def __pydantic_init_subclass__(cls, **about: object) -> None:
        # a record that adds to what its event says is not another kind
        if "kind" in vars(cls):
            _KINDS[cls.kind] = cls


P = TypeVar("P", bound=Payload)


class Stored(Payload):
    """A document or table; the newest of a key is current. Without an object, nothing is stored."""

    kind = "stored"
    key: str

    @property
    def subject(self) -> str:
        """Key, such as ``corpora/retail/profile.json``."""
        return self.key


class Discarded(Payload):
    """Objects that events of the corpus name and that may be removed."""

    kind = "discarded"
    discarded: tuple[str, ...]
    reason: str


class Head(TypedDict):
    """An event by its place and hash, as documents outside the data root name it."""

    corpus: str
    sequence: int
    sha256: str


class Event(NamedTuple, Generic[P]):
    """An event; before it has a place in the chain, its number is 0 and time and hash are empty."""

    corpus: str
    sequence: int
    kind: str
    subject: str
    # name of the request, and the place of the event in it
    token: str
    part: int
    time: str
    payload: str
    previous: str
    sha256: str

    @classmethod
    def draft(cls, corpus: str, payload: Payload, token: str = "") -> Event[Any]:
        """Return an event that has no place in the chain yet."""
        text = storable_text(payload.model_dump(mode="json"))
        return cls(corpus, 0, payload.kind, payload.subject, token, 0, "", text, "", "")

    @property
    def content(self) -> P:
        """The payload, parsed."""
        return cast("P", _KINDS[self.kind].model_validate_json(self.payload))

    @property
    def head(self) -> Head:
        """Its place in the ledger of its corpus."""
        return {"corpus": self.corpus, "sequence": self.sequence, "sha256": self.sha256}

    @property
    def objects(self) -> Mapping[str, str]:
        """Objects that it names, by their role."""
        found: Mapping[str, str] = parse_json(self.payload).get("objects", {})
        return found

    def after(self, last: tuple[int, str], part: int, time: str) -> Event[P]:
        """Return the event placed after the last one, whose number and hash are given."""
        event = self._replace(sequence=last[0] + 1, previous=last[1], part=part, time=time)
        return event._replace(sha256=event.digest())

    def digest(self, payload_sha256: str = "") -> str:
        """Return the hash that the event must have; a blanked payload needs its original hash."""
        # of the hash of the payload: one that had to be blanked leaves the chain whole
        payload_sha256 = payload_sha256 or sha256_bytes(self.payload.encode("utf-8"))
        return sha256_bytes(canonical_json([*self[:7], payload_sha256, self.previous]))


def head_text(head: Head) -> str:
    """Write a head as CORPUS:SEQUENCE:HASH."""
    return f"{head['corpus']}:{head['sequence']}:{head['sha256']}"


def parse_head(text: str) -> Head:
    """Read what `head_text` writes."""
    found = re.fullmatch(r"(.*):([0-9]{1,18}):([0-9a-f]{64})", text)
    if not found:
        raise InputError(f"{text!r} is not a head of a ledger; give CORPUS:SEQUENCE:HASH.")
    return {"corpus": found[1], "sequence": int(found[2]), "sha256": found[3]}


def storable_text(document: object) -> str:
    """Return canonical JSON; refuse characters that a database cannot store."""
    text = ""
    with suppress(UnicodeEncodeError):
        text = canonical_json(document).decode("utf-8").rstrip("\n")
    if not text or "\\u0000" in text:
        raise InputError(
            "A text holds U+0000 or half a character, which cannot be stored. Remove it."
        )
    return text


def last_event(connection: sa.Connection, corpus: str) -> tuple[int, str]:
    """Return number and hash of the last event of a corpus; 0 and "" without events."""
    query = sa.select(events.c.sequence, events.c.sha256).where(events.c.corpus == corpus)
    row = connection.execute(query.order_by(events.c.sequence.desc()).limit(1)).first()
    return (row.sequence, row.sha256) if row else (0, "")


def blanked_payloads(connection: sa.Connection, corpus: str) -> dict[int, str]:
    """Return the original hashes of blanked payloads, by the number of their event."""
    before = sa.select(blanked.c.sequence, blanked.c.payload_sha256)
    rows = connection.execute(before.where(blanked.c.corpus == corpus))
    return {row.sequence: row.payload_sha256 for row in rows}


def chain(connection: sa.Connection, corpus: str) -> Iterator[Event[Any]]:
    """Iterate over the verified events of a corpus."""
    previous = ""
    known = blanked_payloads(connection, corpus)
    query = sa.select(events).where(events.c.corpus == corpus).order_by(events.c.sequence)
    # of the statement alone: the connection writes as well where indexes are made again
    found = connection.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE})
    for number, row in enumerate(found, 1):
        event = Event[Any](*row)
        whole = event.sha256 == event.digest(known.get(event.sequence, ""))
        # a hash has the number in it
        if not whole or event.previous != previous:
            raise IntegrityError(
                f"event {number} of {corpus or 'the data root'} was altered; restore the "
                "database from a backup."
            )
        previous = event.sha256
        yield event
