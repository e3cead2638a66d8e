"""Indexes of labels and of the review queue: rows that follow from the events of a corpus."""

# A label changes the row of its run and those of its open draw. A batch that is decided, drawn,
# closed or taken back gets its rows again, from its decisions as they are then. So the rows depend
# on the events up to now alone, however they came.

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sqlalchemy as sa

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.trajectory import Trajectory
from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import parse_json
from certify_assets.operations.batch_audit import opened_draw
from certify_assets.operations.batches import (
    batch_run,
    changed_batches,
    closing_of,
    draw_of,
    is_decided,
    is_undone,
    known_runs,
)
from certify_assets.operations.decisions import ASKED, decisions_of, drawn_runs
from certify_assets.operations.labels import GoldLabelled, Label, Labelled
from certify_assets.storage.database import insert, number_column, parts, tables, text_column
from certify_assets.storage.events import Event, Payload
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

#: why a reviewer is asked, the most needed first
KINDS: Final = tuple(kind for kind in ASKED if kind)
# a row has the place of its kind
_DRAW, _AUDIT, _UNDECIDED = range(len(KINDS))
# of a drawn run that nothing else asks about
_UNASKED: Final = len(KINDS)
_SAYING: Final = (Labelled, GoldLabelled)
_SAID: Final = [kind.kind for kind in _SAYING]

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
    # what the decisions say: why it is asked about, how near it is to a threshold, and the open
    # draw that it is in, else empty
    text_column("batch"),
    text_column("task"),
    number_column("attempt"),
    number_column("asked"),
    # -1 without a score, infinite without a threshold
    sa.Column("distance", sa.Float, nullable=False),
    text_column("draw"),
    # labels that are wanted, labels, and those that say success
    number_column("wanted"),
    number_column("votes"),
    number_column("successes"),
    # place in the draw of a run that it wants now
    sa.Column("rank", sa.Float),
    # what follows: why it is needed, labels that it lacks, and a text that sorts as the queue
    number_column("need"),
    number_column("lacking"),
    text_column("position"),
    sa.Index("queue_batch", "corpus", "batch"),
    # every label changes rows: what it leaves must be cleared away soon
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.02},
)
# written out, since a database uses an index of some rows only where it sees that no others are
# asked for
_WAITS: Final = sa.text("lacking > 0")
_IN_DRAW: Final = sa.text("draw <> ''")
_TIED: Final = sa.and_(queue.c.votes > 0, 2 * queue.c.successes == queue.c.votes)
for _name, _columns, _rows in (
    ("queue_order", (queue.c.position, queue.c.votes, queue.c.run), _WAITS),
    ("queue_draw", (queue.c.draw, queue.c.votes, queue.c.rank), _IN_DRAW),
):
    sa.Index(_name, queue.c.corpus, *_columns, sqlite_where=_rows, postgresql_where=_rows)


class TwiceReviewed(Payload):
    """From now on two reviewers are asked about this share of runs."""

    kind = "twice_reviewed"
    share: float


def is_tied(row: Row) -> bool:
    """Whether as many reviewers of a run say success as failure."""
    return bool(row["votes"] > 0 and 2 * row["successes"] == row["votes"])


