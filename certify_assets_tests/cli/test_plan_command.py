import json
from pathlib import Path

import pytest

from certify_assets.certificates import certify, observe
from certify_assets.evaluation.score_table import read_score_table
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

KEYS = ["predicted_coverage", "gates", "tasks_needed", "attempts_per_task", "success_probability"]
_FACTS = "--success-rate 0.5 --auroc 0.85 --icc 0.3"


def test_facts_of_a_table_and_lamps_for_people(call: Call, scores: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    answer = call(f"plan {scores} --set most_tasks=2 --side release --json --out {out}")
    cal = read_score_table(scores).choose_split("cal")
    seen = observe(cal.scores, cal.labels, cal.tasks)
    found = certify(cal.scores, cal.labels, cal.tasks, side="release")
    document, model = answer.json, answer.json["model"]
    assert json.loads(out.read_text("utf-8")) == document and set(KEYS) <= set(document)
    assert answer.code == 3 and document["tasks_needed"] is None and document["tasks"] == 80
    assert "2 tasks, the largest number considered" in document["reason"]
    assert model["attempts"] == {"mean": 6.0, "fewest": 6, "most": 6}
    assert model["success_rate"] == pytest.approx(found.success_rate)
    assert model["auroc"] == pytest.approx(seen.auroc)
    assert document["certified_now"] is document["enough"] is found.certified
    learn, _, samples = document["gates"]
    assert set(learn) == {"name", "passed", "value", "threshold", "reason"}
    assert samples["value"] == pytest.approx(found.n_eff) and "task bootstrap" in learn["reason"]
    # the paper's law is of the reject side at .1
    assert document["coverage"]["law"] is None
    told = call(f"plan {scores} --set most_tasks=2 --auroc 0.55")
    assert told.code == 3 and told.out.startswith("You have enough tasks (80)")
    for words in (
        "coverage by the paper's law",
        "○ not passed: judge can learn",
        "? unknown: fine-tuning",
    ):
        assert words in told.out
    for other in ("--alpha 0.2", "--side release"):
        shown = call(f"plan {scores} --set most_tasks=2 --set alternatives=false {other}").out
        assert "law" not in shown


def test_a_blind_judge_ends_with_three(call: Call) -> None:
    answer = call("plan --success-rate 0.5 --auroc 0.5 --icc 0.3 --json")
    assert answer.code == 3
    assert (answer.json["tasks_needed"], answer.json["success_probability"]) == (None, None)
    assert "too weakly" in answer.json["reason"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "give --success-rate, --auroc, --icc, or a score table"),
        ("--auroc 0.8", "give --success-rate, --icc"),
        ("missing.csv", "does not exist"),
        (f"{_FACTS} --success-rate 1.0", "not in the range"),
        (f"{_FACTS} --icc nan", "not"),
        (f"{_FACTS} --procedure betting", "pilot"),
        (f"{_FACTS} --attempts 0", "not in the range"),
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
