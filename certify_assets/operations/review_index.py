"""Indexes of labels and of the review queue: rows that follow from the events of a corpus."""

# A label changes the row of its run, those of its audit task and those of its open draw. A batch
# that is decided, drawn, closed or taken back gets its rows again, from its decisions as they are
# then. So the rows depend on the events up to now alone, however they came.

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sqlalchemy as sa

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import Trajectory
from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import parse_json
from certify_assets.operations.audit_sample import not_covered
from certify_assets.operations.batch_audit import opened_draw
from certify_assets.operations.batch_record import (
    changed_batches,
    closing_of,
    draw_of,
    is_decided,
    is_undone,
)
from certify_assets.operations.delivery import known_runs
from certify_assets.operations.labels import GoldLabelled, Label, Labelled
from certify_assets.operations.layout import ASKED, batch_run, decisions_of, drawn_runs
from certify_assets.storage.database import insert, number_column, parts, tables, text_column
from certify_assets.storage.events import Event, Payload
from certify_assets.storage.snapshot import Snapshot
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

#: why a reviewer is asked, the most needed first
KINDS: Final = tuple(kind for kind in ASKED if kind)
# a row has the place of its kind
_DRAW, _AUDIT, _SPOT, _UNDECIDED = range(len(KINDS))
# of a drawn run that nothing else asks about
_UNASKED: Final = len(KINDS)
GOLD: Final = GoldLabelled.kind
_SAID: Final = (Labelled.kind, GOLD)

Row = dict[str, Any]

#: what each reviewer said last of a run
labels = sa.Table(
    "labels",
    tables,
    text_column("corpus", primary_key=True),
    text_column("run", primary_key=True),
    text_column("reviewer", primary_key=True),
    # of a run of known outcome, which measures the reviewer
    sa.Column("gold", sa.Boolean, primary_key=True),
    # none where it was taken back
    sa.Column("outcome", sa.Integer),
    text_column("via"),
    # of the event
    number_column("sequence"),
    sa.Index("labels_reviewer", "corpus", "reviewer", "via", "sequence", "gold", "outcome"),
)
#: runs that reviewers are asked about, labelled or not
queue = sa.Table(
    "queue",
    tables,
    text_column("corpus", primary_key=True),
    text_column("run", primary_key=True),
    # what the decisions say: why it is asked about, whether it counts for its audit task, how near
    # it is to a threshold, and the open draw that it is in, else empty
    text_column("batch"),
    text_column("task"),
    number_column("attempt"),
    number_column("asked"),
    sa.Column("covered", sa.Boolean, nullable=False),
    # -1 without a score, infinite without a threshold
    sa.Column("distance", sa.Float, nullable=False),
    text_column("draw"),
    # place in [0, 1) that decides whether two reviewers are wanted
    sa.Column("place", sa.Float, nullable=False),
    number_column("wanted"),
    # what labels and the draw say: votes, whether they are tied, and the place in the draw of a run
    # that it wants now
    number_column("votes"),
    number_column("tied"),
    sa.Column("rank", sa.Float),
    number_column("side"),
    # what follows from both: labels that it lacks, and its order among those that lack some
    number_column("lacking"),
    number_column("need"),
    number_column("calm"),
    number_column("lack"),
    text_column("since"),
    sa.Column("near", sa.Float, nullable=False),
    text_column("together"),
    sa.Index("queue_batch", "corpus", "batch"),
    sa.Index("queue_task", "corpus", "task"),
    # every label changes rows: what it leaves must be cleared away soon
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.02},
)
_BEFORE: Final = ("need", "calm", "lack", "since", "near", "together")
QUEUE_ORDER: Final = (
    *(queue.c[name] for name in _BEFORE),
    *(queue.c.tied.desc(), queue.c.batch, queue.c.attempt, queue.c.run),
)
#: rows that wait, those that wait for another reviewer, and those of open draws; written out, since
#: a database uses an index of some rows only where it sees that no others are asked for
WAITS: Final = sa.text("lacking > 0")
WAITS_AGAIN: Final = sa.text("lacking > 0 AND votes > 0")
IN_DRAW: Final = sa.text("draw <> ''")
for _name, _columns, _rows in (
    ("queue_order", QUEUE_ORDER, WAITS),
    ("queue_again", (queue.c.run,), WAITS_AGAIN),
    ("queue_draw", (queue.c.draw, queue.c.votes, queue.c.rank), IN_DRAW),
):
    sa.Index(_name, queue.c.corpus, *_columns, sqlite_where=_rows, postgresql_where=_rows)


