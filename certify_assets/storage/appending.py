"""Appending events in a transaction, and updating the indexes."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from certify_assets.storage.database import FOLLOWERS, chains, events, insert, uses
from certify_assets.storage.events import Discarded, Event, last_event
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.root import Root


def append(root: Root, connection: sa.Connection, drafts: Sequence[Event[Any]]) -> list[Event[Any]]:
    """Append events in a writing transaction, and update the indexes."""
    for name in {name: None for draft in drafts for name in draft.objects.values()}:
        # `certify gc` is alone while it removes, so that what is there now stays
        if not root.objects.has(name):
            raise MissingObjectError(
                f"the object {name[:12]} was removed before an event named it; run this again."
            )
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    heads: dict[str, tuple[int, str]] = {}
    parts = Counter[tuple[str, str]]()
    rows: list[Event[Any]] = []
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


def follow(root: Root, connection: sa.Connection, rows: Sequence[Event[Any]]) -> None:
    """Update the indexes to the state after these events."""
    insert(connection, chains, [(row.corpus,) for row in rows if row.sequence == 1])
    named = ({(name, row.corpus, row.sequence) for name in row.objects.values()} for row in rows)
    insert(connection, uses, [use for found in named for use in sorted(found)])
    for row in rows:
        if row.kind == Discarded.kind:
            gone = row.content.discarded
            # where indexes are made again, later events that name it are here already
            mine = uses.c.corpus == row.corpus, uses.c.sequence < row.sequence
            for name in gone:
                connection.execute(uses.delete().where(*mine, uses.c.object == name))
    for module, kinds in FOLLOWERS.items():
        if mine_rows := [row for row in rows if row.kind in kinds]:
            importlib.import_module(module).follow(root, connection, mine_rows)
