"""Score tables that count one task, one run or one label more than once say so."""

import uuid
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.paths import REPOSITORY

_CODES = {"one_run_a_task", "copies_across_tasks", "scores_are_outcomes"}


def _found(call: Call, table: pd.DataFrame, folder: Path) -> dict[str, str]:
    path = folder / "scores.csv"
    table.to_csv(path, index=False)
    answer = call(f"certificate {path} --side reject --json")
    found = {item["code"]: item["message"] for item in answer.json["findings"]}
    (folder / "c.json").write_text(answer.out, "utf-8")
    assert call(f"verify {folder}/c.json {path}").code == 0
    return found


def _one_row_each(names: list[str]) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    outcomes = rng.integers(0, 2, len(names))
    scores = outcomes + rng.normal(size=len(names))
    return pd.DataFrame({"task_id": names, "score": scores, "outcome": outcomes})


@pytest.mark.parametrize(
    "form", ["task-{}/{}", "t{}#{}", "web.{}-attempt{}", "{} run 0{}", "t{}.{}-of-4"]
)
def test_attempts_that_are_tasks(form: str, tmp_path: Path, call: Call) -> None:
    table = _one_row_each([form.format(task, run) for task in range(60) for run in range(4)])
    message = _found(call, table, tmp_path)["one_run_a_task"]
    assert "240 tasks has one row" in message and "look like attempts of 60 tasks" in message


def test_runs_that_are_tasks(tmp_path: Path, call: Call) -> None:
    names = [uuid.UUID(int=number * 7**20).hex for number in range(100)]
    table = _one_row_each(names)
    assert _CODES.isdisjoint(_found(call, table, tmp_path))
    message = _found(call, table.assign(trajectory_id=names), tmp_path)["one_run_a_task"]
    assert "every task has the id of its run" in message


@pytest.mark.parametrize("form", ["task-{}", "{}", "repo-{}-fix", "web/{}"])
def test_honest_tables_of_one_run_a_task(form: str, tmp_path: Path, call: Call) -> None:
    table = _one_row_each([form.format(task) for task in range(200)])
    assert _CODES.isdisjoint(_found(call, table, tmp_path))


def test_issues_of_repositories_are_no_attempts(tmp_path: Path, call: Call) -> None:
    rng = np.random.default_rng(1)
    numbers = rng.permutation(900)[:200]
    table = _one_row_each([f"repo{number % 12}-{number}" for number in numbers])
    assert _CODES.isdisjoint(_found(call, table, tmp_path))


@pytest.mark.parametrize("digits", [2, 4, 9])
def test_tasks_under_other_ids(digits: int, tmp_path: Path, call: Call) -> None:
    table = score_rows(tasks=50, attempts=6).round({"score": digits})
    again = table.assign(**{name: "b-" + table[name] for name in ("task_id", "trajectory_id")})
    found = _found(call, pd.concat([table, again]).sample(frac=1, random_state=1), tmp_path)
    assert "300 of 600 rows belong to tasks that repeat another" in found["copies_across_tasks"]
    assert _CODES.isdisjoint(_found(call, table, tmp_path))
    single = _one_row_each([f"t{task}" for task in range(60)])
    again = single.assign(task_id="b-" + single["task_id"])
    found = _found(call, pd.concat([single, again]), tmp_path)
    assert "60 of 120 rows belong" in found["copies_across_tasks"]


@pytest.mark.parametrize("levels", [2, 5, 40])
def test_coarse_scores_are_no_copies(levels: int, tmp_path: Path, call: Call) -> None:
    table = score_rows(tasks=150, attempts=1)
    # as a tree or a calibration gives them: many digits, few values
    codes = pd.qcut(table["score"], levels, labels=False)
    table["score"] = np.random.default_rng(0).random(levels)[codes]
    assert _CODES.isdisjoint(_found(call, table, tmp_path))


@pytest.mark.parametrize(("slope", "offset"), [(1, 0), (100, -3), (-1, 1)])
def test_outcomes_that_are_scores(slope: int, offset: int, tmp_path: Path, call: Call) -> None:
    table = score_rows(tasks=40, attempts=4)
    table["score"] = slope * table["outcome"] + offset
    assert "copy of the outcomes" in _found(call, table, tmp_path)["scores_are_outcomes"]
    table.loc[0, "score"] = 1 - table.loc[0, "score"]
    assert "scores_are_outcomes" not in _found(call, table, tmp_path)


def test_the_shipped_example_has_none_of_it(tmp_path: Path, call: Call) -> None:
    table = pd.read_csv(REPOSITORY / "docs/examples/scores.csv")
    assert _CODES.isdisjoint(_found(call, table, tmp_path))


@pytest.mark.parametrize("value", [-1.0, 999.0])
def test_a_value_that_stands_for_no_score(value: float, tmp_path: Path, call: Call) -> None:
    table = score_rows(tasks=50, attempts=6)
    table["score"] = 1 / (1 + np.exp(-table["score"]))
    table.loc[:34, "score"] = value
    message = _found(call, table, tmp_path)["saturated_scores"]
    assert "If it stands for no score, leave it empty" in message and "log-odds" not in message


def test_log_odds_are_advised_to_probabilities_alone(tmp_path: Path, call: Call) -> None:
    table = score_rows(tasks=50, attempts=6)
    likely = 1 / (1 + np.exp(-table["score"]))
    table["score"] = likely.round(2).clip(0.1, 0.9)
    assert "log-odds" in _found(call, table, tmp_path)["saturated_scores"]
    table["score"] = (1 + 9 * likely).round().clip(3, 8)
    assert "saturated_scores" not in _found(call, table, tmp_path)


def test_three_grades_are_not_saturated(tmp_path: Path, call: Call) -> None:
    table = score_rows(tasks=60, attempts=4)
    table["score"] = pd.qcut(table["score"], 3, labels=False) / 2
    assert "saturated_scores" not in _found(call, table, tmp_path)
    table.loc[:120, "score"] = 999
    assert "stands for no score" in _found(call, table, tmp_path)["saturated_scores"]


def test_the_page_does_not_say_certified_without_it(tmp_path: Path, call: Call) -> None:
    table = _one_row_each([f"task-{task}/{run}" for task in range(60) for run in range(4)])
    table["score"] += 3 * table["outcome"]
    message = _found(call, table, tmp_path)["one_run_a_task"]
    command = f"report {tmp_path}/c.json {tmp_path}/scores.csv --out {tmp_path}/page.html"
    assert call(command).code == 0
    page = unescape((tmp_path / "page.html").read_text("utf-8"))
    verdict = page.partition('id="verdict"')[2].partition("</section>")[0]
    assert "Certified, but attempts may count as tasks" in verdict and message in verdict
