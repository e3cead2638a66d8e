"""Tasks of the certificate are no new evidence, whatever row is left out or added."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call


@pytest.fixture
def cal(call: Call, tmp_path: Path) -> pd.DataFrame:
    rows = score_rows(tasks=120, attempts=4, seed=3)
    rows.to_csv(tmp_path / "cal.csv", index=False)
    assert call(f"certificate {tmp_path}/cal.csv --side reject --out {tmp_path}/c.json").code == 0
    return rows


def new_rows() -> pd.DataFrame:
    rows = score_rows(tasks=120, attempts=4, seed=4)
    return rows.assign(
        task_id="new-" + rows["task_id"], trajectory_id="new-" + rows["trajectory_id"]
    )


def ask(call: Call, command: str, rows: pd.DataFrame, folder: Path) -> Any:
    rows.to_csv(folder / "next.csv", index=False)
    return call(f"{command} {folder}/c.json {folder}/next.csv --json")


def test_an_audit_on_rows_of_the_certificate_warns(
    call: Call,
    cal: pd.DataFrame,
    tmp_path: Path,
) -> None:
    assert ask(call, "audit", new_rows(), tmp_path).json["verdict"] == "PASS"
    for rows, known, tasks in (
        (cal, 120, 120),
        (cal[cal["task_id"] != "t000"], 119, 119),
        (cal.iloc[1:], 120, 120),
        (pd.concat([cal, new_rows()]), 120, 240),
        (cal.assign(task_id=cal["task_id"].str.upper()), 120, 120),
    ):
        found = ask(call, "audit", rows, tmp_path).json
        assert (found["verdict"], found["known_tasks"]) == ("WARN", known)
        said = f"{known} of {tasks} tasks are those the certificate was issued on; give new tasks."
        assert said in found["reason"]


def test_a_monitor_bets_on_new_tasks_alone(
    call: Call,
    cal: pd.DataFrame,
    tmp_path: Path,
) -> None:
    alone = ask(call, "monitor", new_rows(), tmp_path).json
    found = ask(call, "monitor", pd.concat([cal, new_rows()]), tmp_path).json
    assert found["known_tasks"] == 120 and alone["known_tasks"] == 0
    finding = next(item for item in found["findings"] if item["code"] == "known_tasks")
    assert "120 of 240 tasks" in finding["message"]
    for name in ("e_value", "tasks", "trajectories", "interval", "errors"):
        assert found[name] == alone[name]
    for rows in (cal, cal.iloc[1:]):
        refused = ask(call, "monitor", rows, tmp_path)
        assert refused.code == 2 and "120 of 120 tasks are those" in refused.err


def test_digests_of_a_large_table_stay_few(call: Call, tmp_path: Path) -> None:
    rows = score_rows(tasks=6000, attempts=1, seed=5)
    rows.to_csv(tmp_path / "large.csv", index=False)
    call(f"certificate {tmp_path}/large.csv --side reject --out {tmp_path}/c.json")
    document = json.loads((tmp_path / "c.json").read_text("utf-8"))
    assert len(document["inputs"]["tasks"].split()) == 4096
    assert "t0001" not in json.dumps(document)
    found = ask(call, "audit", rows.iloc[1:], tmp_path).json
    assert found["verdict"] == "WARN" and "At least 409" in found["reason"]
    refused = ask(call, "monitor", pd.concat([rows, new_rows()]), tmp_path)
    assert refused.code == 2 and "At least 4096 of 6120 tasks" in refused.err
