"""A review session: which run a reviewer sees next, and how labels get into the journal."""

from __future__ import annotations

import hashlib
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import Trajectory, to_frame
from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.judges.base import Reason
from certify_assets.judges.explanation import reasons_of
from certify_assets.operations.agreement import Agreement, valid_labels
from certify_assets.operations.batch_record import batch_names
from certify_assets.operations.batches import close_batches
from certify_assets.operations.deployment_record import load_deployment
from certify_assets.operations.labels import Label, append_label, read_labels, resolve_labels
from certify_assets.operations.layout import RunLookup, batch_key
from certify_assets.operations.review_criteria import ReviewCriteria
from certify_assets.operations.review_gold import GoldLabel, GoldSet, read_gold_labels
from certify_assets.operations.review_queue import (
    Asked,
    Queue,
    build_queue,
    load_asked,
    queue_agreement,
)
from certify_assets.storage.store import Store

MAX_COMMENT = 2000
_MAX_NAME = 80
#: a longer time between two labels is a break
BREAK_SECONDS = 1800.0
#: latest pairs of labels that a reviewer's pace is of, and the fewest that make one
_PACE_LABELS, _PACE_LEAST = 50, 5
_LEASE_SECONDS = 600.0
_DECIDING = ("decisions.parquet", "pooled.json", "audit.json", "closing.json")


@dataclass(frozen=True)
class QueuedRun:
    """A run as a reviewer sees it."""

    run: Trajectory
    key: str  # names the run in forms: ids may contain the agent, or what a form alters
    task_labels: int  # labels that its task still lacks
    number: int  # earlier statements of this reviewer on it, so that a form sent twice is one
    left: int  # runs that this reviewer can still label, this one and skipped ones included
    skipped: int
    criterion: str = ""  # what a run of this task must do to be a success


@dataclass(frozen=True)
class JudgeDecision:
    """What the judge decided of a run; unscored and missing thresholds are NaN."""

    task_id: str
    decision: str
    reason: str
    score: float
    reject_threshold: float
    release_threshold: float
    # what adds most to the score; empty where the judge gives none, or scores otherwise now
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any], reasons: tuple[Reason, ...] = ()) -> JudgeDecision:
        """Take the decision of a row of the decisions."""
        return cls(
            task_id=str(row["task_id"]),
            decision=str(row["decision"]),
            reason=str(row["reason"]),
            score=float(row["score"]),
            reject_threshold=float(row["reject_threshold"]),
            release_threshold=float(row["release_threshold"]),
            reasons=reasons,
        )


@dataclass(frozen=True)
class Statement:
    """The last valid statement of a reviewer, with the decision of the judge where it is known."""

    label: Label
    judged: JudgeDecision | None
    # where known runs are mixed in nothing is said that they lack: no decision
    blind: bool = False
    task_id: str = ""  # where it is blind


@dataclass(frozen=True)
class ReviewPace:
    """How far a reviewer is, and how fast."""

    labelled: int  # runs that have their valid label
    #: median seconds from one label on the page to the next, breaks left out; None at first
    seconds: float | None = None
    #: pairs of labels that the median is of
    measured: int = 0


@dataclass(frozen=True)
class _View:
    """Decisions and journal, read once for each state of their files."""

    stamps: tuple[Any, ...]
    asked: Asked
    labels: Sequence[Label]
    gold: Sequence[GoldLabel]
    # all that a reviewer said, as the page shows it: of known runs as well where they are mixed in
    said: Sequence[Label]
    statements: Counter[tuple[str, str]]
    queue: Queue
    rows: dict[str, int]
    ids: dict[str, str]
    # runs with a valid label, by reviewer, once they were asked for
    answered: dict[str, set[str]] = field(default_factory=dict)

    @property
    def written(self) -> list[Label]:
        """Every line of both journals."""
        return [*self.labels, *self.gold]


def reviewer_name(given: str, known: Iterable[str]) -> str:
    """Return the known spelling of a name that differs in case or spaces alone, else the name."""
    name = " ".join(unicodedata.normalize("NFKC", given).split())
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        raise InputError(
            f"the reviewer's name {given[:_MAX_NAME]!r} is empty, too long or unreadable; give up "
            f"to {_MAX_NAME} letters."
        )
    return next((one for one in known if one.casefold() == name.casefold()), name)


