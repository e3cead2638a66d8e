"""A review session: which run a reviewer sees next, known ones among them, and its labels."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.trajectory import Trajectory
from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.files import canonical_json
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.batch_drawing import close_batches
from certify_assets.operations.batches import ClosedBatch, batch_names, runs_file, stored_runs
from certify_assets.operations.decisions import decision_of
from certify_assets.operations.labels import Label, append_label, comment_text, reviewer_name
from certify_assets.operations.review_index import ReviewState
from certify_assets.operations.review_queue import Queue, load_queue, queue_agreement
from certify_assets.storage.store import Store
from certify_assets.tables.agreement import Agreement
from certify_assets.tables.score_table import read_labels

_LEASE_SECONDS = 600.0
#: of what a reviewer is shown
GOLD_SHARE = 0.05


@dataclass(frozen=True)
class GoldSet:
    """Runs of known outcome, which measure reviewers, and their share of what one is shown."""

    runs: Mapping[str, Trajectory]  # without outcomes, as those of batches are
    outcomes: Mapping[str, int]
    share: Fraction
    # of the table, which no reviewer sees: places by a name alone could be computed by its owner
    seed: str

    def is_due(self, reviewer: str, place: int) -> bool:
        """Whether a place of a reviewer's queue, from 0, is for a known run."""
        return self._place(reviewer, floor(place * self.share)) == place

    def _place(self, reviewer: str, block: int) -> int:
        # one in each block of 1 / share places: the share is kept, and where in it is hidden
        first, end = ceil(block / self.share), ceil((block + 1) / self.share)
        return first + self._draw(reviewer, str(block)) % (end - first)

    def _draw(self, reviewer: str, what: str) -> int:
        digest = hashlib.sha256(f"{self.seed}\0{reviewer}\0{what}".encode()).digest()
        return int.from_bytes(digest[:8], "big")

    def coming(self, reviewer: str, place: int, others: int, most: int) -> int:
        """Count the known runs, at most `most`, that come before the last of the other runs."""
        found, block = 0, floor(place * self.share)
        while found < most:
            at = self._place(reviewer, block)
            if at >= place:
                if at - place - found >= others:
                    break
                found += 1
            block += 1
        return found

    def order(self, reviewer: str) -> list[str]:
        """Return the known runs in the order of a reviewer."""
        return sorted(self.runs, key=lambda name: self._draw(reviewer, f"run\0{name}"))


def read_gold(
    corpus: Corpus, path: Path, share: float = GOLD_SHARE
) -> tuple[GoldSet, tuple[str, ...]]:
    """Read a table of trajectory_id and outcome, and say what was understood of it."""
    ids, given, *_, table = read_labels(path)
    outcomes: dict[str, int] = {}
    for index, (name, outcome) in enumerate(zip(ids, given.tolist(), strict=True)):
        if name in outcomes or outcome < 0:
            what = "is in the table twice" if name in outcomes else "has no outcome"
            raise InputError(
                f"{path}, {table.row(index)}: {name[:80]!r} {what}. Give each run once, with its "
                "known outcome."
            )
        outcomes[name] = outcome
    found = _runs(corpus, outcomes.keys())
    for index, name in enumerate(ids):
        if name not in found:
            raise InputError(
                f"{path}, {table.row(index)}: {name[:80]!r} is neither a run of {corpus} nor of "
                "its decided batches. Correct the id, or remove the row."
            )
    seed = hashlib.sha256(canonical_json(outcomes)).hexdigest()
    return GoldSet(found, outcomes, Fraction(str(share)), seed), table.read_as


def _runs(corpus: Corpus, names: AbstractSet[str]) -> dict[str, Trajectory]:
    found: dict[str, Trajectory] = {}
    store, stored = corpus.store, corpus.key("trajectories.parquet")
    own = [store.as_file(stored)] if store.exists(stored) else []
    files = [*own, *(runs_file(corpus, batch) for batch in batch_names(corpus))]
    # of a run that came again, as it came last
    for file in files:
        with file as path:
            found |= stored_runs(path, names)
    return {name: replace(run, outcome=None) for name, run in found.items()}


