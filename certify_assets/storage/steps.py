"""What a step asks and commits: questions, changes that answer them anew, and new events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import sqlalchemy as sa

from certify_assets.errors import ChangedInputError
from certify_assets.storage.database import events
from certify_assets.storage.events import Event, EventDraft, Stored, last_event
from certify_assets.storage.indexes import follow, insert
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.store import Store

#: subjects of events, by their corpus and kind
Changes = Mapping[tuple[str, str], Collection[str]]


class Question(NamedTuple):
    """What a snapshot was asked: the newest event of a kind, and of a subject or those below it."""

    corpus: str
    kind: str
    subject: str | None  # None is every subject
    below: bool = False
    watched: bool = True

    def concerns(self, changes: Changes) -> str | None:
        """Return the subject of an event that may change the answer; None where none does."""
        subjects = changes.get((self.corpus, self.kind), ())
        if self.subject is None:
            return min(subjects, default=None)
        if self.below:
            return next((item for item in subjects if item.startswith(self.subject)), None)
        return self.subject if self.subject in subjects else None


def changes_of(events: Iterable[tuple[str, str, str]]) -> Changes:
    """Return the changes by events, given by corpus, kind and subject."""
    found = defaultdict[tuple[str, str], set[str]](set)
    for corpus, kind, subject in events:
        found[corpus, kind].add(subject)
    return found


@dataclass
class OpenStep:
    """A step that is under way: what it asked, and what it will commit."""

    token: str
    asked: set[Question] = field(default_factory=set)
    drafts: list[EventDraft] = field(default_factory=list)
    # what is done once it is committed
    after: list[Callable[[], None]] = field(default_factory=list)

    @property
    def changes(self) -> Changes:
        """What it changes where it is committed."""
        return changes_of(draft[:3] for draft in self.drafts)


def known(connection: sa.Connection, corpus: str, token: str) -> bool:
    """Whether a request with this token has appended its events."""
    query = sa.select(events.c.sequence).where(events.c.corpus == corpus, events.c.token == token)
    return connection.execute(query.limit(1)).first() is not None


def append(store: Store, connection: sa.Connection, drafts: Sequence[EventDraft]) -> list[Event]:
    """Append events in a transaction that writes, with the indexes that follow from them."""
    for name in dict.fromkeys(name for draft in drafts for name in draft.objects):
        # `certify gc` is alone while it removes, so that what is there now stays
        if not store.objects.has(name):
            raise MissingObjectError(
                f"the object {name[:12]} was removed before it was named; run this again."
            )
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    heads: dict[str, tuple[int, str]] = {}
    parts = Counter[tuple[str, str]]()
    rows: list[Event] = []
    for draft in drafts:
        if draft.corpus not in heads:
            heads[draft.corpus] = last_event(connection, draft.corpus)
        request = draft.corpus, draft.token
        event = Event.after(draft, heads[draft.corpus], parts[request], time)
        parts[request] += 1
        heads[draft.corpus] = event.sequence, event.sha256
        rows.append(event)
    # one statement for many: an import of labels is one transaction
    insert(connection, events, rows)
    follow(store, connection, rows)
    return rows


def require_same(asked: Iterable[Question], changes: Changes) -> None:
    """Refuse changes after which something that was asked has another answer."""
    for question in asked if changes else ():
        if question.watched and (subject := question.concerns(changes)) is not None:
            named = question.kind == Stored.kind
            what = f"replaced {subject}" if named else f"added {question.kind} {subject}".strip()
            raise ChangedInputError(
                f"{question.corpus or 'the data root'} changed meanwhile: another process {what}. "
                "Run this again."
            )
