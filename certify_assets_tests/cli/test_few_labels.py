"""``certify sample``, and certificates on drawn runs and on labels of their own file."""

import re
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
    assert sorted(frame["batch"].unique()) == list(range(1, frame["batch"].max() + 1))
    assert "score" not in frame, "a reviewer does not see it"
    frame = frame.merge(pd.read_csv("s.csv")[["trajectory_id", "score"]])
    first = frame[frame["batch"] == 1]
    assert first["score"].max() < frame.loc[frame["batch"] > 1, "score"].min()
    assert not first["score"].is_monotonic_increasing, "a batch is shuffled"
    said = " ".join(call(drawing).out.split())
    assert f"Label batch 1 of draw.csv first ({len(first)} runs)" in said
    assert Path("draw.csv").read_text("utf-8") == text, "the same draw again"

    label(batches=1)
    early = call(f"{ASKED} --labels labels.csv")
    second = frame[frame["batch"] == 2]
    assert early.code == 3 and f"Label batch 2 ({len(second)} runs);" in early.err
    assert second["trajectory_id"].map(early.err.count).any(), "the first run without a label"
    for batches in range(2, frame["batch"].max() + 1):
        label(batches=batches)
        answer = call(f"{ASKED} --labels labels.csv --out c.json --json")
        if answer.code == 0:
            break
    certificate = answer.json
    assert answer.code == 0 and certificate["promise"] == "proved"
    assert certificate["procedure"] == "one_run" and certificate["tasks"] == 80
    assert f"{len(frame[frame['batch'] <= batches])} of its 480 runs have a label" in answer.err
    assert certificate["inputs"]["sample"] == {
        name: found[name] for name in ("count", "attempts", "estimand", "most", "seed", "sha256")
    }
    number = len(frame[frame["batch"] <= batches])
    assert certificate["inputs"]["labels"] == number
    label()
    other = call("verify c.json s.csv --labels labels.csv")
    assert other.code == 3 and f"It was issued on {number} labels, and 80 are given." in other.err
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
    assert again.code == 2 and "draw.csv holds" in again.err


def test_a_new_user_is_told_the_next_step(call: Call, tables: Path) -> None:
    bare = call("certificate s.csv")
    assert bare.code == 2 and "`certify sample` draws the runs to label" in bare.err
    assert "Guess --success-rate and --auroc" in call("plan s.csv").err
    call("sample s.csv --count 80 --side reject --alpha .2 --out draw.csv")
    frame = pd.read_csv("draw.csv", dtype=object).drop(columns="outcome")
    outcomes = pd.read_csv("full.csv", dtype=object)[["trajectory_id", "outcome"]]
    frame = frame.merge(outcomes, on="trajectory_id")
    frame.loc[frame["batch"].astype(int) > 12, "outcome"] = None
    frame.to_csv("draw.csv", index=False)
    swapped = call("certificate s.csv --labels draw.csv --side reject --alpha .2")
    assert swapped.code == 2 and "Give it with --sample" in swapped.err
    assert call(f"{ASKED} --out c.json").code == 0
    for command in ("verify c.json s.csv", "report c.json s.csv --out c.html"):
        refused = call(command)
        assert refused.code == 2 and "with its labels (--labels FILE)" in refused.err
    assert call("report c.json s.csv --labels draw.csv --out c.html").code == 0
    found = re.findall(r"<small>(\d+) runs?</small>", Path("c.html").read_text("utf-8"))
    assert sum(map(int, found)) == 80, "with those that needed no label"
    known = "80 of 80 tasks are those the certificate was issued on; its promise is on new tasks"
    assert known in " ".join(call("decide c.json s.csv").err.split())
    others = pd.read_csv("s.csv")
    others.assign(task_id="other " + others["task_id"]).to_csv("new.csv", index=False)
    assert "issued on" not in call("decide c.json new.csv").err


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
    for command in ("certificate", "doctor"):
        refused = call(f"{command} s.csv --labels labels.csv")
        assert refused.code == 2 and "calls runs unclear" in refused.err


