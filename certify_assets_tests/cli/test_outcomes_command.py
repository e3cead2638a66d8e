"""``certify ops outcomes``: what it stores, shows and refuses."""

from pathlib import Path

import pandas as pd
import pytest

from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.recertification_builders import deploy_by_hand, drawn_tasks, write_batch

PLAN = SamplingPlan(0.2, 7)
AUDIT = drawn_tasks(PLAN, "one", 40)


@pytest.fixture
def rows(corpora: Store) -> pd.DataFrame:
    deploy_by_hand(corpora, "one", PLAN)
    return write_batch(corpora, "one", "0001-a", PLAN, tasks=[*AUDIT, "nobody-asks"], error=0.7)


def test_outcomes_raise_an_alarm_and_are_counted(
    call: Call, rows: pd.DataFrame, tmp_path: Path
) -> None:
    table = rows.rename(columns={"trajectory_id": "run", "truth": "merged"})[["run", "merged"]]
    table.loc[len(table)] = ["elsewhere", 1]
    table.to_csv(tmp_path / "ci.csv", index=False)
    words = f"ops outcomes one {tmp_path}/ci.csv --source ci --columns id=run,outcome=merged"
    answer = call(f"{words} --json")
    document = answer.json
    assert answer.code == 3 and document["monitor"]["status"] == "alarm"
    (page,) = tmp_path.rglob("pages/judges/*/one/monitor.html")
    assert "Alarm: labelled tasks" in page.read_text("utf-8")
    assert (document["added"], document["unknown"]) == (len(rows), 1)
    assert document["uses"] == {"monitor": 40, "labelled": 0, "not_drawn": len(rows) - 40}
    wrong = rows[(rows["decision"] == "reject") & (rows["truth"] == 1)]
    assert [item["trajectory_id"] for item in document["wrong"]] == wrong["trajectory_id"].tolist()
    again = call(words)
    assert again.code == 3 and f"0 outcomes added, {len(rows)} known before" in again.out
    assert "no random sample" in again.out and "Monitor: auto-fail" in again.out
    known = call("ops status one --json").json["outcomes"]
    assert known == {"runs": len(rows), "wrong": len(wrong), "contradicted": 0}


def test_a_file_without_a_decided_run_is_refused(
    call: Call, rows: pd.DataFrame, tmp_path: Path
) -> None:
    (tmp_path / "o.csv").write_text("trajectory_id,outcome\nelsewhere,1\n", "utf-8")
    answer = call(f"ops outcomes one {tmp_path}/o.csv")
    assert answer.code == 2 and "no outcome of a decided run" in answer.err