@dataclass(frozen=True)
class ReviewState:
    """What the indexes say of a corpus now."""

    corpus: Corpus
    #: whether known runs count as those of the queue
    gold: bool = False

    @property
    def share(self) -> float:
        """Share of runs about which two reviewers are asked."""
        last = self.corpus.last(TwiceReviewed, watched=False)
        return 0.0 if last is None else last.content.share

    def ordered(self) -> list[Row]:
        """Return the rows that wait, the most needed first."""
        query = self._waits(queue).order_by(queue.c.position)
        return [dict(row._mapping) for row in self.corpus.store.indexed(query)]

    def next_runs(self, reviewer: str, most: int) -> list[str]:
        """Return the first runs of the queue that a reviewer may label, the most needed first."""
        waits = self._waits(queue.c.run, reviewer).order_by(queue.c.position)
        return list(self._scalars(waits.limit(most)))

    def count_waiting(self, reviewer: str) -> int:
        """Count the runs of the queue that a reviewer may label."""
        return sum(self._scalars(self._waits(sa.func.count(), reviewer)))

    def waiting(self, names: Collection[str], reviewer: str = "") -> set[str]:
        """Return those of some runs that wait for a label, of this reviewer where one is given."""
        query = self._waits(queue.c.run, reviewer)
        return {row.run for row in self.corpus.store.indexed(query, queue.c.run, names)}

    def tied(self) -> int:
        """Count the runs that wait since their reviewers are tied."""
        return sum(self._scalars(self._waits(sa.func.count()).where(_TIED)))

    def settled_draws(self) -> list[str]:
        """Return the open draws that want no label any more."""
        query = sa.select(queue.c.draw).where(queue.c.corpus == self.corpus.name, _IN_DRAW)
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
            raise InputError(f"{name!r} is no longer in the queue. Return to the queue.")
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

    def last_label(self, reviewer: str) -> Label | None:
        """Return the last valid label of a reviewer on the page."""
        query = self._valid(labels.c.sequence, reviewer).where(labels.c.via == "page")
        numbers = self._scalars(query.order_by(labels.c.sequence.desc()).limit(1))
        return self.label(numbers[0]) if numbers else None

    def statements(self, name: str, reviewer: str) -> list[Label]:
        """Return all that a reviewer said of a run, the oldest first."""
        store, corpus = self.corpus.store, self.corpus.name
        rows = [row for kind in _SAYING for row in store.events(corpus, kind, name, watched=False)]
        said = sorted(map(Label.of, rows), key=lambda label: label.number)
        return [label for label in said if label.reviewer == reviewer]

    def label(self, number: int) -> Label | None:
        """Return the label with a number."""
        return self._said(self.corpus.store.among(self.corpus.name, "sequence", [number]))

    def with_token(self, token: str) -> Label | None:
        """Return the label with a token."""
        return self._said(self.corpus.store.among(self.corpus.name, "token", [token]))

    def _said(self, found: Sequence[Event[Any]]) -> Label | None:
        return Label.of(found[0]) if found and found[0].kind in _SAID else None

    def _waits(self, column: Any, reviewer: str = "") -> sa.Select[Any]:
        mine = (queue.c.corpus == self.corpus.name, queue.c.position > "", _WAITS)
        query = sa.select(column).where(*mine)
        if not reviewer:
            return query
        said = sa.exists(
            sa.select(1).where(
                labels.c.corpus == queue.c.corpus,
                labels.c.run == queue.c.run,
                labels.c.reviewer == reviewer,
                labels.c.gold.is_(False),
                labels.c.outcome.is_not(None),
            )
        )
        return query.where(sa.or_(queue.c.votes == 0, ~said))

    def _labels(self, column: Any) -> sa.Select[Any]:
        query = sa.select(column).where(labels.c.corpus == self.corpus.name)
        return query if self.gold else query.where(labels.c.gold.is_(False))

    def _valid(self, column: Any, reviewer: str) -> sa.Select[Any]:
        mine = (labels.c.reviewer == reviewer, labels.c.outcome.is_not(None))
        return self._labels(column).where(*mine)

    def _scalars(self, query: sa.Select[Any]) -> Sequence[Any]:
        return [row[0] for row in self.corpus.store.indexed(query) if row[0] is not None]


def follow(store: Store, connection: sa.Connection, rows: Sequence[Event[Any]]) -> None:
    """Bring the indexes to the state after these events."""
    for corpus, mine in groupby(rows, key=lambda row: row.corpus):
        # a snapshot of what the transaction sees, its own events included
        seen = Corpus(store.within(connection), corpus)
        _Indexes(seen, connection).follow(list(mine))