@dataclass(frozen=True)
class QueuedRun:
    """A run as a reviewer sees it."""

    run: Trajectory
    key: str  # names the run in forms: ids may contain the agent, or what a form alters
    number: int  # earlier statements of this reviewer on it, so that a form sent twice is one
    left: int  # runs that this reviewer can still label, this one and skipped ones included
    labelled: int = 0  # runs that have a valid label of theirs


@dataclass(frozen=True)
class Statement:
    """The last valid statement of a reviewer, with the decision of the judge where it is known."""

    label: Label
    task_id: str = ""
    # row of the decision; None where the run is unknown now, or known runs are mixed in, of which
    # there is none to show
    judged: Mapping[str, Any] | None = None
    blind: bool = False


@dataclass
class _Desk:
    """What one reviewer has before them; only in memory."""

    # runs that they were shown and have not answered, and whether as a known one, in the order in
    # which they come again: as shown, a skipped one behind the others
    open: dict[str, bool] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    # all that they were ever shown, by `QueuedRun.key`: only these runs they may label
    seen: dict[str, str] = field(default_factory=dict)


class ReviewSession:
    """Reviewers who label the queue of one corpus at the same time, from several threads."""

    # every statement is on the disk before the method that makes it returns

    def __init__(
        self,
        store: Store,
        corpus: str,
        *,
        criteria: str = "",
        gold: GoldSet | None = None,
    ) -> None:
        self.store = Store(store.root)
        self.corpus = corpus
        #: what counts as a success
        self.criteria = criteria
        self._gold = gold
        self._lock = threading.RLock()
        self._desks: defaultdict[str, _Desk] = defaultdict(_Desk)
        # who reads a run, and since when
        self._shown: dict[str, tuple[str, float]] = {}
        self._unreadable: dict[str, str] = {}
        self._started = Corpus(self.store, corpus).store.ledger(corpus)["sequence"]

    def _now(self) -> ReviewState:
        # every look is at what is stored then
        return ReviewState(Corpus(self.store, self.corpus), gold=self.blind)

    @property
    def blind(self) -> bool:
        """Whether known runs are mixed in, which nothing on the page may reveal."""
        return self._gold is not None

    def queue(self) -> Queue:
        """Return the queue as it is now."""
        return load_queue(Corpus(self.store, self.corpus))

    def tied(self) -> int:
        """Count the runs that wait for a third reviewer."""
        return self._now().tied()

    def agreement(self) -> Agreement:
        """Return how far reviewers agree."""
        return queue_agreement(Corpus(self.store, self.corpus))

    def name(self, given: str) -> str:
        """Return a reviewer's name as it is stored; as `reviewer_name`."""
        return reviewer_name(given, self._now().reviewers())

    def shown(self, reviewer: str) -> QueuedRun | None:
        """Return the next run; None where nothing is left but what the reviewer skipped."""
        # none that they labelled or skipped, or that another one reads now; one that they have open
        # stays, whatever joins the queue, since a known run would stay
        with self._lock:
            state = self._closed()
            while True:
                known = self._known(state, reviewer)
                name = self._turn(state, reviewer, known)
                if name is None:
                    return None
                try:
                    run = self._run(state, reviewer, name)
                except (InputError, IntegrityError) as error:
                    # one run that cannot be shown must not stand in the way of the others
                    self._unreadable[name] = str(error)
                    continue
                self._shown[name] = (reviewer, time.monotonic())
                self._desks[reviewer].seen[_key(name)] = name
                return QueuedRun(
                    run,
                    _key(name),
                    number=len(state.statements(name, reviewer)),
                    left=self._left(state, reviewer, known),
                    labelled=state.count_labelled(reviewer),
                )

    def _known(self, state: ReviewState, reviewer: str) -> list[str]:
        """Return the known runs that this reviewer may still be shown, in their order."""
        if self._gold is None:
            return []
        # while a run of the queue waits, its label is one of the queue
        left_out = state.answered(reviewer) | state.waiting(self._gold.runs)
        return [name for name in self._gold.order(reviewer) if name not in left_out]

    def _place(self, state: ReviewState, reviewer: str) -> int:
        """Return how many runs this reviewer was shown, of both kinds, in this session or before.

        Skipped ones count, or a run that comes after a skip would never be a known one.
        """
        return len({*self._desks[reviewer].seen.values()} | state.answered(reviewer))

    def _turn(self, state: ReviewState, reviewer: str, known: Sequence[str]) -> str | None:
        """Return the run that comes now, which is open from here on."""
        desk = self._desks[reviewer]
        waiting = state.waiting(desk.open, reviewer) - self._unreadable.keys()
        runs = dict.fromkeys(known, True) | dict.fromkeys(waiting, False)
        mine = {
            name: as_known for name, as_known in desk.open.items() if runs.get(name) is as_known
        }
        desk.skipped &= mine.keys()
        desk.open = mine
        if (now := next((name for name in mine if name not in desk.skipped), None)) is not None:
            return now
        leased = {name for name in self._shown if self._leased(name, reviewer)}
        passed = mine.keys() | self._unreadable.keys()
        fresh = [
            name
            for name in state.next_runs(reviewer, len(passed | leased) + 1)
            if name not in passed
        ]
        if not fresh:
            return None
        unshown = next((name for name in known if name not in mine), None)
        due = self._gold is not None and self._gold.is_due(reviewer, self._place(state, reviewer))
        if unshown is not None and due:
            mine[unshown] = True
            return unshown
        now = next((name for name in fresh if name not in leased), fresh[0])
        mine[now] = False
        return now

    def _run(self, state: ReviewState, reviewer: str, name: str) -> Trajectory:
        """Return a run of the queue, or a known one."""
        if self._gold is not None and name in self._gold.runs:
            row = state.row(name)
            if self._desks[reviewer].open.get(name, row is None):
                return self._gold.runs[name]
        return state.run(name)

    def _left(self, state: ReviewState, reviewer: str, known: Sequence[str]) -> int:
        """Count the runs that this reviewer can still label, known ones that will come included."""
        mine = self._desks[reviewer].open
        waiting = state.waiting([*mine, *self._unreadable], reviewer)
        left = state.count_waiting(reviewer) - len(waiting & self._unreadable.keys())
        if self._gold is None:
            return left
        fresh = left - len(waiting & mine.keys())
        unshown = sum(one not in mine for one in known)
        place = self._place(state, reviewer)
        return left + sum(mine.values()) + self._gold.coming(reviewer, place, fresh, unshown)

    def unreadable(self) -> tuple[str, ...]:
        """Return why runs of the queue could not be shown, a sentence each."""
        return tuple(self._unreadable.values())

    def news(self) -> tuple[str, ...]:
        """Return which batches were certified or went to reviewers since the server was started."""
        corpus = Corpus(self.store, self.corpus)
        closed = corpus.store.events(self.corpus, ClosedBatch, after=self._started)
        found = (BatchAudit.load(corpus, entry.content.batch) for entry in closed)
        return tuple(f"Batch {audit.sentence}" for audit in found if audit is not None)

    def skipped(self, reviewer: str) -> int:
        """Return how many runs a reviewer skipped in this session."""
        return len(self._desks[reviewer].skipped)

    def say(self, reviewer: str, key: str, outcome: int, number: int, comment: str = "") -> Label:
        """Append the label of a run, named by `QueuedRun.key`, and return it as stored."""
        with self._lock:
            state, desk = self._now(), self._desks[reviewer]
            token = _token(key, reviewer, number)
            written = state.with_token(token)
            if written is None:
                name = desk.seen.get(key, "")
                # before anything else: any other sentence would say of a run that was never shown
                # whether it is asked about, and which are the known ones
                if not name:
                    raise InputError(
                        f"this run was not shown to {reviewer} since the server was started. "
                        "Return to the queue."
                    )
                if number != len(state.statements(name, reviewer)):
                    raise InputError(
                        f"{reviewer} has labelled this run since the page was shown. Return to the "
                        "queue."
                    )
                label = Label(name, outcome, reviewer, "page", token, comment_text(comment))
                if self._gold is not None and desk.open.get(name):
                    label = replace(label, known=self._gold.outcomes[name])
                written = append_label(state.corpus, label)
            elif written.outcome != outcome:
                raise InputError(
                    "This form was sent before with the other outcome, which counts. Use Undo to "
                    "change it."
                )
            for held in (desk.open, self._shown):
                held.pop(written.trajectory_id, None)
            self._closed()
            return written

    def take_back(self, reviewer: str, number: int) -> Label:
        """Take back a statement by the number of its label; its run is shown again."""
        with self._lock:
            state, desk = self._now(), self._desks[reviewer]
            made = state.label(number)
            if made is None or made.reviewer != reviewer or made.outcome is None:
                raise InputError(f"label {number} is not one of {reviewer}. Return to the queue.")
            back = replace(made, outcome=None, via="page", token=f"undo:{number}", comment="")
            later = [
                label.token
                for label in state.statements(made.trajectory_id, reviewer)
                if label.number > number
            ]
            if later and back.token not in later:
                raise InputError(
                    f"{reviewer} has changed this label meanwhile. Return to the queue."
                )
            written = append_label(state.corpus, back)
            desk.open = {made.trajectory_id: made.known is not None} | desk.open
            return written

    def skip(self, reviewer: str, key: str) -> None:
        """Skip an open run, named by `QueuedRun.key`, until the reviewer asks for skipped ones."""
        with self._lock:
            desk = self._desks[reviewer]
            name = desk.seen.get(key, "")
            # of others nothing happens: a count of those that there are would name the known ones
            if name in desk.open:
                desk.open[name] = desk.open.pop(name)
                desk.skipped.add(name)
                self._shown.pop(name, None)

    def show_skipped(self, reviewer: str) -> None:
        """Show what a reviewer skipped again, in the order of skipping."""
        with self._lock:
            self._desks[reviewer].skipped.clear()

    def last(self, reviewer: str) -> Statement | None:
        """Return the last valid statement that a reviewer made on the page."""
        state = self._now()
        label = state.last_label(reviewer)
        if label is None:
            return None
        row = state.row(label.trajectory_id)
        task_id = row["task"] if row else ""
        if self._gold is not None:
            run = self._gold.runs.get(label.trajectory_id)
            return Statement(label, run.task_id if run else task_id, blind=True)
        if row is None:
            return Statement(label)
        return Statement(
            label, task_id, decision_of(state.corpus, row["batch"], label.trajectory_id)
        )

    def opened(self, reviewer: str, key: str) -> Trajectory:
        """Return a run that was shown to a reviewer, by `QueuedRun.key`."""
        with self._lock:
            name = self._desks[reviewer].seen.get(key)
            if name is None:
                raise InputError("this run was not shown to you. Return to the queue.")
            return self._run(self._now(), reviewer, name)

    def _leased(self, name: str, reviewer: str) -> bool:
        who, since = self._shown.get(name, (reviewer, 0.0))
        return who != reviewer and time.monotonic() - since < _LEASE_SECONDS

    def _closed(self) -> ReviewState:
        """Close the batches that the labels settle, and return what is there then."""
        state = self._now()
        if not state.settled_draws():
            return state
        # the label is stored, whatever becomes of the batch: the next page closes it
        with suppress(CertifyError, OSError):
            close_batches(state.corpus)
        return self._now()


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _token(key: str, reviewer: str, number: int) -> str:
    # computed, not drawn: a form that a killed server left unanswered can be sent to the next one
    return f"page:{_key(f'{key}:{reviewer}')}:{number}"
