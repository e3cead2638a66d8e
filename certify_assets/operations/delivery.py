"""A delivery of new runs: which of them came before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from certify_assets.corpora.corpus import Corpus
from certify_assets.files import parse_json
from certify_assets.operations.batch_record import UndoneBatch, ready_batches
from certify_assets.storage.database import insert, number_column, tables, text_column

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.schema import Trajectory
    from certify_assets.storage.events import Event
    from certify_assets.storage.store import Store

_COLUMNS = ("trajectory_id", "task_id", "agent", "content_sha256", "changed")

#: index of the runs of all batches, which are known when they come again
known_runs = sa.Table(
    "runs",
    tables,
    text_column("corpus", primary_key=True),
    text_column("run", primary_key=True),
    # a run that came again with other content is in another batch
    text_column("batch", primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
    text_column("task"),
    text_column("agent"),
    # in the table of runs of the batch, from 0
    number_column("place"),
    sa.Index("runs_content", "corpus", "content"),
    sa.Index("runs_task", "corpus", "task", "agent"),
)


def follow(store: Store, connection: sa.Connection, rows: Sequence[Event]) -> None:
    """Bring the index of runs to the state after batches were received or taken back."""
    for row in rows:
        batch = parse_json(row.payload)["batch"]
        if row.kind == UndoneBatch.kind:
            mine = known_runs.c.corpus == row.corpus, known_runs.c.batch == batch
            connection.execute(known_runs.delete().where(*mine))
        else:
            _receive(store, connection, row, batch)


def _receive(store: Store, connection: sa.Connection, row: Event, batch: str) -> None:
    columns = ("trajectory_id", "content_sha256", "task_id", "agent")
    table = store.objects.get_arrow(parse_json(row.payload)["objects"]["identities"], columns)
    runs = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    found = (
        (row.corpus, name, batch, bytes.fromhex(content), task, agent, place)
        for place, (name, content, task, agent) in enumerate(runs)
    )
    insert(connection, known_runs, found)


@dataclass(frozen=True)
class DeliveredRun:
    """A run of a delivery, without its texts: a delivery may be larger than the memory."""

    trajectory: Trajectory
    place: int  # among the runs of the delivery, which have the texts
    instruction_sha256: str
    content: str  # hash of task, agent, instruction and steps: the same run under any id
    numbered: bool  # the source has no ids: this one was made of task, agent and attempt

    @property
    def id(self) -> str:
        """The trajectory_id."""
        return self.trajectory.trajectory_id


@dataclass(frozen=True)
class NewRuns:
    """The runs of a delivery that no batch holds, in the order of a corpus."""

    kept: list[DeliveredRun]
    changed_ids: set[str]  # of runs that came before under the same id with other content
    sentences: list[str] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """How many came before with other content."""
        return len(self.changed_ids)

    def table(self, runs: Sequence[DeliveredRun]) -> pd.DataFrame:
        """Return the identities of some of the runs, for later deliveries."""
        import pandas as pd

        rows = [
            (
                run.id,
                run.trajectory.task_id,
                run.trajectory.agent,
                run.content,
                run.id in self.changed_ids,
            )
            for run in runs
        ]
        return pd.DataFrame(rows, columns=list(_COLUMNS))


def new_runs(corpus: Corpus, runs: Sequence[DeliveredRun]) -> NewRuns:
    """Return the runs of a delivery that no batch holds yet, by the index of runs."""
    # two deliveries at once: the second one sees that it asked an older index
    ready_batches(corpus)
    named = {run.id: run for run in runs if not run.numbered}
    # whether a batch holds a run as it is
    known: dict[str, bool] = {}
    for name, content in _indexed(corpus, known_runs.c.run, named):
        known[name] = known.get(name, False) or content == named[name].content
    contents = {bytes.fromhex(run.content) for run in runs}
    # how often a run came, by its content
    left = Counter(content for _, content in _indexed(corpus, known_runs.c.content, contents))
    left.subtract(run.content for name, run in named.items() if known.get(name))
    # A source without ids numbers the attempts of one delivery; a run of a later delivery gets
    # the next free number.
    tasks = {run.trajectory.task_id for run in runs if run.numbered}
    taken = {*named, *(name for name, _ in _indexed(corpus, known_runs.c.task, tasks))}
    kept, again, changed = list[DeliveredRun](), list[str](), set[str]()
    for run in runs:
        if not run.numbered and run.id in known:
            if not known[run.id]:
                kept.append(run)
                changed.add(run.id)
            continue
        left[run.content] -= 1
        if left[run.content] < 0:
            kept.append(_numbered(run, taken) if run.numbered else run)
            taken.add(kept[-1].id)
        elif not run.numbered:
            again.append(run.id)
    kept.sort(key=lambda run: (run.trajectory.task_id, run.id))
    sentences = []
    if changed:
        sentences.append(
            f"{len(changed)} runs came before under the same trajectory_id with other content, "
            f"such as {min(changed)}: reviewers decide them; give a run that was made again an "
            "id of its own."
        )
    if again:
        sentences.append(
            f"{len(again)} runs came before under other ids, with the same task, agent and "
            f"texts, such as {min(again)}: they are not decided again."
        )
    return NewRuns(kept, changed, sentences)


def _indexed(
    corpus: Corpus, column: sa.Column[Any], values: Collection[Any]
) -> Iterator[tuple[str, str]]:
    """Give id and content of the runs that have one of the values."""
    query = sa.select(known_runs.c.run, known_runs.c.content)
    query = query.where(known_runs.c.corpus == corpus.name)
    for row in corpus.store.indexed(query, column, values):
        yield row.run, row.content.hex()


def _numbered(run: DeliveredRun, taken: set[str]) -> DeliveredRun:
    made, attempt = run.trajectory, run.trajectory.attempt
    while (name := f"{made.task_id}/{made.agent}/{attempt}") in taken:
        attempt += 1
    return replace(run, trajectory=replace(made, attempt=attempt, trajectory_id=name))