def close_settled(corpus: Corpus) -> list[str]:
    """Close the provisional batches that the labels settle, and say so of each.

    Where another owner holds the corpus nothing is closed: the next label or materialization does.
    """
    open_before = _open_batches(corpus)
    try:
        audits, _ = close_batches(corpus)
    except OSError:
        # the label is stored, which is what the reviewer was promised
        return []
    return [
        f"Batch {item.sentence}"
        for item in audits
        if item.batch in open_before and item.state != "provisional"
    ]


def _open_batches(corpus: Corpus) -> set[str]:
    closed = "closing.json"
    return {
        name
        for name in batch_names(corpus)
        if not corpus.store.exists(batch_key(corpus.name, name, closed))
    }


class ReviewSession:
    """Reviewers who label the queue of one corpus at the same time, from several threads."""

    # Every statement is on the disk before the method that makes it returns. Skips and leases are
    # only in memory.

    def __init__(
        self,
        store: Store,
        corpus: str,
        *,
        double: float = 0.0,
        criteria: ReviewCriteria | None = None,
        gold: GoldSet | None = None,
    ) -> None:
        # every look is at what is stored then
        self.store = Store(store.root)
        self.corpus = corpus
        self._double = double
        self.criteria = criteria or ReviewCriteria()
        self._gold = gold
        self._lock = threading.RLock()
        self._lookup = RunLookup(store, corpus)
        self._view: _View | None = None
        # of each reviewer: runs that they were shown and have not answered, and whether as a known
        # one, in the order in which they come again: as shown, a skipped one behind the others
        self._open: dict[str, dict[str, bool]] = {}
        self._skipped: dict[str, set[str]] = {}
        self._again: dict[str, str] = {}
        self._undone: dict[str, Statement] = {}
        self._shown: dict[str, tuple[str, float]] = {}
        # what each reviewer was ever shown: only these runs they may label
        self._seen: set[tuple[str, str]] = set()
        self._unreadable: dict[str, str] = {}
        self._explained: dict[str, tuple[Reason, ...]] = {}
        self._started = datetime.now(UTC).isoformat(timespec="milliseconds")

    @property
    def blind(self) -> bool:
        """Whether known runs are mixed in, which nothing on the page may give away."""
        return self._gold is not None

    def queue(self) -> Queue:
        """Return the queue as it is now."""
        return self._now().queue

    def agreement(self) -> Agreement:
        """Return how far reviewers agree."""
        return queue_agreement(Corpus(self.store, self.corpus))

    def name(self, given: str) -> str:
        """Return a reviewer's name as the journal knows it; as `reviewer_name`."""
        return reviewer_name(given, [label.reviewer for label in self._now().said])

    def shown(self, reviewer: str) -> QueuedRun | None:
        """Return the next run; None where nothing is left but what the reviewer skipped."""
        # none that they labelled or skipped, or that another one reads now; one that they have open
        # stays, whatever joins the queue, since a known run would stay
        with self._lock:
            view = self._closed()
            while True:
                known = self._known(view, reviewer)
                waiting = self._waiting(view, reviewer)
                name = self._turn(view, reviewer, waiting, known)
                if name is None:
                    return None
                try:
                    run = self._run(view, reviewer, name)
                except (InputError, IntegrityError) as error:
                    # one run that cannot be shown must not stand in the way of the others
                    self._unreadable[name] = str(error)
                    continue
                self._shown[name] = (reviewer, time.monotonic())
                self._seen.add((reviewer, name))
                return self._queued(view, reviewer, run, waiting, known)

    def _waiting(self, view: _View, reviewer: str) -> list[str]:
        """Return the runs of the queue that wait for this reviewer, the most needed first."""
        return [
            name
            for name in view.queue.frame["trajectory_id"]
            if reviewer not in view.queue.reviewers.get(name, ()) and name not in self._unreadable
        ]

    def _known(self, view: _View, reviewer: str) -> list[str]:
        """Return the known runs that this reviewer may still be shown, in their order."""
        if self._gold is None:
            return []
        # while a run of the queue waits, its label is one of the queue
        left_out = self._answered(view, reviewer) | view.rows.keys()
        return [name for name in self._gold.order(reviewer) if name not in left_out]

    def _answered(self, view: _View, reviewer: str) -> set[str]:
        if reviewer not in view.answered:
            view.answered[reviewer] = {
                one.trajectory_id
                for journal in (view.labels, view.gold)
                for one in valid_labels(journal)
                if one.reviewer == reviewer
            }
        return view.answered[reviewer]

    def _place(self, view: _View, reviewer: str) -> int:
        """Return how many runs this reviewer was shown, of both kinds, in this session or before.

        Skipped ones count, or a run that comes after a skip would never be a known one.
        """
        seen = {name for who, name in self._seen if who == reviewer}
        return len(seen | self._answered(view, reviewer))

    def _turn(
        self, view: _View, reviewer: str, waiting: Sequence[str], known: Sequence[str]
    ) -> str | None:
        """Return the run that comes now, which is open from here on."""
        runs = dict.fromkeys(known, True) | dict.fromkeys(waiting, False)
        mine = {
            name: as_known
            for name, as_known in self._open.get(reviewer, {}).items()
            if runs.get(name) is as_known
        }
        skipped = self._skipped.setdefault(reviewer, set())
        skipped &= mine.keys()
        again = self._again.pop(reviewer, "")
        if again in runs:
            mine = {again: runs[again]} | mine
            skipped.discard(again)
        self._open[reviewer] = mine
        if (now := next((name for name in mine if name not in skipped), None)) is not None:
            return now
        fresh = [name for name in waiting if name not in mine]
        if not fresh:
            return None
        now = next((name for name in fresh if not self._leased(name, reviewer)), fresh[0])
        unshown = next((name for name in known if name not in mine), None)
        due = self._gold is not None and self._gold.is_due(reviewer, self._place(view, reviewer))
        if unshown is not None and due:
            now = unshown
        mine[now] = runs[now]
        return now

    def _run(self, view: _View, reviewer: str, name: str) -> Trajectory:
        """Return a run of the queue, or a known one."""
        frame, mine = view.asked.frame, self._open.get(reviewer, {})
        rows = frame[frame["trajectory_id"] == name]
        if self._gold is None or not mine.get(name, not len(rows)):
            return self._lookup.find(rows.iloc[0]["batch"], name)
        return self._gold.runs[name]

    def _queued(
        self,
        view: _View,
        reviewer: str,
        run: Trajectory,
        waiting: Sequence[str],
        known: Sequence[str],
    ) -> QueuedRun:
        name, mine = run.trajectory_id, self._open[reviewer]
        number, criterion = view.statements[name, reviewer], self.criteria.of(run.task_id)
        left = len(waiting)
        if self._gold is not None:
            place, fresh = self._place(view, reviewer), sum(one not in mine for one in waiting)
            unshown = sum(one not in mine for one in known)
            left += sum(mine.values()) + self._gold.coming(reviewer, place, fresh, unshown)
        labels = 0 if mine[name] else int(view.queue.frame.iloc[view.rows[name]]["task_labels"])
        skipped = len(self._skipped[reviewer])
        return QueuedRun(run, _key(name), labels, number, left, skipped, criterion)

    def unreadable(self) -> tuple[str, ...]:
        """Return why runs of the queue could not be shown, a sentence each."""
        return tuple(self._unreadable.values())

    def news(self) -> tuple[str, ...]:
        """Return which batches were certified or went to reviewers since the server was started."""
        closings = ((audit, audit.closing) for audit in self._now().asked.audits)
        return tuple(
            f"Batch {audit.sentence()}"
            for audit, closing in closings
            if closing is not None and closing.time >= self._started
        )

    def skipped(self, reviewer: str) -> int:
        """Return how many runs a reviewer skipped in this session."""
        return len(self._skipped.get(reviewer, ()))

    def say(self, reviewer: str, key: str, outcome: int, number: int, comment: str = "") -> Label:
        """Append the label of a run, named by `QueuedRun.key`, and return it as stored."""
        with self._lock:
            view = self._now()
            trajectory_id = view.ids.get(key, "")
            token = _token(trajectory_id, reviewer, number)
            sent_before = any(one.token == token for one in view.written)
            # before anything else: any other sentence would say of a run that was never shown
            # whether it is asked about, and which are the known ones
            if not sent_before and (reviewer, trajectory_id) not in self._seen:
                raise InputError(
                    f"this run was not shown to {reviewer} since the server was started; go back "
                    "to the queue."
                )
            text = comment.strip()[:MAX_COMMENT]
            label = Label(trajectory_id, outcome, reviewer, "page", token, text)
            self._require_current(view, label, number)
            written = self._append(self._of_known(view, label))
            self._open.get(reviewer, {}).pop(trajectory_id, None)
            self._skipped.get(reviewer, set()).discard(trajectory_id)
            self._undone.pop(reviewer, None)
            self._forget(reviewer, trajectory_id)
            self._closed()
            return written

    def _of_known(self, view: _View, label: Label) -> Label:
        """Return a label as one of a known run where its form was shown for one."""
        if sent := next((one for one in view.gold if one.token == label.token), None):
            return sent
        name = label.trajectory_id
        if self._gold is None or not self._open.get(label.reviewer, {}).get(name):
            return label
        return GoldLabel(**asdict(label), known=self._gold.outcomes[name])

    def _append(self, label: Label) -> Label:
        return append_label(Corpus(self.store, self.corpus), label)

    def take_back(self, reviewer: str, number: int) -> Label:
        """Take back a statement by the number of its label; its run is shown again."""
        with self._lock:
            said = self._now().written
            made = next((label for label in said if label.number == number), None)
            if made is None or made.reviewer != reviewer or made.outcome is None:
                raise InputError(f"label {number} is no label of {reviewer}; go back to the queue.")
            back = replace(made, outcome=None, via="page", token=f"undo:{number}", comment="")
            later = [
                label.token
                for label in said
                if label.number > number
                and (label.reviewer, label.trajectory_id) == (reviewer, made.trajectory_id)
            ]
            if later and back.token not in later:
                raise InputError(
                    f"{reviewer} has changed this label meanwhile. Return to the queue."
                )
            written = self._append(back)
            self._again[reviewer] = made.trajectory_id
            self._undone[reviewer] = self._statement(made)
            return written

    def undone(self, reviewer: str) -> Statement | None:
        """Return the label that the reviewer took back last, until they label or skip again."""
        return self._undone.get(reviewer)

    def pace(self, reviewer: str) -> ReviewPace:
        """Return how many runs a reviewer has labelled and how long a label takes them."""
        last: dict[str, Label] = {}
        times: list[float] = []
        for label in self._now().said:
            if label.reviewer == reviewer:
                last[label.trajectory_id] = label
                if label.via == "page":
                    times.append(datetime.fromisoformat(label.time).timestamp())
        gaps = [later - before for before, later in pairwise(times)]
        steady = [gap for gap in gaps if gap <= BREAK_SECONDS][-_PACE_LABELS:]
        labelled = sum(label.outcome is not None for label in last.values())
        seconds = median(steady) if len(steady) >= _PACE_LEAST else None
        return ReviewPace(labelled, seconds, len(steady))

    def skip(self, reviewer: str, key: str) -> None:
        """Skip an open run, named by `QueuedRun.key`, until the reviewer asks for skipped ones."""
        with self._lock:
            mine, name = self._open.get(reviewer, {}), self._now().ids.get(key, "")
            # of others nothing happens: a count of those that there are would name the known ones
            if name in mine:
                mine[name] = mine.pop(name)
                self._skipped.setdefault(reviewer, set()).add(name)
                self._undone.pop(reviewer, None)
                self._forget(reviewer, name)

    def show_skipped(self, reviewer: str) -> None:
        """Show what a reviewer skipped again, in the order of skipping."""
        with self._lock:
            self._skipped.pop(reviewer, None)

    def last(self, reviewer: str) -> Statement | None:
        """Return the last valid statement that a reviewer made on the page."""
        seen: set[str] = set()
        for label in reversed(self._now().said):
            if label.reviewer != reviewer or label.trajectory_id in seen:
                continue
            seen.add(label.trajectory_id)
            if label.outcome is not None and label.via == "page":
                return self._statement(label)
        return None

    def opened(self, reviewer: str, key: str) -> Trajectory:
        """Return a run that was shown to a reviewer, by `QueuedRun.key`."""
        with self._lock:
            view = self._now()
            name = view.ids.get(key, "")
            if (reviewer, name) not in self._seen:
                raise InputError("this run was not shown to you; go back to the queue.")
            return self._run(view, reviewer, name)

    def _statement(self, label: Label) -> Statement:
        frame, name = self._now().asked.frame, label.trajectory_id
        rows = frame[frame["trajectory_id"] == name]
        if self._gold is not None:
            run = self._gold.runs.get(name)
            task_id = run.task_id if run else "".join(rows["task_id"])
            return Statement(label, None, True, task_id)
        if not len(rows):
            return Statement(label, None)
        row = rows.iloc[0]
        return Statement(label, JudgeDecision.of(row, self._reasons(row)))

    def _reasons(self, row: Mapping[str, Any]) -> tuple[Reason, ...]:
        """Return the reasons of a decision, as the judge that is deployed now gives them."""
        name, score = str(row["trajectory_id"]), float(row["score"])
        with self._lock:
            if name not in self._explained:
                found: tuple[Reason, ...] = ()
                corpus = Corpus(self.store, self.corpus)
                try:
                    deployed = load_deployment(corpus)
                    judge = None if deployed is None else deployed.judge_on(corpus)
                    # another judge than the one that decided explains nothing
                    if judge and judge.stored_artifact.adapter_sha256 == row["adapter_sha256"]:
                        run = to_frame([self._lookup.find(row["batch"], name)])
                        ((now, reasons),) = reasons_of(judge, run)
                        found = reasons if now == score else ()
                except CertifyError:
                    # the page shows the decision, and other commands say what is wrong
                    pass
                self._explained[name] = found
            return self._explained[name]

    def _leased(self, name: str, reviewer: str) -> bool:
        who, since = self._shown.get(name, (reviewer, 0.0))
        return who != reviewer and time.monotonic() - since < _LEASE_SECONDS

    def _forget(self, reviewer: str, name: str) -> None:
        if self._again.get(reviewer) == name:
            del self._again[reviewer]
        self._shown.pop(name, None)

    def _require_current(self, view: _View, label: Label, number: int) -> None:
        before = view.statements[label.trajectory_id, label.reviewer]
        if number != before and not any(written.token == label.token for written in view.written):
            raise InputError(
                f"{label.reviewer} said something of this run since the page was shown; go back "
                "to the queue."
            )
        if any(
            written.token == label.token and written.outcome != label.outcome
            for written in view.written
        ):
            raise InputError(
                "This form was sent before, with the other outcome, which stands; take it back "
                "with Undo to change it."
            )

    def _closed(self) -> _View:
        """Close the batches that the labels settle, and return what is there then."""
        view = self._now()
        if view.queue.settled and close_settled(Corpus(self.store, self.corpus)):
            view = self._now()
        return view

    def _now(self) -> _View:
        with self._lock:
            stamps = self._stamps()
            if self._view is None or self._view.stamps != stamps:
                asked = (
                    self._view.asked
                    if self._view is not None and self._view.stamps[0] == stamps[0]
                    else load_asked(Corpus(self.store, self.corpus))
                )
                self._view = self._read(stamps, asked)
            return self._view

    def _read(self, stamps: tuple[Any, ...], asked: Asked) -> _View:
        corpus = Corpus(self.store, self.corpus)
        labels, gold = read_labels(corpus), read_gold_labels(corpus)
        queue = build_queue(asked, resolve_labels(labels), double=self._double)
        # of both journals, so that no two forms have one token
        statements = Counter((label.trajectory_id, label.reviewer) for label in [*labels, *gold])
        mixed = sorted([*labels, *gold], key=lambda label: label.time)
        runs = self._gold.runs if self._gold is not None else {}
        rows = {name: row for row, name in enumerate(queue.frame["trajectory_id"])}
        return _View(
            stamps,
            asked,
            labels,
            gold,
            mixed if self.blind else labels,
            statements,
            queue,
            rows,
            {_key(name): name for name in (*asked.frame["trajectory_id"], *runs)},
        )

    def _stamps(self) -> tuple[Any, ...]:
        head = self.store.now().head(self.corpus)
        return head, head


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _token(trajectory_id: str, reviewer: str, number: int) -> str:
    # computed, not drawn: a form that a killed server left unanswered can be sent to the next one
    return f"page:{_key(f'{_key(trajectory_id)}:{reviewer}')}:{number}"
