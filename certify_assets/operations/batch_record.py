"""What happened to batches of new runs: they were received, decided, taken back."""

# A batch is its events: `received` names its runs, `decided` its decisions, and `undone` takes it
# back. Its name has the number of the batch and the hash of the delivery. The same files are thus
# the same batch, however often they are given.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.files import parse_json
from certify_assets.storage.events import Event, Head, Payload, TypedEvent
from certify_assets.storage.moment import remembered

if TYPE_CHECKING:
    import pandas as pd


_SHOWN: Final = 5

#: codes of a refusal, in the order in which they are checked
REFUSALS: Final = (
    "not_deployed",
    "stale_certificate",
    "no_certificate",
    "corrected_labels",
    "failed_audit",
    "alarm",
)


@dataclass(frozen=True)
class Refusal:
    """Why the corpus certificate decides nothing: a code of `REFUSALS`, the fault, its remedy."""

    code: str
    sentence: str


class ReceivedBatch(Payload):
    """Runs that were imported, compared with those before them, and drawn from.

    Its objects are the tables ``runs`` and ``identities`` and the documents ``draw`` and ``files``,
    the SHA-256 of every file that was read.
    """

    kind = "received"
    batch: str
    number: int  # of the batch, from 1
    delivery_sha256: str
    format: str
    paths: tuple[str, ...]
    dropped: Mapping[str, int]  # records that could not be used, by reason
    examples: Mapping[str, str]
    rows: int  # of the batch
    # of the delivery, which may be of several batches
    runs: int
    new: int
    changed: int
    known: int
    outcomes_left_out: int
    sentences: tuple[str, ...]  # what the user should look at

    @property
    def subject(self) -> str:
        """Name of the batch."""
        return self.batch


