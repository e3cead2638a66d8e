"""Data roots on a real S3 server: what the server promises, and what is built on it."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import obstore
import pandas as pd
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import from_url

from certify_assets.errors import CertifyError, InputError, MissingToolError
from certify_assets.storage.backends import backend_of
from certify_assets.storage.journal import Journal
from certify_assets.storage.lease import Held, Lease
from certify_assets.storage.store import Store
from certify_assets_tests.paths import REPOSITORY
from certify_assets_tests.services import object_store

_WRITERS, _LINES = 2, 20


def _at_once(write: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=write, args=(number,)) for number in range(_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_server_honours_conditions_under_two_writers(s3_root: str) -> None:
    store, created, lost = from_url(s3_root), [], []

    def create(number: int) -> None:
        for place in range(_LINES):
            try:
                obstore.put(store, f"created/{place}", b"%d" % number, mode="create")
                created.append(place)
            except AlreadyExistsError:
                pass

    def append(number: int) -> None:
        for _ in range(_LINES):
            while True:
                found = obstore.get(store, "journal")
                longer = bytes(found.bytes()) + b"%d\n" % number
                try:
                    obstore.put(store, "journal", longer, mode={"e_tag": found.meta["e_tag"]})
                    break
                except PreconditionError:
                    lost.append(number)

    _at_once(create)
    assert sorted(created) == list(range(_LINES))
    obstore.put(store, "journal", b"")
    _at_once(append)
    lines = bytes(obstore.get(store, "journal").bytes()).split()
    assert lines.count(b"0") == lines.count(b"1") == _LINES and len(lines) == 2 * _LINES
    # without a condition that was refused the two never met, and nothing was shown
    assert lost


def test_documents_tables_and_streams_come_back(s3_root: str) -> None:
    store = Store(s3_root)
    assert not store.is_local and store.names("a") == [] and not store.exists("a")
    store.write_json("a/b.json", {"x": [1, "ä"]})
    store.write_table("a/c/t.parquet", pd.DataFrame({"n": [1, 2]}))
    assert store.read_json("a/b.json") == {"x": [1, "ä"]}
    assert store.read_table("a/c/t.parquet")["n"].tolist() == [1, 2]
    assert store.names("a") == ["b.json", "c"] and store.exists("a/c") and not store.exists("a/d")

    def whole(sink: IO[bytes]) -> None:
        sink.writelines([b"x" * 10, b"y"])

    def broken(sink: IO[bytes]) -> None:
        sink.write(b"half")
        raise InputError("no more")

    sha256 = store.write_stream("a/s.bin", whole)
    with pytest.raises(InputError, match="no more"):
        store.write_stream("a/s.bin", broken)
    store.copy("a/s.bin", "a/copy.bin")
    assert store.sha256("a/copy.bin") == store.sha256("a/s.bin") == sha256
    store.delete("a/s.bin")
    store.delete("a/s.bin")
    with pytest.raises(InputError, match=r"a/s\.bin does not exist; run the command"):
        store.read_bytes("a/s.bin")
    with pytest.raises(InputError, match="cannot be a file name"):
        store.copy("a/copy.bin", "../out")


_APPEND = """
import sys
from certify_assets.storage.journal import Journal
from certify_assets.storage.store import Store
journal = Journal(Store(sys.argv[1]), "j.jsonl", dict, dump=dict, heads="heads.jsonl")
for place in range({lines}): journal.append({{"writer": sys.argv[2], "place": place}})
"""


def test_two_processes_lose_no_line_of_a_chained_journal(s3_root: str) -> None:
    command = [sys.executable, "-c", _APPEND.format(lines=_LINES), s3_root]
    writers = [
        subprocess.Popen([*command, str(number)], cwd=REPOSITORY) for number in range(_WRITERS)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    journal: Journal[Any] = Journal(Store(s3_root), "j.jsonl", dict, dump=dict, heads="heads.jsonl")
    for number in range(_WRITERS):
        mine = [entry["place"] for entry in journal.read() if entry["writer"] == str(number)]
        assert mine == list(range(_LINES))


def test_a_write_that_is_stored_and_whose_answer_is_lost_counts_once(s3_root: str) -> None:
    store = Store(s3_root)
    asked: list[int] = []

    def line(old: bytes) -> str:
        asked.append(len(old))
        return "a line"

    # the server stores it and answers 503; the second request finds that another came first
    store.append_line("stumbling/j.jsonl", line)
    assert store.read_bytes("stumbling/j.jsonl") == b"a line\n" and asked == [0]


def test_one_of_several_takes_a_lease_and_leaves_it_to_the_next(s3_root: str) -> None:
    store, winners = Store(s3_root), []

    def lease(owner: str) -> Lease:
        return Lease(store, "retail", owner=owner, what="a test")

    def contend(number: int) -> None:
        mine = lease(f"run {number}")
        if mine.take() is None:
            winners.append(mine)

    _at_once(contend)
    (winner,) = winners
    other = lease("run b")
    held = other.take()
    assert held is not None and held.owner == winner.owner
    assert winner.renew() and winner.leave() and not winner.renew() and not winner.leave()
    assert Held.parse(store.read_bytes("leases/retail.json")) is None
    assert other.take() is None
    # one whose time has passed is taken over, and its holder learns it
    document = json.loads(store.read_bytes("leases/retail.json"))
    document["holders"][0]["expires"] = 0.0
    store.write_bytes("leases/retail.json", json.dumps(document).encode())
    assert lease("run c").take() is None and not other.renew()


def test_exclusive_journals_are_refused_where_conditions_are_not_honoured(
    s3_root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for root in (s3_root, str(tmp_path)):
        Store(root).require_exclusive("a deployment")
    assert backend_of(s3_root).names("leases") == []
    refused = "^a deployment needs a data root that refuses a write .*, which {} does not; use a "
    with pytest.raises(InputError, match=refused.format("memory://x")):
        Store("memory://x").require_exclusive("a deployment")
    with object_store("--unconditional") as older:
        for name, value in older.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(InputError, match=refused.format("s3://certify/older")):
            Store("s3://certify/older").require_exclusive("a deployment")


def test_what_a_server_refuses_is_a_sentence_without_secrets(
    s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"^there is no bucket for s3://nowhere/x; create it"):
        Store("s3://nowhere/x").write_bytes("a", b"")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9/?sig=secret")
    monkeypatch.setattr("certify_assets.storage.objects._RETRIES", {"max_retries": 0})
    with pytest.raises(CertifyError, match=r"^s3://certify/nobody/a cannot be read") as error:
        Store("s3://certify/nobody").read_bytes("a")
    assert "secret" not in str(error.value) and error.value.__suppress_context__
    with pytest.raises(InputError, match="holds a password"):
        Store("s3://key:secret@certify/x")


def test_a_root_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingToolError, match=r"s3://x/y needs .* install certify_assets\[s3\]"):
        Store("s3://x/y").exists("corpora")
