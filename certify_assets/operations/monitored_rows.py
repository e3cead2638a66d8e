"""Index of the decided runs that the monitor reads: no ingest reads the table of every batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import sqlalchemy as sa

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.audit_sample import with_draw
from certify_assets.operations.batches import (
    batch_names,
    changed_batches,
    decided_version,
    is_decided,
    is_undone,
    known_runs,
)
from certify_assets.operations.decisions import decisions_of
from certify_assets.operations.sampling import RunDraw
from certify_assets.storage.database import insert, number_column, tables, text_column
from certify_assets.storage.moment import remembered
from certify_assets.storage.store import Snapshot, Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.storage.events import Event

#: drawn runs and those of batch draws, as they are decided now
monitored = sa.Table(
    "monitored",
    tables,
    text_column("corpus", primary_key=True),
    text_column("batch", primary_key=True),
    # among the decisions of the batch, from 0
    number_column("place", primary_key=True),
    text_column("trajectory_id"),
    text_column("task_id"),
    sa.Column("score", sa.Float),
    *map(text_column, ("decision", "reason", "asked", "adapter_sha256", "kind")),
)
_COLUMNS = [column.name for column in monitored.columns][3:]


def follow(store: Store, connection: sa.Connection, rows: Sequence[Event]) -> None:
    """Bring the index to the state after these events."""
    for name, mine in groupby(rows, key=lambda row: row.corpus):
        corpus = Corpus(Snapshot.within(store, connection), name)
        for batch in sorted({batch for row in mine for batch in changed_batches(corpus, row)}):
            _replace(corpus, connection, batch)


def _replace(corpus: Corpus, connection: sa.Connection, batch: str) -> None:
    """Make the rows of a batch again from its decisions as they are now."""
    its = monitored.c.corpus == corpus.name, monitored.c.batch == batch
    connection.execute(monitored.delete().where(*its))
    if is_undone(corpus, batch) or not is_decided(corpus, batch):
        return
    frame = with_draw(decisions_of(corpus, batch), RunDraw.load(corpus, batch))
    used = frame[frame["kind"] != "undecided"]
    columns = (used[name].tolist() for name in _COLUMNS)
    rows = zip(used.index.tolist(), *columns, strict=True)
    insert(connection, monitored, ((corpus.name, batch, *row) for row in rows))


@remembered
def monitored_rows(corpus: Corpus) -> pd.DataFrame:
    """Return the decided runs that were drawn and those of batch draws, the oldest batch first.

    Column ``kind`` is audit_sample or batch_draw, and ``twice`` says whether the run came again in
    another batch.
    """
    import pandas as pd

    # a step that reads the index notices decisions and closings of others by their events
    decided_version(corpus)
    batches, store = set(batch_names(corpus)), corpus.store
    query = sa.select(monitored).where(monitored.c.corpus == corpus.name)
    # pandas looks into what is no plain tuple
    found = map(tuple, store.indexed(query.order_by(monitored.c.batch, monitored.c.place)))
    frame = pd.DataFrame(found, columns=monitored.columns.keys()).astype({"score": float})
    here = known_runs.c.corpus == corpus.name
    several = sa.select(known_runs.c.run).where(here).group_by(known_runs.c.run)
    again = known_runs.c.run.in_(several.having(sa.func.count() > 1))
    names = store.indexed(sa.select(known_runs.c.run, known_runs.c.batch).where(here, again))
    times = Counter(row.run for row in names if row.batch in batches)
    twice = [name for name, count in times.items() if count > 1]
    return frame.assign(twice=frame["trajectory_id"].isin(twice))
