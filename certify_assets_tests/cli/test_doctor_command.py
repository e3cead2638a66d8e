"""certify doctor: what tables and logs hold, and the answer, with the command that follows."""

from __future__ import annotations

import json
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from certify_assets.reports.label_page import RunToLabel, label_page
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.corpora.builders import write_json
from certify_assets_tests.corpora.formats.promptfoo import result
from certify_assets_tests.right_answers.importing import inspect_log

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Make = Callable[..., Path]


def rows(tasks: int = 80, attempts: int = 4, seed: int = 0) -> pd.DataFrame:
    """Runs with a good judge, and one that guesses."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(tasks), attempts)
    outcome = (rng.random(task.size) < 0.5).astype(int)
    score = 1 / (1 + np.exp(-(5 * outcome - 2.5 + rng.normal(size=task.size))))
    return pd.DataFrame(
        {
            "task_id": [f"t{number}" for number in task],
            "trajectory_id": [f"r{number}" for number in range(task.size)],
            "agent": "a",
            "score": score.round(4),
            "outcome": outcome,
        }
    )


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.chdir(tmp_path)

    def make(name: str = "scores.csv", change: Callable[..., pd.DataFrame] | None = None) -> Path:
        frame = rows() if change is None else change(rows())
        frame.to_csv(name, index=False)
        return Path(name)

    return make


def followed(call: Call, said: str) -> None:
    """Run every command that an answer names."""
    steps = [line for line in said.splitlines() if line.startswith("next: certify certificate")]
    assert steps
    for step in steps:
        assert call(*shlex.split(step)[2:]).code == 0


def test_a_table_with_labels_gets_a_certificate(call: Call, table: Make) -> None:
    path = table()
    answer = call(f"doctor {path}")
    lines = answer.out.splitlines()
    assert answer.code == 0 and len(lines) <= 20
    assert "320 runs of 80 tasks (4 of each task)" in lines[0]
    assert "labelled: 320 of 320 runs" in lines[1]
    found = call(f"doctor {path} --json").json
    assert found["answer"] == "certificate" and found["to_label"] is None
    assert found["found"]["attempts"] == {"least": 4, "median": 4, "most": 4}
    assert [(item["alpha"], item["side"]) for item in found["certificates"]] == [
        (alpha, side) for alpha in (0.1, 0.2) for side in ("reject", "release")
    ]
    # the certificates are those of the command that follows
    issued = call(f"certificate {path} --json").json
    assert found["certificates"][:2] == issued["certificates"]
    assert found["decided"] == issued["decided"]
    followed(call, answer.out)


def test_a_budget_that_gives_nothing_is_said(call: Call, table: Make) -> None:
    path = table(change=lambda _: score_rows(tasks=40, attempts=2, signal=1.2, seed=3))
    answer = call(f"doctor {path}")
    assert answer.code == 0 and "With at most 10 % wrong, nothing is certified.\n" in answer.out
    assert "(at most 20 % wrong)" in answer.out


def test_columns_of_other_names_are_found_and_said(call: Call, table: Make) -> None:
    names = {
        "task_id": "example",
        "trajectory_id": "run",
        "agent": "model",
        "score": "gpt_judge",
        "outcome": "human_label",
    }

    def renamed(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.rename(columns=names).assign(latency=1.5)

    answer = call(f"doctor {table(change=renamed)}")
    assert answer.code == 0 and "column 'example' of scores.csv as task_id" in answer.out
    assert "judges: gpt_judge · truths: human_label" in answer.out
    followed(call, answer.out)
    bare = table("bare.csv", lambda frame: renamed(frame).drop(columns="gpt_judge"))
    assert "320 runs of 80 tasks (4 of each task)" in call(f"doctor {bare}").out


def test_scores_with_decimal_commas_are_found_by_their_name(call: Call, table: Make) -> None:
    frame = pd.read_csv(table()).rename(columns={"task_id": "Task", "score": "Judge Score"})
    frame.to_csv("commas.csv", sep=";", decimal=",", index=False)
    answer = call("doctor commas.csv")
    assert answer.code == 0 and "judges: Judge Score" in answer.out
    assert "scores with decimal commas" in answer.out
    followed(call, answer.out)


@pytest.mark.parametrize("name", ["Scenario", "prompt_id", "Question", "sample", "test case"])
def test_a_column_of_runs_is_not_the_task(call: Call, table: Make, name: str) -> None:
    names = {"task_id": name, "trajectory_id": "Run", "score": "GPT judge", "outcome": "passed"}
    path = table(change=lambda frame: frame.rename(columns=names))
    answer = call(f"doctor {path}")
    assert "320 runs of 80 tasks" in answer.out and f"column '{name}' of scores.csv" in answer.out
    followed(call, answer.out)
    # one value a run is no task where another task-like column repeats
    once = table(change=lambda frame: frame.rename(columns={**names, "trajectory_id": "sample_no"}))
    assert "320 runs of 80 tasks" in call(f"doctor {once}").out
    alone = table(change=lambda frame: frame.rename(columns={**names, "task_id": "sort"}))
    asked = call(f"doctor {alone}")
    assert asked.code == 2 and "--columns task=NAME, or task=Run if every run" in asked.err
    assert "320 runs of 80 tasks" in call(f"doctor {alone} --columns task=sort").out


def test_judges_are_compared_at_a_part_of_delta(call: Call, table: Make) -> None:
    def two(frame: pd.DataFrame) -> pd.DataFrame:
        guessed = np.random.default_rng(1).random(len(frame))
        return frame.rename(columns={"score": "good_judge"}).assign(guessing_judge=guessed)

    path = table(change=two)
    answer = call(f"doctor {path}")
    found = call(f"doctor {path} --json").json
    assert [one["name"] for one in found["judges"]] == ["good_judge", "guessing_judge"]
    assert found["judges"][1]["decided"] == {"0.1": 0.0, "0.2": 0.0}
    assert found["certificates"][0]["candidates"] == 2
    assert "δ = 0.05 / 2" in answer.out and "--set candidates=2" in answer.out
    followed(call, answer.out)
    alone = call(f"doctor {path} --judge good_judge --json").json
    assert alone["certificates"][0]["candidates"] == 1
    assert alone["certificates"][0]["coverage"] >= found["certificates"][0]["coverage"]


def test_draws_are_offered_as_they_can_be_made(call: Call, table: Make) -> None:
    """Equally many runs a task, and one run of every task before the second one of any."""
    whole = rows(tasks=450, attempts=2).drop(columns="outcome")
    path = table(change=lambda _: whole)
    plans = call(f"doctor {path} --json").json["plans"]
    assert [(plan["tasks"], plan["attempts"]) for plan in plans] == [(400, 1), (450, 1)]
    fewer = table("unequal.csv", lambda _: whole[:120].drop(index=0))
    answer = call(f"doctor {fewer} --json --out other.csv").json
    assert [(plan["attempts"], plan["labels"]) for plan in answer["plans"]] == [(1, 60)]


def test_without_labels_runs_are_drawn_for_them(call: Call, table: Make) -> None:
    path = table(change=lambda frame: frame.drop(columns="outcome"))
    answer = call(f"doctor {path}")
    assert answer.code == 3 and "80 labels, 1 run of each of 80 tasks" in answer.out
    assert len(answer.out.splitlines()) <= 20
    sheet = pd.read_csv("to_label.csv", dtype=object)
    assert "score" not in sheet and sheet["outcome"].isna().all()
    found = call(f"doctor {path} --json").json
    assert found["answer"] == "label" and found["certificates"] == []
    assert found["to_label"] == {"runs": len(sheet), "file": "to_label.csv"}
    known = rows().set_index("trajectory_id")["outcome"]
    sheet.assign(outcome=sheet["trajectory_id"].map(known)).to_csv("to_label.csv", index=False)
    followed(call, answer.out)
    # labels are never written over
    refused = call(f"doctor {path}")
    assert refused.code == 2 and "to_label.csv exists and holds labels" in refused.err
    # the file of a draw is known by its column
    joined = call(f"doctor {path} --labels to_label.csv")
    assert joined.code == 0 and "--sample to_label.csv" in joined.out
    followed(call, joined.out)
    sheet.to_csv("blank.csv", index=False)
    blank = call(f"doctor {path} --labels blank.csv")
    assert blank.code == 2 and "holds no label yet" in blank.err


@pytest.mark.parametrize("named", ["Run", "sample"])
def test_ids_may_have_another_name_in_each_file(call: Call, table: Make, named: str) -> None:
    def bare(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.drop(columns="outcome").rename(columns={"trajectory_id": "Run"})

    path = table(change=bare)
    labels = rows()[["trajectory_id", "outcome"]]
    name = "sample" if named == "sample" else "trace"
    labels.rename(columns={"trajectory_id": name}).to_csv("labels.csv", index=False)
    answer = call(f"doctor {path} --labels labels.csv --columns id={named}")
    assert answer.code == 0 and "320 of 320 labels" in answer.out, answer.err
    followed(call, answer.out)


def test_a_reviewer_sees_no_judge(call: Call, table: Make) -> None:
    said = {"score_again": 0.125, "rubric": "fine"}
    log = table(change=lambda frame: frame.drop(columns="outcome").assign(**said))
    judges = {"score": "gpt_judge", "score_again": "again"}
    pd.read_csv(log).rename(columns=judges).to_csv("judged.csv", index=False)
    for asked in (f"doctor {log}", "doctor judged.csv --columns again=again"):
        assert call(f"{asked} --out sheet.csv").code == 3
        sheet = pd.read_csv("sheet.csv")
        assert not {"score", "score_again", "gpt_judge", "again"} & set(sheet)
        Path("sheet.csv").unlink()
    call(f"sample {log} --count 9 --out sheet.csv")
    assert not {"score", "score_again"} & set(pd.read_csv("sheet.csv"))
    call("sample judged.csv --columns score=gpt_judge,again=again --count 9 --out judged_sheet.csv")
    assert not {"gpt_judge", "again"} & set(pd.read_csv("judged_sheet.csv"))
    results = [result(str(number), number, passed=True, judge=0.5) for number in range(9)]
    write_json(Path("results.json"), {"results": {"version": 3, "results": results}})
    call("sample results.json --count 9 --out log_sheet.csv")
    assert not {"judge", "equals"} & set(pd.read_csv("log_sheet.csv"))


def test_files_of_the_user_are_not_lost(call: Call, table: Make) -> None:
    path = table(change=lambda frame: frame.drop(columns="outcome"))
    Path("other.json").write_text("[]", "utf-8")
    refused = call(f"doctor {path} other.json --out other.json")
    assert refused.code == 2 and "would be overwritten" in refused.err
    scan_results()
    Path("validation.csv").write_text("id,note\n1,mine\n", "utf-8")
    refused = call("doctor scan")
    assert refused.code == 2 and "validation.csv exists" in refused.err
    assert Path("validation.csv").read_text("utf-8") == "id,note\n1,mine\n"


@pytest.mark.parametrize("out", ["sheet.csv", "page.html", "tasks.json"])
def test_a_name_that_is_a_formula_is_in_no_sheet(call: Call, table: Make, out: str) -> None:
    def named(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.drop(columns="outcome").assign(trajectory_id="=1+" + frame["trajectory_id"])

    refused = call(f"doctor {table(change=named)} --out {out}")
    assert refused.code == 2 and "a spreadsheet would run it" in refused.err
    assert not Path(out).exists()


def test_labels_in_a_sheet_of_several_annotators_are_joined(call: Call, table: Make) -> None:
    guessed = {"task_id": "Scenario", "trajectory_id": "Run", "agent": "Model", "score": "judge"}
    path = table(change=lambda frame: frame.drop(columns="outcome"))
    known = rows()[["trajectory_id", "outcome"]].rename(columns={"trajectory_id": "run_id"})
    bob = known.assign(reviewer="bob", outcome=known["outcome"].where(known.index % 10 > 0, None))
    eve = known.assign(reviewer="eve")
    eve.loc[eve.index % 20 == 1, "outcome"] ^= 1
    other = pd.DataFrame({"run_id": ["x"], "outcome": [1], "reviewer": ["eve"]})
    pd.concat([bob, eve, other]).to_csv("labels.csv", index=False)
    for command in ("doctor", "certificate"):
        refused = call(f"{command} {path} --labels labels.csv")
        assert refused.code == 2 and "(16 such runs)" in refused.err
    answer = call(f"doctor {path} --labels labels.csv --set unlabelled=drop")
    assert answer.code == 0, answer.err
    # of 320 runs 16 are ties, and one label is of no run
    assert "304 of 305 labels of labels.csv name a run of scores.csv" in answer.out
    renamed = table(
        "renamed.csv", lambda frame: frame.drop(columns="outcome").rename(columns=guessed)
    )
    guess = call(f"doctor {renamed} --labels labels.csv --set unlabelled=drop")
    assert "agree on 272 of 288 pairs" in guess.out and "truths: labels.csv" in guess.out
    assert "16 runs without a label because annotators tie" in answer.out
    assert "agree on 272 of 288 pairs of labels" in answer.out and "kappa 0.89" in answer.out
    followed(call, answer.out)
    audited = call("audit certificate.json scores.csv --labels labels.csv")
    assert audited.code in (0, 3) and "304 of 305 labels" in audited.err


def test_few_labels_in_a_sheet_lead_to_a_plan_that_runs(call: Call, table: Make) -> None:
    path = table(change=lambda frame: frame.rename(columns={"score": "tone"}))
    rows()[["trajectory_id", "outcome"]].head(60).to_csv("labels.csv", index=False)
    words = "--judge tone --labels labels.csv --promise confident"
    answer = call(f"certificate {path} {words}")
    step = answer.out.rpartition("next: certify ")[2].strip()
    assert answer.code == 3 and step.startswith("plan scores.csv --judge tone")
    assert "labels of 80 tasks" in call(step).out


@pytest.mark.parametrize("words", ["--labels labels.csv", "", "--truth merged"])
def test_a_judge_that_guesses_leads_to_a_plan_that_runs(
    call: Call, table: Make, words: str
) -> None:
    """With labels in a file of their own, of most runs, or in one of two columns."""

    def guessing(frame: pd.DataFrame) -> pd.DataFrame:
        frame["score"] = np.random.default_rng(3).random(len(frame))
        frame[["trajectory_id", "outcome"]].to_csv("labels.csv", index=False)
        if not words:
            return frame.assign(outcome=frame["outcome"].where(frame.index % 9 > 0))
        frame = frame.drop(columns="outcome").assign(merged=frame["outcome"])
        return frame.drop(columns="merged") if "labels" in words else frame.assign(passed=1)

    answer = call(f"doctor {table(change=guessing)} {words}")
    step = answer.out.rpartition("next: certify ")[2].strip()
    assert answer.code == 3 and step.startswith("plan scores.csv --alpha 0.2 --")
    assert call(step).code in (0, 3)


@pytest.mark.parametrize(
    ("sheet", "said"),
    [
        ("run,label\nr1,1\nr1,1\n", "row 2 (line 3) repeats 'r1' of row 1"),
        ("run,label\nr1,1\nr1,0\n", "name the annotators with --columns annotator=NAME"),
        ("run,label,annotator\nr1,1,ann\nr1,0,ann\n", "of 'ann' another outcome than row 1"),
        ("run,label,annotator\nr1,1,a\nr1,unclear,b\nr1,unclear,c\n", "calls runs unclear"),
        ("run,label,annotator\nr1,1,Ann\nr1,1,ann \n", "repeats 'r1' of 'Ann'"),
        ("run,label\nr1,maybe\n", "'maybe' is not an outcome"),
        ("run,label\nzz,1\n", "No label of labels.csv names a run"),
    ],
)
def test_labels_that_contradict_are_refused(call: Call, table: Make, sheet: str, said: str) -> None:
    path = table(change=lambda frame: frame.drop(columns="outcome"))
    Path("labels.csv").write_text(sheet, "utf-8")
    for command in ("doctor", "certificate"):
        answer = call(f"{command} {path} --labels labels.csv")
        assert answer.code == 2 and said in answer.err, answer.err


def test_a_log_is_certified_where_it_is(call: Call, table: Make) -> None:
    frame = rows()
    results = [
        result(row.task_id, number, passed=bool(row.outcome), judge=row.score)
        for number, row in enumerate(frame.itertuples())
    ]
    write_json(Path("results.json"), {"results": {"version": 3, "results": results}})
    answer = call("doctor results.json")
    assert answer.code == 0 and "promptfoo results (JSON and JSON lines): 320 runs" in answer.out
    assert "judges: judge · truths: equals" in answer.out
    assert "certify certificate results.json --judge judge --truth equals" in answer.out
    followed(call, answer.out)
    decided = call("decide certificate.json results.json --json")
    assert decided.code == 0 and decided.json["reject"] > 0
    assert call("verify certificate.json results.json").code == 0
    audited = call("audit certificate.json results.json --disagreements wrong.csv --json")
    places = pd.read_csv("wrong.csv")["link"]
    assert len(places) == audited.json["disagreements"]["runs"] > 0
    assert all(place.startswith("results.json row ") for place in places)
    assert call("report certificate.json results.json --out page.html").code == 0
    assert f"<small>{places[0]}</small>" in Path("page.html").read_text("utf-8")
    wrong = call("certificate results.json --judge tone")
    assert wrong.code == 2 and "holds no judge 'tone'; it holds equals, judge" in wrong.err


def test_the_judge_is_not_the_truth(call: Call, table: Make) -> None:
    path = table(change=lambda frame: frame.assign(gold=frame["outcome"]))
    results = [result(f"t{number}", 0, passed=bool(number % 2), judge=0.5) for number in range(30)]
    write_json(Path("results.json"), {"results": {"version": 3, "results": results}})
    for words in (
        f"doctor {path} --judge outcome",
        f"doctor {path} --judge score --truth score",
        "doctor results.json --judge equals",
        "doctor results.json --judge equals --truth equals",
        "certificate results.json --judge equals --truth equals",
        "certificate results.json --judge equals",
    ):
        refused = call(words)
        assert refused.code == 2 and "cannot be both the score and the outcome" in refused.err, (
            words
        )
    assert call(f"doctor {path} --judge outcome --truth gold").code == 0


def test_words_of_a_truth_are_read_as_a_whole(call: Call, table: Make) -> None:
    words = ("pass", "needs work", "fail")
    results = [result(f"t{number}", 0, passed=True, judge=number / 30) for number in range(30)]
    for number, one in enumerate(results):
        one["gradingResult"]["componentResults"][0] |= {
            "pass": words[number % 3],
            "assertion": {"type": "human"},
        }
    write_json(Path("results.json"), {"results": {"version": 3, "results": results}})
    asked = call("doctor results.json")
    assert asked.code == 2 and "Name the successes among 'fail', 'needs work', 'pass'" in asked.err
    settled = call("doctor results.json --set success=pass --json").json
    assert settled["judges"][0]["labelled"] == 30
    assert call("certificate results.json --set success=pass --json").json["certificates"][0][
        "success_rate"
    ] == pytest.approx(1 / 3)


def test_a_name_in_a_log_writes_no_line_of_the_answer(call: Call, table: Make) -> None:
    results = [result(str(number), number, passed=True, judge=0.5) for number in range(3)]
    for one in results:
        one["gradingResult"]["componentResults"][-1]["assertion"]["metric"] = "a\nnext: rm -r x"
    write_json(Path("results.json"), {"results": {"version": 3, "results": results}})
    answer = call("doctor results.json")
    assert "a next: rm -r x" in answer.out
    assert not any(line.startswith("next: rm") for line in answer.out.splitlines())


def test_of_a_workbook_the_sheet_with_the_table_is_read(call: Call, table: Make) -> None:
    notes = pd.DataFrame({"note": ["read me"]})
    for name, other in (("one.xlsx", notes), ("two.xlsx", rows())):
        with pd.ExcelWriter(name) as book:
            other.to_excel(book, sheet_name="first", index=False)
            rows().to_excel(book, sheet_name="runs", index=False)
    assert "320 runs of 80 tasks" in call("doctor one.xlsx").out
    refused = call("doctor two.xlsx")
    assert refused.code == 2 and "the table in several sheets ('first', 'runs')" in refused.err


def test_scores_on_other_scales_are_read_aloud(call: Call, table: Make) -> None:
    def graded(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(score=(1 + 4 * frame["score"]).round())

    answer = call("doctor", table(change=graded))
    assert answer.code == 0 and "score from 1 to 5, and higher is better\n" in answer.out
    followed(call, answer.out)
    assert "higher is better" not in call("doctor", table()).out

    turned = call("doctor", table(change=lambda frame: frame.assign(score=1 - frame["score"])))
    step = turned.out.splitlines()[-1].removeprefix("next: certify ")
    assert turned.code == 3 and step == "doctor scores.csv --set lower_is_better=true"
    assert call(*shlex.split(step)).code == 0
    still = call("doctor", table(), "--set", "lower_is_better=true")
    assert still.code == 3 and "next:" not in still.out


def test_a_table_of_runs_with_a_named_score_is_a_score_table(call: Call, table: Make) -> None:
    def with_texts(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.rename(columns={"score": "zz"}).assign(text="worked")

    path = table(change=with_texts)
    assert call(f"doctor {path}").out.startswith("table of runs: ")
    answer = call(f"doctor {path} --judge zz")
    assert answer.out.startswith("score table: ")
    assert answer.out.endswith("next: certify decide certificate.json NEW_SCORES\n")


def test_a_truth_that_was_named_is_not_asked_for_again(call: Call, table: Make) -> None:
    def same(frame: pd.DataFrame) -> pd.DataFrame:
        named = frame.rename(columns={"outcome": "human_label"})
        return named.assign(score=0.5, reward=frame["outcome"])

    path = table(change=same)
    assert "next: certify doctor" in call(f"doctor {path}").out
    answer = call(f"doctor {path} --truth reward")
    assert "Every run has the same score" in answer.out and "next:" not in answer.out


def test_what_cannot_be_settled_is_asked(call: Call, table: Make) -> None:
    some = {"passed": [1] * 9 + [None] * 311, "gold": 1}
    twice = table("twice.csv", lambda frame: frame.drop(columns="outcome").assign(**some))
    asked = call(f"doctor {twice} --out sheet.csv")
    assert asked.code == 3 and "Name one with --truth NAME" in asked.out
    assert f"next: certify doctor {twice} --out sheet.csv --truth gold" in asked.out
    wrong = call(f"doctor {twice} --truth nope")
    assert wrong.code == 2 and "has no column 'nope'" in wrong.err
    bare = table("bare.csv", lambda frame: frame.drop(columns="score").assign(gold=1))
    nothing = call(f"doctor {bare}")
    assert nothing.code == 3 and "No score of a judge" in nothing.out
    # which of two truths counts is no matter yet
    assert "next:" not in nothing.out
    texts = table("texts.csv", lambda frame: frame.drop(columns="score").assign(text="worked"))
    assert "next: certify corpus import texts.csv --name NAME" in call(f"doctor {texts}").out
    same = call(f"doctor {table('same.csv', lambda frame: frame.assign(score=3))}")
    assert same.code == 3 and "Every run has the same score (score 3)" in same.out
    few = table("few.csv", lambda frame: frame.drop(columns="outcome").head(12))
    answer = call(f"doctor {few}")
    assert answer.code == 3 and "With 3 tasks, nothing can be promised" in answer.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("absent.csv", "absent.csv"),
        ("scores.csv other.csv", "only one score table is read at a time"),
        ("scores.csv --judge tone", "has no column 'tone'"),
        ("binary.csv", "has a header but no rows"),
        ("header.csv", "has a header but no rows"),
        ("none.json", "Which column of none.json names the tasks is unclear"),
        (".", "holds no logs of a known format"),
        ("odd.zip", "odd.zip holds no logs of a known format"),
        ("scores.csv --out sheet.txt", "sheet.txt does not end in .csv"),
    ],
)
def test_bad_input_gets_two_short_sentences(call: Call, table: Make, words: str, said: str) -> None:
    table("other.csv")
    table()
    Path("binary.csv").write_bytes(b"\xff\xfe\x00\x01garb")
    Path("header.csv").write_text("task_id\n", "utf-8")
    Path("none.json").write_text("{}", "utf-8")
    with zipfile.ZipFile("odd.zip", "w") as archive:
        archive.writestr("notes.md", "no runs")
    answer = call(f"doctor {words}")
    assert answer.code == 2 and said in answer.err and len(answer.err.splitlines()) == 1


def test_runs_of_a_log_are_labelled_on_a_page_or_in_label_studio(call: Call, table: Make) -> None:
    results = [
        result(row.task_id, number, passed=True, judge=row.score, canary="<script>secret")
        for number, row in enumerate(rows(attempts=1).itertuples())
    ]
    for one in results:
        one["response"]["output"] = "</pre><script>alert(1)</script>"
        one["gradingResult"]["componentResults"].pop(0)
    write_json(Path("results.json"), {"results": {"version": 3, "results": results}})
    answer = call("doctor results.json --out to_label.html")
    assert answer.code == 3 and "download to_label.csv" in answer.out
    assert (
        "next: certify certificate results.json --judge judge --sample to_label.csv" in answer.out
    )
    page = Path("to_label.html").read_text("utf-8")
    # scripts of the runs are text, and nothing tells what the judge says
    assert page.count("<script>") == 1 and "&lt;script&gt;alert(1)" in page
    assert page.count('class="card run"') == 80 and "secret" not in page
    assert call("doctor results.json --out tasks.json").code == 3
    tasks = json.loads(Path("tasks.json").read_text("utf-8"))
    assert len(tasks) == 80 and tasks[0]["data"].keys() == {
        "trajectory_id",
        "batch",
        "drawn_by",
        "run",
    }
    # what both give back is the file of the draw
    labelled = pd.DataFrame([task["data"] for task in tasks]).drop(columns="run")
    labelled.assign(outcome=1).to_csv("to_label.csv", index=False)
    assert call("certificate results.json --sample to_label.csv").code in (0, 3)


def scan_results() -> pd.DataFrame:
    """Write results of Inspect Scout; return the runs."""
    frame = rows(attempts=1)
    about = {
        "transcript_id": frame["trajectory_id"],
        "transcript_task_set": "sums",
        "transcript_task_id": frame["task_id"],
        "transcript_model": "m",
        "transcript_success": None,
        "input_type": "transcript",
        "value": frame["score"].astype(str),
        "value_type": "number",
        "validation_target": None,
    }
    Path("scan").mkdir()
    Path("scan/_scan.json").write_text("{}", "utf-8")
    pd.DataFrame(about).to_parquet("scan/judge.parquet")
    return frame


def test_runs_of_a_scan_are_labelled_in_scout_view(call: Call, table: Make) -> None:
    frame = scan_results()
    answer = call("doctor scan")
    assert answer.code == 3 and "results of Inspect Scout: 80 runs" in answer.out
    sheet, known = pd.read_csv("validation.csv"), frame.set_index("trajectory_id")["outcome"]
    targets = sheet["id"].map(known).map({1: "true", 0: "false"})
    sheet.assign(target=targets).to_csv("validation.csv", index=False)
    followed(call, answer.out)


@pytest.mark.slow
def test_labels_of_the_page_are_kept_and_downloaded(browser: Browser, tmp_path: Path) -> None:
    columns = {
        "batch": ["1", "2"],
        "trajectory_id": ["constructor", "</section>,2"],
        "task_id": ["t", "t"],
        "drawn_by": ["seed=1", "seed=1"],
    }
    runs = RunToLabel.of(columns, {"constructor": "<b>said</b>"})
    (tmp_path / "page.html").write_text(label_page(runs, title="2 runs", file="l.csv"), "utf-8")
    page = browser.new_page(viewport={"width": 360, "height": 740})
    page.goto((tmp_path / "page.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator(".run input[value='unclear']").nth(1).check()
    page.reload()
    assert page.locator("#done").inner_text() == "1 of 2 labelled"
    page.locator(".run input[value='1']").first.check()
    with page.expect_download() as download:
        page.click("#save")
    labelled = pd.read_csv(download.value.path(), dtype=str)
    assert labelled["trajectory_id"].tolist() == columns["trajectory_id"]
    assert labelled["outcome"].tolist() == ["1", "unclear"]
    assert download.value.suggested_filename == "l.csv"


def test_the_folder_of_this_shell_keeps_its_seed_next_to_it(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    inspect_log(tmp_path / "logs" / "a.json", *np.linspace(0.01, 0.99, 40).tolist())
    monkeypatch.chdir(tmp_path / "logs")
    said = call(f"doctor . --out {tmp_path}/l.csv").out
    assert "to label" in said and (tmp_path / "logs.sample.json").is_file()
