"""Looking after the ledger: verify its chains, export one, make the indexes again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import sqlalchemy as sa

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, parse_json, sha256_bytes
from certify_assets.storage.database import blanked, events, insert, properties, register, tables
from certify_assets.storage.events import Discarded, Head, blanked_payloads, chain
from certify_assets.storage.steps import follow
from certify_assets.storage.store import Store

_ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class Verified:
    """A chain of events that is whole, with every object that it names."""

    events: int
    objects: int
    blanked: int
    head: Head


def verify(store: Store, corpus: str | None = None, heads: Iterable[Head] = ()) -> list[Verified]:
    """Verify the chains of all corpora, or of one, and every object that they name.

    Parameters
    ----------
    store : Store
        Data root.
    corpus : str, optional
        Name of the corpus; "" is the chain of the data root.
    heads : iterable of Head, optional
        What documents outside of the data root name under ``ledger``.

    Raises
    ------
    IntegrityError
        At the first event that was altered, object that was altered or is gone, or head that is
        not held.
    """
    for head in heads:
        store.now().require_held(head, "the head that was given")
    found = []
    for name in _chains(store, corpus):
        head, needed = Head(corpus=name, sequence=0, sha256=""), dict[str, str]()
        with store.database.reading() as connection:
            changed = len(blanked_payloads(connection, name))
            for event in chain(connection, name):
                head = Head(corpus=name, sequence=event.sequence, sha256=event.sha256)
                about = event.subject or f"event {event.sequence} of {name}"
                needed |= dict.fromkeys(event.objects.values(), about)
                if event.kind == Discarded.kind:
                    for gone in Discarded.model_validate_json(event.payload).discarded:
                        needed.pop(gone, None)
        # objects take long, and are read when no transaction is open any more
        for sha256, about in sorted(needed.items()):
            store.objects.require(sha256, about)
        found.append(Verified(head["sequence"], len(needed), changed, head))
    return found


def export(store: Store, corpus: str) -> Iterator[str]:
    """Iterate over the events of a corpus, verified, each as a line of JSON."""
    for name in _chains(store, corpus):
        with store.database.reading() as connection:
            changed = blanked_payloads(connection, name)
            for event in chain(connection, name):
                # the payload as text: its bytes are hashed
                line = event._asdict()
                if before := changed.get(event.sequence):
                    line["payload_sha256"] = before
                yield json.dumps(line, ensure_ascii=False)


def rebuild(store: Store) -> int:
    """Make every index again from the events; return the number of events."""
    if not _chains(store):
        return 0
    with store.database.writing((), sole=True) as connection:
        return _rebuild(store, connection)


def _rebuild(store: Store, connection: sa.Connection) -> int:
    register()
    for table in tables.sorted_tables:
        if table not in (events, properties, blanked):
            connection.execute(table.delete())
    count = 0
    for name in _named(connection):
        found = chain(connection, name)
        while portion := list(islice(found, _ROWS_AT_ONCE)):
            follow(store, connection, portion)
            count += len(portion)
    return count


def blank(store: Store, corpus: str, change: Callable[[str, Any], Any | None]) -> int:
    """Change what events say, as the law may ask for; return the number of changed ones.

    The chain still verifies: it holds the hash of what was said. It no longer proves what the
    changed events say now, and `blanked` of the database names them.

    Parameters
    ----------
    store : Store
        Data root.
    corpus : str
        Name of the corpus.
    change : callable
        Returns what an event of a kind says instead of its document; None leaves it as it is.
    """
    count = 0
    with store.database.writing([corpus], sole=True) as connection:
        store.database.unguard(connection)
        known = blanked_payloads(connection, corpus)
        for event in list(chain(connection, corpus)):
            document = change(event.kind, parse_json(event.payload))
            if document is None:
                continue
            if event.sequence not in known:
                digest = sha256_bytes(event.payload.encode("utf-8"))
                insert(connection, blanked, [(corpus, event.sequence, digest)])
            text = canonical_json(document).decode("utf-8").rstrip("\n")
            mine = events.c.corpus == corpus, events.c.sequence == event.sequence
            connection.execute(events.update().where(*mine).values(payload=text))
            count += 1
        store.database.guard(connection)
        # no index has what is gone, even if this call is killed now
        _rebuild(store, connection)
    return count


def _chains(store: Store, corpus: str | None = None) -> list[str]:
    """Return the corpora that have events, or the one that is asked for."""
    with store.database.reading() as connection:
        names = _named(connection)
    if corpus is None:
        return names
    if corpus not in names:
        raise InputError(
            f"the ledger of {store.root} has no events of {corpus!r}; there are those of "
            f"{', '.join(filter(None, names)) or 'no corpus'}."
        )
    return [corpus]


def _named(connection: sa.Connection) -> list[str]:
    # from the events: an index may be what is wrong
    return sorted(connection.scalars(sa.select(events.c.corpus).distinct()))
