"""Folders, archives, compressed files and what must not be read from them."""

import gzip
import io
import os
import stat
import zipfile
from pathlib import Path

from certify_assets.corpora.formats.files import FileSet, SourceFile, Tally


def names(path: Path, tally: Tally) -> list[str]:
    return [file.name for file in FileSet([path], {".json"}, tally)]


def test_a_compressed_file_is_read_as_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"{}"))
    (file,) = FileSet([tmp_path], {".json"}, Tally())
    assert (file.suffix, file.read(), file.head(1)) == (".json", b"{}", b"{")
    assert file.sha256() != SourceFile("a.json", lambda: io.BytesIO(b"{}")).sha256(), (
        "the hash is of the file as it is stored"
    )


def test_a_zip_is_read_in_place_and_safely(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "runs.zip", "w") as archive:
        for name in (
            "./a/.one.json",
            "a/.git/copy.json",
            "../evil.json",
            "/abs.json",
            "a\\b.json",
            "two.txt",
            "inner.tar.gz",
            "inner.zip",
        ):
            archive.writestr(name, "{}")
        link = zipfile.ZipInfo("link.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    tally = Tally()
    assert names(tmp_path / "runs.zip", tally) == ["runs.zip/./a/.one.json"]
    assert tally.dropped == {
        "file_hidden": 1,
        "file_unsafe_path": 3 if os.sep == "/" else 2,
        "file_nested_archive": 2,
        "file_not_regular": 1,
    }
    assert list(tally.others) == ["runs.zip/two.txt"]


def test_a_broken_zip_gives_what_it_has(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as archive:
        archive.writestr("a.json", "{}")
    (tmp_path / "cut.zip").write_bytes((tmp_path / "whole.zip").read_bytes()[:-30])
    tally = Tally()
    assert names(tmp_path / "cut.zip", tally) == [] and tally.dropped == {"file_broken_archive": 1}
