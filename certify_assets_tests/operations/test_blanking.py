"""A reviewer's name is taken out, and the ledger still verifies."""

from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations.labels import Label, append_labels, blank_reviewer, read_labels
from certify_assets.operations.review_index import ReviewState
from certify_assets.storage.care import verify
from certify_assets.storage.store import Store


def test_a_name_goes_and_the_chain_still_verifies(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    said = (("r1", 1, "Ann Example"), ("r2", 0, "Ann Example"), ("r1", 0, "bob"))
    labels = [
        Label(run, outcome, reviewer, "file", f"{run} {reviewer}", comment=f"by {reviewer}")
        for run, outcome, reviewer in said
    ]
    append_labels(Corpus(store, "c"), labels)
    with pytest.raises(InputError, match="other has no labels"):
        blank_reviewer(store, "other", "bob")
    # whose name is gone is not known any more
    assert blank_reviewer(store, "c", "carla") == 0
    assert blank_reviewer(store, "c", "Ann Example") == 2
    verify(store)
    now = [
        (item.trajectory_id, item.outcome, item.reviewer)
        for item in read_labels(Corpus(store, "c"))
    ]
    assert now == [("r1", 1, "reviewer 1"), ("r2", 0, "reviewer 1"), ("r1", 0, "bob")]
    assert ReviewState(Corpus(store, "c")).reviewers() == ["bob", "reviewer 1"]
    with store.database.reading() as connection:
        rows = connection.exec_driver_sql("SELECT payload FROM events").fetchall()
    assert "Ann" not in str(rows) and "by bob" in str(rows)
    # what is stored afterwards follows the chain
    append_labels(Corpus(store, "c"), [Label("r3", 1, "bob", "file", "r3 bob")])
    assert blank_reviewer(store, "c", "bob") == 2
    verify(store)
