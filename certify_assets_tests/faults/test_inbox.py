"""Many files at once: the sensor answers within its minute, one run a corpus."""

import json
import time
from pathlib import Path

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
