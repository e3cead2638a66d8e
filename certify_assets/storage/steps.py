"""What a step asks and commits: questions, changes that answer them anew, and new events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import sqlalchemy as sa

from certify_assets.errors import ChangedInputError
from certify_assets.storage.database import events
from certify_assets.storage.events import Event, EventDraft, Stored, last_event
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.store import Store


class Question(NamedTuple):
    """What a snapshot was asked: the newest event of a kind, and of a subject or those below it."""

    corpus: str
    kind: str
    subject: str | None  # None is every subject
    below: bool = False
    watched: bool = True

    def concerns(self, changes: Changes) -> str | None:
        """Return the subject of an event that may change the answer; None where none does."""
        subjects = changes.get(self.kind, frozenset())
        if self.subject is None:
            return min(subjects, default=None)
        if self.below:
            return next((item for item in subjects if item.startswith(self.subject)), None)
        return self.subject if self.subject in subjects else None


#: subjects of events, by their kind
Changes = Mapping[str, frozenset[str]]


def changes_of(pairs: Iterable[tuple[str, str]]) -> Changes:
    """Return kinds and subjects of events."""
    found: dict[str, set[str]] = {}
    for kind, subject in pairs:
        found.setdefault(kind, set()).add(subject)
    return {kind: frozenset(subjects) for kind, subjects in found.items()}


@dataclass
class OpenStep:
    """A step that is under way: what it asked, and what it will commit."""

    token: str
    asked: set[Question] = field(default_factory=set)
    drafts: list[EventDraft] = field(default_factory=list)
    # what is stored under keys once it is committed; "" is nothing
    keys: dict[str, str] = field(default_factory=dict)
    # events that it committed
    rows: list[Event] = field(default_factory=list)
    # what is done once it is committed
    after: list[Callable[[], None]] = field(default_factory=list)


def known(connection: sa.Connection, corpus: str, token: str) -> bool:
    """Whether a request with this token has appended its events."""
    query = sa.select(events.c.sequence).where(events.c.corpus == corpus, events.c.token == token)
    return connection.execute(query.limit(1)).first() is not None


def append(
    store: Store, connection: sa.Connection, drafts: Sequence[EventDraft], token: str
) -> list[Event]:
    """Append events in a transaction that writes, with the indexes that follow from them."""
    from certify_assets.storage.indexes import follow, insert

    for name in dict.fromkeys(name for draft in drafts for name in draft.objects):
        # `certify gc` is alone while it removes, so that what is there now stays
        if not store.objects.has(name):
            raise MissingObjectError(
                f"the object {name[:12]} was removed before it was named; run this again."
            )
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    heads: dict[str, tuple[int, str]] = {}
    places: Counter[tuple[str, str]] = Counter()
    rows: list[Event] = []
    for draft in drafts:
        if draft.corpus not in heads:
            heads[draft.corpus] = last_event(connection, draft.corpus)
        request = draft.token or token
        part = places[draft.corpus, request]
        event = Event.after(draft, heads[draft.corpus], request, part, time)
        places[draft.corpus, request] += 1
        heads[draft.corpus] = event.sequence, event.sha256
        rows.append(event)
    # one statement for many: an import of labels is one transaction
    insert(connection, events, rows)
    follow(store, connection, rows)
    return rows


def require_same(asked: Iterable[Question], corpus: str, changes: Changes) -> None:
    """Refuse changes of a corpus after which something that was asked has another answer."""
    for question in asked if changes else ():
        if question.corpus != corpus or not question.watched:
            continue
        if (subject := question.concerns(changes)) is not None:
            named = question.kind == Stored.kind
            what = f"replaced {subject}" if named else f"added {question.kind} {subject}".strip()
            raise ChangedInputError(
                f"{corpus or 'the data root'} changed meanwhile: another process {what}. "
                "Run this again."
            )
