"""``certify monitor``: the document, the exit codes, and which labels it takes."""

from pathlib import Path

import pandas as pd
import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

KEYS = {
    "alarm", "e_value", "tasks", "interval", "detector", "delta", "alpha",
    "certificate_sha256", "first_alarm_task", "certified_at",
}  # fmt: skip


@pytest.fixture
def certificate(call: Call, scores: Path, tmp_path: Path) -> Path:
    # not the widest that could be had: its error leaves room to be shown within 200 tasks
    asked = f"certificate {scores} --side reject --procedure guarded_taskboot"
    assert call(f"{asked} --out {tmp_path}/c.json").code == 0
    return tmp_path / "c.json"


def labels(path: Path, **columns: object) -> Path:
    new_rows().assign(**columns).to_csv(path, index=False)
    return path


def new_rows() -> pd.DataFrame:
    rows = score_rows(tasks=200, attempts=6, seed=11)
    return rows.assign(task_id="new-" + rows["task_id"])


def test_no_alarm_is_zero_with_every_key_of_the_contract(
    call: Call, certificate: Path, tmp_path: Path
) -> None:
    answer = call("monitor", certificate, labels(tmp_path / "l.csv"), "--json")
    document = answer.json
    assert answer.code == 0 and set(document) >= KEYS
    assert (document["alarm"], document["tasks"]) == (False, 200)
    low, high = document["interval"]
    assert low <= document["realized_error"] <= high and document["certified_at"] <= 200
    assert "provenance_not_stated" in {finding["code"] for finding in document["findings"]}


def test_the_keys_of_the_contract_are_also_on_top_for_both_sides(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    assert call(f"certificate {scores} --alpha .2 --out {tmp_path}/both.json").code == 0
    answer = call("monitor", tmp_path / "both.json", labels(tmp_path / "l.csv"), "--json")
    each = answer.json["monitors"]
    worst = max(each, key=lambda one: one["e_value"])
    assert set(answer.json) >= KEYS and {**answer.json, **worst} == answer.json


def test_an_alarm_is_three_and_says_where(call: Call, certificate: Path, tmp_path: Path) -> None:
    frame = new_rows()
    frame["outcome"] = frame["outcome"].where(frame["task_id"] < "new-t100", 1 - frame["outcome"])
    frame.to_parquet(tmp_path / "l.parquet")
    answer = call(f"monitor {certificate} {tmp_path}/l.parquet --json")
    assert answer.code == 3
    assert answer.json["alarm"] is True
    assert "new-t100" <= answer.json["first_alarm_task"] < "new-t140"
    shown = call(f"monitor {certificate} {tmp_path}/l.parquet")
    assert shown.code == 3 and shown.out.startswith("Alarm on auto-fail after ")
    assert "issue a new certificate" in shown.out


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("provenance", "review_queue"),
        ("audit_sample", False),
        ("audit_sample", None),
        ("asked", ""),
    ],
)
def test_review_queue_and_mixed_provenance_are_refused(
    call: Call, certificate: Path, tmp_path: Path, column: str, value: object
) -> None:
    good = True if column == "audit_sample" else "audit_sample"
    path = labels(tmp_path / "l.csv", **{column: [good] * 1199 + [value]})
    answer = call(f"monitor {certificate} {path} --json")
    assert answer.code == 2 and not answer.out
    assert "row 1200" in answer.err and column in answer.err and "review queue" in answer.err


def test_what_else_is_refused(call: Call, certificate: Path, scores: Path, tmp_path: Path) -> None:
    frame = new_rows()
    path = labels(tmp_path / "l.csv", outcome=frame["outcome"].where(frame.index != 4))
    few, nothing = tmp_path / "few.csv", tmp_path / "none.json"
    score_rows(tasks=6, attempts=3).to_csv(few, index=False)
    assert call(f"certificate {few} --side reject --out {nothing}").code == 3
    for given, words in (
        (f"{certificate} {path}", "row 5"),
        (f"{certificate} {scores} --split cal", "issued on"),
        (f"{nothing} {labels(tmp_path / 'whole.csv')}", "certifies nothing"),
    ):
        answer = call(f"monitor {given}")
        assert answer.code == 2 and words in answer.err


