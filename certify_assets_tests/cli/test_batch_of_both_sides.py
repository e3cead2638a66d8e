"""``certify batch --side both``: one draw certifies both sides of a batch."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pandas as pd
import pytest

from certify_assets.certificates.batch import Batch
from certify_assets.certificates.batch_sides import SidesDraw, SidesPlan
from certify_assets.cli import main
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

SEED = 11


def run(*words: object) -> None:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert not end.value.code


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document of both sides, a batch of other tasks, its plan and its draw."""
    folder = tmp_path_factory.mktemp("both")
    for name, seed, tasks in (("cal", 0, 80), ("batch", 1, 40), ("history", 2, 80)):
        score_rows(tasks=tasks, seed=seed).to_csv(folder / f"{name}.csv", index=False)
    run("certificate", folder / "cal.csv", "--side", "both", "--out", folder / "cert.json")
    run(
        *("batch", "plan", folder / "cert.json", folder / "batch.csv", "--side", "both"),
        *("--history", folder / "history.csv", "--out", folder / "plan.json"),
    )
    drawing = ("batch", "draw", folder / "plan.json", folder / "batch.csv", "--seed", SEED)
    run(*drawing, "--out", folder / "draw.csv")
    return folder


@pytest.fixture
def tables(world: Path, tmp_path: Path) -> Path:
    copytree(world, tmp_path, dirs_exist_ok=True)
    return tmp_path


def drawn(folder: Path) -> list[str]:
    with (folder / "draw.csv").open(encoding="utf-8") as stream:
        return [row["trajectory_id"] for row in csv.DictReader(stream)]


def label(folder: Path, number: int) -> Path:
    """Write the true outcomes of the first drawn runs."""
    truth = pd.read_csv(folder / "batch.csv").set_index("trajectory_id")["outcome"]
    rows = [f"{name},{truth[name]}" for name in drawn(folder)[:number]]
    (folder / "labels.csv").write_text("\n".join(["trajectory_id,outcome", *rows]) + "\n", "utf-8")
    return folder / "labels.csv"


def closing(folder: Path) -> tuple[str | Path, ...]:
    return ("batch", "close", *(folder / name for name in ("plan.json", "batch.csv", "draw.csv")))


def test_one_draw_certifies_both_sides_at_half_the_risk_limit(call: Call, tables: Path) -> None:
    plan = SidesPlan.from_dict(json.loads((tables / "plan.json").read_text("utf-8")))
    assert [(item.side, item.delta) for item in plan.plans] == [
        ("reject", 0.025),
        ("release", 0.025),
    ]
    frame = pd.read_csv(tables / "batch.csv")
    frozen = Batch.of(frame["trajectory_id"], frame["task_id"], frame["score"])
    draw = SidesDraw(plan, frozen, SEED)
    assert drawn(tables) == list(draw.order) and set(draw.order) == {
        *draw.orders[0],
        *draw.orders[1],
    }
    early = call(*closing(tables), label(tables, 6), "--json")
    assert early.code == 3 and not early.json["certified"]
    # the first part of the file is a first part of each side's draw
    assert [item["labels_used"] for item in early.json["certificates"]] == [3, 3]
    late = call(*closing(tables), label(tables, 10_000), "--json")
    assert late.code == 0 and late.json["certified"] and late.json["delta"] == 0.05
    for item in late.json["certificates"]:
        assert item["certified"] and item["delta"] == 0.025
        inside = frame["score"] <= item["threshold"]
        inside = inside if item["side"] == "reject" else frame["score"] >= item["threshold"]
        wrong = frame["outcome"] == (1 if item["side"] == "reject" else 0)
        assert (inside & wrong).sum() <= item["alpha"] * item["decided"]
    assert late.json["decided"] == sum(item["decided"] for item in late.json["certificates"])
    assert call(*closing(tables), label(tables, 10_000)).out.count("At most 10% of the") == 2


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda rows: [rows[0], rows[2], rows[1], *rows[3:]], "was edited"),
        (lambda rows: [*rows[:3], *rows[4:]], "was edited"),
        (lambda rows: [rows[0], rows[1].replace(",11,", ",12,"), *rows[2:]], "one seed"),
        (lambda rows: [row.replace(",11,", ",12,") for row in rows], "was edited"),
    ],
)
def test_a_draw_that_was_edited_is_refused(
    call: Call, tables: Path, edit: Callable[[list[str]], list[str]], sentence: str
) -> None:
    labels, path = label(tables, 20), tables / "draw.csv"
    path.write_text("\n".join(edit(path.read_text("utf-8").splitlines())) + "\n", "utf-8")
    answer = call(*closing(tables), labels)
    assert answer.code == 2 and sentence in answer.err and answer.err.count("\n") == 1


def test_labels_that_do_not_fit_the_draw_are_refused(call: Call, tables: Path) -> None:
    path, draw = label(tables, 20), tables / "draw.csv"
    draw.write_text("\n".join(draw.read_text("utf-8").splitlines()[:31]) + "\n", "utf-8")
    text = path.read_text("utf-8")
    other = sorted(set(pd.read_csv(tables / "batch.csv")["trajectory_id"]) - set(drawn(tables)))[0]
    path.write_text(f"{text}{other},1\n", "utf-8")
    answer = call(*closing(tables), path)
    assert answer.code == 2 and repr(other) in answer.err and "does not have" in answer.err
    first = text.splitlines()[1]
    path.write_text(f"{text}{first[:-1]}{1 - int(first[-1])}\n", "utf-8")
    answer = call(*closing(tables), path)
    assert answer.code == 2 and "another outcome than an earlier row" in answer.err
    path.write_text(text.replace(first + "\n", ""), "utf-8")
    answer = call(*closing(tables), path)
    assert answer.code == 2 and "has no label and later ones have" in answer.err
    assert path.name in answer.err