class TwiceReviewed(Payload):
    """From now on two reviewers are asked about this share of runs."""

    kind = "twice_reviewed"
    share: float


def follow(store: Store, connection: sa.Connection, rows: Sequence[Event]) -> None:
    """Bring the indexes to the state after these events."""
    for corpus, mine in groupby(rows, key=lambda row: row.corpus):
        _Indexes.of(store, connection, corpus).follow(list(mine))


@dataclass(frozen=True)
class ReviewState:
    """What the indexes say of a corpus now."""

    corpus: Corpus
    #: whether known runs count as those of the queue
    gold: bool = False

    @property
    def share(self) -> float:
        """Share of runs about which two reviewers are asked."""
        last = self.corpus.store.last(self.corpus.name, TwiceReviewed, watched=False)
        return 0.0 if last is None else last.content.share

    def ordered(self, share: float, left_out: Collection[str] = ()) -> list[Row]:
        """Return the rows that wait, the most needed first.

        Two reviewers are asked about the given share of runs, and nobody about some draws.
        """
        query = sa.select(queue).where(queue.c.corpus == self.corpus.name)
        rows = [dict(row._mapping) for row in self.corpus.store.indexed(query)]
        for row in rows:
            row["wanted"] = _wanted(row["place"], share)
            if row["draw"] in left_out:
                row.update(draw="", rank=None)
            _order_row(row)
        _order_tasks(rows)
        return sorted((row for row in rows if row["lacking"]), key=_place)

    def next_runs(self, reviewer: str, most: int) -> list[str]:
        """Return the first runs of the queue that a reviewer may label, the most needed first."""
        waits = self._waits(queue.c.run).where(~_said_by(reviewer))
        return list(self._scalars(waits.order_by(*QUEUE_ORDER).limit(most)))

    def count_waiting(self, reviewer: str) -> int:
        """Count the runs of the queue that a reviewer may label."""
        waits = self._waits(sa.func.count())
        own = waits.where(WAITS_AGAIN, _said_by(reviewer))
        return int(sum(self._scalars(waits)) - sum(self._scalars(own)))

    def waiting(self, names: Collection[str], reviewer: str = "") -> set[str]:
        """Return those of some runs that wait for a label, of this reviewer where one is given."""
        waits = self._waits(queue.c.run)
        query = waits.where(~_said_by(reviewer)) if reviewer else waits
        return {row.run for row in self.corpus.store.indexed(query, queue.c.run, names)}

    def tied(self) -> int:
        """Count the runs that wait since their reviewers are tied."""
        return sum(self._scalars(self._waits(sa.func.count()).where(queue.c.tied == 1)))

    def settled_draws(self) -> list[str]:
        """Return the open draws that want no label any more."""
        query = sa.select(queue.c.draw).where(queue.c.corpus == self.corpus.name, IN_DRAW)
        wants = sa.func.count(queue.c.rank) == 0
        return list(self._scalars(query.group_by(queue.c.draw).having(wants)))

    def row(self, name: str) -> Row | None:
        """Return the row of a run that is asked about, labelled or not."""
        query = sa.select(queue).where(queue.c.corpus == self.corpus.name)
        found = list(self.corpus.store.indexed(query, queue.c.run, [name]))
        return dict(found[0]._mapping) if found else None

    def run(self, name: str) -> Trajectory:
        """Return a run that is asked about."""
        row = self.row(name)
        if row is None:
            raise InputError(f"nobody is asked about {name!r} any more; go back to the queue.")
        return batch_run(self.corpus, row["batch"], name)

    def reviewers(self) -> list[str]:
        """Return the names of all reviewers."""
        return sorted(self._scalars(self._labels(labels.c.reviewer).distinct()))

    def answered(self, reviewer: str) -> set[str]:
        """Return the runs of which a reviewer has a valid label."""
        return set(self._scalars(self._valid(labels.c.run, reviewer)))

    def count_labelled(self, reviewer: str) -> int:
        """Count the runs of which a reviewer has a valid label."""
        return sum(self._scalars(self._valid(sa.func.count(), reviewer)))

    def last_labels(self, reviewer: str, most: int) -> list[Label]:
        """Return the last valid labels of a reviewer on the page, the last first."""
        query = self._valid(labels.c.sequence, reviewer).where(labels.c.via == "page")
        numbers = self._scalars(query.order_by(labels.c.sequence.desc()).limit(most))
        rows = self.corpus.store.among(self.corpus.name, "sequence", numbers)
        return [Label.of(row) for row in rows][::-1]

    def statements(self, name: str, reviewer: str) -> list[Label]:
        """Return all that a reviewer said of a run, the oldest first."""
        store, corpus = self.corpus.store, self.corpus.name
        rows = [row for kind in _SAID for row in store.rows(corpus, kind, name, watched=False)]
        said = sorted(map(Label.of, rows), key=lambda label: label.number)
        return [label for label in said if label.reviewer == reviewer]

    def label(self, number: int) -> Label | None:
        """Return the label with a number."""
        return self._said(self.corpus.store.among(self.corpus.name, "sequence", [number]))

    def with_token(self, token: str) -> Label | None:
        """Return the label with a token."""
        return self._said(self.corpus.store.among(self.corpus.name, "token", [token]))

    def _said(self, found: Sequence[Event]) -> Label | None:
        return Label.of(found[0]) if found and found[0].kind in _SAID else None

    def _waits(self, *columns: Any) -> sa.Select[Any]:
        return sa.select(*columns).where(
            # by its needs, so that the database takes the index of those that wait
            queue.c.corpus == self.corpus.name,
            queue.c.need.in_(range(len(KINDS))),
            WAITS,
        )

    def _labels(self, column: Any) -> sa.Select[Any]:
        query = sa.select(column).where(labels.c.corpus == self.corpus.name)
        return query if self.gold else query.where(labels.c.gold.is_(False))

    def _valid(self, column: Any, reviewer: str) -> sa.Select[Any]:
        mine = (labels.c.reviewer == reviewer, labels.c.outcome.is_not(None))
        return self._labels(column).where(*mine)

    def _scalars(self, query: sa.Select[Any]) -> Sequence[Any]:
        return [row[0] for row in self.corpus.store.indexed(query) if row[0] is not None]


