from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from certify_assets.errors import LedgerError
from certify_assets.protocol.ledger import ledger_entries, ledger_violations, read_test, register
from certify_assets.protocol.store import Store

PLAN = {"manifest_sha256": "m", "seed": 42, "grid": 40, "alphas": [0.1], "delta": 0.05}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(str(tmp_path))
    store.write_table("corpora/c/splits/test.parquet", pd.DataFrame({"trajectory_id": ["a"], "outcome": [1]}))
    return store


def _read(store: Store, registration: str, **configuration: str) -> str:
    return read_test(store, "c", judge="j", registration=registration, configuration=configuration, run_id="r")[1].kind


def test_the_first_read_is_recorded_and_a_repetition_is_a_replay(store: Store) -> None:
    registration = register(store, "c", PLAN, run_id="r")
    assert _read(store, registration, scores="s") == "first"
    assert _read(store, registration, scores="s") == "replay"
    assert ledger_violations(store, "c") == []
    assert [entry.kind for entry in ledger_entries(store, "c")] == ["registration", "first", "replay"]


def test_a_changed_configuration_after_a_result_is_a_violation(store: Store) -> None:
    registration = register(store, "c", PLAN, run_id="r")
    _read(store, registration, scores="s")
    assert _read(store, registration, scores="other") == "changed"
    assert [entry.kind for entry in ledger_violations(store, "c", "j")] == ["changed"]
    assert ledger_violations(store, "c", "another judge") == []


def test_an_unregistered_read_is_refused_and_recorded(store: Store) -> None:
    with pytest.raises(LedgerError, match="register first"):
        _read(store, "0" * 64, scores="s")
    assert [entry.kind for entry in ledger_violations(store, "c")] == ["unregistered"]


def test_registering_again_adds_nothing_and_another_plan_is_another_line(store: Store) -> None:
    first = register(store, "c", PLAN, run_id="r")
    assert register(store, "c", dict(reversed(PLAN.items())), run_id="r") == first
    assert register(store, "c", {**PLAN, "seed": 43}, run_id="r") != first
    assert len(ledger_entries(store, "c")) == 2


def test_an_altered_ledger_is_told(store: Store) -> None:
    register(store, "c", PLAN, run_id="r")
    store.append_line("ledger/c.jsonl", '{"kind": "first"}')
    with pytest.raises(LedgerError, match="line 2"):
        ledger_entries(store, "c")
