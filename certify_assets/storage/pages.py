"""Copies of what people open: pages and documents below ``pages/``, written after the commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import sqlalchemy as sa

from certify_assets.storage.database import events
from certify_assets.storage.events import Stored
from certify_assets.storage.store import PAGES, Store

# pages, and tables and documents that commands take as files
_COPIED: Final = (
    *(".html", ".svg", ".csv"),
    *("/certificates.json", "/scores.parquet", "/audits.json", "/history.json"),
)


def publish(store: Store, keys: Iterable[str]) -> int:
    """Copy what is stored under keys to where people open it; return the number of copies."""
    count = 0
    for key in keys:
        if not key.endswith(_COPIED):
            continue
        # a killed call may have left the copy behind
        written = store.folder.sha256(f"{PAGES}/{key}")
        # another process may copy an older one at the same time: what is stored decides
        while (now := store.current(key)) != written:
            if now:
                store.folder.write(f"{PAGES}/{key}", store.objects.get(now))
            else:
                store.folder.delete(f"{PAGES}/{key}")
            written = now
        count += bool(written)
    return count


def publish_all(store: Store) -> int:
    """Make all pages again; return how many there are."""
    with store.database.reading() as connection:
        query = sa.select(events.c.subject).where(events.c.kind == Stored.kind).distinct()
        keys = list(connection.scalars(query))
    return publish(store.now(), keys)
