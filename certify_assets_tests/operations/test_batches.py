from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fsspec
import pytest
import sqlalchemy as sa

from certify_assets.corpora.config import load_config, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import ChangedInputError, InputError
from certify_assets.operations import receiving
from certify_assets.operations.batches import batch_runs, known_runs, ready_batches
from certify_assets.operations.batches import received as stored
from certify_assets.operations.labels import Label, append_label
from certify_assets.operations.receiving import receive, undo_batch
from certify_assets.storage import urls
from certify_assets.storage.care import rebuild
from certify_assets.storage.store import Store
from certify_assets.storage.urls import local_copies, shown_url
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.corpora.builders import tau_record, write_json
from certify_assets_tests.operations_builders import deliver


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A registered corpus and nothing else: receiving asks for no judge."""
    made = Store(str(tmp_path / "root"))
    register_runs(made, "c", write_runs(tmp_path / "runs.jsonl", tasks=3, attempts=2))
    return made


def inbox(store: Store, name: str = "a.jsonl") -> Path:
    return store.local_path("inbox/c") / name


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    os.utime(path, (1, 1))
    return path


def row(task: str, text: str, **more: Any) -> dict[str, Any]:
    return {"task_id": task, "text": text, **more}


def test_the_same_files_are_one_batch_under_any_name(store: Store, tmp_path: Path) -> None:
    first = receive(Corpus(store, "c"), [str(deliver(tmp_path / "x.jsonl", tasks=5))])
    again = receive(Corpus(store, "c"), [str(deliver(tmp_path / "y.jsonl", tasks=5))])
    assert first.batch == again.batch == ready_batches(Corpus(store, "c"))[
        0
    ] and first.batch.startswith("000001-")
    assert (first.new, first.known, again.new, again.known) == (20, 0, 0, 20)
    other = receive(Corpus(store, "c"), [str(deliver(tmp_path / "z.jsonl", tasks=6))])
    assert (
        other.batch is not None
        and other.batch.startswith("000002-")
        and other.known + other.new == 24
    )


def test_a_large_delivery_becomes_batches_of_whole_tasks(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MOST_RUNS", 10)
    path = str(deliver(tmp_path / "x.jsonl", tasks=5))
    found = receive(Corpus(store, "c"), [path])
    assert found.new == 20 and [name[:6] for name in found.batches] == [
        "000001",
        "000002",
        "000003",
    ]
    tasks = [batch_runs(Corpus(store, "c"), name)["task_id"].tolist() for name in found.batches]
    assert list(map(len, tasks)) == [8, 8, 4]
    assert sum(len(set(part)) for part in tasks) == 5, "no task is in two batches"
    again = receive(Corpus(store, "c"), [path])
    assert again.batches == found.batches and again.known == 20
    # the index of runs follows from the events
    with store.database.reading() as connection:
        before = connection.execute(sa.select(known_runs).order_by(known_runs.c.run)).all()
    rebuild(store)
    with store.database.reading() as connection:
        assert connection.execute(sa.select(known_runs).order_by(known_runs.c.run)).all() == before
    assert len(before) == 20 and before[0].batch == found.batches[0]


def test_runs_of_another_format_are_refused_with_both_named(store: Store, tmp_path: Path) -> None:
    path = write_json(tmp_path / "a-retail.json", [tau_record(0), tau_record(1)])
    for format in ("auto", "taubench_v1"):
        with pytest.raises(InputError, match="c was read as table, but these runs are taubench_v1"):
            receive(Corpus(store, "c"), [str(path)], format=format)
    assert ready_batches(Corpus(store, "c")) == []


def test_known_tasks_and_runs_under_another_task_id_are_refused(
    store: Store, tmp_path: Path
) -> None:
    corpus = Corpus(store, "c")
    corpus.import_trajectories()

    def renamed(record: dict[str, Any]) -> None:
        record["instruction"] = record["instruction"].removesuffix("*") + "  "

    path = str(deliver(tmp_path / "renamed.jsonl", tasks=4, change=renamed))
    said = "3 of 4 new tasks have the instruction of a task of c under another id, such as 'new-1-"
    for dry_run in (True, False):
        with pytest.raises(InputError, match=said):
            receive(corpus, [path], dry_run=dry_run)
    # a few of many are chance
    assert receive(corpus, [str(deliver(tmp_path / "new.jsonl", tasks=4))], dry_run=True).new == 16
    few = str(deliver(tmp_path / "few.jsonl", tasks=7, change=renamed))
    assert receive(corpus, [few], dry_run=True).new == 28

    def moved(record: dict[str, Any]) -> None:
        record["trajectory_id"] = record["trajectory_id"].removeprefix("new-1-")

    path_moved = str(deliver(tmp_path / "moved.jsonl", tasks=1, change=moved))
    for new_tasks in (True, False):
        with pytest.raises(InputError, match="2 runs have the trajectory_id of a run of c but"):
            receive(corpus, [path_moved], new_tasks=new_tasks)
    assert ready_batches(corpus) == []
    # who says that they are new is not asked again
    assert receive(corpus, [path], new_tasks=True).new == 16
    assert receive(corpus, [path]).known == 16


def test_known_tasks_in_another_spelling_are_no_new_tasks(store: Store, tmp_path: Path) -> None:
    corpus = Corpus(store, "c")
    corpus.import_trajectories()
    known = str(corpus.columns(["task_id"])["task_id"].min())

    def spelled(record: dict[str, Any]) -> None:
        record["task_id"] = f"{known}\u200b"

    path = str(deliver(tmp_path / "spelled.jsonl", tasks=1, change=spelled))
    with pytest.raises(InputError, match=f"'{known}.u200b' .there '{known}'.*--new-tasks"):
        receive(corpus, [path], dry_run=True)
    assert receive(corpus, [path], dry_run=True, new_tasks=True).new == 4


def test_a_batch_is_taken_back_and_its_runs_may_come_again(store: Store, tmp_path: Path) -> None:
    path = str(deliver(tmp_path / "x.jsonl", tasks=5))
    first = receive(Corpus(store, "c"), [path]).batch
    assert first is not None
    undo_batch(Corpus(store, "c"), first)
    assert ready_batches(Corpus(store, "c")) == []
    before = store.now().ledger("c")
    undo_batch(Corpus(store, "c"), first)
    assert store.now().ledger("c") == before
    with pytest.raises(InputError, match="has no batch"):
        undo_batch(Corpus(store, "c"), "000009-never")
    again = receive(Corpus(store, "c"), [path])
    assert again.new == 20 and again.batch is not None and again.batch.startswith("000002-")
    run = str(batch_runs(Corpus(store, "c"), again.batch)["trajectory_id"].iloc[0])
    append_label(Corpus(store, "c"), Label(run, 1, "ann", "file", "first"))
    with pytest.raises(InputError, match="A reviewed batch cannot be undone"):
        undo_batch(Corpus(store, "c"), again.batch)
    assert ready_batches(Corpus(store, "c")) == [again.batch]


def test_a_label_that_comes_meanwhile_keeps_its_batch(store: Store, tmp_path: Path) -> None:
    batch = receive(Corpus(store, "c"), [str(deliver(tmp_path / "x.jsonl", tasks=5))]).batches[0]
    corpus = Corpus(store, "c")
    run = str(batch_runs(corpus, batch)["trajectory_id"].iloc[0])
    with pytest.raises(ChangedInputError), corpus.writing():
        undo_batch(corpus, batch)
        append_label(Corpus(Store(store.root), "c"), Label(run, 1, "ann", "file", "meanwhile"))
    assert ready_batches(Corpus(store, "c")) == [batch]


def test_runs_of_the_inbox_are_told_apart_from_those_before(store: Store) -> None:
    deliver(inbox(store), tasks=4)
    assert receive(Corpus(store, "c")).new == 16

    def change(record: dict[str, Any]) -> None:
        if record["trajectory_id"].endswith("task-000/1"):
            record["steps"][0]["action"] = "click('something else')"

    deliver(inbox(store), tasks=5, change=change)
    second = receive(Corpus(store, "c"))
    # the builder draws by one generator, so that five tasks begin with the four
    assert (second.known, second.changed, second.new) == (15, 1, 4)
    assert "such as new-1-task-000/1" in second.sentences[0]
    assert second.batch is not None and len(batch_runs(Corpus(store, "c"), second.batch)) == 5
    assert receive(Corpus(store, "c")).known == 20, "what changed is known from then on"


def test_runs_without_ids_get_the_next_number_and_are_known_by_what_they_are(
    store: Store, tmp_path: Path
) -> None:
    receive(
        Corpus(store, "c"),
        [str(write(tmp_path / "1.jsonl", [row("t", "one"), row("t", "two"), row("t", "two")]))],
    )
    received = receive(
        Corpus(store, "c"),
        [str(write(tmp_path / "2.jsonl", [row("t", "three"), row("t", "one"), row("t", "two")]))],
    )
    assert (received.known, received.new, received.changed) == (
        2,
        1,
        0,
    ) and received.batch is not None
    assert batch_runs(Corpus(store, "c"), received.batch)["trajectory_id"].tolist() == [
        "t/unknown/3"
    ]
    grown = receive(
        Corpus(store, "c"),
        [
            str(
                write(
                    tmp_path / "1.jsonl",
                    [row("t", "one"), row("t", "two"), row("t", "two"), row("t", "two")],
                )
            )
        ],
    )
    assert (grown.known, grown.new) == (3, 1), "a third run that is like two before is one more"


def test_outcomes_are_left_out_and_counted(store: Store, tmp_path: Path) -> None:
    received = receive(
        Corpus(store, "c"),
        [str(write(tmp_path / "a.jsonl", [row("t", "x", outcome=1), row("u", "y", outcome=None)]))],
    )
    assert (
        received.batch is not None
        and batch_runs(Corpus(store, "c"), received.batch)["outcome"].isna().all()
    )
    assert stored(Corpus(store, "c"), received.batch).outcomes_left_out == 1


def test_the_corpus_says_how_its_runs_are_read_unless_the_caller_does(
    store: Store, tmp_path: Path
) -> None:
    config = load_config(store, "c")
    save_config(
        store, type(config)(**{**vars(config), "options": {"columns": {"task_id": "problem"}}})
    )
    path = str(write(tmp_path / "a.jsonl", [{"problem": "p", "text": "x"}]))
    assert receive(Corpus(store, "c"), [path]).new == 1
    with pytest.raises(InputError, match=r"a\.jsonl has no column 'task_id'"):
        receive(Corpus(store, "c"), [path], format="table")
    assert (
        receive(
            Corpus(store, "c"), [str(write(tmp_path / "b.jsonl", [row("q", "x")]))], format="auto"
        ).new
        == 1
    )


def test_an_empty_inbox_is_told_and_a_missing_path_is_refused(store: Store, tmp_path: Path) -> None:
    assert "holds no file" in receive(Corpus(store, "c")).sentences[0]
    with pytest.raises(InputError, match="does not exist"):
        receive(Corpus(store, "c"), [str(tmp_path / "none.jsonl")])
    with pytest.raises(InputError, match="no corpus is called"):
        receive(Corpus(store, "d"))


def test_urls_are_copied_within_limits_and_written_down_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fsspec.filesystem("memory").pipe_file("/large/a", b"12345")
    monkeypatch.setattr(urls, "TOTAL_BYTES", 4)
    with (
        pytest.raises(InputError, match=r"memory://large holds more than .* 4 bytes"),
        local_copies(["memory://large"]),
    ):
        pass
    # a service that does not say how large its files are
    found: dict[str, object] = {"/large/a": {}}
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "find", lambda *_, **__: found)
    with (
        pytest.raises(InputError, match=r"memory://large holds more than .* 4 bytes"),
        local_copies(["memory://large"]),
    ):
        pass
    assert (
        shown_url("https://user:secret@host/runs?token=1#x") == "https://host/runs"
        and shown_url("/a b") == "/a b"
        and shown_url("mlflow+sqlite:////a/b.db/c") == "mlflow+sqlite:////a/b.db/c"
    )


@pytest.mark.parametrize("name", ["/root/../x", "/root/a/../../x", "/root"])
def test_a_name_that_leads_out_of_its_folder_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(memory, "find", lambda *_, **__: {name: {}})
    with pytest.raises(InputError, match="lies outside"), local_copies(["memory://root"]):
        pass
