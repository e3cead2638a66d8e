"""``certify ledger``: who read TEST, broken rules, altered ledgers, exports, indexes."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import LedgerError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.operations.labels import Label, append_label
from certify_assets.operations.ledger import record_read, record_result, register
from certify_assets.operations.review_queue import queue_page_key
from certify_assets.storage.care import blank
from certify_assets.storage.database import FILE, chains, tables, uses
from certify_assets.storage.events import Head, head_text
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.paths import REPOSITORY


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store(str(tmp_path / "root"))
    monkeypatch.setenv("CERTIFY_ROOT", made.root)
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
    assert call("ledger status").code == 0
    registration = register(Corpus(store, "c"), {"seed": 42}, run_id="r")
    read(store, registration, "a")
    read(store, registration, "a")
    answer = call("ledger status c --json")
    one = answer.json
    assert [item["kind"] for item in one["reads"]] == ["first", "replay"]
    assert answer.code == 0 and one["registrations"][0]["plan"] == {"seed": 42}
    (reader,) = one["readers"]
    assert (reader["first"], reader["replay"], reader["changed"], reader["results"]) == (1, 1, 0, 2)
    assert "TEST of c: 1 registration" in call("ledger status").out


def test_a_broken_rule_is_exit_3(call: Call, store: Store) -> None:
    registration = register(Corpus(store, "c"), {"seed": 42}, run_id="r")
    read(store, registration, "a")
    read(store, registration, "b")
    with pytest.raises(LedgerError):
        read(store, "0" * 64, "a")
    answer = call("ledger status")
    assert answer.code == 3 and "is changed" in answer.out and "is unregistered" in answer.out


def test_a_rule_broken_under_an_earlier_registration_is_shown_and_no_longer_exit_3(
    call: Call, store: Store
) -> None:
    for seed, scores in ((42, "ab"), (43, "a")):
        registration = register(Corpus(store, "c"), {"seed": seed}, run_id="r")
        for name in scores:
            read(store, registration, name)
    answer = call("ledger status c --json")
    assert answer.code == 0 and answer.json["violations"] == []
    reads = [(item["kind"], item["registration"]) for item in answer.json["reads"]]
    assert [kind for kind, _ in reads] == ["first", "changed", "first"]
    assert reads[0][1] == reads[1][1] != reads[2][1] == registration


def _rewrite(store: Store, statement: str) -> None:
    """Change the database as its owner can, past the triggers."""
    with closing(sqlite3.connect(Path(store.root, FILE))) as database:
        for name in ("events_update", "events_delete"):
            database.execute(f"DROP TRIGGER {name}")
        database.execute(statement)
        database.commit()


@pytest.fixture
def known(store: Store) -> Head:
    """A ledger with a read, and its head."""
    read(store, register(Corpus(store, "c"), {"seed": 42}, run_id="r"), "a")
    return store.now().ledger("c")


def test_a_whole_ledger_is_verified_with_its_objects(call: Call, store: Store, known: Head) -> None:
    head = head_text(known)
    assert call("ledger status c --json").json["head"] == head
    answer = call(f"ledger verify c --head {head} --json")
    (found,) = answer.json["verified"]
    assert answer.code == 0 and found["head"] == known and found["events"] == known["sequence"]
    assert head in call("ledger verify").out


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET payload = replace(payload, 'lexical', 'another') WHERE sequence = 3",
        "UPDATE events SET time = '2020-01-01T00:00:00.000+00:00' WHERE sequence = 3",
        "DELETE FROM events WHERE sequence = 3",
    ],
)
def test_an_altered_event_is_exit_3_with_its_number(
    call: Call, store: Store, known: Head, statement: str
) -> None:
    _rewrite(store, statement)
    answer = call("ledger verify")
    assert answer.code == 3 and "event 3 of c was altered; restore" in answer.err


def test_events_that_were_cut_off_are_found_by_a_head(
    call: Call, store: Store, known: Head
) -> None:
    _rewrite(store, f"DELETE FROM events WHERE sequence = {known['sequence']}")
    assert call("ledger verify").code == 0
    answer = call(f"ledger verify --head {head_text(known)}")
    assert answer.code == 3 and "lost event 4 that the head that was given names" in answer.err
    assert call("ledger verify --head c:4").code == 2


def test_an_altered_or_missing_object_is_exit_3(call: Call, store: Store, known: Head) -> None:
    plan = Store(store.root).objects.path(sha256_bytes(canonical_json({"seed": 42})))
    plan.write_bytes(b"{}")
    answer = call("ledger verify")
    assert answer.code == 3 and f"the object {plan.name[:12]} of" in answer.err
    plan.unlink()
    assert "is gone; restore it" in call("ledger verify").err


def test_an_export_is_verified_by_the_program_in_the_docs(
    call: Call, store: Store, known: Head, tmp_path: Path
) -> None:
    out = tmp_path / "c.jsonl"
    said = call(f"ledger export c --out {out}").out.strip()
    assert said.startswith(f"{out}: ") and said.endswith(f" events, head {head_text(known)}")
    assert call("ledger export c").out == out.read_text("utf-8")
    page = (REPOSITORY / "docs/security.md").read_text("utf-8")
    (program,) = re.findall(r"```python title=\"verify_export.py\"\n(.*?)```", page, re.DOTALL)
    script = tmp_path / "verify_export.py"
    script.write_text(program, "utf-8")

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, script, out], capture_output=True, text=True, check=False
        )

    assert check().stdout.split() == [head_text(known)] and not check().stderr
    blank(store, "c", lambda _, said: {**said, "judge": "blanked"} if "judge" in said else None)
    assert call(f"ledger export c --out {out}").code == 0
    assert check().stdout.split() == [head_text(known)]
    blanked = check().stderr.count("was blanked")
    assert f"Blanked events: {blanked}." in call("ledger verify").out
    out.write_text(out.read_text("utf-8").replace("stored", "another"), "utf-8")
    assert check().returncode == 1
    assert call("ledger export d").code == 2


def test_indexes_are_made_again_from_the_events(call: Call, store: Store, known: Head) -> None:
    def rows() -> list[list[sa.Row[Any]]]:
        with store.database.reading() as connection:
            return [
                sorted(connection.execute(sa.select(table)))
                for table in tables.sorted_tables
                if table.name != "properties"
            ]

    before = rows()
    with store.database.writing(["c"]) as connection:
        for table in (chains, uses):
            connection.execute(table.delete())
    assert rows() != before
    assert call("ledger rebuild").code == 0
    assert rows() == before


def test_a_root_without_a_ledger_is_refused(call: Call, tmp_path: Path) -> None:
    answer = call(f"ledger verify --root {tmp_path}/absent")
    assert answer.code == 2 and "absent holds no ledger" in answer.err


def test_an_unknown_corpus_is_named(call: Call, store: Store) -> None:
    answer = call("ledger status d")
    assert answer.code == 2 and "no corpus is called 'd'" in answer.err


def test_a_blanked_name_leaves_the_page_of_the_queue(call: Call, operated: Store) -> None:
    corpus = Corpus(operated, "c")
    append_label(corpus, Label("r1", 1, "Wilhelmine", "file", "first"))
    page = queue_page_key("c")
    operated.write_bytes(page, b"<p>Wilhelmine agrees with bob</p>")
    assert call("ledger blank c --reviewer Wilhelmine").code == 0
    assert b"Wilhelmine" not in operated.read_bytes(page)
    published = Path(operated.locate(page))
    assert published.is_file() and b"Wilhelmine" not in published.read_bytes()
