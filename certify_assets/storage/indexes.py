"""Indexes: rows that follow from events, written with them and made again at any time."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from certify_assets.storage.database import FOLLOWERS, chains, uses
from certify_assets.storage.events import Discarded, objects_of

if TYPE_CHECKING:
    from certify_assets.storage.events import Event
    from certify_assets.storage.store import Store

# so many at once change how a table is best asked
_MANY_ROWS: Final = 10_000


def follow(store: Store, connection: sa.Connection, rows: Sequence[Event]) -> None:
    """Bring the indexes to the state after these events."""
    if begun := [{"corpus": row.corpus} for row in rows if row.sequence == 1]:
        connection.execute(chains.insert(), begun)
    _use(connection, rows)
    for module, kinds in FOLLOWERS.items():
        if mine := [row for row in rows if row.kind in kinds]:
            importlib.import_module(module).follow(store, connection, mine)


def _use(connection: sa.Connection, rows: Sequence[Event]) -> None:
    insert(
        connection,
        uses,
        [(name, row.corpus, row.sequence) for row in rows for name in objects_of(row.payload)],
    )
    gone = [
        {"of": row.corpus, "name": name, "before": row.sequence}
        for row in rows
        if row.kind == Discarded.kind
        for name in Discarded.model_validate_json(row.payload).discarded
    ]
    if gone:
        mine = uses.c.corpus == sa.bindparam("of"), uses.c.object == sa.bindparam("name")
        # where indexes are made again, later events that name it are here already
        earlier = uses.c.sequence < sa.bindparam("before")
        connection.execute(uses.delete().where(*mine, earlier), gone)


def insert(connection: sa.Connection, table: sa.Table, rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows with a value for every column; many are one call of the driver."""
    names, every = table.columns.keys(), list(rows)
    if not every:
        return
    if connection.dialect.name == "sqlite":
        # a third of the time of the same by SQLAlchemy
        marks = ", ".join("?" * len(names))
        statement = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"
        connection.exec_driver_sql(statement, every)
        return
    connection.execute(table.insert(), [dict(zip(names, row, strict=True)) for row in every])
    if len(every) > _MANY_ROWS:
        # the next questions are planned for a table of its size, not for one that is empty
        connection.execute(sa.text(f"ANALYZE {table.name}"))
