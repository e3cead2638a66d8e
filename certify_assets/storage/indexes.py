"""Indexes: rows that follow from events, written with them and made again at any time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from certify_assets.storage.database import uses
from certify_assets.storage.events import Discarded, objects_of

if TYPE_CHECKING:
    from certify_assets.storage.events import Event
    from certify_assets.storage.store import Store


def follow(store: Store, connection: sa.Connection, rows: Sequence[Event]) -> None:
    """Bring the indexes to the state after these events."""
    _use(connection, rows)


def _use(connection: sa.Connection, rows: Sequence[Event]) -> None:
    used = [
        {"object": name, "corpus": row.corpus, "sequence": row.sequence}
        for row in rows
        for name in objects_of(row.payload)
    ]
    if used:
        connection.execute(uses.insert(), used)
    for row in rows:
        if row.kind == Discarded.kind:
            gone = Discarded.model_validate_json(row.payload).discarded
            free = uses.delete().where(
                uses.c.corpus == row.corpus, uses.c.object == sa.bindparam("name")
            )
            connection.execute(free, [{"name": name} for name in gone])