def test_where_runs_are_from_is_asked_of_scores_and_of_logs(
    call: Call, certificate: Path, tmp_path: Path
) -> None:
    frame = new_rows()
    said = tmp_path / "said.csv"
    frame[["trajectory_id", "outcome"]].head(600).to_csv(said, index=False)
    queue = frame.index >= 599
    path = labels(tmp_path / "l.csv", asked=["review" if one else "audit_sample" for one in queue])
    answer = call(f"monitor {certificate} {path} --labels {said}")
    assert answer.code == 2 and "review queue" in answer.err
    # rows without a label are not among those that count
    frame[["trajectory_id", "outcome"]].head(599).to_csv(said, index=False)
    assert call(f"monitor {certificate} {path} --labels {said}").code == 0
    scan = tmp_path / "scan"
    scan.mkdir()
    (scan / "_scan.json").write_text("{}", "utf-8")
    about = {
        "transcript_id": frame["trajectory_id"],
        "transcript_task_set": "s",
        "transcript_task_id": frame["task_id"],
        "transcript_model": "m",
        "transcript_success": frame["outcome"].astype(bool),
        "input_type": "transcript",
        "value": frame["score"].astype(str),
        "value_type": "number",
        "validation_target": None,
    }
    pd.DataFrame(about).to_parquet(scan / "judge.parquet")
    columns = "--columns score=judge,outcome=transcript_success"
    assert call(f"monitor {certificate} {scan} {columns}").code == 0


def test_labels_of_their_own_file_are_joined_in_their_order(
    call: Call, certificate: Path, tmp_path: Path
) -> None:
    rows = new_rows().assign(trajectory_id=lambda rows: [f"r{place}" for place in rows.index])
    rows.drop(columns="outcome").to_csv(tmp_path / "s.csv", index=False)
    # the last half of the tasks alone, backwards, and a run that the scores lack
    said = rows[rows["task_id"] >= "new-t100"].iloc[::-1][["trajectory_id", "outcome"]]
    said.loc[len(rows)] = ["elsewhere", 1]
    said.to_csv(tmp_path / "l.csv", index=False)
    whole = rows[rows["task_id"] >= "new-t100"].iloc[::-1]
    whole.to_csv(tmp_path / "whole.csv", index=False)
    joined = call(f"monitor {certificate} {tmp_path}/s.csv --labels {tmp_path}/l.csv --json")
    assert joined.json == call(f"monitor {certificate} {tmp_path}/whole.csv --json").json
    assert f"{len(said) - 1:,} of {len(said):,} labels of l.csv name a run" in joined.err
    (tmp_path / "none.csv").write_text("trajectory_id,outcome\nelsewhere,1\n", "utf-8")
    refused = call(f"monitor {certificate} {tmp_path}/s.csv --labels {tmp_path}/none.csv")
    assert refused.code == 2 and "names a run" in refused.err


def test_tasks_with_labels_of_some_attempts_are_left_out(
    call: Call, certificate: Path, tmp_path: Path
) -> None:
    rows = new_rows().assign(trajectory_id=lambda rows: [f"r{place}" for place in rows.index])
    rows.drop(columns="outcome").to_csv(tmp_path / "s.csv", index=False)
    said = rows[["trajectory_id", "outcome"]]
    # the last of the labelled tasks waits for four of its attempts
    said.head(20).to_csv(tmp_path / "part.csv", index=False)
    said.head(18).to_csv(tmp_path / "whole.csv", index=False)
    words = f"monitor {certificate} {tmp_path}/s.csv --json --labels {tmp_path}"
    part, whole = call(f"{words}/part.csv").json, call(f"{words}/whole.csv").json
    added = [item for item in part.pop("findings") if item not in whole["findings"]]
    assert [item["code"] for item in added] == ["partly_labelled"]
    assert added[0]["message"].startswith("1 task waits")
    del whole["findings"]
    assert part == whole and part["tasks"] == 3
    # of a draw, chance chose the attempts
    drawn = said.head(20).assign(drawn_by="seed=1")
    drawn.to_csv(tmp_path / "drawn.csv", index=False)
    assert call(f"{words}/drawn.csv").json["tasks"] == 4
    said.head(2).to_csv(tmp_path / "two.csv", index=False)
    refused = call(f"{words}/two.csv")
    assert refused.code == 2 and "Label all attempts" in refused.err
