from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import sha256_bytes
from certify_assets.operations.labels import (
    Label,
    anchor_labels,
    append_label,
    append_labels,
    read_labels,
    resolve_labels,
)
from certify_assets.operations.layout import labels_key
from certify_assets.storage.journal import heads_journal, heads_key
from certify_assets.storage.store import Store

WRITER = """
import sys
from certify_assets.operations.labels import Label, append_label
from certify_assets.corpora.corpus import Corpus
from certify_assets.storage.store import Store
store, name = Store(sys.argv[1]), sys.argv[2]
for number in range(100_000):
    label = Label(f"run-{number}", number % 2, name, "page", f"{name}-{number}")
    print(append_label(Corpus(store, "one"), label).token, flush=True)
"""


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


def test_a_token_is_written_once(store: Store) -> None:
    first = append_label(Corpus(store, "one"), said("a", 1, "ann", "t1"))
    assert (
        append_label(Corpus(store, "one"), said("a", 1, "ann", "t1")) == first
        and len(read_labels(Corpus(store, "one"))) == 1
    )
    with pytest.raises(
        InputError, match="line 1 of the journal of one has the token 't1' and says something else"
    ):
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


@pytest.mark.parametrize(
    ("outcome", "reviewer", "via", "words"),
    [
        (2, "ann", "page", "neither 0, 1 nor empty"),
        (True, "ann", "page", "neither"),
        (1, " ", "page", "no reviewer"),
        (1, "ann", "fax", "by 'fax'"),
    ],
)
def test_what_is_no_label_is_refused(outcome: int, reviewer: str, via: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Label("a", outcome, reviewer, via, "t")


def test_a_torn_last_line_was_never_confirmed(store: Store) -> None:
    append_labels(Corpus(store, "one"), [said("a", 1, "ann", "t1"), said("b", 0, "ann", "t2")])
    path = store.local_path(labels_key("one"))
    path.write_bytes(path.read_bytes()[:-5])
    assert [label.token for label in read_labels(Corpus(store, "one"))] == ["t1"]
    assert append_label(Corpus(store, "one"), said("c", 0, "ann", "t3")).number == 2


def say(store: Store, first: int, last: int, reviewer: str = "ann") -> None:
    for number in range(first, last):
        append_label(
            Corpus(store, "one"), said(f"run-{number}", 1, reviewer, f"{reviewer} {number}")
        )


def named(store: Store) -> list[int]:
    """Return the lines of the journal of labels that a head names."""
    return [head.lines for head in heads_journal(store, heads_key("one")).read()]


def chained(lines: list[dict[str, object]]) -> bytes:
    """Return a journal of labels whose every line follows the one before it."""
    data, previous = b"", ""
    for number, line in enumerate(lines, 1):
        text = json.dumps(line | {"number": number, "previous": previous}, ensure_ascii=False)
        previous = sha256_bytes(text.encode())
        data += text.encode() + b"\n"
    return data


@pytest.mark.parametrize("altered", ["older_copy", "last_line", "other_tail", "removed"])
def test_labels_that_lack_a_line_that_had_a_head_are_refused(store: Store, altered: str) -> None:
    path = store.local_path(labels_key("one"))
    say(store, 0, 5)
    older = path.read_bytes()
    say(store, 5, 8)
    anchor_labels(Corpus(store, "one"))
    lines = path.read_bytes().splitlines(keepends=True)
    other = [json.loads(line) for line in lines]
    other[-1] |= {"outcome": 0}
    path.write_bytes(
        {
            "older_copy": older,
            "last_line": b"".join(lines[:-1]),
            "other_tail": chained(other),
            "removed": b"",
        }[altered]
    )
    words = (
        r"operations/one/labels\.jsonl has not line 8 that .*ledger/one\.heads\.jsonl names: lines "
        r"were cut off or an older copy was put back; restore the newest copy of the file\."
    )
    before = path.read_bytes()
    refusing: tuple[Callable[[], object], ...] = (
        lambda: read_labels(Corpus(store, "one")),
        lambda: anchor_labels(Corpus(store, "one")),
        # longer than the head says, it would be refused for good
        lambda: say(store, 8, 9),
    )
    for refused in refusing:
        with pytest.raises(IntegrityError, match=words):
            refused()
    assert path.read_bytes() == before
    path.write_bytes(b"".join(lines))
    say(store, 8, 9)
    assert len(read_labels(Corpus(store, "one"))) == 9


@pytest.mark.slow
def test_two_writers_killed_lose_nothing_that_was_confirmed(store: Store) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, store.root, name], stdout=subprocess.PIPE, text=True
        )
        for name in ("ann", "bob")
    ]
    confirmed = []
    for writer in writers:
        assert writer.stdout is not None
        confirmed += [writer.stdout.readline().strip() for _ in range(20)]
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
        confirmed += [
            line.strip()
            for line in writer.communicate()[0].splitlines()
            if line.endswith(tuple("0123456789"))
        ]
    tokens = [label.token for label in read_labels(Corpus(store, "one"))]
    assert (
        len(confirmed) >= 40 and set(confirmed) <= set(tokens) and len(set(tokens)) == len(tokens)
    )
    assert [label.number for label in read_labels(Corpus(store, "one"))] == list(
        range(1, len(tokens) + 1)
    )
    assert len(named(store)) >= 1, "every head holds, or reading had refused"
