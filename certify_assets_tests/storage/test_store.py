import subprocess
import sys
from pathlib import Path
from typing import IO

import pandas as pd
import pytest

from certify_assets.errors import InputError, MissingToolError
from certify_assets.storage.store import Store
from certify_assets_tests.storage import memory


@pytest.fixture(params=["{folder}/root", "memory://{name}", "ram://{name}"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    assert "ram" in memory.BACKENDS
    return Store(request.param.format(folder=tmp_path, name=tmp_path.name))


def test_documents_tables_and_journals_come_back(store: Store) -> None:
    store.write_json("a/b.json", {"x": [1, "ä"]})
    assert store.read_json("a/b.json") == {"x": [1, "ä"]}
    frame = pd.DataFrame({"n": [1, 2]})
    store.write_table("a/t.parquet", frame)
    assert store.read_table("a/t.parquet").equals(frame)
    store.append_line("j/l.jsonl", lambda old: f"one after {len(old)}")
    store.append_line("j/l.jsonl", lambda old: f"two after {len(old)}")
    assert store.read_bytes("j/l.jsonl") == b"one after 0\ntwo after 12\n"
    assert store.names("a") == ["b.json", "t.parquet"]
    assert store.names("nothing") == []
    store.delete("a/b.json")
    assert not store.exists("a/b.json")


def test_a_stream_is_stored_whole_or_not_at_all(store: Store) -> None:
    def whole(sink: IO[bytes]) -> None:
        sink.writelines([b"x" * 10, b"y"])

    sha256 = store.write_stream("a/s.bin", whole)
    assert store.read_bytes("a/s.bin") == b"x" * 10 + b"y" and store.sha256("a/s.bin") == sha256

    def broken(sink: IO[bytes]) -> None:
        sink.write(b"half")
        raise InputError("no more")

    with pytest.raises(InputError, match="no more"):
        store.write_stream("a/s.bin", broken)
    assert store.sha256("a/s.bin") == sha256 and store.names("a") == ["s.bin"]
    with store.as_file("a/s.bin") as path:
        assert path.stat().st_size == 11


def test_what_is_missing_is_told(store: Store) -> None:
    with pytest.raises(InputError, match="materialize"):
        store.read_bytes("a/none.json")


@pytest.mark.parametrize(
    "key", ["../out", "a/../../out", "/etc/passwd", "a//b", "", "a/.hidden", "a\\b", "a/b\x00"]
)
def test_keys_cannot_leave_the_root(store: Store, key: str) -> None:
    with pytest.raises(InputError, match="cannot be a file name"):
        store.write_bytes(key, b"x")


def test_a_write_that_fails_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    store.write_bytes("a.json", b"old")

    def refuse(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="no space left"):
        store.write_bytes("a.json", b"new")
    assert store.read_bytes("a.json") == b"old"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]


def test_a_broken_document_is_told(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_bytes("a.json", b"{")
    with pytest.raises(InputError, match="not a JSON document"):
        store.read_json("a.json")


def test_a_remote_root_has_no_paths() -> None:
    with pytest.raises(InputError, match="remote"):
        Store("memory://x").local_path("a")


def test_a_torn_last_line_of_a_journal_is_cut_off(store: Store) -> None:
    store.write_bytes("j.jsonl", b"whole\nto")
    store.append_line("j.jsonl", lambda old: f"{len(old)}")
    assert store.read_bytes("j.jsonl") == b"whole\n6\n"


def test_appenders_of_two_processes_do_not_overwrite_each_other(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom certify_assets.storage.store import Store\nstore = Store(sys.argv[1])\n"
        "for _ in range(50): store.append_line('j.jsonl', lambda old: str(old.count(b'\\n')))"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert (tmp_path / "j.jsonl").read_text("utf-8").split() == [str(place) for place in range(100)]


def test_a_root_of_a_scheme_that_cannot_be_opened_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    with pytest.raises(InputError, match="Protocol not known"):
        Store("nowhere://x").names("corpora")

    def missing(url: str) -> None:
        raise ImportError("Install paramiko to access SFTP")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(
        MissingToolError, match=r"sftp://x needs a package that is not installed \(Install paramiko"
    ):
        Store("sftp://x").exists("corpora")


@pytest.mark.slow
def test_the_package_loads_where_there_is_no_fcntl() -> None:
    code = """
import importlib, sys
sys.modules["fcntl"] = None
from certify_assets.storage.store import Store
for name in ("operations.batches", "defs.execution", "judges.endpoint.scoring", "cli.main"):
    importlib.import_module(f"certify_assets.{name}")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
