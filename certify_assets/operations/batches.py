"""Batches of new runs: what happened to them, and the runs that they hold."""

# A batch is its events: `received` names its runs, `decided` its decisions, and `undone` takes it
# back. Provisional runs are `drawn` or `undrawn`, and a draw is `closed`. The name of a batch has
# its number and the hash of the delivery, so the same files are the same batch.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import COLUMNS
from certify_assets.corpora.trajectory import Step, Trajectory
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, parse_json, sha256_bytes
from certify_assets.storage.database import insert, number_column, tables, text_column
from certify_assets.storage.events import Event, Head, Payload
from certify_assets.storage.moment import remembered

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.storage.store import Store

_SHOWN: Final = 5

#: codes of a refusal, in the order in which they are checked
REFUSALS: Final = (
    "not_deployed",
    "stale_certificate",
    "corrected_labels",
    "failed_audit",
    "alarm",
)


@dataclass(frozen=True)
class Refusal:
    """Why the corpus certificate decides nothing: a code of `REFUSALS`, the fault, its remedy."""

    code: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}"


class _BatchEvent(Payload):
    """Something that happened to one batch, or to the draw that has its name."""

    batch: str

    @property
    def subject(self) -> str:
        """Name of the batch."""
        return self.batch


class ReceivedBatch(_BatchEvent):
    """Runs that were imported, compared with those before them, and drawn from.

    Its objects are the tables ``runs`` and ``identities`` and the documents ``draw`` and ``files``,
    the SHA-256 of every file that was read.
    """

    kind = "received"
    number: int  # of the batch, from 1
    delivery_sha256: str
    paths: tuple[str, ...]
    dropped: Mapping[str, int]  # records that could not be used, by reason
    rows: int  # of the batch
    # of the delivery, which may be of several batches
    runs: int
    new: int
    changed: int
    known: int
    outcomes_left_out: int
    sentences: tuple[str, ...]  # what the user should look at


