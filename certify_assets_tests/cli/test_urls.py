"""Corpora whose runs are behind URLs, on a real S3 server."""

from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from certify_assets.corpora.config import CorpusConfig
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.inbox import scan_declared
from certify_assets.errors import InputError
from certify_assets.files import sha256_file
from certify_assets.storage.folder import Folder
from certify_assets.storage.store import Store
from certify_assets.storage.urls import RemoteFiles
from certify_assets_tests.builders import write_runs
from certify_assets_tests.cli.calling import Call


@pytest.mark.slow
def test_runs_behind_a_url_are_imported_and_the_url_stays(
    call: Call, s3_root: str, tmp_path: Path
) -> None:
    bucket, root = Folder(s3_root), str(tmp_path / "root")
    one, other = (write_runs(tmp_path / f"{seed}.jsonl", tasks=30, seed=seed) for seed in (1, 2))
    bucket.write("runs/day/a.jsonl", one.read_bytes())
    assert call(f"corpus import {s3_root}/runs/day/a.jsonl --name c --root {root}").code == 0
    corpus = Corpus(Store(root), "c")
    assert corpus.config.paths == (f"{s3_root}/runs/day/a.jsonl",)
    assert list(corpus.import_summary.files) == ["a.jsonl"]
    answer = call(f"corpus import {s3_root}/runs/day --name c --replace --root {root}")
    assert answer.code == 0, answer.err
    first = Corpus(Store(root), "c").import_summary
    assert first.files == {"day/a.jsonl": sha256_file(one)}
    # the runs are read again from there
    bucket.write("runs/day/a.jsonl", other.read_bytes())
    Corpus(Store(root), "c").import_trajectories()
    assert Corpus(Store(root), "c").import_summary.files == {"day/a.jsonl": sha256_file(other)}


def test_what_a_url_has_not_is_a_sentence_that_names_it(
    call: Call, s3_root: str, tmp_path: Path
) -> None:
    root = str(tmp_path / "root")
    for place in (f"{s3_root}/none", f"{s3_root}/broken/a.jsonl"):
        Folder(s3_root).write("broken/a.jsonl", b"{}")
        answer = call(f"corpus import {place} --name c --root {root}")
        assert answer.code == 2 and place in answer.err and "/tmp" not in answer.err
    with pytest.raises(InputError, match=r"^the path s3://bucket/runs has a user, a password or a"):
        CorpusConfig("c", paths=("s3://key:secret@bucket/runs",))
    answer = call(f"corpus import http://127.0.0.1:9/a.csv --name c --root {root}")
    assert answer.code == 2 and "its server does not answer" in answer.err
    with pytest.raises(InputError, match=r"^s3://nowhere/x cannot be read"):
        RemoteFiles.of("s3://nowhere/x")


def test_an_error_of_an_object_store_is_a_sentence(call: Call) -> None:
    class NoCredentialsError(Exception):
        pass

    class Locked(MemoryFileSystem):
        protocol = "locked"

        def isfile(self, path: str) -> bool:
            raise NoCredentialsError(path)

    fsspec.register_implementation("locked", Locked, clobber=True)
    answer = call("certificate locked://bucket/scores.csv")
    assert answer.code == 2
    said = "locked://bucket/scores.csv cannot be read (NoCredentialsError); check"
    assert answer.err.startswith(f"certify: {said}")


def test_declared_urls_arrive_once_two_looks_agree(s3_root: str, tmp_path: Path) -> None:
    bucket, store = Folder(s3_root), Store(str(tmp_path / "root"))
    here = write_runs(tmp_path / "here.jsonl", tasks=2)
    config = CorpusConfig("mine", paths=(str(here), f"{s3_root}/runs"))

    def look() -> tuple[list[str], str]:
        arrivals, waiting = scan_declared(store, [config], now=4e9)
        return [item.version for item in arrivals], waiting.get("mine", "")

    assert look()[1] == f"there is no file in {s3_root}/runs"
    bucket.write("runs/a.jsonl", here.read_bytes())
    assert look()[1] == f"{s3_root}/runs/a.jsonl is new or changed since the last look"
    (first,), _ = look()
    assert look() == ([first], "")
    bucket.write("runs/b.jsonl.part", b"")
    assert look()[1].endswith("b.jsonl.part may still be written")
    bucket.delete("runs/b.jsonl.part")
    assert look()[1].endswith("b.jsonl.part is gone since the last look")
    assert look() == ([first], "")
    bucket.write("runs/a.jsonl", b"other")
    assert not look()[0]
    (other,), _ = look()
    assert other != first
