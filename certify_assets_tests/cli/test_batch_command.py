"""``certify batch plan|draw|close`` on plain tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call


@pytest.fixture
def tables(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate, a batch of other tasks, and a history, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("cal", 0), ("batch", 1), ("history", 2)):
        score_rows(tasks=80, seed=seed).to_csv(f"{name}.csv", index=False)
    assert call("certificate cal.csv --side reject --out cert.json").code == 0
    return tmp_path


def label(number: int) -> None:
    """Write the true outcomes of the first drawn runs."""
    drawn = pd.read_csv("draw.csv")[["trajectory_id"]].head(number)
    drawn.merge(pd.read_csv("batch.csv")[["trajectory_id", "outcome"]]).to_csv("labels.csv")


def test_a_batch_is_planned_drawn_and_closed(call: Call, tables: Path) -> None:
    asked = "batch plan cert.json batch.csv --history history.csv --out plan.json --json"
    plan = call(asked).json
    assert plan["expected_net_share"] > 0 and len(plan["sets"]) == len(plan["thresholds"]) > 1
    first, second = plan["sets"][0]["labels"][:2]
    said = call(asked.removesuffix(" --json")).out
    assert f"the first {first} labels show no error, or the first {second} at most one" in said
    draw = call("batch draw plan.json batch.csv --seed 11 --out draw.csv --json")
    assert draw.code == 0 and draw.json["widest_set"] == plan["sets"][-1]["runs"]
    closing = "batch close plan.json batch.csv draw.csv labels.csv"
    label(5)
    early = call(f"{closing} --json")
    assert early.code == 3 and early.json["state"] == "continue" and early.json["threshold"] is None
    assert len(early.json["label_next"]) == first - 5
    assert f"{first - 5} more without an error certify them" in call(closing).out
    label(10_000)
    late = call(f"{closing} --json")
    found = late.json
    assert late.code == 0 and found["certified"]
    assert {"side", "delta", "runs", "labels_used", "errors_found"} <= set(found)
    assert found["e_value"] >= found["critical_value"] and found["state"] == "certified"
    batch = pd.read_csv("batch.csv")
    inside = batch[batch["score"] <= found["threshold"]]
    assert found["decided"] == len(inside)
    assert inside["outcome"].sum() <= found["alpha"] * len(inside)
    said = call(f"{closing} --out closed.json").out
    assert "at most 10 % of them are wrong, with confidence 95 % over the draw" in said
    assert json.loads(Path("closed.json").read_text("utf-8")) == found


@pytest.mark.parametrize(
    ("said", "word"), [(["unclear"], "Unclear"), (["0", "1"], "Tied")], ids=["unclear", "tied"]
)
def test_a_run_without_a_clear_label_is_named(
    call: Call, tables: Path, said: list[str], word: str
) -> None:
    call("batch draw cert.json batch.csv --seed 11 --out draw.csv")
    runs = pd.read_csv("draw.csv")["trajectory_id"].head(7).tolist()

    def closed(*third: str) -> str:
        rows = [(name, "ann", "0") for name in runs[:2] + runs[3:6]]
        rows += [(runs[2], f"ann{place}", outcome) for place, outcome in enumerate(third)]
        columns = ["trajectory_id", "annotator", "outcome"]
        pd.DataFrame(rows, columns=columns).to_csv("labels.csv", index=False)
        return call("batch close cert.json batch.csv draw.csv labels.csv").out

    found = closed(*said)
    assert f"{word}: {runs[2]}. Labels after such a run do not count" in found
    assert f"Label next: {runs[6]}," in found
    # the way out that it names
    assert "give it the outcome 1" in found
    found = closed("1")
    assert word not in found and "6 labelled" in found and f"Label next: {runs[6]}," in found


def test_another_seed_for_the_same_batch_is_refused(call: Call, tables: Path) -> None:
    draw = tables / "draw.csv"
    drawing = "batch draw cert.json batch.csv --out"
    assert call(f"{drawing} draw.csv --seed 11").code == 0
    before = draw.read_bytes()
    pd.read_csv(draw).assign(outcome=1).to_csv("labelled.csv", index=False)
    kept = call(f"{drawing} labelled.csv --seed 11")
    assert kept.code == 2 and "labelled.csv holds" in kept.err
    again = call(f"{drawing} draw.csv --seed 12")
    assert again.code == 2 and "was drawn with seed 11 at" in again.err
    assert call(f"{drawing} other.csv --seed 11").code == 0
    assert (tables / "other.csv").read_bytes() == before
    # the same seed draws in another order under another plan
    call("batch plan cert.json batch.csv --alpha .15 --out plan.json")
    planned = call("batch draw plan.json batch.csv --out draw.csv --seed 11")
    assert planned.code == 2 and "was drawn under another plan at" in planned.err
    assert planned.err.count("\n") == 1 and draw.read_bytes() == before
    # another table is another batch
    score_rows(tasks=80, seed=3).to_csv("batch.csv", index=False)
    assert call(f"{drawing} draw.csv --seed 12").code == 0


def test_a_certificate_alone_means_its_threshold(call: Call, tables: Path) -> None:
    threshold = json.loads((tables / "cert.json").read_text("utf-8"))["threshold"]
    plan = call("batch plan cert.json batch.csv --json").json
    assert plan["thresholds"] == [threshold]
    call("certificate cal.csv --procedure all --side reject --out all.json")
    several = call("batch plan all.json batch.csv --json").json
    assert several["thresholds"] == [threshold], "of several procedures the deciding one counts"
    texts = set()
    for name in ("draw.csv", "again.csv"):
        drawing = f"batch draw cert.json batch.csv --seed 3 --out {name} --count 30"
        assert call(drawing).code == 0
        texts.add((tables / name).read_text("utf-8"))
    (text,) = texts
    assert text.startswith("order,trajectory_id,task_id,seed,batch_sha256,level\n1,")
    assert len(text.splitlines()) == 31


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda text: text.replace("\n2,", "\n2,x", 1), "was edited"),
        (lambda text: text.replace(",3,", ",4,"), "was edited"),
        (lambda text: text.replace(",3,", ",4,", 1), "one seed"),
        (lambda text: re.sub("[0-9a-f]{64}", "0" * 64, text), "another batch or plan"),
        (lambda text: text.replace("order,", "number,", 1), "has the columns"),
    ],
)
def test_a_draw_that_was_edited_is_refused(
    call: Call, tables: Path, edit: Callable[[str], str], sentence: str
) -> None:
    call("batch draw cert.json batch.csv --seed 3 --out draw.csv --count 20")
    label(20)
    path = tables / "draw.csv"
    path.write_text(edit(path.read_text("utf-8")), encoding="utf-8")
    answer = call("batch close cert.json batch.csv draw.csv labels.csv")
    assert answer.code == 2 and sentence in answer.err


def test_bad_input_is_one_sentence(call: Call, tables: Path) -> None:
    call("batch plan cert.json batch.csv --out plan.json")
    Path("bare.csv").write_text("task_id,score\na,0.1\n", encoding="utf-8")
    call("certificate cal.csv --alpha .001 --out none.json")
    for given, words in (
        ("plan.json batch.csv --alpha .2", "does not hold a certificate"),
        ("cert.json bare.csv", "no column trajectory_id"),
        ("none.json batch.csv", "Give --history"),
    ):
        answer = call(f"batch plan {given}")
        assert answer.code == 2 and words in answer.err


@pytest.mark.parametrize(
    ("key", "value"),
    [("cut", 0.5), ("sides", None), ("sides", [])],
)
def test_a_plan_that_is_none_is_refused(call: Call, tables: Path, key: str, value: object) -> None:
    call("batch plan cert.json batch.csv --out plan.json")
    plan = json.loads((tables / "plan.json").read_text("utf-8"))
    (tables / "plan.json").write_text(json.dumps(plan | {key: value}), encoding="utf-8")
    answer = call("batch draw plan.json batch.csv --seed 3 --out draw.csv")
    assert answer.code == 2 and key in answer.err and answer.err.count("\n") == 1