@dataclass(frozen=True)
class _Indexes:
    """The rows of a corpus in a transaction that writes."""

    corpus: Corpus
    connection: sa.Connection

    def follow(self, events: Sequence[Event[Any]]) -> None:
        said = [event for event in events if event.kind in _SAID]
        self._say(said)
        if changed := {batch for event in events for batch in changed_batches(self.corpus, event)}:
            self._decide(changed)
        if any(event.kind == TwiceReviewed.kind for event in events):
            share = ReviewState(self.corpus).share
            self._update([row | {"wanted": _wanted(row["run"], share)} for row in self._rows()])
        named = {event.subject for event in said if event.kind == Labelled.kind}
        self._update(self._rows(queue.c.run, named))

    def _say(self, said: Sequence[Event[Any]]) -> None:
        """Store what was said last."""
        last: dict[tuple[str, str, bool], tuple[Any, ...]] = {}
        for event in said:
            about = parse_json(event.payload)
            key = event.subject, about["reviewer"], event.kind == GoldLabelled.kind
            last[key] = (*key, about["outcome"], about["via"], event.sequence)
        if not last:
            return
        same = [labels.c[name] == sa.bindparam(f"its_{name}") for name in ("run", "reviewer")]
        same.append(labels.c.gold == sa.bindparam("its_gold"))
        gone = labels.delete().where(labels.c.corpus == self.corpus.name, *same)
        names = ("its_run", "its_reviewer", "its_gold")
        self.connection.execute(gone, [dict(zip(names, key, strict=True)) for key in last])
        insert(self.connection, labels, ((self.corpus.name, *row) for row in last.values()))

    def _decide(self, batches: set[str]) -> None:
        """Make the rows of batches again from their decisions."""
        share = ReviewState(self.corpus).share
        added: dict[str, Row] = {}
        # of a run that was decided twice the later row
        for batch in sorted(batches):
            if is_decided(self.corpus, batch) and not is_undone(self.corpus, batch):
                added |= _asked_rows(self.corpus, batch, share)
        gone = self._rows(queue.c.batch, batches)
        lost = {row["run"] for row in gone} - added.keys()
        holding = sa.select(known_runs.c.batch).where(known_runs.c.corpus == self.corpus.name)
        for part in parts(list(lost)):
            query = holding.where(known_runs.c.run.in_(part))
            if not batches.issuperset(earlier := {*self.connection.scalars(query)}):
                # a run that came again has its earlier row where nobody is asked about the later
                self._decide(batches | earlier)
                return
        for row in self._rows(queue.c.run, added):
            if row["batch"] in batches:
                continue
            if row["batch"] > added[row["run"]]["batch"]:
                del added[row["run"]]
            else:
                gone.append(row)
        self._drop(row["run"] for row in gone)
        self._update(list(added.values()))

    def _update(self, rows: Sequence[Row]) -> None:
        """Store rows as labels and draws make them."""
        found = {row["run"]: row for row in rows}
        votes = self._votes(found)
        for name, row in found.items():
            row["votes"], row["successes"] = votes.get(name, (0, 0))
        for draw in sorted({row["draw"] for row in rows} - {""}):
            self._rank(draw, found)
        for row in found.values():
            _settle(row)
        self._drop(found)
        columns = queue.columns.keys()
        insert(self.connection, queue, (tuple(map(row.get, columns)) for row in found.values()))

    def _rank(self, draw: str, found: dict[str, Row]) -> None:
        """Add the rows of an open draw whose place its labels change."""
        mine = (queue.c.corpus == self.corpus.name, queue.c.draw == draw, _IN_DRAW)
        counted = sa.select(queue.c.run, queue.c.votes, queue.c.successes).where(*mine)
        votes = {row.run: row for row in self.connection.execute(counted.where(queue.c.votes > 0))}
        said = {name: (row.votes, row.successes) for name, row in votes.items()}
        said |= {
            name: (row["votes"], row["successes"])
            for name, row in found.items()
            if row["draw"] == draw
        }
        known = {
            name: int(2 * successes > count)
            for name, (count, successes) in said.items()
            if 2 * successes != count
        }
        tied = {name for name, (count, _) in said.items() if count} - known.keys()
        try:
            opened = opened_draw(self.corpus, draw)
        except IntegrityError:
            # the label is stored; who asks for the draw gets the sentence
            return
        wanted = {name: opened.places[name] for name in opened.wanted(known, tied)}
        ranked = sa.select(queue.c.run).where(*mine, queue.c.rank.is_not(None))
        names = {*wanted, *self.connection.scalars(ranked)}
        rows = {row["run"]: row for row in self._rows(queue.c.run, names - found.keys())}
        for name, row in (rows | found).items():
            rank = wanted.get(name)
            if row["draw"] == draw and row["rank"] != rank:
                found[name] = row | {"rank": rank}

    def _rows(self, column: sa.Column[Any] | None = None, values: Iterable[Any] = ()) -> list[Row]:
        """Return all rows, or those where a column has one of the values."""
        query = sa.select(queue).where(queue.c.corpus == self.corpus.name)
        queries = [query] if column is None else []
        if column is not None:
            queries = [query.where(column.in_(part)) for part in parts(list(values))]
        return [dict(row._mapping) for one in queries for row in self.connection.execute(one)]

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
        "distance": _nearest_threshold(frame),
    }
    found = {}
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        row: Row = dict(zip(columns, values, strict=True))
        row.update(corpus=corpus.name, batch=batch, draw=draw if row["run"] in drawn else "")
        row.update(wanted=_wanted(row["run"], share), rank=None)
        found[row["run"]] = row
    return found


