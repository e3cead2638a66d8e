"""What a step asks and commits: questions, changes that answer them anew, and new events."""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

import sqlalchemy as sa

from certify_assets.errors import ChangedInputError
from certify_assets.storage.database import FOLLOWERS, chains, events, insert, uses
from certify_assets.storage.events import Discarded, Event, Stored, last_event
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.root import Root

#: subjects of events, by their corpus and kind
Changes = Mapping[tuple[str, str], Collection[str]]


class Question(NamedTuple):
    """What a snapshot was asked: the newest events of a kind, and of a subject or several."""

    corpus: str
    kind: str
    subject: str = ""
    # whether all subjects count that begin like this
    begins: bool = False
    watched: bool = True

    def concerns(self, changes: Changes) -> str | None:
        """Return the subject of an event that may change the answer; None where none does."""
        subjects = changes.get((self.corpus, self.kind), ())
        if self.begins:
            return min((one for one in subjects if one.startswith(self.subject)), default=None)
        return self.subject if self.subject in subjects else None

    def conditions(self) -> Iterator[sa.ColumnElement[bool]]:
        """Iterate over what the rows of an answer have in common."""
        yield events.c.corpus == self.corpus
        yield events.c.kind == self.kind
        if not self.begins:
            yield events.c.subject == self.subject
        elif self.subject:
            yield events.c.subject > self.subject
            # of a folder: "0" follows "/"
            yield events.c.subject < f"{self.subject[:-1]}0"


#: which corpora there are: a corpus that begins is a change, about its name
CORPORA: Final = Question("", "corpus", begins=True)


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
    drafts: list[Event] = field(default_factory=list)
    # what is done once it is committed
    after: list[Callable[[], None]] = field(default_factory=list)

    @property
    def changes(self) -> Changes:
        """What it changes where it is committed."""
        return changes_of(draft.about for draft in self.drafts)


def require_same(asked: Iterable[Question], changes: Changes) -> None:
    """Refuse changes after which something that was asked has another answer."""
    for question in asked if changes else ():
        if (subject := question.concerns(changes)) is not None:
            named = question.kind == Stored.kind
            what = f"replaced {subject}" if named else f"added {question.kind} {subject}".strip()
            raise ChangedInputError(
                f"{question.corpus or 'the data root'} changed meanwhile: another process {what}. "
                "Run this again."
            )


def append(root: Root, connection: sa.Connection, drafts: Sequence[Event]) -> list[Event]:
    """Append events in a transaction that writes, with the indexes that follow from them."""
    for name in {name: None for draft in drafts for name in draft.objects.values()}:
        # `certify gc` is alone while it removes, so that what is there now stays
        if not root.objects.has(name):
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
        event = draft.after(heads[draft.corpus], parts[request], time)
        parts[request] += 1
        heads[draft.corpus] = event.sequence, event.sha256
        rows.append(event)
    # one statement for many: an import of labels is one transaction
    insert(connection, events, rows)
    follow(root, connection, rows)
    return rows


def follow(root: Root, connection: sa.Connection, rows: Sequence[Event]) -> None:
    """Bring the indexes to the state after these events."""
    insert(connection, chains, [(row.corpus,) for row in rows if row.sequence == 1])
    named = ({(name, row.corpus, row.sequence) for name in row.objects.values()} for row in rows)
    insert(connection, uses, [use for found in named for use in sorted(found)])
    for row in rows:
        if row.kind == Discarded.kind:
            gone = Discarded.model_validate_json(row.payload).discarded
            # where indexes are made again, later events that name it are here already
            mine = uses.c.corpus == row.corpus, uses.c.sequence < row.sequence
            for name in gone:
                connection.execute(uses.delete().where(*mine, uses.c.object == name))
    for module, kinds in FOLLOWERS.items():
        if mine_rows := [row for row in rows if row.kind in kinds]:
            importlib.import_module(module).follow(root, connection, mine_rows)
