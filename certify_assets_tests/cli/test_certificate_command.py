"""``certify certificate``: what is listed, what is refused, and what the document promises."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets import certify
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Answer, Call
from certify_assets_tests.paths import REPOSITORY

#: the procedures that take several runs a task
EVERY = [
    "pseudo_task",
    "guarded_taskboot",
    "taskboot",
    "naive",
    "deff",
    "one_per_task",
    "task_hoeffding",
    "betting",
    "one_run",
]


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    score_rows(tasks=80, attempts=6, seed=3).to_csv(path, index=False)
    return path


def test_the_command_that_would_read_a_table_works(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    odd, frame = tmp_path / "odd.csv", pd.read_csv(scores).rename(columns={"task_id": "instance"})
    words = np.where(frame["outcome"] == 1, "good", "bad")
    frame.assign(outcome=words).to_csv(odd, index=False)
    asked = f"certificate {odd} --side reject --json"
    refused = call(asked)
    assert refused.code == 2 and "Name the successes among 'bad', 'good' with" in refused.err
    line = refused.err.partition("fill in: certify ")[2].strip()
    assert line == f"{asked} --columns task=instance --set success=VALUE"
    read = call(line.replace("VALUE", "good")).json
    plain = call(f"certificate {scores} --side reject --json").json
    said = {"success": "good", "columns": "task=instance"}
    assert read == {**plain, "provenance": said, "digest": read["digest"]}
    absent = call(f"{asked} --judge absent").err
    assert "or give --judge NAME --columns task=NAME." in absent, "an option of its own"


def test_a_setting_is_said_by_option_set_file_or_keyword(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    asked, said = f"certificate {scores} --side reject --json", {"alpha": 0.2, "delta": 0.02}
    for name, text in (("s.yaml", "alpha: 0.2\ndelta: 0.02\n"), ("s.json", json.dumps(said))):
        (tmp_path / name).write_text(text, "utf-8")
    answers = [
        call(f"{asked} --alpha .2 --set delta=.02").json,
        call(f"{asked} --set alpha=.2 --set delta=.02").json,
        call(f"{asked} --settings {tmp_path}/s.yaml").json,
        call(f"{asked} --settings {tmp_path}/s.json").json,
        # what is nearer to the call goes first
        call(f"{asked} --set alpha=.1 --alpha .2 --settings {tmp_path}/s.json").json,
        certify(pd.read_csv(scores), side="reject", **said).to_dict(),
    ]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["alpha"] == 0.2 and answers[0]["delta"] == 0.02
    (tmp_path / "s.yaml").write_text("colour: red\n", "utf-8")
    refused = call(f"{asked} --settings {tmp_path}/s.yaml")
    assert refused.code == 2 and "colour" in refused.err
    (tmp_path / "s.yaml").write_text("- red\n", "utf-8")
    refused = call(f"{asked} --settings {tmp_path}/s.yaml")
    assert refused.code == 2 and "is not a mapping of settings" in refused.err


def test_the_answer_is_at_most_eight_lines(call: Call, scores: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.csv"
    frame = pd.read_csv(scores).drop(columns="trajectory_id", errors="ignore")
    pd.concat([frame, frame[:40]]).assign(score=lambda rows: rows["score"].round(1)).to_csv(odd)
    for more in ("", f"--out {tmp_path}/c.json"):
        shown = call(f"certificate {odd} --alpha .2 {more}")
        assert shown.out.count("\n") <= 8 and "at most 20 % wrong, 95 % confidence" in shown.out
    whole = call(f"show {tmp_path}/c.json").out
    assert "selective error" in whole and whole.count("\n") > 8


@pytest.mark.parametrize(
    "options", ["", "--alpha .01 --side reject --set delta=.02", "--procedure all"]
)
def test_the_next_command_repeats_the_options_and_works(
    call: Call, scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"task_id": "task", "score": "risk", "outcome": "result"}
    frame = pd.read_csv(scores).rename(columns=names)
    frame.assign(risk=-frame["risk"]).to_csv("a b.csv", index=False)
    read = "--columns task=task,score=risk,outcome=result --set lower_is_better=true"

    def following(*asked: str) -> list[str]:
        said = " ".join(call(*asked).out.split())
        return shlex.split(said.rpartition("next: certify ")[2].partition("for the promise")[0])

    step = following("certificate", "a b.csv", *read.split(), *options.split())
    if "--alpha" in options:
        expected = f"--alpha 0.01 --promise confident --set delta=0.02 {read}"
        assert step == ["plan", "a b.csv", *expected.split()]
        return
    written = ["--out", "certificate.json"]
    assert step == ["certificate", "a b.csv", *read.split(), *options.split(), *written]
    decide = following(*step)
    assert decide[:3] == ["decide", "certificate.json", "NEW_SCORES"]
    decided = call(*("a b.csv" if word == "NEW_SCORES" else word for word in decide))
    assert decided.code == 0
    if options:
        refused = " ".join(call("decide certificate.json s.csv").err.split())
        assert "Choose one for each side with --alpha and --procedure" in refused


def test_the_cost_of_a_proof_is_one_figure(call: Call) -> None:
    scores = REPOSITORY / "docs/examples/scores.csv"
    said = call("certificate", scores).out
    costs = r"one run of each of about (\d+) tasks \(63 here\)"
    (tasks,) = re.findall(costs, said)
    refused = call("certificate", scores, "--promise", "proved")
    assert refused.code == 3 and re.findall(costs, refused.out) == [tasks]
    assert refused.out.endswith(f"--promise proved --tasks {tasks}\n")
    (step,) = re.findall(r"^for the promise proved: certify (.*)$", said, re.MULTILINE)
    assert step.endswith(f"--promise proved --tasks {tasks}")
    plan = call(f"{step} --attempts 1 --json").json
    assert plan["tasks"] == int(tasks) and plan["draws"][0]["promise"] == "proved"
    assert 0.25 < plan["chance"] < 0.75, "about even"


def test_a_plan_is_of_the_promise_that_is_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def write(tasks: int) -> None:
        outcome = np.arange(tasks) % 2
        names = [f"t{number}" for number in range(tasks)]
        frame = pd.DataFrame({"task_id": names, "trajectory_id": names, "outcome": outcome})
        frame = frame.assign(score=outcome + np.linspace(0, 0.1, tasks))
        frame.to_csv(tmp_path / "s.csv", index=False)
        frame.drop(columns="outcome").to_csv(tmp_path / "bare.csv", index=False)

    write(26)
    nothing = call("certificate s.csv --promise average --alpha .06").out
    (costs,) = re.findall(r"Labels of all attempts at about (\d+) tasks \(26 here\)", nothing)
    assert "They must be new labels. The" in nothing, "looks are for a proof"
    assert "from these labels, within a factor of two.\n" in nothing
    assert "next: certify plan s.csv --alpha 0.06 --promise average\n" in nothing
    assert nothing.endswith(f" --promise confident --tasks {costs}\n")
    # with guesses alone it would plan a proof
    joined = call("certificate bare.csv --labels s.csv --promise average --alpha .06").out
    *_, step = joined.splitlines()
    assert f" --promise confident --tasks {costs} --success-rate" in step
    plan = call(step.removeprefix("for the promise confident: certify "))
    assert "by the promise confident" in plan.out
    write(80)
    enough = call("certificate s.csv --promise average --alpha .2")
    assert enough.code == 0 and "for the promise" not in enough.out, "they give confidence"


def test_all_lists_every_procedure_that_the_table_fits(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    out = tmp_path / "all.json"
    answer = call(f"certificate {scores} --procedure all --json --out {out}")
    items = answer.json["certificates"]
    assert answer.code == 0
    assert [item["procedure"] for item in items[::2]] == EVERY
    one = call(f"certificate {scores} --procedure all --side reject --json").json
    assert one == {"certificates": items[::2]}
    assert set(answer.json) == {"certificates", "decided", "human", "statement"}
    for name, line in zip(EVERY, answer.json["statement"].splitlines(), strict=True):
        assert line.startswith(f"By {name}: ")
    for item in items:
        lacking = "pilot_missing" in [finding["code"] for finding in item["findings"]]
        assert lacking == (item["procedure"] == "betting")
        assert not (lacking and (item["certified"] or item["coverage"]))
    assert call(f"verify {out} {scores}").code == 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("--set engine=montecarlo", "engine montecarlo does not apply to pseudo_task"),
        ("--set pilot={scores}", "no other procedure reads it"),
        ("--procedure all --set pilot={scores}", "shares 80 task(s)"),
        ("--procedure betting", "Betting needs one"),
        ("--procedure taskboot --pool {scores}", "of unlabelled tasks, not taskboot"),
        ("--pool {scores}", "with the calibration table"),
        ("--procedure pseudo_task --set size_ratio=0.9", "size_ratio is 0.9"),
        ("--set detla=.1", "'detla' is not a setting. Did you mean delta? Settings: alpha"),
        ("--settings no.yaml", "no.yaml cannot be read: No such file"),
        ("--alpha 10", "10.0 is not in the range 0<x<1"),
        ("--set joint=true --side reject", "Leave it or side out"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(
    call: Call, scores: Path, arguments: str, word: str
) -> None:
    answer = call(f"certificate {scores} {arguments} --json".format(scores=scores))
    assert answer.code == 2 and answer.out == ""
    assert word in answer.err and answer.err.count("\n") == 1


def test_both_sides_are_the_default_and_promise_together(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    out = tmp_path / "both.json"
    document = call(f"certificate {scores} --alpha 0.2 --json --out {out}").json
    assert json.loads(out.read_text("utf-8")) == document
    assert set(document) == {"certificates", "decided", "human", "statement"}
    assert "together with 90 % confidence" in document["statement"]
    for side, item in zip(("reject", "release"), document["certificates"], strict=True):
        assert call(f"certificate {scores} --alpha 0.2 --side {side} --json").json == item
    assert call(f"verify {out} {scores}").code == 0
    decided = call(f"decide {out} {scores} --json").json
    total = decided["reject"] + decided["release"] + decided["human"]
    # the table has no unscored row: the shares are those of its rows
    assert document["decided"] == pytest.approx((total - decided["human"]) / total, abs=1e-9)
    assert document["human"] == pytest.approx(decided["human"] / total, abs=1e-9)
    shown = " ".join(call(f"certificate {scores} --alpha 0.2").out.split())
    assert f"{100 * document['decided']:.1f} % of runs are decided: " in shown and "█░" in shown


def test_an_altered_promise_is_refused(call: Call, scores: Path, tmp_path: Path) -> None:
    out = tmp_path / "both.json"
    document = call(f"certificate {scores} --alpha 0.2 --json").json
    for change in (
        {"statement": document["statement"].replace("90 %", "99 %")},
        {"statement": None},
        {"decided": document["decided"] + 0.01},
        {"human": 0},
        {"more": 1},
    ):
        out.write_text(json.dumps({**document, **change}), "utf-8")
        answer = call(f"verify {out} {scores}")
        assert answer.code == 3 and answer.err
        assert call(f"decide {out} {scores}").code == 2
    # two certificates put together by hand promise nothing together, and each is what it is
    out.write_text(json.dumps({"certificates": document["certificates"]}), "utf-8")
    assert call(f"verify {out} {scores}").code == 0


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frame = score_rows(tasks=120, attempts=6, seed=4)
    frame["task_id"] = "pilot-" + frame["task_id"].astype(str)
    frame["trajectory_id"] = [f"pilot/{row}" for row in range(len(frame))]
    path = tmp_path_factory.mktemp("pilot") / "pilot.csv"
    frame.to_csv(path, index=False)
    return path


def test_betting_takes_a_pilot_and_verify_asks_for_it(
    call: Call, scores: Path, pilot: Path, tmp_path: Path
) -> None:
    out = tmp_path / "betting.json"
    asked = f"certificate {scores} --side reject --set pilot={pilot} --alpha 0.2 --json --out {out}"
    answer = call(f"{asked} --procedure betting")
    assert answer.code == 0 and answer.json["certified"] and answer.json["settings"]["pilot"]
    lacking = call(f"verify {out} {scores} --json")
    assert lacking.code == 3 and "cannot be recomputed without it" in lacking.json["difference"]
    for other, code in ((pilot, 0), (scores, 3)):
        assert call(f"verify {out} {scores} --pilot {other}").code == code
    everything = call(f"{asked} --procedure all").json["certificates"]
    assert answer.json in everything
    assert call(f"verify {out} {scores}").code == 3
    assert call(f"verify {out} {scores} --pilot {pilot}").code == 0
    assert call(f"decide {out} {scores} --procedure betting").code == 0


def test_scores_of_failure_are_noticed_and_read_on_request(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(scores)
    path, out, plain = (tmp_path / name for name in ("lower.csv", "both.json", "plain.json"))
    frame.assign(score=-frame["score"]).to_csv(path, index=False)
    for item in call(f"certificate {path} --json").json["certificates"]:
        assert "scores_look_reversed" in [finding["code"] for finding in item["findings"]]
    for table, option, advice in (
        (path, "", "try --set lower_is_better=true."),
        (scores, "--set lower_is_better=true", "leave out --set lower_is_better=true."),
    ):
        said = " ".join(call(f"certificate {table} {option}").out.split())
        assert advice in said and "is the limit" not in said
    expected = call(f"certificate {scores} --json --out {plain}").json["certificates"]
    lower = "--set lower_is_better=true"
    turned = call(f"certificate {path} {lower} --json --out {out}").json["certificates"]
    for item, other in zip(turned, expected, strict=True):
        assert item["provenance"] == {"lower_is_better": "true"}
        assert {**item, "provenance": {}, "digest": other["digest"]} == other
    # what follows is read as the certificate says, with or without the option
    decided = call(f"decide {plain} {scores} --json").json
    for option in ("", "--set lower_is_better=true"):
        assert call(f"verify {out} {path} {option}").code == 0
        again = call(f"decide {out} {path} {option} --json")
        assert "read as: lower scores as better" in again.err
        hashes = again.json["certificate_sha256"]
        assert again.json == {**decided, "certificate_sha256": hashes}
    assert call(f"verify {out} {scores}").code == 3
    refused = call(f"decide {plain} {path} --set lower_is_better=true")
    assert refused.code == 2 and "Leave --set lower_is_better=true out" in refused.err


@pytest.mark.parametrize(
    ("scale", "form", "options", "said"),
    [
        (1, "{:.4f}", "", {}),
        (100, "{:.6f}", "--set score_scale=probability", {"score_scale": "percent"}),
        (10, "{:.6f}", "", {}),
    ],
)
def test_a_certificate_says_how_its_scores_were_read(
    call: Call, scores: Path, tmp_path: Path, scale: int, form: str, options: str, said: object
) -> None:
    frame, path, out = pd.read_csv(scores), tmp_path / "s.csv", tmp_path / "c.json"
    chances = scale / (1 + np.exp(-frame["score"]))
    frame.assign(score=chances.map(form.format)).to_csv(path, index=False)
    asked = f"certificate {path} --side reject --alpha .2 {options} --json --out {out}"
    document = call(asked).json
    assert document["certified"] and document["provenance"] == said
    assert call(f"verify {out} {path}").code == 0
    assert call(f"decide {out} {path} --json").json["reject"] == document["covered_trajectories"]


def test_the_pilot_is_its_own_split(call: Call, scores: Path, pilot: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.csv"
    asked = "certificate {} --side reject --procedure betting --set pilot={} --alpha 0.2 --json"
    both = pd.concat([pd.read_csv(scores).assign(split="cal"), pd.read_csv(pilot)])
    both.fillna({"split": "rl"}).to_csv(whole, index=False)
    assert call(asked.format(whole, whole)).json == call(asked.format(scores, pilot)).json
    both.assign(split="cal").to_csv(whole, index=False)
    refused = call(asked.format(scores, whole))
    assert refused.code == 2 and "split='pilot'" in refused.err


@pytest.mark.slow
def test_a_pool_is_read_without_its_outcomes_and_asked_for_again(
    call: Call, scores: Path, pilot: Path, tmp_path: Path
) -> None:
    pool, out, page = (tmp_path / name for name in ("pool.csv", "c.json", "page.html"))
    # an outcome that no table could have: nobody looks at it
    pd.read_csv(pilot).assign(outcome="unknown").to_csv(pool, index=False)
    asked = f"certificate {scores} --side reject --alpha 0.2 --pool {pool} --json --out {out}"
    answer = call(asked)
    assert answer.code == 0 and answer.json["certified"]
    assert set(answer.json["inputs"]["pool"]) == {"sha256", "rows", "origin"}
    for other in (pool, pilot):
        assert call(f"verify {out} {scores} --pool {other}").code == 0
    lacking = call(f"verify {out} {scores} --json")
    assert lacking.code == 2 and "give it (--pool)" in lacking.err and not lacking.out
    pd.read_csv(pool).iloc[:-1].to_csv(pool, index=False)
    answer = call(f"verify {out} {scores} --pool {pool} --json")
    assert answer.code == 3 and "inputs.pool.sha256" in answer.json["difference"]
    assert call(f"report {out} {scores} --pool {pilot} --out {page}").code == 0
    assert "calibrated by simulation" in page.read_text("utf-8")
    every = call(f"certificate {scores} --procedure all --pool {pilot} --json").json
    pools = [item["procedure"] for item in every["certificates"] if "pool" in item["inputs"]]
    assert pools == ["pseudo_task"] * 2


def test_pools_that_cannot_be_read(call: Call, scores: Path, pilot: Path, tmp_path: Path) -> None:
    pool, frame, cal = tmp_path / "pool.csv", pd.read_csv(pilot), pd.read_csv(scores)
    asked = "certificate {} --side reject --pool {} --json"
    for table, word in (
        (frame.drop(columns="score"), "no column 'score'"),
        (frame.assign(split="cal"), "only rows with split=cal"),
        (pd.concat([frame, cal[:1]]), "shares 1 task(s)"),
    ):
        table.to_csv(pool, index=False)
        answer = call(asked.format(scores, pool))
        assert answer.code == 2 and word in answer.err and answer.err.count("\n") == 1
        # no command line is proposed: its columns would be those of both tables
        assert "try:" not in answer.err
    # one file for both: its rows of other splits are the pool
    pd.concat([cal.assign(split="cal"), frame.assign(split="test")]).to_csv(pool, index=False)
    apart, together = (
        call(asked.format(*tables)).json for tables in ((scores, pilot), (pool, pool))
    )
    assert apart == together


@pytest.mark.parametrize("name", ["pool", "pilot"])
def test_pool_and_pilot_are_on_the_scale_of_the_scores(
    call: Call, tmp_path: Path, name: str
) -> None:
    def written(which: str, factor: float) -> Path:
        frame = score_rows(tasks=100, attempts=4, seed=3 + (which == name))
        frame["task_id"] = f"{which}-" + frame["task_id"].astype(str)
        frame["score"] = factor / (1 + np.exp(-frame["score"]))
        path = tmp_path / f"{which}-{factor:g}.csv"
        frame.to_csv(path, index=False)
        return path

    option = "--pool " if name == "pool" else "--procedure betting --set pilot="

    def certified(ours: float, theirs: float, more: str = "") -> Answer:
        tables = f"{written('s', ours)} {option}{written(name, theirs)}"
        return call(f"certificate {tables} --side reject --alpha .2 --json {more}")

    covered = certified(1, 1).json["covered_trajectories"]
    assert covered
    for ours, theirs in ((1, 100), (10, 100)):
        answer = certified(ours, theirs)
        assert answer.code == 2 and f"{name}-{theirs}.csv has scores " in answer.err
        assert f"s-{ours}.csv was issued on " in answer.err and "--set score_scale" in answer.err
    read = certified(1, 100, "--set score_scale=probability")
    turned = certified(-1, -1, "--set lower_is_better=true")
    assert read.json["covered_trajectories"] == turned.json["covered_trajectories"] == covered


def test_the_plan_that_is_proposed_is_of_the_nearest_side(call: Call, tmp_path: Path) -> None:
    # one failure among 22 tasks: auto-pass lacks fewer tasks than auto-fail
    rows = "".join(f"t{number},{number},{int(number > 0)}\n" for number in range(22))
    (tmp_path / "few.csv").write_text(f"task_id,score,outcome\n{rows}", "utf-8")
    answer = call(f"certificate {tmp_path}/few.csv --alpha 0.02")
    assert answer.code == 3 and "--side release" in answer.out.splitlines()[-1]
