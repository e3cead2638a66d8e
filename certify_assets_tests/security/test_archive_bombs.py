"""Archives and tables made to fill memory or disk: each costs a sentence, and memory stays bounded."""

import gzip
import json
import resource
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora.formats import import_corpus, records
from certify_assets.errors import InputError
from certify_assets_tests.paths import REPOSITORY

ZEROS = b"\0" * (1 << 20)
ROWS = b'{"task_id": "a", "outcome": 1, "text": "x"}\n'


def _tar_header(kind: bytes, megabytes: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        info = tarfile.TarInfo("x")
        info.type, info.size = kind, megabytes << 20
        path = folder / "bomb.tar.gz"
        with gzip.open(path, "wb", compresslevel=1) as stream:
            stream.write(info.tobuf(tarfile.USTAR_FORMAT))
            for _ in range(megabytes):
                stream.write(ZEROS)
            stream.write(b"\0" * 1024)
        return path

    return write


def _zipped(name: str, megabytes: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        with (
            zipfile.ZipFile(
                folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1
            ) as archive,
            archive.open(name, "w") as stream,
        ):
            for _ in range(megabytes):
                stream.write(ZEROS)
        return folder / "bomb.zip"

    return write


def _gzipped(folder: Path) -> Path:
    with gzip.open(folder / "bomb.jsonl.gz", "wb", compresslevel=1) as stream:
        for _ in range(300):
            stream.write(ZEROS)
    return folder / "bomb.jsonl.gz"


BOMBS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "tar with a PAX header of half a gigabyte": (
        _tar_header(tarfile.XHDTYPE, 512),
        "of which 1,048,576 are allowed",
    ),
    "tar with a long name of half a gigabyte": (
        _tar_header(tarfile.GNUTYPE_LONGNAME, 512),
        "of which 1,048,576 are allowed",
    ),
    "zip of one member of zeros": (_zipped("runs.jsonl", 300), "the limit is 268,435,456"),
    "gzip of zeros": (_gzipped, "the limit is 268,435,456"),
}

_CODE = """
import resource, sys
from certify_assets.corpora.formats import import_corpus
from certify_assets.errors import InputError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    import_corpus(sys.argv[1], format="table", name="c")
except InputError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_a_sentence_and_in_bounded_memory(tmp_path: Path, name: str) -> None:
    make, words = BOMBS[name]
    path = make(tmp_path)
    limit = 6 << 30
    done = subprocess.run(
        [sys.executable, "-c", _CODE, str(path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode == 0, done.stderr
    *said, megabytes = done.stdout.splitlines()
    print(f"{name}: {path.stat().st_size:,} bytes, {megabytes} MB more memory")
    assert words in "\n".join(said) and int(megabytes) < 800
    assert sorted(item.name for item in tmp_path.iterdir()) == [path.name]


def test_members_that_climb_are_counted_and_nothing_is_unpacked(tmp_path: Path) -> None:
    for name in ("../x.jsonl", "/x.jsonl", "a/../../x.jsonl", "a\\..\\x.jsonl"):
        with zipfile.ZipFile(tmp_path / "climbs.zip", "w") as archive:
            archive.writestr(name, ROWS)
            archive.writestr("fine.jsonl", ROWS)
        read = import_corpus(tmp_path / "climbs.zip", format="table", name="c")
        assert read.dropped == {"file_unsafe_path": 1}
        assert list(read.files) == ["climbs.zip/fine.jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == ["climbs.zip"]
    assert not (tmp_path.parent / "x.jsonl").exists()


def test_json_that_nests_without_end_costs_its_record(tmp_path: Path) -> None:
    deep = json.dumps({"task_id": "a", "outcome": 1, "text": "x"})
    (tmp_path / "runs.jsonl").write_text(
        "[" * 200_000 + "\n" + deep + "\n" + '{"task_id": "b", "steps": ' + "[" * 99_999 + "\n",
        "utf-8",
    )
    read = import_corpus(tmp_path / "runs.jsonl", format="table", name="c")
    assert len(read.frame) == 1 and read.dropped["unreadable_record"] == 2


def test_a_row_group_beyond_the_limit_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FILE_BYTES", 100)
    path = tmp_path / "runs.parquet"
    frame = pd.DataFrame({"task_id": ["a", "b"], "text": ["x", "y"], "outcome": [1, 0]})
    frame.to_parquet(path)
    with pytest.raises(InputError, match=r"a row group of runs\.parquet is too large"):
        import_corpus([path], name="c", format="table")
