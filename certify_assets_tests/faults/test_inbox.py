"""Looks at many files that take long."""

import json
from pathlib import Path

import pytest

from certify_assets.corpora import inbox
from certify_assets.corpora.inbox import scan_incoming
from certify_assets.storage.store import Store
from certify_assets_tests.faults.small import land


def _run(number: int, text: str) -> bytes:
    record = {
        "task_id": f"t{number % 50}",
        "trajectory_id": f"r{number}",
        "agent": "a",
        "outcome": number % 2,
        "text": f"{number} {text}",
    }
    return (json.dumps(record) + "\n").encode()


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
