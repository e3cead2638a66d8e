from __future__ import annotations

import json
import socket
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.review_builders import labels_of, session_batch


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store(str(tmp_path / "root"))
    monkeypatch.setenv("CERTIFY_ROOT", made.root)
    session_batch(made)
    return made


def test_the_queue_is_printed_with_its_budget(call: Call, store: Store) -> None:
    answer = call("review queue c --limit 3")
    assert answer.code == 0 and "54 min in all, assuming 6 min a run" in answer.out
    assert "The certificate decided 3 of 12 runs (25.0 %), which saves 18 min." in answer.out
    assert (
        "The first 3 of 9" in answer.out
        and "audit-0/0" in answer.out
        and "open-0/0" not in answer.out
    )
    document = call("review queue c --json --limit 1").json
    assert (
        document["waiting"] == 9
        and document["budget"]["labels"] == 9
        and document["budget"]["saved"] == 3
    )
    assert (
        document["queue"][0]["trajectory_id"] == "audit-0/0" and "score" not in document["queue"][0]
    )


def test_export_and_import_by_the_command(call: Call, store: Store, tmp_path: Path) -> None:
    table, tasks = tmp_path / "queue.csv", tmp_path / "tasks.json"
    answer = call(f"review export c {table} --label-studio {tasks}")
    assert answer.code == 0
    assert answer.out == f"{table}: 9 runs to label\n{tasks}: 9 runs to label\n"
    assert len(json.loads(tasks.read_text(encoding="utf-8"))) == 9
    frame = pd.read_csv(table, dtype=str)
    frame["outcome"] = "1"
    frame.to_csv(table, index=False)
    done = call(f"review import c {table} --reviewer Ann --json").json
    assert done == {
        "corpus": "c",
        "added": 9,
        "changed": 0,
        "stood_already": 0,
        "without_outcome": 0,
        "reviewers": ["Ann"],
        "overruled": 0,
        "closed": [],
        "waiting": [],
    }
    again = call(f"review import c {table} --reviewer Ann")
    assert "0 labels of Ann added to c, 0 changed, 9 unchanged. Rows without" in again.out
    assert len(labels_of(store)) == 9
    assert call("review queue c --json").json["waiting"] == 0
    later = table.with_stem("later")
    frame.head(2).assign(outcome="0").to_csv(later, index=False)
    turned = call(f"review import c {later} --reviewer Ann")
    assert "0 labels of Ann added to c, 2 changed, 0 unchanged." in turned.out
    older = call(f"review import c {table} --reviewer Ann")
    assert "0 changed, 9 unchanged" in older.out
    assert "2 of the unchanged labels do not count" in " ".join(older.out.split())


def test_a_label_file_at_fault_is_one_sentence(call: Call, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("trajectory_id,outcome\nopen-0/0,1\nopen-1/0,maybe\n", encoding="utf-8")
    answer = call(f"review import c {path} --reviewer Ann")
    assert (
        answer.code == 2
        and "row 2 (line 3), column outcome: 'maybe' is not an outcome" in answer.err
        and labels_of(store) == []
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["queue", "nothing"], "no corpus is called 'nothing'; known are "),
        (["export", "c"], "no file is named"),
        (
            ["serve", "c", "--host", "192.0.2.1"],
            "Use 127.0.0.1 behind a proxy or a tunnel (ssh -L), or add --exposed",
        ),
        (
            ["serve", "c", "--host", "0.0.0.0", "--exposed"],
            "means every address of this machine. Give the one that reviewers will open",
        ),
        (
            ["serve", "c", "--host", "192.0.2.1", "--exposed"],
            "192.0.2.1:8713 cannot be listened on",
        ),
        (["export", "c", "queue.txt"], "does not end in .csv, .parquet or .jsonl"),
        (["export", "c", "--label-studio", "queue.csv"], "does not end in .json"),
        (["queue", "../c"], "no corpus is called '../c'"),
        (["serve", "c", "--gold", "none.csv"], "none.csv"),
        (
            ["serve", "c", "--criteria", "none.md"],
            "--criteria none.md does not exist. Check the path.",
        ),
        (["serve", "c", "--public-url", "review.example.org"], "is not an address of a proxy"),
    ],
)
def test_what_cannot_be_done_is_refused(
    call: Call,
    store: Store,
    tmp_path: Path,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    reviewers = ["--reviewer", "Ann"] if arguments[0] == "serve" else []
    answer = call("review", *arguments, *reviewers)
    assert answer.code == 2 and words in " ".join(answer.err.split()), answer.err


def test_a_taken_port_is_refused_by_its_number(call: Call, store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = call(f"review serve c --port {port} --reviewer Ann")
    said = " ".join(answer.err.split())
    assert answer.code == 2 and f"127.0.0.1:{port} cannot be listened on" in said
    assert "--port" in said
