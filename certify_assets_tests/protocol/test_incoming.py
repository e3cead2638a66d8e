from __future__ import annotations

import os
from pathlib import Path

import pytest

from certify_assets.errors import InputError
from certify_assets.protocol.corpus_config import CorpusConfig, load_config, registered_corpora, save_config
from certify_assets.protocol.incoming import adopt, scan_incoming
from certify_assets.protocol.store import Store


def _put(folder: Path, name: str, *, age: float = 100.0) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}", encoding="utf-8")
    os.utime(path, (1_000_000 - age, 1_000_000 - age))
    return path


def _scan(folder: Path) -> tuple[list[str], dict[str, str]]:
    arrivals, waiting = scan_incoming(folder, now=1_000_000)
    return [arrival.corpus for arrival in arrivals], waiting


def test_finished_files_are_noticed_and_young_ones_wait(tmp_path: Path) -> None:
    _put(tmp_path, "ready/a.jsonl")
    _put(tmp_path, "writing/a.jsonl", age=1)
    _put(tmp_path, "copying/a.jsonl.part")
    (tmp_path / "hollow").mkdir()
    _put(tmp_path, "9 bad name/a.jsonl")
    arrived, waiting = _scan(tmp_path)
    assert arrived == ["ready"]
    assert set(waiting) == {"writing", "copying", "hollow", "9 bad name"}


def test_the_fingerprint_follows_the_files(tmp_path: Path) -> None:
    _put(tmp_path, "c/a.jsonl")
    first = scan_incoming(tmp_path, now=1_000_000)[0][0].fingerprint
    assert scan_incoming(tmp_path, now=1_000_000)[0][0].fingerprint == first
    _put(tmp_path, "c/b.jsonl")
    assert scan_incoming(tmp_path, now=1_000_000)[0][0].fingerprint != first


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = _put(tmp_path, "outside/secret.jsonl")
    inside = tmp_path / "in"
    (inside / "c").mkdir(parents=True)
    (inside / "c" / "link.jsonl").symlink_to(outside)
    (inside / "linked").symlink_to(outside.parent)
    assert _scan(inside) == ([], {"c": "the folder is empty"})


def test_a_missing_folder_is_empty(tmp_path: Path) -> None:
    assert scan_incoming(tmp_path / "none") == ([], {})


def test_adopting_registers_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    adopt(store, tmp_path, "mine")
    assert adopt(store, tmp_path, "mine").paths == (str(tmp_path / "mine"),)
    assert "mine" in registered_corpora(store)
    with pytest.raises(InputError, match="comes with the package"):
        adopt(store, tmp_path, "miniwob_weak")


def test_configurations_come_back_and_unknown_keys_do_not(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    config = CorpusConfig("c", format="table", paths=("x.csv",), options={"keep_unlabelled": True}, seed=7, rl=False)
    save_config(store, config)
    assert load_config(store, "c") == config
    store.write_json("corpora/d/corpus.json", {"name": "d", "budget": 3})
    with pytest.raises(InputError, match="unknown key 'budget'"):
        load_config(store, "d")
    with pytest.raises(InputError, match="no corpus is called 'e'"):
        load_config(store, "e")
    for name in ("", "a/b", "../x", "1a", "a b"):
        with pytest.raises(InputError, match="cannot name a corpus"):
            CorpusConfig(name)