def test_the_first_labels_of_a_draw_stand_for_no_others(call: Call, tables: Path) -> None:
    call("sample s.csv --count 80 --out draw.csv")
    drawn = pd.read_csv("draw.csv").drop(columns="outcome").merge(pd.read_csv("full.csv"))
    last = drawn["batch"] == drawn["batch"].max()
    drawn.assign(outcome=drawn["outcome"].where(~last)).to_csv("merged.csv", index=False)
    pd.read_csv("merged.csv", dtype=object).drop(columns="score").to_csv("draw.csv", index=False)
    call("certificate full.csv --out c.json")
    for asked, said in (
        ("certificate s.csv --labels draw.csv", "the file of a draw"),
        ("doctor s.csv --labels draw.csv", "the file of a draw"),
        ("audit c.json s.csv --labels draw.csv", f"runs without a label: {last.sum()}."),
        ("monitor c.json s.csv --labels draw.csv", f"runs without a label: {last.sum()}."),
        ("certificate merged.csv --set unlabelled=drop", "has the column drawn_by of a draw"),
        ("doctor merged.csv", "has the column drawn_by of a draw"),
    ):
        refused = call(asked)
        assert refused.code == 2 and said in refused.err, asked
    drawn.drop(columns="score").to_csv("draw.csv", index=False)
    assert call("audit c.json s.csv --labels draw.csv").code in (0, 3)


def _not_drawn(rows: pd.DataFrame) -> pd.DataFrame:
    others = pd.read_csv("full.csv")[["trajectory_id", "outcome"]]
    return others[~others["trajectory_id"].isin(rows["trajectory_id"])][:1]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda rows: pd.concat([rows, rows[:1]]), "repeats 'r0"),
        (
            lambda rows: pd.concat([rows, rows[:1].assign(outcome=lambda row: 1 - row["outcome"])]),
            "another outcome than row 1",
        ),
        (lambda rows: pd.concat([rows, rows[:1].assign(trajectory_id="r00001x")]), "no such run"),
        (lambda rows: pd.concat([rows, _not_drawn(rows)]), "was not drawn"),
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
        ("sha256=", "sha256=0", "does not name one draw"),
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


def test_a_draw_is_not_repeated_until_it_suits(call: Call, tables: Path) -> None:
    assert call("sample s.csv --count 40 --out draw.csv").code == 0
    assert call("sample s.csv --count 80 --out more.csv").code == 0, "the same draw, continued"
    Path("copy.csv").write_bytes(Path("s.csv").read_bytes())
    for table in ("s.csv", "copy.csv"):
        refused = call(f"sample {table} --count 40 --seed 7 --out other.csv")
        assert refused.code == 2 and "drawn with seed 42" in refused.err
        assert "s.csv.sample.json" in refused.err and not Path("other.csv").exists()
    Path("s.csv.sample.json").unlink()
    assert call("doctor s.csv").code == 3
    assert "drawn with seed 42" in call("sample s.csv --count 40 --seed 7 --out other.csv").err
    Path("s.csv.sample.json").unlink()
    assert call("sample s.csv --count 40 --seed 7 --out other.csv").code == 0
    refused = call("doctor s.csv --out second.csv")
    assert refused.code == 2 and "drawn with seed 7" in refused.err
    assert not Path("second.csv").exists()


@pytest.mark.parametrize("count", [80, 160])
def test_a_sample_says_what_it_is_expected_to_decide(call: Call, tables: Path, count: int) -> None:
    asked = f"sample s.csv --count {count} --side reject --alpha .2 --out draw.csv"
    found = call(f"{asked} --success-rate .3 --auroc .97 --json").json
    assert [row["attempts"] for row in found["reject_draws"]] == [1, 2, 4, 6]
    assert "expected to give: auto-fail" in call(f"{asked} --success-rate .3 --auroc .97").out
    refused = call(f"{asked} --auroc .97")
    assert refused.code == 2 and "Give both or neither" in refused.err


def test_a_draw_that_cannot_certify_is_named_before_it_is_labelled(
    call: Call, tables: Path
) -> None:
    few = " ".join(call("sample s.csv --count 8 --alpha .1 --out draw.csv").out.split())
    assert "too few tasks are drawn (8) for a proof at alpha 0.1, which needs 29" in few
    assert "on average needs 14." in few
    assert "too few" not in call("sample s.csv --count 80 --alpha .1 --out draw.csv").out
    pd.read_csv("s.csv").assign(score=np.nan).to_csv("s.csv", index=False)
    refused = call("sample s.csv --count 80 --out draw.csv")
    assert refused.code == 2 and "No drawn run of s.csv has a score" in refused.err
    refused = call("sample s.csv --count 8 --estimand runs --most 1000000 --out draw.csv")
    assert refused.code == 2 and "No run of s.csv is drawn: with --most 1,000,000" in refused.err


