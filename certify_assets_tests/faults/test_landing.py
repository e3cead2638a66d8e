"""What lands all at once, lands broken or takes long: the sensor answers within its minute, one run a corpus, nobody waits for another."""

import gzip
import json
import os
import time
import zipfile
from pathlib import Path

import pytest

from certify_assets.corpora import landing
from certify_assets.corpora.formats import import_corpus
from certify_assets.corpora.landing import Look, WaitingError, scan_incoming
from certify_assets.defs.operations.sensors import new_runs_sensor
from certify_assets.storage.store import Store
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
    land(store, "broken/cut.jsonl.gz", gzip.compress(_run(0, text))[:40])
    started = time.monotonic()
    requests, cursor, _ = _tick(store, new_runs_sensor)
    first = time.monotonic() - started
    assert sorted(str(request.partition_key) for request in requests) == ["a", "b", "c"]
    assert first < _SECONDS_OF_A_SENSOR
    started = time.monotonic()
    assert _tick(store, new_runs_sensor, cursor)[0] == []
    second = time.monotonic() - started
    print(
        f"1,000 files (50 MB) in three corpora: {first:.2f} s, looked at again {second:.2f} s; one run a corpus, a broken file told"
    )
    read = import_corpus(Path(store.root) / "incoming/a", format="table", name="a")
    assert len(read.frame) == 334


def test_a_file_that_takes_too_long_is_told_and_not_read_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(store, "slow/big.jsonl.gz", gzip.compress(b"\0" * (64 << 20), compresslevel=1))
    monkeypatch.setattr(landing, "_FILE_SECONDS", 0.0)
    arrivals, waiting = scan_incoming(store, Path(store.root) / "incoming")
    assert "takes longer than 0 seconds to read; split or unpack it" in waiting["slow"]
    monkeypatch.undo()
    land(store, "zfine/runs.jsonl", _run(1, "x"))
    monkeypatch.setattr(
        landing,
        "_read",
        lambda path: (
            pytest.fail(f"{path} was read again") if path.name == "big.jsonl.gz" else "0" * 64
        ),
    )
    arrivals, waiting = scan_incoming(store, Path(store.root) / "incoming")
    assert [arrival.corpus for arrival in arrivals] == ["zfine"]
    assert "takes longer" in waiting["slow"]


def test_a_refused_file_is_read_again_when_it_changes(store: Store) -> None:
    path = land(store, "c/runs.zip", b"PK not a zip")
    look = Look(Path(store.root) / "seen.json")
    for _ in range(2):
        with pytest.raises(WaitingError, match="not complete or broken"):
            look.files([path.parent])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("runs.jsonl", _run(1, "x"))
    os.utime(path, (2, 2))
    with pytest.raises(WaitingError, match="grew"):
        look.files([path.parent])
    assert look.files([path.parent])


def test_one_budget_is_for_all_corpora_of_a_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:

    for corpus in "abc":
        for number in range(3):
            land(store, f"{corpus}/{number}.jsonl", _run(number, corpus))
    monkeypatch.setattr(landing, "_SCAN_SECONDS", 0.0)
    read = landing._read
    monkeypatch.setattr(landing, "_read", lambda path: (time.sleep(0.01), read(path))[1])
    arrivals, waiting = scan_incoming(store, Path(store.root) / "incoming")
    assert arrivals == []
    assert set(waiting) == {"a", "b", "c"}
    assert all("the next look resumes" in reason for reason in waiting.values())
    monkeypatch.setattr(landing, "_SCAN_SECONDS", 30.0)
    assert len(scan_incoming(store, Path(store.root) / "incoming")[0]) == 3
