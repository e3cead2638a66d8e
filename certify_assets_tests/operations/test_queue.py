from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.review_queue import QUEUE_COLUMNS, Queue
from certify_assets.storage.store import Store
from certify_assets_tests.review_builders import decided, queue_of, write_batch

_TOKENS = itertools.count()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def say(store: Store, *said: tuple[str, int | None, str]) -> None:
    append_labels(
        Corpus(store, "c"),
        [Label(run, outcome, who, "page", f"t{next(_TOKENS)}") for run, outcome, who in said],
    )


def names(queue: Queue) -> list[str]:
    found: list[str] = queue.frame["trajectory_id"].tolist()
    return found


def test_kinds_come_in_the_order_of_need_and_unasked_runs_not_at_all(store: Store) -> None:
    rows = [
        decided("a/0", asked="undecided"),
        decided("d/0", asked="audit_sample", score=2.0),
        decided("e/0", score=-2.0),
    ]
    write_batch(store, rows)
    queue = queue_of(store)
    assert names(queue) == ["d/0", "a/0"] and tuple(queue.frame.columns) == QUEUE_COLUMNS
    assert queue.frame["place"].tolist() == [1, 2]
    assert queue.frame["why"].tolist() == ["random check", "not decided"]


def test_a_tie_asks_a_third_at_the_top_of_its_kind_and_a_majority_settles_it(store: Store) -> None:
    write_batch(
        store,
        [
            decided(f"{name}/0", asked="undecided", score=score)
            for name, score in {"a": 0.2, "b": 0.3}.items()
        ],
    )
    say(store, ("b/0", 1, "ann"), ("b/0", 0, "bob"))
    queue = queue_of(store)
    assert names(queue)[0] == "b/0" and queue.frame["why"].iloc[0] == "reviewers are tied"
    assert queue.frame["reviews"].iloc[0] == 2 and queue.budget.kinds[2].disputed == 1
    say(store, ("b/0", 0, "cyd"))
    assert names(queue_of(store)) == ["a/0"]
    say(store, ("b/0", 1, "dan"))
    assert names(queue_of(store))[0] == "b/0", "two against two is a tie again"


def test_a_share_of_runs_is_asked_of_two_people(store: Store) -> None:
    write_batch(store, [decided(f"r{number}/0", asked="undecided") for number in range(400)])
    queue = queue_of(store, double=0.25)
    twice = set(queue.frame.loc[queue.frame["labels"] == 2, "trajectory_id"])
    # binomial standard error of 400 draws at .25: 8.7
    assert abs(len(twice) - 100) < 4 * 8.7 and queue.budget.labels == 400 + len(twice)
    say(store, *[(f"r{number}/0", 1, "ann") for number in range(400)])
    assert set(names(queue_of(store, double=0.25))) == twice
    assert twice < set(queue_of(store, double=0.6).frame["trajectory_id"]), (
        "a higher share keeps what a lower one drew"
    )


def test_the_budget_counts_labels_minutes_and_what_the_certificate_saved(store: Store) -> None:
    rows = [decided(f"a/{n}", asked="audit_sample", score=-2.0, attempt=n) for n in range(3)]
    rows += [
        decided("d/0", asked="undecided"),
        decided("e/0", score=2.0),
        decided("f/0", score=-2.0),
    ]
    write_batch(store, rows)
    budget = queue_of(store).budget
    assert [(kind.kind, kind.runs, kind.tasks, kind.labels) for kind in budget.kinds] == [
        ("batch_draw", 0, 0, 0),
        ("audit_sample", 3, 1, 3),
        ("undecided", 1, 1, 1),
    ]
    assert (budget.labels, budget.minutes, budget.decided, budget.saved, budget.saved_minutes) == (
        4,
        24.0,
        6,
        2,
        12.0,
    )
    assert budget.to_dict()["kinds"][1]["minutes"] == 18.0


def test_nothing_decided_is_an_empty_queue(store: Store) -> None:
    queue = queue_of(store)
    assert (
        queue.frame.empty
        and tuple(queue.frame.columns) == QUEUE_COLUMNS
        and queue.budget.labels == 0
    )
    assert set(QUEUE_COLUMNS).isdisjoint({"agent", "score", "decision", "reason"})
