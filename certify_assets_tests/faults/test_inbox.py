"""Many files at once: the sensor answers within its minute, one run a corpus."""

import gzip
import io
import json
import lzma
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora import inbox
from certify_assets.corpora.formats import import_corpus
from certify_assets.corpora.inbox import scan_incoming
from certify_assets.storage.store import Store
from certify_assets_tests.defs.running import SENSORS
from certify_assets_tests.defs.test_sensors import _tick
from certify_assets_tests.faults.small import land

_SECONDS_OF_A_SENSOR = 60.0


def _run(number: int, text: str) -> bytes:
    record = {
        "task_id": f"t{number % 50}",
        "trajectory_id": f"r{number}",
        "agent": "a",
        "outcome": number % 2,
        "text": f"{number} {text}",
    }
    return (json.dumps(record) + "\n").encode()


@pytest.mark.slow
def test_a_thousand_files_of_runs_are_seen_within_the_sensors_minute(store: Store) -> None:
    text = "x" * 50_000
    for number in range(1000):
        land(store, f"{'abc'[number % 3]}/run_{number:04d}.jsonl", _run(number, text))
    started = time.monotonic()
    requests, cursor, _ = _tick(store, SENSORS["new_runs"])
    first = time.monotonic() - started
    assert sorted(str(request.partition_key) for request in requests) == ["a", "b", "c"]
    assert first < _SECONDS_OF_A_SENSOR
    started = time.monotonic()
    assert _tick(store, SENSORS["new_runs"], cursor)[0] == []
    second = time.monotonic() - started
    print(
        f"1,000 files (50 MB) in three corpora: {first:.2f} s, looked at again {second:.2f} s; one run a corpus"
    )
    read = import_corpus(Path(store.root) / "incoming/a", format="table", name="a")
    assert len(read.frame) == 334


def _parquet(rows: bytes) -> bytes:
    stored = io.BytesIO()
    pd.read_json(io.BytesIO(rows), lines=True).to_parquet(stored)
    return stored.getvalue()


def _zipped(rows: bytes) -> bytes:
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as archive:
        archive.writestr("runs.jsonl", rows)
    return stored.getvalue()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("r.jsonl.gz", gzip.compress),
        ("r.jsonl.xz", lzma.compress),
        ("r.zip", _zipped),
        ("r.parquet", _parquet),
    ],
)
def test_a_file_that_is_cut_off_waits_until_it_is_whole(
    store: Store, name: str, pack: Callable[[bytes], bytes]
) -> None:
    whole = pack(_run(1, "x" * 5_000))
    path = land(store, f"c/{name}", whole[:-20])
    incoming = Path(store.root) / "incoming"
    for _ in range(2):
        arrivals, waiting = scan_incoming(store, incoming)
        assert not arrivals and "is not complete or is broken" in waiting["c"]
    path.write_bytes(whole)
    os.utime(path, (2, 2))
    assert "changed" in scan_incoming(store, incoming)[1]["c"]
    assert [arrival.corpus for arrival in scan_incoming(store, incoming)[0]] == ["c"]


def test_one_budget_is_for_all_corpora_of_a_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:

    for corpus in "abc":
        for number in range(3):
            land(store, f"{corpus}/{number}.jsonl", _run(number, corpus))
    monkeypatch.setattr(inbox, "_HASH_SECONDS", -1.0)
    arrivals, waiting = scan_incoming(store, Path(store.root) / "incoming")
    assert arrivals == []
    assert set(waiting) == {"a", "b", "c"}
    assert all("the next look resumes" in reason for reason in waiting.values())
    monkeypatch.setattr(inbox, "_HASH_SECONDS", 30.0)
    assert len(scan_incoming(store, Path(store.root) / "incoming")[0]) == 3