class BatchRecord(_BatchEvent):
    """How a batch was decided.

    Its objects are the tables ``decisions`` and ``scores``, and the document ``comparison`` with
    CAL.
    """

    kind = "decided"
    decided: bool  # False where the corpus certificate was refused
    refusal: Refusal | None
    deployment: int | None
    judge: str | None
    certificates: tuple[str, ...]
    rows: int
    tasks: int
    decisions: Mapping[str, int]
    reasons: Mapping[str, int]
    asked: Mapping[str, int]  # rows by the reason for which reviewers are asked
    drawn_tasks: int
    runs: int  # of the delivery, as are the next five
    new: int
    changed: int
    known: int
    dropped: Mapping[str, int]
    outcomes_left_out: int
    findings: tuple[Mapping[str, str], ...]
    bill: Mapping[str, Any] | None  # cost of an endpoint judge
    promises: tuple[str, ...]  # which of the two, and of what
    ledger: Head  # the last event that was seen

    @property
    def remarks(self) -> list[str]:
        """What the user should look at: findings and the refusal, with their codes."""
        found = [f"{item['code']}: {item['message']}" for item in self.findings]
        return [*found, *([str(self.refusal)] if self.refusal else [])]

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object, without `bill` where there is none."""
        return self.model_dump(mode="json", exclude={"bill"} if self.bill is None else None)


class ProvisionalBatch(_BatchEvent):
    """Runs of a decided batch that wait for a certificate of their own."""

    kind = "provisional"
    runs: int
    deployment: int  # whose judge scored them


class UndoneBatch(_BatchEvent):
    """A batch that was taken back: it is in no queue and no figure, and its runs may come again."""

    kind = "undone"


class ClosedBatch(_BatchEvent):
    """What the labels of a draw decided.

    Its object is the table ``closed``, with what became of every provisional run.
    """

    kind = "closed"
    state: str  # certified or to_reviewers
    labels_sequence: int  # number of the event of the last label that was read
    labels_used: int
    outcomes: Mapping[str, int]  # of the drawn runs that were labelled; the first of them count
    certificates: tuple[Mapping[str, Any], ...]  # a `BatchCertificate` a side
    decisions: Mapping[str, int]
    reasons: Mapping[str, int]


class _SharedEvent(Payload):
    """Something that happened to the provisional runs of several batches, the oldest first."""

    batches: tuple[str, ...]

    @property
    def batch(self) -> str:
        """Last batch, whose name a draw has."""
        return self.batches[-1]

    @property
    def subject(self) -> str:
        """Name of the last batch."""
        return self.batch


class DrawnBatch(_SharedEvent):
    """Provisional runs that were frozen, and the seed of their draw.

    Its object is the document ``audit``.
    """

    kind = "drawn"
    batch_sha256: str  # of plan, runs and scores, from before the seed was chosen
    draws: int  # of the same or of overlapping runs so far, this one included
    seed: int


class UndrawnBatches(_SharedEvent):
    """Provisional runs of batches that reviewers got without a draw."""

    kind = "undrawn"
    why: str  # empty where no plan was expected to save labels


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


def follow(store: Store, connection: sa.Connection, rows: Sequence[Event[Any]]) -> None:
    """Bring the index of runs to the state after batches were received or taken back."""
    names = ("trajectory_id", "content_sha256", "task_id", "agent")
    for row in rows:
        about = parse_json(row.payload)
        corpus, batch = row.corpus, about["batch"]
        if row.kind == UndoneBatch.kind:
            mine = known_runs.c.corpus == corpus, known_runs.c.batch == batch
            connection.execute(known_runs.delete().where(*mine))
            continue
        table = store.objects.get_arrow(about["objects"]["identities"], names)
        columns = (table.column(name).to_pylist() for name in names)
        runs = enumerate(zip(*columns, strict=True))
        found = (
            (corpus, name, batch, bytes.fromhex(content), task, agent, place)
            for place, (name, content, task, agent) in runs
        )
        insert(connection, known_runs, found)


def known_tasks(corpus: Corpus, tasks: AbstractSet[str]) -> set[str]:
    """Return those of some tasks of which a batch has runs already."""
    query = sa.select(known_runs.c.task).distinct().where(known_runs.c.corpus == corpus.name)
    return {row.task for row in corpus.store.indexed(query, known_runs.c.task, tasks)}


@remembered
def ready_batches(corpus: Corpus, *, undone: bool = False) -> list[str]:
    """Return the received batches, decided or not, the oldest first; undone ones if asked."""
    # a name begins with the number of the batch
    names = corpus.store.subjects(corpus.name, ReceivedBatch)
    return names if undone else _standing(corpus, names)


@remembered
def batch_names(corpus: Corpus) -> list[str]:
    """Return the decided batches, the oldest first."""
    return _standing(corpus, corpus.store.subjects(corpus.name, BatchRecord))


def waiting_batches(corpus: Corpus) -> list[str]:
    """Return the batches that were received and not decided, the oldest first."""
    return sorted({*ready_batches(corpus)} - {*batch_names(corpus)})


def is_undone(corpus: Corpus, batch: str) -> bool:
    """Whether a batch was taken back."""
    return batch in _undone(corpus)


def _standing(corpus: Corpus, names: Sequence[str]) -> list[str]:
    gone = _undone(corpus)
    return [name for name in names if name not in gone]


@remembered
def _undone(corpus: Corpus) -> frozenset[str]:
    return frozenset(corpus.store.subjects(corpus.name, UndoneBatch))


def is_decided(corpus: Corpus, batch: str) -> bool:
    """Whether a batch has its decisions."""
    return corpus.last(BatchRecord, batch) is not None


def received(corpus: Corpus, batch: str) -> ReceivedBatch:
    """Return what was received as a batch."""
    found = corpus.last(ReceivedBatch, batch)
    if found is None:
        raise unknown_batch(corpus, batch)
    return found.content


def decided(corpus: Corpus, batch: str) -> Event[BatchRecord]:
    """Return how a batch was decided, with its place in the ledger and its time."""
    found = corpus.last(BatchRecord, batch)
    if found is None:
        raise unknown_batch(corpus, batch)
    return found


def unknown_batch(corpus: Corpus, batch: str) -> InputError:
    """Return the error of a batch that is not there."""
    known = ", ".join(ready_batches(corpus)[-_SHOWN:]) or "none"
    return InputError(f"{corpus} has no batch {batch!r}. Its last ones are {known}.")


def identities_of(corpus: Corpus, batch: str) -> pd.DataFrame:
    """Return what tells the runs of a batch apart, and which of them came before."""
    return corpus.store.objects.get_table(received(corpus, batch).objects["identities"])


def decisions_sha256(corpus: Corpus, batch: str) -> str:
    """Return the hash of the first decisions of a batch."""
    return decided(corpus, batch).content.objects["decisions"]


def draw_of(corpus: Corpus, batch: str) -> str | None:
    """Return the name of the draw of the provisional runs of a batch.

    None if there are no such runs, or if they wait for a draw. Empty if they went to reviewers
    without a draw.
    """
    found = _last_draws(corpus).get(batch)
    # a draw of which a batch was taken back is none
    if found is None or any(is_undone(corpus, name) for name in found.batches):
        return None
    return found.batch if isinstance(found, DrawnBatch) else ""


def closing_of(corpus: Corpus, draw: str) -> Event[ClosedBatch] | None:
    """Return what closed a draw; None while it is open."""
    return corpus.last(ClosedBatch, draw)


def open_draws(corpus: Corpus) -> list[str]:
    """Return the names of the draws that are not closed, the oldest first."""
    closed = closed_batches(corpus)
    return [name for name in corpus.store.subjects(corpus.name, DrawnBatch) if name not in closed]


def closed_batches(corpus: Corpus) -> set[str]:
    """Return the names of all draws that are closed."""
    return set(corpus.store.subjects(corpus.name, ClosedBatch))


def changed_batches(corpus: Corpus, event: Event[Any]) -> Iterator[str]:
    """Iterate over the batches whose decisions an event changes."""
    if event.kind in (DrawnBatch.kind, UndrawnBatches.kind):
        yield from parse_json(event.payload)["batches"]
    elif event.kind in (BatchRecord.kind, UndoneBatch.kind, ClosedBatch.kind):
        yield event.subject
        drawn = _last_draws(corpus).get(event.subject)
        if drawn is not None and event.kind != BatchRecord.kind:
            yield from drawn.batches


@remembered
def _last_draws(corpus: Corpus) -> dict[str, DrawnBatch | UndrawnBatches]:
    """Return the last draw that each batch had a part in, taken back since or not."""
    entries: list[Event[Any]] = [
        *corpus.events(DrawnBatch),
        *corpus.events(UndrawnBatches),
    ]
    # what the step under way adds has no number yet, and comes last
    entries.sort(key=lambda entry: (not entry.sequence, entry.sequence))
    return {name: said for said in [entry.content for entry in entries] for name in said.batches}


def received_version(corpus: Corpus) -> str:
    """Return the version of the batches of a corpus."""
    return _version(corpus, ReceivedBatch, UndoneBatch)


def decided_version(corpus: Corpus) -> str:
    """Return the version of the decisions on a corpus."""
    return _version(corpus, BatchRecord, UndoneBatch, UndrawnBatches, DrawnBatch, ClosedBatch)


def _version(corpus: Corpus, *kinds: type[Payload]) -> str:
    """Return a hash of the last event of each kind, whenever it was."""
    last = [corpus.last(kind) for kind in kinds]
    said = [item and item.content.model_dump(mode="json", exclude={"ledger"}) for item in last]
    return sha256_bytes(canonical_json(said))


def operation_key(corpus: str, *parts: str) -> str:
    """Return the storage key of a file or folder of the operation of a corpus."""
    return "/".join(("operations", corpus, *parts))


def batch_runs(corpus: Corpus, batch: str) -> pd.DataFrame:
    """Return the trajectories of a batch, with the columns of `corpora.schema.ARROW_SCHEMA`."""
    from certify_assets.corpora.schema import read_trajectories

    with runs_file(corpus, batch) as path:
        return read_trajectories(path)


def runs_file(corpus: Corpus, batch: str) -> AbstractContextManager[Path]:
    """Give the trajectories of a batch as a file of this machine, which must not be changed."""
    return corpus.store.objects.as_file(received(corpus, batch).objects["runs"])


def batch_run(corpus: Corpus, batch: str, name: str) -> Trajectory:
    """Return one run of a batch."""
    with runs_file(corpus, batch) as path:
        found = stored_runs(path, {name})
    if name not in found:
        raise InputError(f"{batch} of {corpus} has no run {name!r}. Check the id.")
    return found[name]


def stored_runs(path: Path, names: AbstractSet[str]) -> dict[str, Trajectory]:
    """Return those of some runs that are in a table of trajectories."""
    import pyarrow.parquet as pq

    wanted = [("trajectory_id", "in", list(names))]
    table = pq.read_table(path, columns=list(COLUMNS), partitioning=None, filters=wanted)
    found = {}
    for row in table.to_pylist():
        exchanges = row.pop("steps") or ()
        steps = (Step(step["action"] or "", step["observation"] or "") for step in exchanges)
        found[row["trajectory_id"]] = Trajectory(**row, steps=tuple(steps))
    return found
