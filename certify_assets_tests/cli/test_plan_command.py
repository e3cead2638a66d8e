from pathlib import Path

import pytest

from certify_assets.certificates import certify, observe
from certify_assets.tables.score_table import read_score_table
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

_FACTS = "--success-rate 0.5 --auroc 0.85 --icc 0.3"


def test_facts_of_a_table(call: Call, scores: Path) -> None:
    answer = call(f"plan {scores} --set most_tasks=2 --side release --json")
    cal = read_score_table(scores).choose_split("cal")
    found = certify(cal.scores, cal.labels, cal.tasks, side="release")
    document = answer.json
    assert {"predicted_coverage", "gates", "tasks_needed", "labels_needed"} <= set(document)
    assert answer.code == 3 and document["tasks_needed"] is None and document["tasks"] == 80
    assert "2 tasks, the largest number considered" in document["reason"]
    assert document["attempts_per_task"] == 6.0
    assert document["success_rate"] == pytest.approx(found.success_rate)
    assert document["auroc"] == pytest.approx(observe(cal.scores, cal.labels, cal.tasks).auroc)
    assert document["certified_now"] is found.certified
    learn, _, samples = document["gates"]
    assert set(learn) == {"name", "passed", "value", "threshold", "reason"}
    assert samples["value"] == pytest.approx(found.n_eff) and "task bootstrap" in learn["reason"]


def test_the_answer_comes_first_then_the_gates(call: Call, scores: Path) -> None:
    answer = call(f"plan {scores} --set most_tasks=2")
    lines = answer.out.splitlines()
    assert answer.code == 3 and len(lines) <= 12
    assert lines[0].startswith("You have enough tasks: this table certifies")
    assert lines[1].startswith("● passed: judge can learn")
    assert lines[2].startswith("○ not passed: fine-tuning")
    other = call(f"plan {scores} --set most_tasks=2 --auroc 0.55").out
    assert other.startswith("No number of tasks is enough. The judge is the limit")
    assert "○ not passed: judge can learn" in other and "? unknown: fine-tuning" in other


def test_a_blind_judge_ends_with_three(call: Call) -> None:
    answer = call("plan --success-rate 0.5 --auroc 0.5 --icc 0.3 --json")
    assert answer.code == 3 and answer.json["predicted_coverage"] == 0.0
    assert (answer.json["tasks_needed"], answer.json["labels_needed"]) == (None, None)
    assert "its lowest error is 0.500" in answer.json["reason"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "give --success-rate, --auroc, --icc, or a score table"),
        ("missing.csv", "does not exist"),
        (f"{_FACTS} --icc nan", "not"),
        (f"{_FACTS} --procedure betting", "pilot"),
        (f"{_FACTS} --set trials=0", "trials is 0; give a whole number from 1"),
        (f"{_FACTS} --set sft_auroc=high", "sft_auroc is 'high'; give a number from 0 to 1"),
    ],
)
def test_refusals(call: Call, arguments: str, words: str) -> None:
    answer = call(f"plan {arguments} --json")
    assert answer.code == 2 and words in answer.err and not answer.out
    assert len(answer.err.splitlines()) == 1


def test_a_table_of_one_outcome_needs_the_facts(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "same.csv"
    score_rows(tasks=9, attempts=1).assign(outcome=1).to_csv(path, index=False)
    answer = call(f"plan {path}")
    assert answer.code == 2 and "--success-rate and --auroc" in answer.err
