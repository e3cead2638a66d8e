"""What happened to provisional runs: they were drawn, left to reviewers, or decided by labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.files import parse_json
from certify_assets.operations.batch_record import BatchRecord, UndoneBatch, is_undone
from certify_assets.storage.events import Event, Payload, TypedEvent
from certify_assets.storage.snapshot import remembered


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
