"""Removing objects that no event needs, and making pages again."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

import sqlalchemy as sa
from pydantic import BaseModel, ValidationError

from certify_assets.errors import InputError, IntegrityError
from certify_assets.storage.database import chains, events, uses
from certify_assets.storage.events import Discarded, EventDraft, Head, Stored
from certify_assets.storage.folder import FoundFile
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.pages import publish
from certify_assets.storage.steps import append
from certify_assets.storage.store import Store

_DAY: Final = 86_400.0
# a part of an object may be what another process writes now
_LEAST_SECONDS = 3600.0
# removed under one lock, for which every writer waits
_AT_ONCE = 200


class Freed(NamedTuple):
    """What was removed."""

    objects: int
    bytes: int


def collect(store: Store, *, older_days: float = 1.0) -> Freed:
    """Remove objects that no event names and that nobody stored lately.

    Raises
    ------
    IntegrityError
        If an object names an event that the database lacks: it is an older copy, and what seems
        unused may belong to the newer one. Nothing is removed.
    """
    if not store.database.exists():
        return Freed(0, 0)
    with store.database.reading() as connection:
        named = set(connection.scalars(sa.select(uses.c.object)))
    least = older_days * _DAY
    loose = [
        found
        for found in store.objects.found()
        if found.name not in named
        and found.seconds >= (max(least, _LEAST_SECONDS) if found.is_part else least)
    ]
    if ahead := next(_ahead(store, loose), None):
        raise IntegrityError(
            f"the object {ahead[:12]} names an event that the database lacks: the database is an "
            "older copy than its objects; restore the newer one. Nothing was removed."
        )
    removed: list[int] = []
    for start in range(0, len(loose), _AT_ONCE):
        portion = loose[start : start + _AT_ONCE]
        with store.database.writing((), sole=True) as connection:
            names = [found.name for found in portion]
            again = sa.select(uses.c.object).where(uses.c.object.in_(names))
            named = set(connection.scalars(again))
            for found in portion:
                if found.name not in named:
                    store.objects.remove(found)
                    removed.append(found.size)
    return Freed(len(removed), sum(removed))


class _Document(BaseModel):
    """What a document that leaves the house says of the ledger."""

    ledger: Head | None = None
    certificates: tuple[_Document, ...] = ()


def _ahead(store: Store, loose: Iterable[FoundFile]) -> Iterator[str]:
    """Iterate over objects that name an event which the ledger lacks."""
    for found in loose:
        try:
            data = b"" if found.is_part else store.objects.get(found.name)
        except MissingObjectError:
            # another call was first
            continue
        if data[:1] != b"{" or b'"ledger"' not in data:
            continue
        try:
            document = _Document.model_validate_json(data, strict=True)
        except ValidationError:
            # of somebody else
            continue
        heads = [part.ledger for part in (document, *document.certificates)]
        if not all(store.now().holds(**head) for head in heads if head):
            yield found.name


def discard(
    store: Store, *, reason: str, older_days: float = 30.0, removed: Collection[str] = ()
) -> int:
    """Give up what was stored under keys before what is there now; return how many objects go.

    The events stay. What another event names, such as a deployment or a batch, is kept, but for
    the corpora that were `removed`: of those everything goes. `collect` removes the objects
    afterwards.
    """
    if not reason.strip():
        raise InputError("objects are discarded for a reason; give one.")
    count = 0
    if not store.database.exists():
        return count
    with store.database.writing((), sole=True) as connection:
        for corpus in list(connection.scalars(sa.select(chains))):
            if gone := _unneeded(connection, corpus, older_days, removed=corpus in removed):
                payload = Discarded(discarded=tuple(gone), reason=reason)
                append(store, connection, [EventDraft.of(corpus, payload, uuid.uuid4().hex)])
                count += len(gone)
    return count


def _unneeded(
    connection: sa.Connection, corpus: str, older_days: float, *, removed: bool
) -> list[str]:
    from datetime import UTC, datetime, timedelta

    before = (datetime.now(UTC) - timedelta(days=older_days)).isoformat(timespec="milliseconds")
    if removed:
        place = (events.c.corpus == uses.c.corpus) & (events.c.sequence == uses.c.sequence)
        theirs = sa.select(uses.c.object).join(events, place).where(uses.c.corpus == corpus)
        query = theirs.where(events.c.time < before).distinct().order_by(uses.c.object)
        return list(connection.scalars(query))
    after = sa.func.lead(events.c.time).over(
        partition_by=events.c.subject, order_by=events.c.sequence
    )
    versions = (
        sa.select(events.c.sequence, after.label("replaced"))
        .where(events.c.corpus == corpus, events.c.kind == Stored.kind)
        .subquery()
    )
    named = sa.select(uses.c.object, versions.c.replaced).outerjoin(
        versions, versions.c.sequence == uses.c.sequence
    )
    kept: set[str] = set()
    old: dict[str, None] = {}
    for row in connection.execute(named.where(uses.c.corpus == corpus).order_by(uses.c.sequence)):
        if row.replaced and row.replaced < before:
            old[row.object] = None
        else:
            kept.add(row.object)
    return [name for name in old if name not in kept]


def publish_all(store: Store) -> int:
    """Make all pages again; return how many there are."""
    view = store.now()
    with store.database.reading() as connection:
        query = sa.select(events.c.subject).where(events.c.kind == Stored.kind).distinct()
        keys = list(connection.scalars(query))
    return publish(view, keys)