def test_unequal_draws_are_named_before_they_are_labelled(call: Call, tables: Path) -> None:
    """Only the proof takes them; equal ones are for the default, which needs clear labels."""
    said = " ".join(call("sample s.csv --count 100 --alpha .2 --out draw.csv").out.split())
    assert "Tasks have 1 to 2 drawn runs, which only --promise proved can use." in said
    assert "--count 80 draws one of each." in said and "--promise confident" not in said
    label()
    step = said.split("next: certify ")[1]
    assert call(f"{step} --labels labels.csv").code == 0
    equal = " ".join(call("sample s.csv --count 160 --alpha .2 --out draw.csv").out.split())
    assert "drawn runs, which only" not in equal
    assert "--count is more than the 80 tasks, so each has 2 drawn runs." in equal
    assert "wrote draw.csv, and the seed of the draw into s.csv.sample.json" in equal
    label(edit=lambda rows: rows.assign(outcome=["unclear", *rows["outcome"][1:].astype(str)]))
    step = equal.split("next: certify ")[1]
    assert step.endswith("--promise confident")
    refused = call(f"{step} --labels labels.csv")
    assert refused.code == 2 and "needs a clear label of every run, and 1 have none" in refused.err


def test_the_next_command_reads_the_table_alike(call: Call, tables: Path) -> None:
    scores = pd.read_csv("s.csv").rename(columns={"score": "risk"})
    scores.assign(risk=-scores["risk"]).to_csv("s.csv", index=False)
    reading = "--columns score=risk --set lower_is_better=true"
    drawn = call(f"sample s.csv --count 80 --side reject {reading} --out draw.csv")
    assert reading in " ".join(drawn.out.split())
    assert "risk" not in pd.read_csv("draw.csv") and "score_used" not in pd.read_csv("draw.csv")
    label(edit=lambda rows: rows.assign(outcome="unclear"))
    answer = call(f"{ASKED} {reading} --labels labels.csv")
    proposed = " ".join(answer.out.split()).split("next: certify ")[1]
    assert answer.code == 3 and reading in proposed
    assert call(proposed).code in (0, 3), "plan takes what is proposed"


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
        assert refused.code == 2 and "labels of randomly drawn runs" in refused.err
    answer = call(f"{asked} --out c.json")
    assert answer.code == 0 and "at most 20 % wrong, 95 % confidence" in answer.out
    assert "--promise proved" not in answer.out
    labels = "--labels picked.csv" if "picked" in way else ""
    assert call(f"verify c.json {table} {labels}").code == 0


def test_a_weaker_promise_that_needs_more_labels_says_so(call: Call, tables: Path) -> None:
    asked = ASKED.replace("alpha .2", "alpha .1")
    call("sample s.csv --count 80 --side reject --alpha .1 --out draw.csv")

    def spoiled(rows: pd.DataFrame) -> pd.DataFrame:
        outcomes = rows["outcome"].copy()
        outcomes[:4] = 1
        return rows.assign(outcome=outcomes)

    label(batches=1, edit=spoiled)
    settled = call(f"{asked} --promise proved --labels labels.csv")
    assert settled.code == 3 and "Nothing is certified" in settled.out
    assert "even chance of" not in settled.out, "no weaker promise is offered as the next one"
    answer = call(f"{asked} --labels labels.csv")
    assert answer.code == 3 and "The promise proved is settled and certifies nothing" in answer.err
    assert "you may stop here. More labels can only give the promise on average." in answer.err
    assert "promise average needs more labels on the reject side" in answer.err
    assert "Label batch 2 (" in answer.err


def test_the_ladder_tries_the_weaker_promise_and_says_so(call: Call, tables: Path) -> None:
    few = pd.read_csv("full.csv")
    few = few.drop_duplicates("task_id")[:10]
    few.to_csv("few.csv", index=False)
    asked = "certificate few.csv --alpha .2 --side reject"
    confident = call(f"{asked} --promise confident")
    assert confident.code == 3 and "would give an even chance" in confident.out
    found = call(f"{asked} --json --out c.json").json
    assert (found["promise"], found["procedure"], found["certified"]) == (
        "average",
        "average",
        True,
    )
    assert found["after"] == "pseudo_task"
    first, *_ = call(asked).out.splitlines()
    assert (
        first == "This is the weaker promise, on average: the promise confident certified nothing."
    )
    tried = (
        " pseudo_task was tried before on these labels and certified nothing. On this side its "
        "promise, or this cap, is broken with probability at most 10 %."
    )
    assert found["statement"].endswith(tried)
    assert "pseudo_task was tried before" in " ".join(call("show c.json").out.split())
    assert call("verify c.json few.csv").code == 0
    alone = call(f"{asked} --promise average --json").json
    assert "after" not in alone and alone["statement"] + tried == found["statement"]
    refused = call(f"{asked} --promise proved")
    assert refused.code == 2 and "The promise proved needs at least 14 tasks" in refused.err
    both = call(f"{asked} --promise proved --procedure naive")
    assert both.code == 2 and "promise names the procedure" in both.err
