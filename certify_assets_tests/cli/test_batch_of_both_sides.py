"""``certify batch --side both``: one draw certifies both sides of a batch."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pandas as pd
import pytest

from certify_assets.certificates.batch import Batch, BatchPlan
from certify_assets.certificates.batch_draw import BatchDraw
from certify_assets.cli import main
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

CLOSING = "batch close plan.json batch.csv draw.csv labels.csv"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document of both sides, a batch of other tasks, its plan and its draw."""
    folder = tmp_path_factory.mktemp("both")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, seed, tasks in (("cal", 0, 80), ("batch", 1, 40), ("history", 2, 80)):
            score_rows(tasks=tasks, seed=seed).to_csv(f"{name}.csv", index=False)
        for line in (
            "certificate cal.csv --out cert.json",
            "batch plan cert.json batch.csv --side both --history history.csv --out plan.json",
            "batch draw plan.json batch.csv --seed 11 --out draw.csv",
        ):
            with pytest.raises(SystemExit) as end:
                main(line.split())
            assert not end.value.code
    return folder


@pytest.fixture
def tables(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def label(number: int) -> list[str]:
    """Write the true outcomes of the first drawn runs; return the lines."""
    truth = pd.read_csv("batch.csv").set_index("trajectory_id")["outcome"]
    drawn = pd.read_csv("draw.csv")["trajectory_id"].head(number)
    lines = ["trajectory_id,outcome", *(f"{name},{truth[name]}" for name in drawn)]
    Path("labels.csv").write_text("\n".join(lines), "utf-8")
    return lines


def sides(document: dict[str, object]) -> list[tuple[object, ...]]:
    return [(item["side"], item["delta"]) for item in document["sides"]]  # type: ignore[attr-defined]


def test_one_draw_certifies_both_sides_at_half_the_risk_limit(call: Call, tables: Path) -> None:
    document = json.loads((tables / "plan.json").read_text("utf-8"))
    assert sides(document) == [("reject", 0.025), ("release", 0.025)]
    frame = pd.read_csv("batch.csv")
    frozen = Batch.of(frame["trajectory_id"], frame["task_id"], frame["score"])
    draw = BatchDraw(BatchPlan.from_dict(document), frozen, 11)
    drawn = pd.read_csv("draw.csv")["trajectory_id"].tolist()
    assert drawn == list(draw.order) == [*dict.fromkeys(drawn)]
    label(6)
    early = call(f"{CLOSING} --json")
    assert early.code == 3 and not early.json["certified"]
    # the first part of the file is a first part of each side's draw
    assert [item["labels_used"] for item in early.json["certificates"]] == [3, 3]
    label(10_000)
    late = call(f"{CLOSING} --json")
    assert late.code == 0 and late.json["certified"] and late.json["delta"] == 0.05
    for item in late.json["certificates"]:
        assert item["certified"] and item["delta"] == 0.025
        reject = item["side"] == "reject"
        inside = frame["score"].le if reject else frame["score"].ge
        wrong = frame["outcome"] == (1 if reject else 0)
        assert (inside(item["threshold"]) & wrong).sum() <= item["alpha"] * item["decided"]
    assert late.json["decided"] == sum(item["decided"] for item in late.json["certificates"])
    assert call(CLOSING).out.count("runs are certified: at most 10 % of them") == 2


def test_labels_that_do_not_fit_the_draw_are_refused(call: Call, tables: Path) -> None:
    lines, draw = label(20), pd.read_csv("draw.csv").head(30)
    draw.to_csv("draw.csv", index=False)
    other = min({*pd.read_csv("batch.csv")["trajectory_id"]} - {*draw["trajectory_id"]})
    contrary = f"{lines[1][:-1]}{1 - int(lines[1][-1])}"
    for labels, words in (
        ([*lines, f"{other},1"], repr(other)),
        ([*lines, contrary], "another outcome than row 1"),
    ):
        (tables / "labels.csv").write_text("\n".join(labels), "utf-8")
        answer = call(CLOSING)
        assert answer.code == 2 and words in answer.err, answer.err
    # of a side nothing counts after a run without a label, or with an unclear one
    for part in (lines[2:], [f"{lines[1][:-1]}unclear", *lines[2:]]):
        (tables / "labels.csv").write_text("\n".join([lines[0], *part]), "utf-8")
        first, second = call(f"{CLOSING} --json").json["certificates"]
        assert (first["labels_used"], second["labels_used"]) == (0, 10)
        assert first["label_next"][0] == draw["trajectory_id"][0]


def test_what_both_sides_need_is_asked_for(call: Call, tables: Path) -> None:
    call("certificate cal.csv --alpha .001 --out nothing.json")
    twice = pd.read_csv("batch.csv")
    twice.loc[1, "trajectory_id"] = twice.loc[0, "trajectory_id"]
    twice.to_csv("twice.csv", index=False)
    for given, words in (
        ("nothing.json batch.csv --side both", "Give --history"),
        (
            "cert.json batch.csv --history history.csv --threshold .1",
            "--threshold applies to one side",
        ),
        ("cert.json twice.csv --history history.csv", "twice.csv"),
    ):
        answer = call(f"batch plan {given}")
        assert answer.code == 2 and words in answer.err and answer.err.count("\n") == 1


@pytest.mark.parametrize("alpha", [".05", ".4"])
def test_certified_thresholds_of_both_sides_are_drawn_for_without_a_history(
    call: Call, tables: Path, alpha: str
) -> None:
    asked = f"certificate cal.csv --alpha {alpha} --procedure taskboot --out both.json --json"
    reject, release = (item["threshold"] for item in call(asked).json["certificates"])
    planning = "batch plan both.json batch.csv --json"
    found = call(planning).json
    assert sides(found) == [("reject", 0.025), ("release", 0.025)]
    high, low = (item["thresholds"][0] for item in found["sides"])
    # where the regions meet they are parted, so that no run is in the sets of both
    apart = reject < release
    assert apart == (alpha == ".05") and high < low and ((high, low) == (reject, release)) == apart
    assert call(f"{planning} --side both").json == found
    one = call(f"{planning} --side release").json
    assert (one["thresholds"], one["delta"]) == ([release], 0.05)
    drawing = "batch draw both.json batch.csv --seed 11 --out draw.csv"
    # drawn for a plan with a history already
    assert "under another plan" in call(drawing).err
    (tables / "batch.csv.draw.json").unlink()
    assert call(drawing).code == 0
    label(10**6)
    closed = call("batch close both.json batch.csv draw.csv labels.csv --json")
    assert [item["side"] for item in closed.json["certificates"]] == ["reject", "release"]
    assert closed.code == (0 if closed.json["certified"] else 3)
