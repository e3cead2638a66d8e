"""``certify sample``, and certificates on drawn runs and on labels of their own file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

ASKED = "certificate s.csv --sample draw.csv --side reject --alpha .2"


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table without outcomes, the same with them, and one with a column of its user."""
    monkeypatch.chdir(tmp_path)
    full = score_rows(tasks=80, attempts=6, seed=3)
    full["note"] = [f"note {place}" for place in range(len(full))]
    full.to_csv("full.csv", index=False)
    full.drop(columns="outcome").to_csv("s.csv", index=False)
    return tmp_path


def label(*, batches: int = 99, edit: Callable[[pd.DataFrame], pd.DataFrame] | None = None) -> None:
    """Write the true outcomes of the first batches of the draw."""
    drawn = pd.read_csv("draw.csv")
    labels = drawn.loc[drawn["batch"] <= batches, ["trajectory_id"]]
    labels = labels.merge(pd.read_csv("full.csv")[["trajectory_id", "outcome"]])
    labels = labels if edit is None else edit(labels)
    labels.to_csv("labels.csv", index=False)


def test_runs_are_drawn_labelled_certified_and_verified(call: Call, tables: Path) -> None:
    drawing = "sample s.csv --count 80 --side reject --alpha .2 --out draw.csv"
    found = call(f"{drawing} --json").json
    assert (found["drawn"], found["drawn_tasks"], found["attempts"]) == (80, 80, 1)
    assert found["estimand"] == "tasks" and sum(found["batches"]) == 80
    text = Path("draw.csv").read_text("utf-8")
    frame = pd.read_csv("draw.csv")
    assert list(frame)[:2] == ["batch", "task_id"] and list(frame)[-2:] == ["outcome", "drawn_by"]
    assert frame["outcome"].isna().all() and frame["note"].str.startswith("note ").all()
    assert frame["task_id"].is_unique and frame["batch"].is_monotonic_increasing
    first = frame[frame["batch"] == 1]
    assert first["score"].max() < frame.loc[frame["batch"] > 1, "score"].min()
    assert not first["score"].is_monotonic_increasing, "a batch is shuffled"
    said = " ".join(call(drawing).out.split())
    assert f"Label batch 1 of draw.csv first ({len(first)} runs)" in said
    assert Path("draw.csv").read_text("utf-8") == text, "the same draw again"

    label(batches=1)
    early = call(f"{ASKED} --labels labels.csv")
    assert early.code == 2 and "has no label" in early.err and "next batch" in early.err
    for batches in range(2, frame["batch"].max() + 1):
        label(batches=batches)
        answer = call(f"{ASKED} --labels labels.csv --out c.json --json")
        if answer.code != 2:
            break
    certificate = answer.json
    assert answer.code == 0 and certificate["promise"] == "proved"
    assert certificate["procedure"] == "one_run" and certificate["tasks"] == 80
    assert f"{len(frame[frame['batch'] <= batches])} of its 480 runs have a label" in answer.err
    assert certificate["inputs"]["sample"] == {
        name: found[name] for name in ("count", "attempts", "estimand", "most", "seed", "sha256")
    }
    label()
    whole = call(f"{ASKED} --labels labels.csv --json").json
    assert whole["threshold"] == certificate["threshold"], "as all labels would give it"
    covered = pd.read_csv("full.csv").query(f"score <= {certificate['threshold']}")
    assert covered["outcome"].mean() <= 0.2

    label(batches=batches)
    assert call("verify c.json s.csv --labels labels.csv").code == 0
    said = call("show c.json").out
    assert "The proof holds under six assumptions" in said and "  6. There was one exer" in said


def test_labels_may_be_written_into_the_draw_or_stand_in_the_table(
    call: Call, tables: Path
) -> None:
    call("sample full.csv --count 80 --out draw.csv")
    of_table = call(f"{ASKED.replace('s.csv', 'full.csv')} --json").json
    frame = pd.read_csv("draw.csv", dtype=object).drop(columns="outcome")
    outcomes = pd.read_csv("full.csv", dtype=object)[["trajectory_id", "outcome"]]
    frame.merge(outcomes, on="trajectory_id").to_csv("draw.csv", index=False)
    of_draw = call(f"{ASKED} --json").json
    assert of_draw == of_table and of_draw["certified"]
    again = call("sample full.csv --count 70 --out draw.csv")
    assert again.code == 2 and "draw.csv has labels already" in again.err


