"""Outcomes that become known after a decision: a CI result, a revert, a refund."""

# An outcome stands in for a reviewer's label in the monitor, where its run was drawn before it was
# scored and no reviewer has settled it. Whether an outcome gets known may depend on what it is: a
# refund is only ever of a failure. So a task that needs an outcome takes its place in the order of
# the draw, and waits for every task before it. What is read is then the beginning of a sequence
# that was fixed before any outcome, and the monitor's alarm is false with probability at most δ at
# every length (Ville's inequality), as long as reviewers settle tasks in the order of the draw, in
# which they are asked. For another order of theirs there is no proof. Outcomes of other runs are no
# random sample: they are counted and shown, and feed nothing.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from certify_assets.certificates.inputs import UNCLEAR
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, quoted
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.operations.audit_sample import completed_at, drawn_decisions
from certify_assets.operations.labels import (
    Label,
    LabelPrefix,
    Resolved,
    labels_head,
    read_labels,
    resolve_labels,
)
from certify_assets.storage.events import Payload
from certify_assets.storage.moment import remembered
from certify_assets.storage.store import Store
from certify_assets.tables.run_labels import RunLabels
from certify_assets.tables.settings import ReadingOptions

if TYPE_CHECKING:
    import pandas as pd

#: decisions, and the outcome that says that they were wrong
_WRONG: Final = {"reject": 1, "release": 0}
_WORDS: Final = ("a failure", "a success")
_MOST_SOURCE = 80


class OutcomeKnown(Payload):
    """An outcome of a run got known; the token of the event names source and run."""

    kind = "outcome_known"
    trajectory_id: str
    outcome: Literal[0, 1]
    source: str

    @property
    def subject(self) -> str:
        """Run that it is of."""
        return self.trajectory_id


@dataclass(frozen=True)
class ImportedOutcomes:
    """What a file of outcomes added, and what it could not."""

    added: int
    stood_already: int
    without_outcome: int
    unknown: tuple[str, ...]  # runs that no batch decided
    read_as: tuple[str, ...]


@dataclass(frozen=True)
class DecidedOutcome:
    """A run with a known outcome: how it was decided, and what the outcome may do."""

    trajectory_id: str
    decision: str
    outcome: int
    source: str
    #: monitor; labelled, where the label of reviewers counts instead; or not_drawn
    use: str
    label: int | None  # of the majority of reviewers
    #: sources that said the opposite of this run
    denied_by: tuple[str, ...] = ()

    @property
    def wrong(self) -> bool:
        """Whether the judge decided otherwise."""
        return _WRONG.get(self.decision) == self.outcome

    @property
    def contradicted(self) -> bool:
        """Whether reviewers or another source said otherwise."""
        return bool(self.denied_by) or (self.label is not None and self.label != self.outcome)


def import_outcomes(
    corpus: Corpus, path: Path, reading: ReadingOptions, *, source: str
) -> ImportedOutcomes:
    """Add the outcomes of a file, by trajectory_id: all of them, or none where one is at fault.

    The same file again adds nothing. Runs that no batch decided are left out and named.

    Raises
    ------
    InputError
        If the file cannot be read, names no decided run, or contradicts an earlier outcome of the
        same source.
    """
    if not source.strip() or len(source) > _MOST_SOURCE or not source.isprintable():
        raise InputError(
            f"--source is {quoted(source)}. Give a readable name of up to {_MOST_SOURCE} letters."
        )
    found = RunLabels.read(path, reading)
    known = set(drawn_decisions(corpus)["trajectory_id"])
    said = {name: outcome for name, outcome in found.outcomes.items() if outcome != UNCLEAR}
    taken = [
        OutcomeKnown(trajectory_id=name, outcome=outcome, source=source)  # type: ignore[arg-type]
        for name, outcome in said.items()
        if name in known
    ]
    if not taken:
        raise InputError(
            f"{path} has no outcome of a decided run of {corpus}. Check that its trajectory_id are "
            "those of the runs."
        )
    added = _append(corpus, path, taken)
    return ImportedOutcomes(
        added=added,
        stood_already=len(taken) - added,
        without_outcome=len(found.outcomes) - len(said),
        unknown=tuple(name for name in said if name not in known),
        read_as=found.read_as,
    )


