"""Rows of the review queue follow from the events: the same as from all decisions and labels."""

from __future__ import annotations

import random

import pytest
import sqlalchemy as sa

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.batch_record import UndoneBatch
from certify_assets.operations.batches import close_batches
from certify_assets.operations.labels import Label, append_labels
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


def require_same(store: Store, double: float) -> None:
    corpus = Corpus(store, "c")
    expected = load_queue(corpus, double=double)
    state, frame = ReviewState(corpus), expected.frame
    names = frame["trajectory_id"].tolist()
    assert state.next_runs("nobody", len(names) + 1) == names
    assert state.count_waiting("nobody") == len(names)
    for who in REVIEWERS:
        mine = [name for name in names if who not in expected.reviewers.get(name, ())]
        assert state.next_runs(who, len(names) + 1) == mine
        assert state.count_waiting(who) == len(mine)
    assert [state.task_labels(name) for name in names] == frame["task_labels"].tolist()
    assert state.tied() == expected.budget.disputed
    assert state.settled_draws() == list(expected.settled)


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
                asked=chance.choice(
                    ("audit_sample", "audit_sample", "spot_check", "undecided", "")
                ),
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
            say(store, chance, list(audit_of(provisional).record.order)[:20], 4)
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
