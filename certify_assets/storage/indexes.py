"""Indexes: rows that follow from events, written with them and made again at any time."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from certify_assets.files import parse_json
from certify_assets.storage.database import chains, runs, uses
from certify_assets.storage.events import Discarded, objects_of

if TYPE_CHECKING:
    from certify_assets.storage.events import Event
    from certify_assets.storage.store import Store

# so many at once change how a table is best asked
_MANY_ROWS: Final = 10_000
# modules with rows of their own, and the kinds of events that these follow; imported only where one
# of them is stored
_FOLLOWERS: Final = {
    "certify_assets.operations.review_index": frozenset(
        {"labelled", "gold_labelled", "twice_reviewed"}
        | {"decided", "undone", "drawn", "undrawn", "closed"}
    )
}


def follow(store: Store, connection: sa.Connection, rows: Sequence[Event]) -> None:
    """Bring the indexes to the state after these events."""
    if begun := [{"corpus": row.corpus} for row in rows if row.sequence == 1]:
        connection.execute(chains.insert(), begun)
    _use(connection, rows)
    for row in rows:
        if row.kind == "received":
            _receive(store, connection, row)
        elif row.kind == "undone":
            batch = runs.c.batch == parse_json(row.payload)["batch"]
            connection.execute(runs.delete().where(runs.c.corpus == row.corpus, batch))
    for module, kinds in _FOLLOWERS.items():
        if mine := [row for row in rows if row.kind in kinds]:
            importlib.import_module(module).follow(store, connection, mine)


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
            if gone:
                connection.execute(free, [{"name": name} for name in gone])


def _receive(store: Store, connection: sa.Connection, row: Event) -> None:
    about = parse_json(row.payload)
    columns = ("trajectory_id", "content_sha256", "task_id", "agent")
    table = store.objects.get_arrow(about["objects"]["identities"], columns)
    names, contents, tasks, agents = (table.column(name).to_pylist() for name in columns)
    insert(
        connection,
        runs,
        zip(
            repeat(row.corpus, len(names)),
            names,
            repeat(about["batch"], len(names)),
            map(bytes.fromhex, contents),
            tasks,
            agents,
            range(len(names)),
            strict=True,
        ),
    )


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