def _settle(row: Row) -> None:
    """Set what follows: why a row is needed, the labels that it lacks, and its position."""
    tied = is_tied(row)
    # one that the draw wants, or that has the label of a draw
    in_draw = row["asked"] == _UNASKED and row["draw"] and row["votes"] and not tied
    need = _DRAW if row["rank"] is not None or in_draw else row["asked"]
    lacking = 0 if need == _UNASKED else max(row["wanted"] - row["votes"], int(tied))
    row.update(need=need, lacking=lacking, position="")
    if lacking:
        row["position"] = _position(row, need, tied=tied)


def _position(row: Row, need: int, *, tied: bool) -> str:
    """Return a text that sorts a row as the queue does."""
    among: tuple[Any, ...] = ("", row["task"])
    if row["rank"] is not None:
        among = (row["draw"], row["rank"])
    elif need == _AUDIT:
        among = (row["batch"], row["task"])
    elif need == _UNDECIDED:
        among = (row["distance"],)
    keys = (need, not tied, *among, row["batch"], row["attempt"], row["run"])
    return "\x01".join(map(_sortable, keys))


def _sortable(value: str | float) -> str:
    """Return a text that sorts as a value does among its like; negative numbers are alike."""
    if isinstance(value, str):
        return value
    # the bits of positive numbers sort as they do
    return "0" if value < 0 else f"1{struct.pack('>d', value).hex()}"


def _wanted(run: str, share: float) -> int:
    """Return how many reviewers are asked about a run: two about a share, drawn by names."""
    digest = hashlib.sha256(f"two\0{run}".encode()).digest()
    return 1 + (int.from_bytes(digest[:8], "big") / 2.0**64 < share)


def _nearest_threshold(frame: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the distance of scores to the nearest threshold; -1 unscored, infinite without."""
    score = frame["score"].to_numpy(np.float64)
    thresholds = frame[["reject_threshold", "release_threshold"]].to_numpy(np.float64)
    away = np.nan_to_num(np.abs(score[:, None] - thresholds), nan=np.inf)
    return np.where(np.isnan(score), -1.0, away.min(axis=1, initial=np.inf))
