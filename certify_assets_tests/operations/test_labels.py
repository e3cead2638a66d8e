from __future__ import annotations

from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import ChangedInputError, InputError
from certify_assets.operations.labels import (
    Label,
    append_label,
    append_labels,
    labels_head,
    read_labels,
    resolve_labels,
    reviewed_key,
    write_label_table,
)
from certify_assets.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def said(trajectory: str, outcome: int | None, reviewer: str, token: str) -> Label:
    return Label(trajectory, outcome, reviewer, "page", token)


def test_a_label_stands_in_the_journal_with_its_number(store: Store) -> None:
    first, second = append_labels(
        Corpus(store, "one"), [said("a", 1, "ann", "t1"), said("b", 0, "ann", "t2")]
    )
    assert (first.number, second.number) == (1, 2) and first.time.endswith("+00:00")
    assert (
        read_labels(Corpus(store, "one")) == [first, second]
        and read_labels(Corpus(store, "two")) == []
    )


def test_labels_up_to_one_of_them_stay_the_same(store: Store) -> None:
    corpus = Corpus(store, "one")
    assert read_labels(corpus) == [] and labels_head(corpus).sequence == 0
    first = append_label(corpus, said("a", 1, "ann", "t1"))
    append_label(Corpus(store, "one"), said("a", 0, "ann", "t2"))
    corpus.store.refresh()
    assert len(read_labels(corpus)) == 2 and read_labels(corpus, first.number) == [first]
    assert labels_head(corpus).sequence == 2


def test_a_token_is_written_once(store: Store) -> None:
    first = append_label(Corpus(store, "one"), said("a", 1, "ann", "t1"))
    assert (
        append_label(Corpus(store, "one"), said("a", 1, "ann", "t1")) == first
        and len(read_labels(Corpus(store, "one"))) == 1
    )
    with pytest.raises(InputError, match="label 1 of one has the token 't1' and another content"):
        append_labels(Corpus(store, "one"), [said("b", 0, "ann", "t2"), said("a", 0, "ann", "t1")])
    assert len(read_labels(Corpus(store, "one"))) == 1


def test_the_last_word_of_every_reviewer_counts_and_a_tie_is_none() -> None:
    votes = [
        said("a", 1, "ann", "1"),
        said("a", 0, "bob", "2"),
        said("b", 1, "ann", "3"),
        said("b", None, "ann", "4"),
        said("c", 1, "ann", "5"),
    ]
    found = resolve_labels(votes)
    assert list(found) == ["a", "c"] and found["a"].outcome is None and found["a"].disputed
    assert found["c"].outcome == 1 and not found["c"].disputed
    third = resolve_labels([*votes, said("a", 0, "cyd", "6")])["a"]
    assert (
        third.outcome == 0
        and third.disputed
        and third.votes == (("ann", 1), ("bob", 0), ("cyd", 0))
    )


def test_a_table_of_labels_does_not_replace_one_that_came_meanwhile(store: Store) -> None:
    corpus = Corpus(store, "one")
    with pytest.raises(ChangedInputError), corpus.writing():
        write_label_table(corpus)
        store.write_bytes(reviewed_key("one"), b"of more labels")
    assert store.read_bytes(reviewed_key("one")) == b"of more labels"
