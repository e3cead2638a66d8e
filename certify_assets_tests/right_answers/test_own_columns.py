"""What `certify decide` writes is the user's table, with what is decided of each row."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

ADDED = ["decision", "reason", "reject_threshold", "release_threshold", "certificate_sha256"]


@pytest.fixture
def certificate(call: Call, tmp_path: Path) -> Path:
    score_rows(tasks=80, attempts=4).to_csv(tmp_path / "cal.csv", index=False)
    assert call(f"certificate {tmp_path}/cal.csv --out {tmp_path}/c.json").code == 0
    return tmp_path / "c.json"


def own(more: dict[str, Any]) -> pd.DataFrame:
    """Return a table of somebody else's, with columns that no score table has."""
    rows = score_rows(tasks=30, attempts=2, seed=7)
    return pd.DataFrame(
        {
            "Run": rows["trajectory_id"],
            "url": "https://runs.example/" + rows["trajectory_id"],
            "Judge score": rows["score"],
            "when": pd.Timestamp("2026-01-31"),
            "Task ID": rows["task_id"],
            "cost": [None, 3] * 30,
            "decision": "by hand",
            **more,
        }
    )


def read(path: Path) -> pd.DataFrame:
    if path.suffix == ".csv":
        return pd.read_csv(path)
    lines = path.suffix == ".jsonl"
    return pd.read_json(path, lines=True) if lines else pd.read_parquet(path)


@pytest.mark.parametrize("given", ["csv", "jsonl", "parquet", "xlsx"])
@pytest.mark.parametrize("wanted", ["csv", "jsonl", "parquet"])
def test_every_column_is_kept_in_its_order(
    call: Call, certificate: Path, tmp_path: Path, given: str, wanted: str
) -> None:
    table, new = own({"tags": "a; b", "007": "007"}), tmp_path / f"new.{given}"
    if given == "jsonl":
        table.to_json(new, orient="records", lines=True, date_format="iso")
    else:
        writers = {"csv": table.to_csv, "parquet": table.to_parquet, "xlsx": table.to_excel}
        writers[given](new, index=False)
    out, queue = tmp_path / f"decided.{wanted}", tmp_path / f"queue.{wanted}"
    columns = "--columns 'score=Judge score,id=Run'"
    answer = call(f"decide {certificate} {new} {columns} --decisions {out} --queue {queue} --json")
    assert answer.code == 0, answer.err
    found, left = read(out), read(queue)
    kept = [name for name in table if name != "decision"]
    assert list(found) == list(left) == [*kept, *ADDED]
    assert pd.to_numeric(found["cost"]).sum() == 90
    for name in ("Run", "url", "Task ID", "tags"):
        pd.testing.assert_series_equal(
            found[name], table[name], check_dtype=False, check_index=False
        )
    assert found["Judge score"].tolist() == pytest.approx(table["Judge score"].tolist())
    assert dict(found["decision"].value_counts()) == {
        name: number for name in ("reject", "release", "human") if (number := answer.json[name])
    }
    assert set(left["decision"]) == {"human"} and set(left["Run"]) <= set(table["Run"])
    assert found.set_index("Run").loc[left["Run"], "url"].tolist() == left["url"].tolist()


def test_scores_that_are_read_otherwise_stand_next_to_the_given_ones(
    call: Call, tmp_path: Path
) -> None:
    rows = score_rows(tasks=80, attempts=4)
    rows.assign(score=-rows["score"]).to_csv(tmp_path / "cal.csv", index=False)
    asked = f"certificate {tmp_path}/cal.csv --set lower_is_better=true --out {tmp_path}/c.json"
    assert call(asked).code == 0
    assert (
        call(f"decide {tmp_path}/c.json {tmp_path}/cal.csv --decisions {tmp_path}/d.csv").code == 0
    )
    found = pd.read_csv(tmp_path / "d.csv")
    assert list(found) == [*rows, "score_used", *ADDED]
    assert (found["score"] == -found["score_used"]).all()
    threshold = json.loads((tmp_path / "c.json").read_text("utf-8"))["certificates"][0]["threshold"]
    assert set(found["reject_threshold"]) == {float(f"{threshold:.6g}")}


def test_mixed_values_go_where_they_can(call: Call, certificate: Path, tmp_path: Path) -> None:
    rows = score_rows(tasks=30, attempts=1, seed=7).to_dict("records")
    mixed = [{**row, "note": place if place % 2 else ["a", 1]} for place, row in enumerate(rows)]
    (tmp_path / "new.json").write_text(json.dumps(mixed), "utf-8")
    command = f"decide {certificate} {tmp_path}/new.json --decisions {tmp_path}"
    refused = call(f"{command}/d.parquet")
    assert refused.code == 2 and "d.parquet cannot hold the table" in refused.err
    assert call(f"{command}/d.jsonl").code == 0
    first = json.loads((tmp_path / "d.jsonl").read_text("utf-8").splitlines()[0])
    assert first["note"] == ["a", 1]


def test_only_the_rows_of_a_split_are_written(
    call: Call, certificate: Path, tmp_path: Path
) -> None:
    table = own({"split": ["cal", "test"] * 30})
    table.to_csv(tmp_path / "new.csv", index=False)
    columns = "--columns 'score=Judge score' --split test"
    call(f"decide {certificate} {tmp_path}/new.csv {columns} --decisions {tmp_path}/d.csv")
    assert read(tmp_path / "d.csv")["Run"].tolist() == table["Run"].tolist()[1::2]


def test_a_batch_asks_for_the_column_of_runs(call: Call, certificate: Path, tmp_path: Path) -> None:
    own({}).to_csv(tmp_path / "new.csv", index=False)
    named = ["--columns", "task=Task ID,score=Judge score"]
    asked = ["batch", "plan", certificate, tmp_path / "new.csv", "--out", tmp_path / "plan.json"]
    refused = call(*asked, *named)
    assert refused.code == 2 and "--columns id=NAME" in refused.err
    assert call(*asked, "--columns", f"{named[1]},id=Run").code == 0


def test_a_text_that_a_spreadsheet_would_run_is_text(
    call: Call, certificate: Path, tmp_path: Path
) -> None:
    notes = ["- looks right", "=1+1", "fine"] * 20
    own({"note": notes}).to_csv(tmp_path / "new.csv", index=False)
    columns = "--columns 'score=Judge score,id=Run'"
    command = f"decide {certificate} {tmp_path}/new.csv {columns} --decisions {tmp_path}/d"
    assert call(f"{command}.csv").code == 0 and call(f"{command}.jsonl").code == 0
    written = read(tmp_path / "d.csv")["note"].to_list()
    assert written == [f"'{note}" if note != "fine" else note for note in notes]
    assert read(tmp_path / "d.jsonl")["note"].to_list() == notes