def test_what_both_sides_need_is_asked_for(call: Call, tables: Path) -> None:
    given = ("batch", "plan", tables / "cert.json", tables / "batch.csv", "--side", "both")
    nothing = tables / "nothing.json"
    call("certificate", tables / "cal.csv", "--alpha", ".001", "--out", nothing)
    answer = call("batch", "plan", nothing, tables / "batch.csv", "--side", "both")
    assert answer.code == 2 and "give --history" in answer.err
    past = ("--history", tables / "history.csv")
    assert "--threshold is of one side" in call(*given, *past, "--threshold", ".1").err
    fixed = call("batch", "plan", tables / "plan.json", tables / "batch.csv", "--side", "both")
    assert fixed.code == 2 and "fixes --side already" in fixed.err
    twice = pd.read_csv(tables / "batch.csv")
    twice.loc[1, "trajectory_id"] = twice.loc[0, "trajectory_id"]
    twice.to_csv(tables / "twice.csv", index=False)
    answer = call("batch", "plan", tables / "cert.json", tables / "twice.csv", *past)
    assert answer.code == 2 and answer.err.count("\n") == 1


@pytest.mark.slow
def test_a_side_on_which_nothing_is_saved_gives_its_risk_to_the_other(
    call: Call, tables: Path
) -> None:
    history = pd.read_csv(tables / "history.csv").assign(outcome=0)
    history.to_csv(tables / "failures.csv", index=False)
    call("certificate", tables / "cal.csv", "--side", "reject", "--out", tables / "reject.json")
    given = (tables / "reject.json", tables / "batch.csv", "--side", "both")
    past = ("--history", tables / "failures.csv", "--alpha", ".2")
    found = call("batch", "plan", *given, *past, "--json").json
    assert [(item["side"], item["alpha"], item["delta"]) for item in found["plans"]] == [
        ("reject", 0.2, 0.05)
    ]
    assert found["cut"] is None and found["expected_net_share"] > 0


@pytest.mark.parametrize(
    "edit",
    [
        lambda plan: plan | {"cut": None},
        lambda plan: plan | {"plans": []},
        lambda plan: plan | {"plans": [plan["plans"][0]] * 2},
        lambda plan: {"schema": plan["schema"]},
    ],
)
def test_a_plan_of_both_sides_that_is_none_is_refused(
    call: Call, tables: Path, edit: Callable[[dict[str, object]], dict[str, object]]
) -> None:
    path = tables / "plan.json"
    path.write_text(json.dumps(edit(json.loads(path.read_text("utf-8")))), "utf-8")
    answer = call(*closing(tables), label(tables, 5))
    assert answer.code == 2 and "plan" in answer.err and answer.err.count("\n") == 1


@pytest.mark.parametrize("alpha", [".05", ".4"])
def test_certified_thresholds_of_both_sides_are_drawn_for_without_a_history(
    call: Call, tables: Path, alpha: str
) -> None:
    both, batch = tables / "both.json", tables / "batch.csv"
    asked = ("certificate", tables / "cal.csv", "--alpha", alpha, "--out", both)
    asked += ("--procedure", "taskboot")
    reject, release = call(*asked, "--json").json["certificates"]
    found = call("batch", "plan", both, batch, "--json").json
    assert [(item["side"], item["delta"]) for item in found["plans"]] == [
        ("reject", 0.025),
        ("release", 0.025),
    ]
    high, low = (item["thresholds"][0] for item in found["plans"])
    # where the regions meet they are parted, so that no run is in the sets of both
    apart = reject["threshold"] < release["threshold"]
    assert apart == (alpha == ".05") and high < low
    assert ((high, low) == (reject["threshold"], release["threshold"])) == apart
    assert call("batch", "plan", both, batch, "--side", "both", "--json").json == found
    one = call("batch", "plan", both, batch, "--side", "release", "--json").json
    assert (one["thresholds"], one["delta"]) == ([release["threshold"]], 0.05)
    assert "--threshold is of one side" in call("batch", "plan", both, batch, "--threshold", 1).err
    drawing = ("batch", "draw", both, batch, "--seed", SEED, "--out", tables / "draw.csv")
    # drawn for a plan with a history already
    assert "under another plan (reject)" in call(*drawing).err
    (tables / "batch.csv.draw.json").unlink()
    assert call(*drawing).code == 0
    closing = ("batch", "close", both, batch, tables / "draw.csv", label(tables, 10**6), "--json")
    closed = call(*closing)
    assert [item["side"] for item in closed.json["certificates"]] == ["reject", "release"]
    assert closed.code == (0 if closed.json["certified"] else 3)


def test_of_a_document_that_certifies_one_side_that_side_is_planned(
    call: Call, tables: Path
) -> None:
    frame = score_rows(tasks=80, attempts=6, seed=3)
    frame["outcome"], frame["score"] = 1 - frame["outcome"], -frame["score"]
    frame.to_csv(tables / "cal.csv", index=False)
    asked = ("certificate", tables / "cal.csv", "--alpha", ".02", "--out", tables / "one.json")
    reject, release = call(*asked, "--json").json["certificates"]
    assert release["certified"] and not reject["certified"]
    plan = call("batch", "plan", tables / "one.json", tables / "batch.csv", "--json").json
    assert (plan["side"], plan["thresholds"]) == ("release", [release["threshold"]])
