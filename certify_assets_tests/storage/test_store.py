import os
import stat
from pathlib import Path
from typing import IO

import pandas as pd
import pytest

from certify_assets.errors import InputError, MissingToolError
from certify_assets.storage.store import Store


def test_documents_and_tables_come_back(store: Store) -> None:
    store.write_json("corpora/c/b.json", {"x": [1, "ä"]})
    assert store.read_json("corpora/c/b.json") == {"x": [1, "ä"]}
    frame = pd.DataFrame({"n": [1, 2]})
    store.write_table("corpora/c/t.parquet", frame)
    assert store.read_table("corpora/c/t.parquet").equals(frame)
    assert store.names("corpora/c") == ["b.json", "t.parquet"] and store.names("nothing") == []
    with store.as_folder("corpora/c") as folder:
        assert sorted(path.name for path in folder.iterdir()) == ["b.json", "t.parquet"]
    store.delete("corpora/c/b.json")
    assert not store.exists("corpora/c/b.json")
    store.remove_tree("corpora/c")
    assert store.names("corpora/c") == []


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
def test_keys_cannot_leave_the_root(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match="cannot be a file name"):
        Store(str(tmp_path)).write_bytes(key, b"x")


def test_a_write_that_fails_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    store.write_bytes("a.json", b"old")

    def refuse(*_: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", refuse)
        with pytest.raises(OSError, match="no space left"):
            store.write_bytes("a.json", b"new")
    assert store.read_bytes("a.json") == b"old"
    assert not list(tmp_path.rglob("*.part"))


def test_a_file_and_its_name_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[bool] = []

    def note(handle: int) -> None:
        folders.append(stat.S_ISDIR(os.fstat(handle).st_mode))

    monkeypatch.setattr("os.fsync", note)
    Store(str(tmp_path)).folder.write("a.json", b"new")
    assert folders == [False, True]


def test_settings_that_cannot_be_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    store.folder.write("judges.yaml", b"\xff")
    with pytest.raises(InputError, match="cannot be read as UTF-8 text"):
        store.read_settings("judges.yaml", "CERTIFY_SETTINGS")
    monkeypatch.setenv("CERTIFY_SETTINGS", str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match="correct CERTIFY_SETTINGS or the file"):
        store.read_settings("judges.yaml", "CERTIFY_SETTINGS")


def test_a_remote_root_has_no_paths() -> None:
    with pytest.raises(InputError, match="remote"):
        Store("memory://x").local_path("a")


def test_a_root_of_a_scheme_that_cannot_be_opened_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    with pytest.raises(InputError, match="nowhere://x cannot be opened"):
        Store("nowhere://x").folder.names("inbox")

    def missing(url: str, **_: object) -> None:
        raise ImportError("Install paramiko to access SFTP")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(
        MissingToolError, match=r"sftp://x needs a package that is not installed \(Install paramiko"
    ):
        Store("sftp://x").folder.exists("inbox")


def test_a_link_does_not_lead_a_page_out_of_the_root(tmp_path: Path) -> None:
    store, outside = Store(str(tmp_path / "root")), tmp_path / "outside"
    outside.mkdir()
    store.folder.path("pages").mkdir(parents=True)
    store.folder.path("pages/judges").symlink_to(outside)
    with pytest.raises(InputError, match="by a symbolic link; remove the link"):
        store.write_bytes("judges/lexical/c/page.html", b"<p>")
    assert not list(outside.iterdir())
    (outside / "page.html").touch()
    with pytest.raises(InputError, match="by a symbolic link; remove the link"):
        store.folder.delete("pages/judges/page.html")
    assert (outside / "page.html").exists()