def _append(corpus: Corpus, path: Path, said: Sequence[OutcomeKnown]) -> int:
    """Append what is not stored yet; return how much that is."""
    tokens = {_token(item): item for item in said}

    added = 0

    def work(view: Store) -> dict[str, OutcomeKnown]:
        nonlocal added
        stored = {event.token: event for event in view.among(corpus.name, "token", tokens)}
        added = len(tokens) - len(stored)
        for token, event in stored.items():
            before = event
            if before.content.outcome != tokens[token].outcome:
                item = tokens[token]
                raise InputError(
                    f"{path} says {_WORDS[item.outcome]} of {quoted(item.trajectory_id)}, and "
                    f"{item.source} said {_WORDS[1 - item.outcome]} on {before.time[:10]}. "
                    "Correct the row, or name another source with --source."
                )
        return tokens

    corpus.store.short(corpus.name, work)
    return added


def _token(item: OutcomeKnown) -> str:
    """Name a statement: a source says one thing of a run."""
    named = canonical_json([item.source, item.trajectory_id])
    return f"outcome:{sha256_bytes(named)}"


@remembered
def read_outcomes(corpus: Corpus) -> list[Label]:
    """Return the outcomes that got known, as labels of one reviewer: of a run the last one counts.

    A step that reads them commits even where more of them come meanwhile.
    """
    events = corpus.store.events(corpus.name, OutcomeKnown, watched=False)
    found = []
    for event in events:
        said = event.content
        label = Label(said.trajectory_id, said.outcome, "outcome", "file", event.token, said.source)
        found.append(replace(label, number=event.sequence, time=event.time))
    return found


def known_head(corpus: Corpus) -> LabelPrefix:
    """Return the labels and outcomes so far, by the last one."""
    last = corpus.last(OutcomeKnown, watched=False)
    known = LabelPrefix(last.sequence, last.sha256) if last else LabelPrefix()
    return max(labels_head(corpus), known)


def standing_in(labels: Iterable[Label], outcomes: Iterable[Label]) -> list[Label]:
    """Return the outcomes of runs that no label of reviewers settles."""
    settled = {name for name, one in resolve_labels(labels).items() if one.outcome is not None}
    return [item for item in outcomes if item.trajectory_id not in settled]


def stream_places(
    labels: Sequence[Label], outcomes: Sequence[Label], tasks: Mapping[str, Sequence[str]]
) -> dict[str, int]:
    """Return the number of the event with which each task comes into a monitor's stream.

    Parameters
    ----------
    labels, outcomes : sequence of Label
        Labels of reviewers, and all outcomes that became known.
    tasks : mapping of str to sequence of str
        Runs that need an outcome, by their tasks in the order of the draw.

    Returns
    -------
    dict of str to int
        Number of the label that completed the task, or of the event by which this task and all
        tasks before it were complete: the smaller one. So no outcome decides which tasks the
        monitor sees.
    """
    places = completed_at(labels, tasks)
    if not outcomes:
        return places
    together = completed_at(labels, tasks, outcomes)
    reached = 0
    for task in tasks:
        if task not in together:
            break
        reached = max(reached, together[task])
        places[task] = min(places.get(task, reached), reached)
    return places


def decided_outcomes(corpus: Corpus) -> list[DecidedOutcome]:
    """Return every run with a known outcome, in the order in which these came."""
    said = read_outcomes(corpus)
    found = {item.trajectory_id: item for item in said}
    denied: dict[str, list[str]] = {}
    for item in said:
        if item.outcome != found[item.trajectory_id].outcome:
            denied.setdefault(item.trajectory_id, []).append(item.comment)
    labels = resolve_labels(read_labels(corpus))
    every = drawn_decisions(corpus)
    # of a run that was decided twice the later decision; a batch may have been taken back since
    rows = every[every["trajectory_id"].isin(list(found))].drop_duplicates(
        "trajectory_id", keep="last"
    )
    rows = rows.set_index("trajectory_id")
    return [
        _decided(item, rows.loc[name], labels.get(name), denied.get(name, ()))
        for name, item in found.items()
        if name in rows.index
    ]


def _decided(
    item: Label, row: pd.Series[Any], said: Resolved | None, denied_by: Iterable[str]
) -> DecidedOutcome:
    assert item.outcome is not None
    label, use = None if said is None else said.outcome, "monitor"
    if not row["drawn"]:
        use = "not_drawn"
    elif label is not None:
        use = "labelled"
    return DecidedOutcome(
        item.trajectory_id,
        str(row["decision"]),
        item.outcome,
        item.comment,
        use,
        label,
        tuple(dict.fromkeys(denied_by)),
    )


def outcome_counts(corpus: Corpus) -> dict[str, int]:
    """Count the runs with a known outcome, those decided wrongly, and those that others deny."""
    found = decided_outcomes(corpus)
    return {
        "runs": len(found),
        "wrong": sum(item.wrong for item in found),
        "contradicted": sum(item.contradicted for item in found),
    }
