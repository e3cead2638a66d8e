import os
from pathlib import Path

import pytest

from certify_assets.corpora.config import CorpusConfig, load_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.inbox import (
    WaitingError,
    adopt,
    declare,
    is_inbox_empty,
    read_versions,
    record_version,
    scan_declared,
    scan_incoming,
    settled_inbox,
)
from certify_assets.storage.store import Store

NOW = 1_000_000


def _put(folder: Path, name: str, content: bytes = b"{}", *, age: float = 100.0) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (NOW - age, NOW - age))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "root"))


@pytest.fixture
def folder(store: Store) -> Path:
    return store.local_path("incoming")


def _scan(store: Store) -> tuple[dict[str, str], dict[str, str]]:
    arrivals, waiting = scan_incoming(store, store.local_path("incoming"), now=NOW)
    return {arrival.corpus: arrival.version for arrival in arrivals}, waiting


def test_finished_files_are_noticed_and_young_ones_wait(store: Store, folder: Path) -> None:
    _put(folder, "ready/a.jsonl")
    _put(folder, "writing/a.jsonl", age=1)
    _put(folder, "copying/a.jsonl.part")
    _put(folder, "fetching/a.jsonl.TMP")
    (folder / "hollow").mkdir()
    _put(folder, "9 bad name/a.jsonl")
    arrived, waiting = _scan(store)
    assert set(arrived) == {"ready"}
    assert set(waiting) == {"writing", "copying", "fetching", "hollow", "9 bad name"}


def test_a_file_that_changes_between_looks_waits_however_old_it_is(
    store: Store, folder: Path
) -> None:
    _put(folder, "c/a.jsonl", b"{}")
    first = _scan(store)[0]["c"]
    _put(folder, "c/a.jsonl", b"{}\n{}")
    arrived, waiting = _scan(store)
    assert arrived == {} and "a.jsonl is new or changed since the last look" in waiting["c"]
    assert _scan(store)[0]["c"] != first


def test_the_version_follows_names_and_content_not_times(store: Store, folder: Path) -> None:
    path = _put(folder, "c/a.jsonl", b"one")
    versions = [_scan(store)[0]["c"]]

    def next_version() -> str:
        # a change waits for one look
        _scan(store)
        versions.append(_scan(store)[0]["c"])
        return versions[-1]

    _put(folder, "c/a.jsonl", b"one", age=50)
    assert next_version() == versions[0]
    _put(folder, "c/a.jsonl", b"two", age=50)
    assert next_version() not in versions[:-1]
    # formats may take the task or the agent from the name
    path.rename(path.with_name("b.jsonl"))
    assert next_version() not in versions[:-1]
    _put(folder, "c/a.jsonl", b"two")
    assert next_version() not in versions[:-1]


def test_a_folder_of_links_waits(store: Store, folder: Path, tmp_path: Path) -> None:
    outside = _put(tmp_path, "outside/secret.jsonl")
    (folder / "c").mkdir(parents=True)
    (folder / "c" / "link.jsonl").symlink_to(outside)
    (folder / "linked").symlink_to(outside.parent)
    os.mkfifo(folder / "c" / "pipe.jsonl")
    words = "the folder has no file yet; links and pipes in it are not read"
    assert _scan(store) == ({}, {"c": words})
    _put(folder, "c/a.jsonl")
    assert list(_scan(store)[0]) == ["c"]


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_an_inbox_without_files_is_not_called_empty(
    store: Store, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = store.local_path("inbox/c")
    inbox.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(inbox / "new.jsonl")
    else:
        (inbox / "new.jsonl").symlink_to(inbox / "gone.jsonl")
    corpus = Corpus(store, "c")
    assert not is_inbox_empty(corpus)
    monkeypatch.setattr("certify_assets.corpora.inbox._PATIENCE", 0.0)
    with (
        pytest.raises(WaitingError, match="links and pipes in it are not read"),
        settled_inbox(corpus, watched=True),
    ):
        pass


def test_versions_count_what_landed_and_a_second_record_of_one_is_none(
    store: Store, folder: Path
) -> None:
    numbers = []
    for content in (b"one", b"one", b"two", b"one"):
        _put(folder, "c/a.jsonl", content)
        # a change waits for one look
        scan_incoming(store, folder, now=NOW)
        arrival = scan_incoming(store, folder, now=NOW)[0][0]
        numbers.append(record_version(store, arrival))
    assert numbers == [1, 1, 2, 3]
    versions = read_versions(Corpus(store, "c"))
    assert [entry.number for entry in versions] == [1, 2, 3]
    assert versions[0].version == versions[2].version != versions[1].version
    assert [Path(name).name for name in versions[0].files] == ["a.jsonl"]


def test_declared_paths_are_looked_at_and_settings_are_part_of_the_version(
    store: Store, tmp_path: Path
) -> None:
    runs = _put(tmp_path, "runs/a.jsonl")
    config = CorpusConfig("mine", paths=(str(runs.parent),), seed=1)
    missing = CorpusConfig("gone", paths=(str(tmp_path / "none"),))
    arrivals, waiting = scan_declared(store, [config, missing], now=NOW)
    assert [arrival.corpus for arrival in arrivals] == ["mine"]
    assert "does not exist" in waiting["gone"]
    again = scan_declared(store, [CorpusConfig("mine", paths=config.paths, seed=2)], now=NOW)[0][0]
    assert again.files == arrivals[0].files and again.version != arrivals[0].version


def test_a_declaration_keeps_the_incoming_folder(store: Store, folder: Path) -> None:
    config = CorpusConfig("mine", paths=("/runs",), seed=1)
    declare(store, config)
    adopt(store, folder, "mine")
    paths = ("/runs", str(folder / "mine"))
    assert declare(store, config).paths == paths == load_config(store, "mine").paths
