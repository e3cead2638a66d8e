"""How a table is read is said once: the certificate keeps it for the tables that follow."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets import certify
from certify_assets.errors import InputError
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

PLAIN = score_rows(tasks=120, attempts=4, seed=3).round(4)
LATER = score_rows(tasks=120, attempts=4, seed=4).round(4)
#: outcomes as people write them, by success: the table's cells, settings, its provenance
WRITTEN: dict[str, tuple[tuple[object, object], dict[str, Any]]] = {
    "success": (("good", "bad"), {"success": "good"}),
    "failure": (("good", "bad"), {"failure": "bad"}),
    "both": (("good", "bad"), {"success": "good,fine", "failure": "bad"}),
    "number": ((2, 1), {"success": "2"}),
    "threshold": ((8, 3), {"threshold": "6.5"}),
    "threshold_of_percent": ((75.5, 20), {"threshold": "50"}),
}


def written(frame: pd.DataFrame, success: object, failure: object) -> pd.DataFrame:
    cells = [success if outcome else failure for outcome in frame["outcome"]]
    return frame.assign(outcome=cells)


def given(settings: dict[str, Any]) -> list[str]:
    return [word for pair in settings.items() for word in ("--set", "=".join(pair))]


def without_reading(certificate: dict[str, Any]) -> dict[str, Any]:
    left_out = ("provenance", "digest")
    return {name: value for name, value in certificate.items() if name not in left_out}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_outcomes_in_other_words_are_refused_until_it_is_said(
    name: str, ending: str, call: Call, tmp_path: Path
) -> None:
    (success, failure), settings = WRITTEN[name]
    path, plain = tmp_path / f"a.{ending}", tmp_path / "plain.csv"
    frame = written(PLAIN, success, failure)
    if ending == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)
    PLAIN.to_csv(plain, index=False)
    refused = call(f"certificate {path}")
    wanted = "threshold=NUMBER" if isinstance(success, int | float) else "success=VALUE"
    assert refused.code == 2 and f"--set {wanted}" in refused.err
    assert "row 1" in refused.err and f"{failure!r}" in refused.err.replace("'20'", "20")
    found = call("certificate", path, "--side", "reject", "--json", *given(settings)).json
    assert found["provenance"] == settings
    expected = call(f"certificate {plain} --side reject --json").json
    assert without_reading(found) == without_reading(expected)
    keywords = {key: value.split(",") for key, value in settings.items()}
    if "threshold" in keywords:
        keywords["threshold"] = float(settings["threshold"])
    face = certify(frame, side="reject", **keywords)
    assert without_reading(face.to_dict()) == without_reading(expected)


def test_no_option_is_repeated_for_later_tables(call: Call, tmp_path: Path) -> None:
    columns = {"task_id": "Instance", "score": "Judge Score", "outcome": "Verdict"}
    ids = {"trajectory_id": "Run"}
    for name, frame in (("cal", PLAIN), ("new", LATER.assign(task_id="n" + LATER["task_id"]))):
        odd = written(frame, "good", "bad").rename(columns=columns | ids)
        odd.to_csv(tmp_path / f"{name}.csv", index=False)
    cal, new, kept = tmp_path / "cal.csv", tmp_path / "new.csv", tmp_path / "c.json"
    named = "task=Instance,score=Judge Score,outcome=Verdict,id=Run"
    asked = ["--columns", named, "--set", "success=good"]
    assert call("certificate", cal, "--side", "reject", "--out", kept, *asked).code == 0
    assert json.loads(kept.read_text("utf-8"))["provenance"] == {
        "columns": named,
        "success": "good",
    }
    assert call(f"verify {kept} {cal}").code == 0
    assert call(f"audit {kept} {new}").code == 0
    assert call(f"monitor {kept} {new}").code == 0
    assert call(f"decide {kept} {new}").code == 0
    assert call(f"report {kept} {cal} --out {tmp_path}/page.html").code == 0
    # a table in the usual names is read as well
    usual = written(LATER, "good", "bad").assign(task_id="n" + LATER["task_id"])
    usual.to_csv(tmp_path / "usual.csv", index=False)
    usual_audit = call(f"audit {kept} {tmp_path}/usual.csv --json").json
    assert usual_audit == call(f"audit {kept} {new} --json").json
    # and labels of a batch
    assert call(f"batch plan {kept} {new} --out {tmp_path}/plan.json").code == 0
    draw = tmp_path / "draw.csv"
    drawn = call("batch", "draw", tmp_path / "plan.json", new, "--seed", 1, "--out", draw)
    assert drawn.code == 0
    labels = pd.read_csv(new)[["Run", "Verdict"]]
    order = pd.read_csv(draw)["trajectory_id"]
    labels[labels["Run"].isin(order)].to_csv(tmp_path / "labels.csv", index=False)
    closed = call(f"batch close {tmp_path}/plan.json {new} {draw} {tmp_path}/labels.csv")
    assert closed.code in (0, 3) and closed.err.count("certify:") == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "success=bad"], "success=bad contradicts"),
        (["--set", "threshold=3"], "threshold=3 contradicts"),
        (["--columns", "score=other"], "score=other names another"),
    ],
)
def test_an_option_that_contradicts_the_certificate_is_refused(
    options: list[str], said: str, call: Call, tmp_path: Path
) -> None:
    frame = written(PLAIN, "good", "bad").rename(columns={"score": "judge"})
    frame.assign(other=0.5).to_csv(tmp_path / "a.csv", index=False)
    asked = ["--columns", "score=judge", "--set", "success=good"]
    kept = tmp_path / "c.json"
    assert call("certificate", tmp_path / "a.csv", "--out", kept, *asked).code == 0
    refused = call("decide", kept, tmp_path / "a.csv", *options)
    assert refused.code == 2 and said in refused.err and "Leave " in refused.err


def test_rows_without_an_outcome_are_left_out_where_that_is_said(
    call: Call, tmp_path: Path
) -> None:
    path, plain, kept = (tmp_path / name for name in ("a.csv", "plain.csv", "c.json"))
    empty = PLAIN.assign(outcome=PLAIN["outcome"].astype(object))
    empty.loc[[1, 5, 9], "outcome"] = ""
    empty.to_csv(path, index=False)
    PLAIN.drop([1, 5, 9]).to_csv(plain, index=False)
    refused = call(f"certificate {path}")
    assert refused.code == 2 and "row 2" in refused.err and "3 rows" in refused.err
    assert "--set unlabelled=drop" in refused.err
    read = call(f"certificate {path} --set unlabelled=drop --json --out {kept}")
    assert "3 rows without an outcome left out" in read.err
    expected = call(f"certificate {plain} --json").json["certificates"]
    found = read.json["certificates"]
    assert [*map(without_reading, found)] == [*map(without_reading, expected)]
    assert call(f"verify {kept} {path}").code == 0
    # runs without an outcome are decided
    decided = call(f"decide {kept} {path} --json").json
    assert sum(decided[name] for name in ("reject", "release", "human")) == len(PLAIN)
    assert certify(empty, unlabelled="drop").reject.trajectories == len(PLAIN) - 3
    assert "3 rows without an outcome left out" in str(certify(empty, unlabelled="drop").explain())
    with pytest.raises(InputError, match="unlabelled=drop"):
        certify(empty)


@pytest.mark.parametrize("word", ["unsure", "ignore", "Skip", "?"])
@pytest.mark.parametrize("failure", [None, "bad"])
def test_words_for_no_label_are_asked_about(
    word: str, failure: str | None, call: Call, tmp_path: Path
) -> None:
    frame = PLAIN if failure is None else written(PLAIN, "good", failure)
    frame = frame.assign(outcome=frame["outcome"].astype(object))
    frame.loc[[1, 5], "outcome"] = word
    path = tmp_path / "a.csv"
    frame.to_csv(path, index=False)
    asked = [] if failure is None else ["--set", "success=good"]
    refused = call("certificate", path, *asked)
    assert refused.code == 2 and f"--set no_label={word.lower()}" in refused.err
    asked += ["--set", f"no_label={word},other"]
    refused = call("certificate", path, *asked)
    assert refused.code == 2 and "--set unlabelled=drop" in refused.err
    read = call("certificate", path, *asked, "--set", "unlabelled=drop", "--json").json
    assert read["certificates"][0]["trajectories"] == len(PLAIN) - 2


def test_grades_and_words_for_no_label_are_asked_about_at_once(call: Call, tmp_path: Path) -> None:
    cells = [8 if outcome else 3 for outcome in PLAIN["outcome"]]
    frame = PLAIN.assign(outcome=pd.Series(cells, dtype=object))
    frame.loc[[1, 5], "outcome"] = ["unsure", "skip"]
    frame.to_csv(tmp_path / "a.csv", index=False)
    refused = call(f"certificate {tmp_path}/a.csv")
    assert refused.code == 2 and "from 3 to 8" in refused.err
    line = refused.err.partition("fill in: certify ")[2].strip()
    assert line.endswith("--set threshold=NUMBER --set no_label=skip,unsure")
    line = line.replace("NUMBER", "5") + " --set unlabelled=drop --json"
    assert call(line).json["certificates"][0]["trajectories"] == len(PLAIN) - 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("success=god", "has no 'god'"),
        ("failure=badd", "has no 'badd'"),
        ("success=good --set threshold=1", "Give one of them"),
        ("success=good --set failure=good", "given twice"),
        ("success=good --set success=fine", "given twice"),
        ("unlabelled=keep", "Give unlabelled=drop"),
        ("threshold=high", "Give a number"),
        ("sucess=good", "'sucess' is not a setting. Did you mean success?"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(
    settings: str, said: str, call: Call, tmp_path: Path
) -> None:
    written(PLAIN, "good", "bad").to_csv(tmp_path / "a.csv", index=False)
    refused = call(f"certificate {tmp_path}/a.csv --set {settings}")
    assert refused.code == 2 and said in refused.err


def test_a_column_that_is_named_and_missing_is_refused(call: Call, tmp_path: Path) -> None:
    PLAIN.to_csv(tmp_path / "a.csv", index=False)
    for kind in ("task", "score", "outcome", "id", "agent", "split"):
        refused = call(f"certificate {tmp_path}/a.csv --columns {kind}=nowhere")
        assert refused.code == 2 and f"--columns {kind}=NAME" in refused.err
        assert "--columns ''" not in refused.err
    refused = call(f"certificate {tmp_path}/a.csv --columns judge=score")
    with pytest.raises(InputError, match="Give each of task"):
        certify(PLAIN, columns={"judge": "score"})
    assert refused.code == 2 and "Give each of task, score, " in refused.err


def test_a_name_of_a_column_may_hold_commas(call: Call, tmp_path: Path) -> None:
    odd = {"score": "score, by judge=2", "agent": "model, agent"}
    PLAIN.assign(agent="a").rename(columns=odd).to_csv(tmp_path / "a.csv", index=False)
    named = ",".join(f"{kind}={name}" for kind, name in odd.items())
    kept = tmp_path / "c.json"
    assert call("certificate", tmp_path / "a.csv", "--columns", named, "--out", kept).code == 0
    assert call(f"verify {kept} {tmp_path}/a.csv").code == 0


def test_a_frame_is_decided_as_it_was_certified() -> None:
    frame = PLAIN.rename(columns={"score": "judge"})
    found = certify(frame, columns={"score": "judge"}, alpha=0.2, side="reject")
    decisions = found.decide(frame)["decision"].tolist()
    assert decisions == found.decide(PLAIN)["decision"].tolist()
    assert decisions == found.decide(np.array(PLAIN["score"])).tolist()


def test_decisions_need_no_outcomes_that_are_understood(call: Call, tmp_path: Path) -> None:
    PLAIN.to_csv(tmp_path / "a.csv", index=False)
    assert call(f"certificate {tmp_path}/a.csv --out {tmp_path}/c.json").code == 0
    LATER.assign(outcome="to be reviewed").to_csv(tmp_path / "b.csv", index=False)
    assert call(f"decide {tmp_path}/c.json {tmp_path}/b.csv").code == 0
