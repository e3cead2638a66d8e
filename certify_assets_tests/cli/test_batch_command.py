"""``certify batch plan|draw|close`` on plain tables."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call


@pytest.fixture
def tables(call: Call, tmp_path: Path) -> Path:
    """A certificate, a batch of other tasks, and a history."""
    for name, seed in (("cal", 0), ("batch", 1), ("history", 2)):
        score_rows(tasks=80, seed=seed).to_csv(tmp_path / f"{name}.csv", index=False)
    asked = ("certificate", tmp_path / "cal.csv", "--side", "reject", "--out")
    assert call(*asked, tmp_path / "cert.json").code == 0
    return tmp_path


def truth(folder: Path) -> dict[str, str]:
    with (folder / "batch.csv").open(encoding="utf-8") as stream:
        return {row["trajectory_id"]: row["outcome"] for row in csv.DictReader(stream)}


def label(folder: Path, number: int) -> Path:
    with (folder / "draw.csv").open(encoding="utf-8") as stream:
        drawn = [row["trajectory_id"] for row in csv.DictReader(stream)][:number]
    outcomes = truth(folder)
    rows = ["trajectory_id,outcome", *(f"{name},{outcomes[name]}" for name in drawn)]
    (folder / "labels.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder / "labels.csv"


def test_a_batch_is_planned_drawn_and_closed(call: Call, tables: Path) -> None:
    plan = call(
        "batch",
        "plan",
        tables / "cert.json",
        tables / "batch.csv",
        "--history",
        tables / "history.csv",
        "--out",
        tables / "plan.json",
        "--json",
    ).json
    assert plan["expected_net_share"] > 0 and plan["prior"][0]["strength"] == 20
    drawing = ("batch", "draw", tables / "plan.json", tables / "batch.csv", "--seed", "11")
    draw = call(*drawing, "--out", tables / "draw.csv", "--json")
    assert draw.code == 0 and draw.json["thresholds"] == plan["thresholds"]
    closing = ("batch", "close", tables / "plan.json", tables / "batch.csv", tables / "draw.csv")
    early = call(*closing, label(tables, 5), "--json")
    assert early.code == 3 and early.json["status"] == "open" and early.json["threshold"] is None
    late = call(*closing, label(tables, 10_000), "--json")
    assert late.code == 0 and late.json["certified"]
    found = late.json
    assert {"side", "alpha", "delta", "runs", "decided", "labels_used", "errors_found"} <= set(
        found
    )
    with (tables / "batch.csv").open(encoding="utf-8") as stream:
        inside = [
            row for row in csv.DictReader(stream) if float(row["score"]) <= found["threshold"]
        ]
    wrong = sum(row["outcome"] == "1" for row in inside)
    assert found["decided"] == len(inside) and wrong <= found["alpha"] * len(inside)
    said = call(*closing, label(tables, 10_000)).out
    assert "At most 10% of the" in said and "with confidence 95% over the draw" in said


def test_another_seed_for_the_same_batch_is_refused(call: Call, tables: Path) -> None:
    drawing = ("batch", "draw", tables / "cert.json", tables / "batch.csv", "--out")
    assert call(*drawing, tables / "draw.csv", "--seed", "11").code == 0
    before = (tables / "draw.csv").read_bytes()
    again = call(*drawing, tables / "draw.csv", "--seed", "12")
    assert again.code == 2 and "was drawn with seed 11 at" in again.err
    assert (tables / "draw.csv").read_bytes() == before
    assert call(*drawing, tables / "other.csv", "--seed", "11").code == 0
    assert (tables / "other.csv").read_bytes() == before
    # the same seed draws in another order under another plan
    planned = call(*drawing, tables / "draw.csv", "--seed", "11", "--alpha", ".15")
    assert planned.code == 2 and "was drawn under another plan (reject) at" in planned.err
    assert planned.err.count("\n") == 1 and (tables / "draw.csv").read_bytes() == before
    # another table is another batch
    score_rows(tasks=80, seed=3).to_csv(tables / "batch.csv", index=False)
    assert call(*drawing, tables / "draw.csv", "--seed", "12").code == 0


def test_a_certificate_alone_means_its_threshold_and_a_uniform_draw(
    call: Call, tables: Path
) -> None:
    certificate = json.loads((tables / "cert.json").read_text("utf-8"))
    plan = call("batch", "plan", tables / "cert.json", tables / "batch.csv", "--json").json
    assert plan["thresholds"] == [certificate["threshold"]] and plan["draw"] == "uniform"
    drawing = ("batch", "draw", tables / "cert.json", tables / "batch.csv", "--seed", "3")
    first = call(*drawing, "--out", tables / "draw.csv", "--labels", "30")
    assert first.code == 0
    text = (tables / "draw.csv").read_text("utf-8")
    assert text.startswith("order,trajectory_id,task_id,seed,batch_sha256,level\n1,")
    assert len(text.splitlines()) == 31
    call(*drawing, "--out", tables / "again.csv", "--labels", "30")
    assert (tables / "again.csv").read_text("utf-8") == text


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda text: text.replace("\n2,", "\n2,x", 1), "was edited"),
        (lambda text: text.replace(",3,", ",4,"), "was edited"),
        (lambda text: re.sub("[0-9a-f]{64}", "0" * 64, text), "another batch or plan"),
        (lambda text: text.replace("order,", "number,", 1), "has the columns"),
    ],
)
def test_a_draw_that_was_edited_is_refused(
    call: Call, tables: Path, edit: object, sentence: str
) -> None:
    given = (tables / "cert.json", tables / "batch.csv")
    call("batch", "draw", *given, "--seed", "3", "--out", tables / "draw.csv", "--labels", "20")
    labels = label(tables, 20)
    path = tables / "draw.csv"
    path.write_text(edit(path.read_text("utf-8")), encoding="utf-8")  # type: ignore[operator]
    answer = call("batch", "close", *given, path, labels)
    assert answer.code == 2 and sentence in answer.err


def test_labels_that_were_not_drawn_are_refused(call: Call, tables: Path) -> None:
    given = (tables / "cert.json", tables / "batch.csv")
    call("batch", "draw", *given, "--seed", "3", "--out", tables / "draw.csv", "--labels", "20")
    labels = label(tables, 20)
    other = next(name for name in truth(tables) if name not in labels.read_text("utf-8"))
    labels.write_text(labels.read_text("utf-8") + f"{other},1\n", encoding="utf-8")
    answer = call("batch", "close", *given, tables / "draw.csv", labels)
    assert answer.code == 2 and repr(other) in answer.err and "does not have" in answer.err


def test_bad_input_is_one_sentence(call: Call, tables: Path) -> None:
    given = (tables / "cert.json", tables / "batch.csv")
    call("batch", "plan", *given, "--out", tables / "plan.json")
    fixed = call("batch", "plan", tables / "plan.json", tables / "batch.csv", "--alpha", ".2")
    assert fixed.code == 2 and "fixes --alpha already" in fixed.err
    bare = tables / "bare.csv"
    bare.write_text("task_id,score\na,0.1\n", encoding="utf-8")
    nameless = call("batch", "plan", tables / "cert.json", bare)
    assert nameless.code == 2 and "no column trajectory_id" in nameless.err
    call("certificate", tables / "cal.csv", "--alpha", ".001", "--out", tables / "none.json")
    nothing = call("batch", "plan", tables / "none.json", tables / "batch.csv")
    assert nothing.code == 2 and "give --history" in nothing.err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("strength", -5),
        ("strength", None),
        ("thresholds", [float("nan")]),
        ("risk", [[1, 1e308]]),
    ],
)
def test_a_plan_that_is_none_is_refused(call: Call, tables: Path, key: str, value: object) -> None:
    given = (tables / "cert.json", tables / "batch.csv")
    call("batch", "plan", *given, "--out", tables / "plan.json")
    plan = json.loads((tables / "plan.json").read_text("utf-8"))
    (tables / "plan.json").write_text(json.dumps(plan | {key: value}), encoding="utf-8")
    drawing = ("batch", "draw", tables / "plan.json", tables / "batch.csv", "--seed", "3")
    answer = call(*drawing, "--out", tables / "draw.csv")
    assert answer.code == 2 and "batch plan" in answer.err and answer.err.count("\n") == 1


def test_labels_are_read_as_score_tables_are(call: Call, tables: Path) -> None:
    rows = [f"t{number},{number}.0,.1" for number in range(5)]
    batch = tables / "numbers.jsonl"
    batch.write_text(
        "\n".join(
            json.dumps({"task_id": task, "trajectory_id": float(run), "score": float(score)})
            for task, run, score in (row.split(",") for row in rows)
        ),
        encoding="utf-8",
    )
    given = (tables / "cert.json", batch)
    asked = ("--threshold", ".1", "--alpha", ".125")
    call("batch", "draw", *given, "--seed", "3", "--out", tables / "draw.csv", *asked)
    labels = tables / "labels.jsonl"
    answers = []
    for none in (4, 5):
        outcomes = dict.fromkeys(range(5), 0)
        drawn = list(csv.DictReader((tables / "draw.csv").read_text("utf-8").splitlines()))
        if none < 5:
            del outcomes[int(drawn[none]["trajectory_id"])]
        labels.write_text(
            "\n".join(
                json.dumps({"trajectory_id": float(run), "outcome": outcomes.get(run)})
                for run in range(5)
            ),
            encoding="utf-8",
        )
        answers.append(call("batch", "close", *given, tables / "draw.csv", labels, *asked))
    assert [answer.code for answer in answers] == [3, 0]
    assert "At most 12.5% of the 5" in answers[1].out


def test_a_batch_smaller_than_a_candidate_is_planned_whole(call: Call, tables: Path) -> None:
    few = tables / "few.csv"
    few.write_text("task_id,trajectory_id,score\na,x,-9\nb,y,-9\n", encoding="utf-8")
    history = ("--history", tables / "history.csv")
    planned = call("batch", "plan", tables / "cert.json", few, *history, "--json")
    assert planned.code == 0 and planned.json["thresholds"] == [-9]


def test_of_several_procedures_the_deciding_one_counts(call: Call, tables: Path) -> None:
    every = ("certificate", tables / "cal.csv", "--procedure", "all", "--side", "reject", "--out")
    call(*every, tables / "all.json")
    one = json.loads((tables / "cert.json").read_text("utf-8"))
    plan = call("batch", "plan", tables / "all.json", tables / "batch.csv", "--json").json
    assert plan["certificate_sha256"] and plan["thresholds"] == [one["threshold"]]


@pytest.mark.parametrize("begin", ["=", "n12;="])
def test_a_draw_with_a_name_like_a_formula_is_written_where_no_spreadsheet_runs_it(
    call: Call, tables: Path, begin: str
) -> None:
    rows = score_rows(tasks=80, seed=1)
    rows["trajectory_id"] = begin + rows["trajectory_id"]
    rows.to_csv(tables / "batch.csv", index=False)
    drawing = ("batch", "draw", tables / "cert.json", tables / "batch.csv", "--seed", "11", "--out")
    refused = call(*drawing, tables / "draw.csv")
    assert refused.code == 2 and "a spreadsheet would run it as a formula" in refused.err
    assert not (tables / "draw.csv").exists()
    assert call(*drawing, tables / "draw.jsonl").code == 0
    labelled = (tables / "draw.jsonl").read_text("utf-8").splitlines()[:5]
    names = [json.loads(line)["trajectory_id"] for line in labelled]
    outcomes = truth(tables)
    (tables / "labels.jsonl").write_text(
        "".join(
            json.dumps({"trajectory_id": name, "outcome": int(outcomes[name])}) + "\n"
            for name in names
        ),
        "utf-8",
    )
    closing = ("batch", "close", tables / "cert.json", tables / "batch.csv", tables / "draw.jsonl")
    assert call(*closing, tables / "labels.jsonl", "--json").json["labels_used"] == 5