class BatchRecord(Payload):
    """How a batch was decided.

    Its objects are the tables ``decisions`` and ``scores``, and the document ``comparison`` with
    CAL.
    """

    kind = "decided"
    batch: str
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
    drawn_tasks: Mapping[str, int]
    runs: int  # of the delivery, as are the next five
    new: int
    changed: int
    known: int
    dropped: Mapping[str, int]
    outcomes_left_out: int
    findings: tuple[Mapping[str, str], ...]
    bill: Mapping[str, Any] | None  # cost of an endpoint judge
    new_agents: str  # the policy of the corpus; empty where none was asked
    promises: tuple[str, ...]  # which of the two, and of what
    ledger: Head  # the last event that was seen

    @property
    def subject(self) -> str:
        """Name of the batch."""
        return self.batch

    @classmethod
    def load(cls, corpus: Corpus, batch: str) -> BatchRecord:
        """Return how a batch was decided."""
        return decided(corpus, batch).content

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object, without `bill` where there is none."""
        return self.model_dump(mode="json", exclude={"bill"} if self.bill is None else None)


class ProvisionalBatch(Payload):
    """Runs of a decided batch that wait for a certificate of their own."""

    kind = "provisional"
    batch: str
    runs: int
    deployment: int  # whose judge scored them

    @property
    def subject(self) -> str:
        """Name of the batch."""
        return self.batch


class UndoneBatch(Payload):
    """A batch that was taken back: it is in no queue and no figure, and its runs may come again."""

    kind = "undone"
    batch: str

    @property
    def subject(self) -> str:
        """Name of the batch."""
        return self.batch


@remembered
def ready_batches(corpus: Corpus, *, undone: bool = False) -> list[str]:
    """Return the received batches, decided or not, the oldest first; undone ones if asked."""
    # a name begins with the number of the batch
    names = corpus.store.subjects(corpus.name, ReceivedBatch)
    return names if undone else _standing(corpus, names)


@remembered
def batch_names(corpus: Corpus, *, undone: bool = False) -> list[str]:
    """Return the decided batches, the oldest first; undone ones if asked."""
    names = corpus.store.subjects(corpus.name, BatchRecord)
    return names if undone else _standing(corpus, names)


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
    return corpus.store.last(corpus.name, BatchRecord, batch) is not None


def received(corpus: Corpus, batch: str) -> ReceivedBatch:
    """Return what was received as a batch."""
    found = corpus.store.last(corpus.name, ReceivedBatch, batch)
    if found is None:
        raise unknown_batch(corpus, batch)
    return found.content


def decided(corpus: Corpus, batch: str) -> TypedEvent[BatchRecord]:
    """Return how a batch was decided, with its place in the ledger and its time."""
    found = corpus.store.last(corpus.name, BatchRecord, batch)
    if found is None:
        raise unknown_batch(corpus, batch)
    return found


def unknown_batch(corpus: Corpus, batch: str) -> InputError:
    """Return the error of a batch that is not there."""
    known = ", ".join(ready_batches(corpus)[-_SHOWN:]) or "none"
    return InputError(f"{corpus} has no batch {batch!r}; its last ones are {known}.")


def identities_of(corpus: Corpus, batch: str) -> pd.DataFrame:
    """Return what tells the runs of a batch apart, and which of them came before."""
    return corpus.store.objects.get_table(received(corpus, batch).objects["identities"])


def decisions_sha256(corpus: Corpus, batch: str) -> str:
    """Return the hash of the first decisions of a batch."""
    return decided(corpus, batch).content.objects["decisions"]


class DrawnBatch(Payload):
    """Provisional runs that were frozen, and the seed of their draw.

    Its object is the document ``audit``.
    """

    kind = "drawn"
    batches: tuple[str, ...]  # whose runs they are, the oldest first
    batch_sha256: str  # of plan, runs and scores, from before the seed was chosen
    draws: int  # of the same or of overlapping runs so far, this one included
    seed: int

    @property
    def batch(self) -> str:
        """Last batch of the draw, whose name the draw has."""
        return self.batches[-1]

    @property
    def subject(self) -> str:
        """Name of the draw."""
        return self.batch


class UndrawnBatches(Payload):
    """Provisional runs of batches that reviewers got without a draw."""

    kind = "undrawn"
    batches: tuple[str, ...]
    why: str  # empty where no plan was expected to save labels

    @property
    def subject(self) -> str:
        """Last of the batches."""
        return self.batches[-1]


class ClosedBatch(Payload):
    """What the labels of a draw decided.

    Its object is the table ``closed``, with what became of every provisional run.
    """

    kind = "closed"
    batch: str
    state: str  # certified or to_reviewers
    labels_sequence: int  # number of the event of the last label that was read
    labels_used: int
    outcomes: Mapping[str, int]  # of the drawn runs that were labelled; the first of them count
    certificates: tuple[Mapping[str, Any], ...]  # a `BatchCertificate` a side
    decisions: Mapping[str, int]
    reasons: Mapping[str, int]

    @property
    def subject(self) -> str:
        """Name of the draw."""
        return self.batch


def read_draws(corpus: Corpus) -> list[TypedEvent[DrawnBatch]]:
    """Return all draws of a corpus, the oldest first."""
    return corpus.store.events(corpus.name, DrawnBatch)


def draw_of(corpus: Corpus, batch: str) -> str | None:
    """Return the name of the draw of the provisional runs of a batch.

    None where they have none: there are no such runs, or they wait for it. Empty where reviewers
    got them without one.
    """
    found = last_draw_of(corpus, batch)
    # a draw of which a batch was taken back is none
    if found is None or any(is_undone(corpus, name) for name in found.batches):
        return None
    return found.batch if isinstance(found, DrawnBatch) else ""


def last_draw_of(corpus: Corpus, batch: str) -> DrawnBatch | UndrawnBatches | None:
    """Return the last draw that a batch had a part in, whether one was taken back since or not."""
    return _last_draws(corpus).get(batch)


def closing_of(corpus: Corpus, draw: str) -> TypedEvent[ClosedBatch] | None:
    """Return what closed a draw; None while it is open."""
    return corpus.store.last(corpus.name, ClosedBatch, draw)


def open_draws(corpus: Corpus) -> list[str]:
    """Return the names of the draws that are not closed, the oldest first."""
    closed = closed_batches(corpus)
    return [name for name in corpus.store.subjects(corpus.name, DrawnBatch) if name not in closed]


def closed_batches(corpus: Corpus) -> set[str]:
    """Return the names of all draws that are closed."""
    return set(corpus.store.subjects(corpus.name, ClosedBatch))


def changed_batches(corpus: Corpus, event: Event) -> Iterator[str]:
    """Iterate over the batches whose decisions an event changes."""
    if event.kind in (DrawnBatch.kind, UndrawnBatches.kind):
        yield from parse_json(event.payload)["batches"]
    elif event.kind in (BatchRecord.kind, UndoneBatch.kind, ClosedBatch.kind):
        yield event.subject
        drawn = None if event.kind == BatchRecord.kind else last_draw_of(corpus, event.subject)
        yield from () if drawn is None else drawn.batches


@remembered
def _last_draws(corpus: Corpus) -> dict[str, DrawnBatch | UndrawnBatches]:
    """Return the last draw that each batch had a part in."""
    entries: list[TypedEvent[Any]] = [
        *corpus.store.events(corpus.name, DrawnBatch),
        *corpus.store.events(corpus.name, UndrawnBatches),
    ]
    # what the step under way adds has no number yet, and comes last
    entries.sort(key=lambda entry: (not entry.sequence, entry.sequence))
    return {name: entry.content for entry in entries for name in entry.content.batches}