def test_an_unclear_label_counts_as_wrong(call: Call, tables: Path) -> None:
    call("sample s.csv --count 80 --side reject --out draw.csv")

    def unclear(rows: pd.DataFrame) -> pd.DataFrame:
        outcomes = rows["outcome"].astype(object)
        outcomes[:12] = "unclear"
        return rows.assign(outcome=outcomes)

    label()
    plain = call(f"{ASKED} --labels labels.csv --json").json
    label(edit=unclear)
    found = call(f"{ASKED} --labels labels.csv --json").json
    assert found["coverage"] < plain["coverage"]
    refused = call("certificate s.csv --labels labels.csv")
    assert refused.code == 2 and "calls runs unclear" in refused.err


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda rows: pd.concat([rows, rows[:1]]), "repeats 'r0"),
        (
            lambda rows: pd.concat([rows, rows[:1].assign(outcome=lambda row: 1 - row["outcome"])]),
            "another outcome than row 1",
        ),
        (lambda rows: pd.concat([rows, rows[:1].assign(trajectory_id="r00001x")]), "was not drawn"),
        (lambda rows: rows[20:], "has no label, and it is read before the stop"),
        (lambda rows: rows.assign(outcome="good"), "Name the successes"),
    ],
)
def test_labels_that_prove_nothing_are_refused(
    call: Call, tables: Path, edit: Callable[[pd.DataFrame], pd.DataFrame], words: str
) -> None:
    call("sample s.csv --count 80 --side reject --out draw.csv")
    label(edit=edit)
    answer = call(f"{ASKED} --labels labels.csv")
    assert answer.code == 2 and words in answer.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seed=42", "seed=43", "does not hold the runs that its seed draws"),
        ("count=80", "count=79", "does not hold the runs that its seed draws"),
        ("most=1", "most=6", "says that every task counts once"),
        ("table=", "table=0", "does not name one draw"),
        ("drawn_by", "drawn", "lacks the column drawn_by"),
    ],
)
def test_a_draw_that_was_edited_is_refused(
    call: Call, tables: Path, old: str, new: str, words: str
) -> None:
    call("sample s.csv --count 80 --side reject --out draw.csv")
    label()
    path = Path("draw.csv")
    path.write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")
    answer = call(f"{ASKED} --labels labels.csv")
    assert answer.code == 2 and words in answer.err


def test_a_draw_is_of_its_table_alone(call: Call, tables: Path) -> None:
    call("sample s.csv --count 80 --side reject --out draw.csv")
    label()
    call(f"{ASKED} --labels labels.csv --out c.json")
    scores = pd.read_csv("s.csv")
    scores.assign(score=scores["score"] + 0.001).to_csv("s.csv", index=False)
    refused = call(f"{ASKED} --labels labels.csv")
    assert refused.code == 2 and "was drawn from another table" in refused.err
    checked = call("verify c.json s.csv --labels labels.csv")
    assert checked.code == 3 and "inputs.sample.sha256" in checked.err


def test_a_draw_that_follows_labels_is_refused(call: Call, tables: Path) -> None:
    frame = pd.read_csv("full.csv")
    frame.loc[5:, "outcome"] = np.nan
    frame.to_csv("partly.csv", index=False)
    answer = call("sample partly.csv --count 40 --out draw.csv")
    assert answer.code == 2 and "has labels of 5 of its 480 runs" in answer.err
    whole = call("sample full.csv --count 40 --out draw.csv")
    assert whole.code == 0 and "its outcomes are not read" in whole.err
    pd.read_csv("s.csv").drop(columns="trajectory_id").to_csv("s.csv", index=False)
    assert "no column trajectory_id" in call("sample s.csv --count 40 --out draw.csv").err


