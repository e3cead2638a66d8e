"""Copies of what people open: pages and documents below ``pages/``, written after the commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from certify_assets.storage.store import PAGES, Store

# tables and documents that commands take as files
_DOCUMENTS: Final = ("certificates.json", "scores.parquet", "audits.json", "history.json")


def is_page(key: str) -> bool:
    """Whether people open what is stored under a key."""
    name = key.rpartition("/")[2]
    return key.endswith((".html", ".svg", ".csv")) or name in _DOCUMENTS


def publish(store: Store, keys: Iterable[str]) -> int:
    """Copy what is stored under keys to where people open it; return the number of copies."""
    count = 0
    for key in filter(is_page, keys):
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
