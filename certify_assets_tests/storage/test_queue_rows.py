"""Rows of the review queue follow from the events: the same as from all decisions and labels."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.batch_audit import batch_audits
from certify_assets.operations.batch_drawing import close_batches
from certify_assets.operations.batches import UndoneBatch
from certify_assets.operations.decisions import ASKED, load_decisions
from certify_assets.operations.labels import Label, append_labels, read_labels, resolve_labels
from certify_assets.operations.review_index import ReviewState, TwiceReviewed, labels, queue
from certify_assets.operations.review_queue import load_queue
from certify_assets.storage.care import rebuild
from certify_assets.storage.store import Store
from certify_assets_tests.operations_builders import ProvisionalBatch, agreeing, audit_of
from certify_assets_tests.review_builders import decided, write_batch

REVIEWERS = ("ann", "bob", "cyd")


def rows_of(store: Store) -> list[tuple[object, ...]]:
    with store.database.reading() as connection:
        found = [connection.execute(sa.select(table)).all() for table in (labels, queue)]
    return sorted((*row,) for rows in found for row in rows)


def ordered(corpus: Corpus, double: float) -> dict[str, dict[str, Any]]:
    """Order the runs that wait as docs/review.md says, from decisions, labels and draws alone."""
    audits = [audit for audit in batch_audits(corpus)[0] if audit.closing is None]
    wanted = [name for audit in audits for name in audit.wanted]
    drawn = {name for audit in audits for name in audit.order}
    votes = resolve_labels(read_labels(corpus))
    rows: dict[str, dict[str, Any]] = {}
    for row in load_decisions(corpus).to_dict("records"):
        name = row["trajectory_id"]
        # of a run that was decided twice the later row
        if row["asked"] or name in drawn:
            rows[name] = {str(key): value for key, value in row.items()}
    for name, row in rows.items():
        found = votes.get(name)
        settled = found is not None and found.outcome is not None
        if name in wanted or (not row["asked"] and name in drawn and settled):
            row["asked"] = "batch_draw"
        place = int(hashlib.sha256(f"two\0{name}".encode()).hexdigest()[:16], 16) / 2**64
        row["who"] = {who for who, _ in found.votes} if found else set()
        row["tied"] = found is not None and not settled
        row["lacks"] = max(1 + (place < double) - len(row["who"]), row["tied"])
    rows = {name: row for name, row in rows.items() if row["asked"] and row["lacks"] > 0}
    for name, row in rows.items():
        kind, task = row["asked"], row["task_id"]
        away = [abs(row["score"] - row[f"{side}_threshold"]) for side in ("reject", "release")]
        near: tuple[Any, ...] = (wanted.index(name) + 1 if name in wanted else 0, task)
        if kind == "audit_sample":
            near = (row["batch"], task)
        elif kind == "undecided":
            unscored, undecidable = np.isnan(row["score"]), np.isnan(away).all()
            near = (0,) if unscored else (2,) if undecidable else (1, np.nanmin(away))
        last = (row["batch"], row["attempt"], name)
        row["key"] = (ASKED.index(kind), not row["tied"], *near, *last)
    return dict(sorted(rows.items(), key=lambda item: item[1]["key"]))


def require_same(store: Store, double: float) -> None:
    corpus = Corpus(store, "c")
    expected, state = ordered(corpus, double), ReviewState(corpus)
    names = list(expected)
    assert state.next_runs("nobody", len(names) + 1) == names
    assert state.count_waiting("nobody") == len(names)
    for who in REVIEWERS:
        mine = [name for name in names if who not in expected[name]["who"]]
        assert state.next_runs(who, len(names) + 1) == mine
        assert state.count_waiting(who) == len(mine)
    assert state.tied() == sum(row["tied"] for row in expected.values())
    open_audits = [audit for audit in batch_audits(corpus)[0] if audit.closing is None]
    assert state.settled_draws() == [one.record.batch for one in open_audits if not one.wanted]
    frame = load_queue(corpus).frame
    assert frame["trajectory_id"].tolist() == names
    assert frame["labels"].tolist() == [row["lacks"] for row in expected.values()]


def say(store: Store, chance: random.Random, names: list[str], most: int) -> None:
    said = [
        Label(name, outcome, who, "page", f"{chance.random()}")
        for name, who, outcome in zip(
            chance.choices(names, k=most),
            chance.choices(REVIEWERS, k=most),
            chance.choices((0, 1, None), (4, 4, 1), k=most),
            strict=True,
        )
    ]
    append_labels(Corpus(store, "c"), said)


@pytest.mark.parametrize("seed", range(3))
def test_the_index_is_the_queue_after_every_event(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    names, double = list[str](), 0.0
    for number in range(3):
        rows = [
            decided(
                # some runs come again in a later batch
                f"t{chance.randrange(6)}/{place}",
                asked=chance.choice(("audit_sample", "audit_sample", "undecided", "")),
                score=chance.choice((-2.0, 0.1, 0.7, float("nan"))),
                attempt=place,
                reason=chance.choice(("middle", "new_agent")),
            )
            for place in range(12 * (number % 2), 12 * (number % 2) + 12)
        ]
        write_batch(store, rows, batch=f"{number:04d}")
        names += [row["trajectory_id"] for row in rows]
        require_same(store, double)
        for most in (1, 5, 1):
            say(store, chance, names, most)
            require_same(store, double)
        double = chance.choice((0.0, 0.3, 1.0))
        store.append("c", TwiceReviewed(share=double))
        require_same(store, double)
    # nobody is asked about the later rows of runs any more
    write_batch(store, [row | {"asked": ""} for row in rows[::2]] + rows[1::2], batch="0002")
    require_same(store, double)
    store.append("c", UndoneBatch(batch="0002"))
    require_same(store, double)
    before = rows_of(store)
    rebuild(store)
    assert rows_of(store) == before


def test_the_index_follows_an_open_draw(provisional: ProvisionalBatch) -> None:
    store, chance = provisional.store, random.Random(1)
    agree = agreeing(audit_of(provisional))
    for double in (0.0, 0.4):
        store.append("c", TwiceReviewed(share=double))
        for _ in range(4):
            say(store, chance, list(audit_of(provisional).order)[:20], 4)
            require_same(store, double)
    while wanted := audit_of(provisional).wanted:
        said = [
            Label(name, agree[name], who, "cli", f"{who} {name} {len(wanted)}")
            for name in wanted
            for who in (*REVIEWERS, "dan", "eve")
        ]
        append_labels(Corpus(store, "c"), said)
        require_same(store, 0.4)
    close_batches(Corpus(store, "c"))
    require_same(store, 0.4)
    before = rows_of(store)
    rebuild(store)
    assert rows_of(store) == before
