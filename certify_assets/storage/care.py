"""Maintenance of a data root: verify, export and blank its chains, and remove unused objects."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from pydantic import BaseModel, ValidationError

from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import canonical_json, parse_json, sha256_bytes
from certify_assets.storage.appending import append, follow
from certify_assets.storage.database import (
    blanked,
    chains,
    events,
    insert,
    parts,
    properties,
    register,
    tables,
    uses,
)
from certify_assets.storage.events import Discarded, Event, Head, Stored, blanked_payloads, chain
from certify_assets.storage.folder import FoundFile
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.store import Store

_ROWS_AT_ONCE = 1000
_DAY: Final = 86_400.0
_LEAST_SECONDS = 3600.0
# removed under one lock, for which every writer waits
_AT_ONCE = 200


class Verified(NamedTuple):
    """A complete chain of events, with every object that it names."""

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
        Name of the corpus; "" means the chain of the data root.
    heads : iterable of Head, optional
        Heads that documents outside the data root name under ``ledger``.

    Raises
    ------
    IntegrityError
        At the first altered event, the first altered or missing object, or the first head that the
        chain does not contain.
    """
    for head in heads:
        store.require_held(head, "the head that was given")
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
                    for gone in event.content.discarded:
                        needed.pop(gone, None)
        # objects take long, and are read when no transaction is open any more
        for sha256, about in sorted(needed.items()):
            store.objects.require(sha256, about)
        found.append(Verified(head["sequence"], len(needed), changed, head))
    return found


def export(store: Store, corpus: str) -> Iterator[str]:
    """Iterate over the verified events of a corpus, each as a line of JSON."""
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
    """Rebuild every index from the events; return the number of events."""
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
    """Change the content of events, where the law requires it; return the number of changed ones.

    The chain still verifies, because it keeps the hash of the original content. It no longer proves
    the changed content; the table `blanked` of the database names these events.

    Parameters
    ----------
    store : Store
        Data root.
    corpus : str
        Name of the corpus.
    change : callable
        Returns the new content of an event, from its kind and document; None leaves it unchanged.
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
    """Return the corpora that have events, or only the given one."""
    with store.database.reading() as connection:
        names = _named(connection)
    if corpus is None:
        return names
    if corpus not in names:
        raise InputError(
            f"the ledger of {store.root} has no events of {corpus!r}; it has those of "
            f"{', '.join(filter(None, names)) or 'no corpus'}."
        )
    return [corpus]


def _named(connection: sa.Connection) -> list[str]:
    # from the events: an index may be what is wrong
    return sorted(connection.scalars(sa.select(events.c.corpus).distinct()))


class Freed(NamedTuple):
    """Number and size of the removed objects."""

    objects: int
    bytes: int


def collect(store: Store, *, older_days: float = 1.0) -> Freed:
    """Remove objects that no event names and that were not stored lately.

    Raises
    ------
    IntegrityError
        If an object names an event that the database lacks. The database is then an older copy, and
        unused objects may belong to the newer one. Nothing is removed.
    """
    with store.database.reading() as connection:
        named = set(connection.scalars(sa.select(uses.c.object)))
    least = older_days * _DAY
    # a part may be what another process writes now
    least_of_part = max(least, _LEAST_SECONDS)
    loose = [
        found
        for found in store.objects.found()
        if found.name not in named
        and store.folder.age(found.key) >= (least_of_part if found.is_part else least)
    ]
    if ahead := next((found.name for found in loose if _is_ahead(store, found)), ""):
        raise IntegrityError(
            f"the object {ahead[:12]} names an event that the database lacks: the database is an "
            "older copy than its objects; restore the newer one. Nothing was removed."
        )
    sizes: list[int] = []
    for portion in parts(loose, _AT_ONCE):
        with store.database.writing((), sole=True) as connection:
            names = [found.name for found in portion]
            again = sa.select(uses.c.object).where(uses.c.object.in_(names))
            named = set(connection.scalars(again))
            for found in portion:
                if found.name not in named:
                    store.objects.remove(found)
                    sizes.append(found.size)
    return Freed(len(sizes), sum(sizes))


class _Document(BaseModel):
    """The ledger head in a document that leaves the data root."""

    ledger: Head | None = None
    certificates: tuple[_Document, ...] = ()


def _is_ahead(store: Store, found: FoundFile) -> bool:
    """Whether an object names an event that the ledger lacks."""
    if found.is_part:
        return False
    try:
        document = _Document.model_validate_json(store.objects.get(found.name), strict=True)
    except (MissingObjectError, ValidationError):
        # another call was first, or it is of somebody else
        return False
    heads = [part.ledger for part in (document, *document.certificates)]
    return not all(store.holds(**head) for head in heads if head)


def discard(
    store: Store, *, reason: str, older_days: float = 30.0, removed: Collection[str] = ()
) -> int:
    """Release objects of keys that were replaced more than `older_days` ago; return their number.

    The events stay. Objects that another event names, such as a deployment or a batch, are kept.
    For the corpora that were `removed`, every object of that age is released. `collect` removes the
    objects afterwards.
    """
    if not reason.strip():
        raise InputError("discarding objects needs a reason; give one.")
    count = 0
    if not store.database.exists():
        return count
    before = (datetime.now(UTC) - timedelta(days=older_days)).isoformat(timespec="milliseconds")
    later = events.alias()
    same = (later.c[name] == events.c[name] for name in ("corpus", "kind", "subject"))
    is_later = later.c.sequence > events.c.sequence, later.c.time < before
    replaced = (events.c.kind == Stored.kind) & sa.exists().where(*same, *is_later)
    naming = (events.c.corpus == uses.c.corpus) & (events.c.sequence == uses.c.sequence)
    named = sa.select(uses.c.object).join(events, naming)
    by_object = named.group_by(uses.c.object).order_by(uses.c.object)
    with store.database.writing((), sole=True) as connection:
        for corpus in list(connection.scalars(sa.select(chains))):
            is_old = events.c.time < before if corpus in removed else replaced
            all_old = sa.func.min(sa.case((is_old, 1), else_=0)) == 1
            found = by_object.where(uses.c.corpus == corpus).having(all_old)
            if gone := tuple(connection.scalars(found)):
                payload = Discarded(discarded=gone, reason=reason)
                append(store, connection, [Event.draft(corpus, payload, uuid.uuid4().hex)])
                count += len(gone)
    return count
