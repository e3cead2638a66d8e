from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError
from certify_assets.evaluation.anchors import heads_key
from certify_assets.files import sha256_bytes
from certify_assets.operations import labels
from certify_assets.operations.labels import (
    Label,
    anchor_labels,
    append_label,
    append_labels,
    read_labels,
    resolve_labels,
)
from certify_assets.operations.layout import labels_key
from certify_assets.storage.journal import heads_journal
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

# a kill when the label is on the disk and its head is not
KILLED = """
import os, signal, sys
from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.labels import Label, append_labels
from certify_assets.storage.backends import LocalBackend
from certify_assets.storage.store import Store

def append(self, key, make, write=LocalBackend.append_line):
    if key == "ledger/one.heads.jsonl":
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, key, make)

LocalBackend.append_line = append
labels = [Label(f"run-{n}", 1, "ann", "page", f"killed-{n}") for n in range(30)]
append_labels(Corpus(Store(sys.argv[1]), "one"), labels)
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


def test_labels_one_by_one_share_heads_and_labels_at_once_have_one(store: Store) -> None:
    say(store, 0, 50)
    assert named(store) == [20, 40]
    append_labels(Corpus(store, "one"), [said("a", n % 2, "bob", f"t{n}") for n in range(25)])
    assert named(store) == [20, 40, 75]
    say(store, 50, 53)
    anchor_labels(Corpus(store, "one"))
    anchor_labels(Corpus(store, "one"))
    assert named(store) == [20, 40, 75, 78]


def test_a_label_that_waited_a_minute_for_its_head_gets_one(store: Store) -> None:
    say(store, 0, 2)
    path = store.local_path(labels_key("one"))
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    lines[0]["time"] = lines[0]["time"].replace("20", "19", 1)
    path.write_bytes(chained(lines))
    assert named(store) == []
    say(store, 2, 3)
    assert named(store) == [3]


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


def test_labels_of_an_earlier_version_get_their_head_with_the_next_ones(store: Store) -> None:
    say(store, 0, 25)
    store.delete(heads_key("one"))
    assert len(read_labels(Corpus(store, "one"))) == 25
    say(store, 25, 26)
    assert named(store) == [26]


def test_a_kill_between_a_label_and_its_head_loses_and_refuses_nothing(store: Store) -> None:
    say(store, 0, 3)
    anchor_labels(Corpus(store, "one"))
    done = subprocess.run([sys.executable, "-c", KILLED, store.root], check=False)
    assert done.returncode == -signal.SIGKILL and named(store) == [3]
    assert len(read_labels(Corpus(store, "one"))) == 33
    say(store, 3, 4)
    assert named(store) == [3, 34]


def test_two_reviewers_at_once_have_heads_that_hold(store: Store) -> None:
    threads = [threading.Thread(target=say, args=(store, 0, 60, name)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_labels(Corpus(store, "one"))) == 120
    assert len(named(store)) >= 5 and max(named(store)) > 100
    anchor_labels(Corpus(store, "one"))
    path = store.local_path(labels_key("one"))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(IntegrityError, match="has not line 120"):
        read_labels(Corpus(store, "one"))


@pytest.mark.slow
def test_the_cost_of_a_label_is_hardly_more_with_its_share_of_a_head(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, seconds = int(os.environ.get("CERTIFY_TEST_LABELS", "300")), dict[str, float]()

    def measure(who: str) -> None:
        began = time.process_time()
        for place in range(number):
            append_label(Corpus(store, who), said(f"run-{place}", 1, who, f"{who} {place}"))
        seconds[who] = time.process_time() - began

    measure("one")
    assert len(named(store)) == number // 20
    monkeypatch.setattr(labels, "_need_head", lambda unnamed: True)
    measure("each")
    made = labels._journal
    monkeypatch.setattr(labels, "_journal", lambda corpus: replace(made(corpus), heads=""))
    measure("none")
    ratios = {who: round(seconds[who] / seconds["none"], 2) for who in ("one", "each")}
    print(f"\n{number} labels against as many without heads: {ratios}")
    assert ratios["one"] < min(1.5, ratios["each"])


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
