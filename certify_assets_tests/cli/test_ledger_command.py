"""``certify ledger status``: registrations, reads, broken rules, altered ledgers."""

from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import LedgerError
from certify_assets.evaluation.ledger import record_read, record_result, register
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs
from certify_assets_tests.cli.calling import Call


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(str(tmp_path / "root"))
    register_runs(made, "c", tmp_path / "none.jsonl")
    return made


def read(store: Store, registration: str, scores: str) -> None:
    entry = record_read(
        Corpus(store, "c"),
        judge="lexical",
        registration=registration,
        configuration={"scores": scores},
        run_id="r",
    )
    record_result(store, entry, "f" * 64)


def test_what_was_registered_and_read_is_shown(call: Call, store: Store) -> None:
    assert call(f"ledger status --root {store.root}").code == 0
    registration = register(Corpus(store, "c"), {"seed": 42}, run_id="r")
    read(store, registration, "a")
    read(store, registration, "a")
    answer = call(f"ledger status c --root {store.root} --json")
    one = answer.json
    assert [(item["kind"], item["version"]) for item in one["reads"]] == [
        ("first", 1),
        ("replay", 1),
    ]
    assert answer.code == 0 and one["registrations"][0]["plan"] == {"seed": 42}
    (reader,) = one["readers"]
    assert (reader["first"], reader["replay"], reader["changed"], reader["results"]) == (1, 1, 0, 2)
    assert "TEST of c: 1 registrations" in call(f"ledger status --root {store.root}").out


def test_a_broken_rule_is_exit_3(call: Call, store: Store) -> None:
    registration = register(Corpus(store, "c"), {"seed": 42}, run_id="r")
    read(store, registration, "a")
    read(store, registration, "b")
    with pytest.raises(LedgerError):
        read(store, "0" * 64, "a")
    answer = call(f"ledger status --root {store.root}")
    assert answer.code == 3 and "is changed" in answer.err and "is unregistered" in answer.err


def test_a_rule_broken_under_an_earlier_registration_is_shown_and_no_longer_exit_3(
    call: Call, store: Store
) -> None:
    for seed, scores in ((42, "ab"), (43, "a")):
        registration = register(Corpus(store, "c"), {"seed": seed}, run_id="r")
        for name in scores:
            read(store, registration, name)
    answer = call(f"ledger status c --root {store.root} --json")
    assert answer.code == 0 and answer.json["violations"] == []
    assert [(item["kind"], item["version"]) for item in answer.json["reads"]] == [
        ("first", 1),
        ("changed", 1),
        ("first", 2),
    ]


def test_an_altered_ledger_is_exit_3_with_the_line(call: Call, store: Store) -> None:
    registration = register(Corpus(store, "c"), {"seed": 42}, run_id="r")
    read(store, registration, "a")
    path = Path(store.root) / "ledger/c.jsonl"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([lines[0].replace('"r"', '"s"'), *lines[1:]]) + "\n", "utf-8")
    answer = call(f"ledger status --root {store.root}")
    assert answer.code == 3 and "line 2 does not follow" in answer.err
    assert call(f"ledger status --root {store.root} --json").json["corpora"][0]["fault"]


def test_an_unknown_corpus_is_named(call: Call, store: Store) -> None:
    answer = call(f"ledger status d --root {store.root}")
    assert answer.code == 2 and "no corpus 'd'" in answer.err