def test_fewer_and_more_runs_than_tasks(call: Call, tables: Path) -> None:
    def drawn(options: str) -> pd.DataFrame:
        assert call(f"sample s.csv --out draw.csv {options}").code == 0
        return pd.read_csv("draw.csv")

    assert drawn("--count 30")["task_id"].is_unique
    assert drawn("--count 160")["task_id"].value_counts().eq(2).all()
    few = drawn("--count 480 --attempts 3")["task_id"].value_counts()
    assert len(few) == 80 and few.eq(3).all()
    runs = drawn("--count 80 --estimand runs --most 12")
    assert 20 < len(runs) < 60 and runs["task_id"].is_unique


def test_labels_alone_take_the_place_of_outcomes(call: Call, tables: Path) -> None:
    full = pd.read_csv("full.csv")
    full[["trajectory_id", "outcome"]].to_csv("labels.csv", index=False)
    joined = call("certificate s.csv --labels labels.csv --side reject --out c.json --json")
    plain = call("certificate full.csv --side reject --json").json
    assert joined.json == plain and "480 of its 480 runs have a label" in joined.err
    assert call("verify c.json s.csv --labels labels.csv").code == 0
    others = full[["trajectory_id", "outcome"]]
    others.assign(trajectory_id="x" + others["trajectory_id"]).to_csv("labels.csv", index=False)
    assert "No label of labels.csv names a run" in call("certificate s.csv --labels labels.csv").err


@pytest.mark.parametrize("way", ["--labels picked.csv", "--set unlabelled=drop"])
def test_labels_that_nobody_drew_prove_nothing(call: Call, tables: Path, way: str) -> None:
    full = pd.read_csv("full.csv")
    picked = (full["outcome"] == 0) | (full["score"] > 0.5)
    full[picked].to_csv("picked.csv", index=False)
    full.assign(outcome=full["outcome"].where(picked)).to_csv("partly.csv", index=False)
    table = "s.csv" if "picked" in way else "partly.csv"
    asked = f"certificate {table} {way} --side reject --alpha .2"
    for promise in ("proved", "average"):
        refused = call(f"{asked} --promise {promise}")
        assert refused.code == 2 and "labels of runs that chance chose" in refused.err
    answer = call(f"{asked} --out c.json")
    assert answer.code == 0 and "at most 20 % wrong, 95 % confidence" in answer.out
    assert "--promise proved" not in answer.out
    labels = "--labels picked.csv" if "picked" in way else ""
    assert call(f"verify c.json {table} {labels}").code == 0


def test_the_ladder_tries_the_weaker_promise_and_says_so(call: Call, tables: Path) -> None:
    few = pd.read_csv("full.csv")
    few = few.drop_duplicates("task_id")[:10]
    few.to_csv("few.csv", index=False)
    asked = "certificate few.csv --alpha .2 --side reject"
    confident = call(f"{asked} --promise confident")
    assert confident.code == 3 and "more tasks for 95 % confidence." in confident.out
    found = call(f"{asked} --json --out c.json").json
    assert (found["promise"], found["procedure"], found["certified"]) == (
        "average",
        "average",
        True,
    )
    (said,) = [item for item in found["findings"] if item["code"] == "second_promise"]
    assert "with probability at most 10 %" in said["message"]
    assert call("verify c.json few.csv").code == 0
    assert call(f"{asked} --promise average --json").json["findings"] == [
        item for item in found["findings"] if item is not said
    ]
    refused = call(f"{asked} --promise proved")
    assert refused.code == 2 and "one_run needs at least 14 tasks" in refused.err
    both = call(f"{asked} --promise proved --procedure naive")
    assert both.code == 2 and "--promise names the procedure" in both.err


def test_a_draw_is_planned_from_unlabelled_scores(call: Call, tables: Path) -> None:
    asked = "plan s.csv --procedure one_run --alpha .2"
    found = call(f"{asked} --success-rate .3 --auroc .97 --json").json
    assert {"predicted_coverage", "tasks_needed", "labels_needed", "gates", "chance"} <= set(found)
    assert found["tasks"] == 80 and 0.3 < found["predicted_coverage"] < 0.9
    assert 10 < found["tasks_needed"] < 80 and found["labels"] <= 80
    labelled = call("plan full.csv --procedure average --alpha .2 --json")
    assert labelled.code == 0 and labelled.json["predicted_coverage"] > 0.3
    refused = call(asked)
    assert refused.code == 2 and "Guess --success-rate and --auroc" in refused.err