def _said_by(reviewer: str) -> sa.Exists:
    return sa.exists(
        sa.select(1).where(
            labels.c.corpus == queue.c.corpus,
            labels.c.run == queue.c.run,
            labels.c.reviewer == reviewer,
            labels.c.gold.is_(False),
            labels.c.outcome.is_not(None),
        )
    )


@dataclass(frozen=True)
class _Indexes:
    """The rows of a corpus in a transaction that writes."""

    corpus: Corpus
    connection: sa.Connection

    @classmethod
    def of(cls, store: Store, connection: sa.Connection, corpus: str) -> _Indexes:
        # a snapshot of what the transaction sees, its own events included
        return cls(Corpus(Snapshot.within(store, connection), corpus), connection)

    def follow(self, rows: Sequence[Event]) -> None:
        said = [row for row in rows if row.kind in _SAID]
        self.label(said)
        changed: set[str] = set()
        for row in rows:
            changed.update(changed_batches(self.corpus, row))
            if row.kind == TwiceReviewed.kind:
                self._share(TwiceReviewed.model_validate_json(row.payload).share)
        if changed:
            self.queue(sorted(changed))
        named = {row.subject for row in said if row.kind != GOLD}
        self._count(list(self._rows(queue.c.run, named)))
        for draw in sorted({row["draw"] for row in self._rows(queue.c.run, named)} - {""}):
            self._rank(draw)

    def label(self, said: Sequence[Event]) -> None:
        """Store what was said last."""
        last: dict[tuple[str, str, bool], tuple[Any, ...]] = {}
        for row in said:
            about = parse_json(row.payload)
            key = row.subject, about["reviewer"], row.kind == GOLD
            last[key] = (*key, about["outcome"], about["via"], row.sequence)
        if not last:
            return
        names = ("run", "reviewer", "gold")
        same = (labels.c[name] == sa.bindparam(f"its_{name}") for name in names)
        gone = labels.delete().where(labels.c.corpus == self.corpus.name, *same)
        its = [f"its_{name}" for name in names]
        self.connection.execute(gone, [dict(zip(its, key, strict=True)) for key in last])
        insert(self.connection, labels, ((self.corpus.name, *row) for row in last.values()))

    def queue(self, batches: Collection[str]) -> None:
        """Make the rows of batches again from their decisions."""
        added: dict[str, Row] = {}
        for batch in batches:
            if is_decided(self.corpus, batch) and not is_undone(self.corpus, batch):
                added |= _asked_rows(self.corpus, batch, ReviewState(self.corpus).share)
        gone = list(self._rows(queue.c.batch, batches))
        lost = {row["run"] for row in gone} - added.keys()
        if earlier := self._holding(lost) - {*batches}:
            # a run that came again has its earlier row where nobody is asked about the later one
            self.queue(sorted({*batches, *earlier}))
            return
        for row in list(self._rows(queue.c.run, added)):
            # of a run that was decided twice the later row
            if row["batch"] in batches:
                continue
            if row["batch"] > added[row["run"]]["batch"]:
                del added[row["run"]]
            else:
                gone.append(row)
        self._drop([row["run"] for row in gone])
        self._count(list(added.values()), {row["task"] for row in gone})
        for draw in sorted({row["draw"] for row in added.values()} - {""}):
            self._rank(draw)

    def _holding(self, names: Collection[str]) -> set[str]:
        """Return the batches that hold some of these runs."""
        query = sa.select(known_runs.c.batch).where(known_runs.c.corpus == self.corpus.name)
        found: set[str] = set()
        for part in parts(list(names)):
            found.update(self.connection.scalars(query.where(known_runs.c.run.in_(part))))
        return found

    def _share(self, share: float) -> None:
        query = sa.select(queue).where(queue.c.corpus == self.corpus.name)
        rows = [dict(row._mapping) for row in self.connection.execute(query).all()]
        self._order([row | {"wanted": _wanted(row["place"], share)} for row in rows])

    def _rows(self, column: sa.Column[Any], values: Iterable[Any]) -> Iterator[Row]:
        query = sa.select(queue).where(queue.c.corpus == self.corpus.name)
        for part in parts(list(values)):
            for row in self.connection.execute(query.where(column.in_(part))).all():
                yield dict(row._mapping)

    def _count(self, rows: Sequence[Row], tasks: Collection[str] = ()) -> None:
        """Store rows with their labels; tasks that lost a run are ordered again."""
        votes = self._votes(row["run"] for row in rows)
        for row in rows:
            said, right = votes.get(row["run"], (0, 0))
            row.update(votes=said, tied=int(said > 0 and 2 * right == said))
        self._order(rows, tasks)

    def _rank(self, draw: str) -> None:
        """Bring the rows of an open draw to its labels."""
        mine = (queue.c.corpus == self.corpus.name, queue.c.draw == draw, IN_DRAW)
        runs = sa.select(queue.c.run).where(*mine)
        votes = self._votes(self.connection.scalars(runs.where(queue.c.votes > 0)))
        known = {
            name: int(2 * right > said)
            for name, (said, right) in votes.items()
            if 2 * right != said
        }
        try:
            wanted = opened_draw(self.corpus, draw).asked(known)
        except IntegrityError:
            # the label is stored; who asks for the draw gets the sentence
            return
        ranked = self.connection.scalars(runs.where(queue.c.rank.is_not(None)))
        changed = []
        for row in self._rows(queue.c.run, {*wanted, *ranked}):
            rank, side = wanted.get(row["run"], (None, 0))
            if row["draw"] == draw and (row["rank"], row["side"]) != (rank, side):
                changed.append(row | {"rank": rank, "side": side})
        self._order(changed)

    def _order(self, rows: Iterable[Row], tasks: Collection[str] = ()) -> None:
        """Store rows, with the order that follows for them and for their audit tasks."""
        found = {row["run"]: row for row in rows}
        audits = (row["task"] for row in found.values() if row["asked"] == _AUDIT)
        others = self._rows(queue.c.task, {*tasks, *audits})
        found = {row["run"]: row for row in others} | found
        for row in found.values():
            _order_row(row)
        _order_tasks(found.values())
        self._drop(found)
        columns = queue.columns.keys()
        insert(self.connection, queue, (tuple(map(row.get, columns)) for row in found.values()))

    def _drop(self, names: Iterable[str]) -> None:
        for part in parts(list(names)):
            mine = (queue.c.corpus == self.corpus.name, queue.c.run.in_(part))
            self.connection.execute(queue.delete().where(*mine))

    def _votes(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return labels and successes of those of some runs that have labels."""
        found: dict[str, tuple[int, int]] = {}
        query = sa.select(labels.c.run, sa.func.count(), sa.func.sum(labels.c.outcome)).where(
            labels.c.corpus == self.corpus.name,
            labels.c.gold.is_(False),
            labels.c.outcome.is_not(None),
        )
        for part in parts(list(names)):
            mine = query.where(labels.c.run.in_(part)).group_by(labels.c.run)
            for name, said, right in self.connection.execute(mine):
                found[name] = said, int(right)
        return found


def _asked_rows(corpus: Corpus, batch: str, share: float) -> dict[str, Row]:
    """Return the rows of a batch, by run, before any label."""
    frame = decisions_of(corpus, batch)
    draw = draw_of(corpus, batch) or ""
    draw = draw if draw and closing_of(corpus, draw) is None else ""
    drawn = set(drawn_runs(corpus, draw)) if draw else set()
    frame = frame[frame["asked"].isin(KINDS) | frame["trajectory_id"].isin(drawn)]
    columns = {
        "run": frame["trajectory_id"],
        "task": frame["task_id"],
        "attempt": frame["attempt"].astype(int),
        "asked": frame["asked"].map(lambda kind: KINDS.index(kind) if kind else _UNASKED),
        "covered": ~not_covered(frame),
        "distance": _nearest_threshold(frame),
    }
    found = {}
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        row: Row = dict(zip(columns, values, strict=True))
        place = _share_place(row["run"])
        row.update(corpus=corpus.name, batch=batch, draw=draw if row["run"] in drawn else "")
        wanted = _wanted(place, share)
        row.update(place=place, wanted=wanted, votes=0, tied=0, rank=None, side=0)
        found[row["run"]] = row
    return found


def _order_row(row: Row) -> None:
    """Set what follows for a run by itself."""
    # one that the draw wants, or that has the label of a draw
    in_draw = bool(row["draw"] and row["votes"] and not row["tied"])
    drawn = row["rank"] is not None or (row["asked"] == _UNASKED and in_draw)
    need = _DRAW if drawn else row["asked"]
    row.update(need=need, calm=1 - row["tied"], lack=0, since="", near=0.0, together="")
    row["lacking"] = 0 if need == _UNASKED else max(row["wanted"] - row["votes"], row["tied"])
    if row["rank"] is not None:
        row.update(since=row["draw"], near=row["rank"], together=str(row["side"]))
    elif need == _UNDECIDED:
        row["near"] = row["distance"]
    else:
        row.update(since=row["batch"] if need == _SPOT else "", together=row["task"])


def _order_tasks(rows: Iterable[Row]) -> None:
    """Set what follows for the runs of audit tasks, which count only together."""
    audits = [row for row in rows if row["need"] == _AUDIT]
    task = itemgetter("task")
    for _, found in groupby(sorted(audits, key=task), key=task):
        mine = list(found)
        waiting = [row for row in mine if row["lacking"]]
        for row in mine:
            row.update(
                calm=1 - any(one["tied"] for one in waiting),
                lack=sum(one["lacking"] for one in waiting if one["covered"]),
                since=min((one["batch"] for one in waiting), default=""),
            )


def _place(row: Row) -> tuple[Any, ...]:
    """Return what `QUEUE_ORDER` sorts a row by."""
    before = (row[name] for name in _BEFORE)
    return (*before, -row["tied"], row["batch"], row["attempt"], row["run"])


def _wanted(place: float, share: float) -> int:
    return 1 + (place < share)


def _share_place(run: str) -> float:
    """Return a place in [0, 1): runs below a share are reviewed twice."""
    digest = hashlib.sha256(f"two\0{run}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64


def _nearest_threshold(frame: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the distance of scores to the nearest threshold; -1 unscored, infinite without."""
    score = frame["score"].to_numpy(np.float64)
    thresholds = frame[["reject_threshold", "release_threshold"]].to_numpy(np.float64)
    away = np.nan_to_num(np.abs(score[:, None] - thresholds), nan=np.inf)
    return np.where(np.isnan(score), -1.0, away.min(axis=1, initial=np.inf))
