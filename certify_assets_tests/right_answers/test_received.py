"""Runs that come again are neither decided nor reviewed again."""

import json
from pathlib import Path

import pytest

from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.operations_builders import deliver


def test_the_same_runs_under_other_ids(
    call: Call, operated: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # nothing answers there, and no deployment waits for it
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    root = ("--root", operated.root)
    assert call("ops", "deploy", "c", "lexical", *root).code == 0
    runs = deliver(tmp_path / "new.jsonl", tasks=10)
    assert call("ops", "ingest", "c", runs, *root).code == 0
    records = [json.loads(line) for line in runs.read_text("utf-8").splitlines()]
    # one attempt more that reads like an earlier one is a run of its own
    records.append({**records[0], "trajectory_id": "more"})
    for number, record in enumerate(records[:-2]):
        record["trajectory_id"] = f"again-{number}"
    runs.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    again = call("ops", "ingest", "c", runs, *root)
    assert again.code == 0
    assert "41 runs read; 1 new, 0 changed, 40 received before" in again.err
    assert "39 runs came before under other ids" in again.err and "again-0" in again.err
    assert "1 runs" in again.out
