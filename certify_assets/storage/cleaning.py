"""Removing objects that no event needs."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import sqlalchemy as sa
from pydantic import BaseModel, ValidationError

from certify_assets.errors import InputError, IntegrityError
from certify_assets.storage.database import chains, events, parts, uses
from certify_assets.storage.events import Discarded, Event, Head, Stored
from certify_assets.storage.folder import FoundFile
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.steps import append
from certify_assets.storage.store import Store

_DAY: Final = 86_400.0
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
    """What a document that leaves the house says of the ledger."""

    ledger: Head | None = None
    certificates: tuple[_Document, ...] = ()


def _is_ahead(store: Store, found: FoundFile) -> bool:
    """Whether an object names an event which the ledger lacks."""
    if found.is_part:
        return False
    try:
        document = _Document.model_validate_json(store.objects.get(found.name), strict=True)
    except (MissingObjectError, ValidationError):
        # another call was first, or it is of somebody else
        return False
    heads = [part.ledger for part in (document, *document.certificates)]
    return not all(store.now().holds(**head) for head in heads if head)


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
