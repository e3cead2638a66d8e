"""``certify plan``: facts of a table, the answer, and what is refused."""

from pathlib import Path

import pytest

from certify_assets.certificates import certify, observe
from certify_assets.tables.score_table import read_score_table
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call


def test_facts_of_a_table(call: Call, scores: Path) -> None:
    asked = f"plan {scores} --side release"
    answer = call(f"{asked} --json")
    cal = read_score_table(scores).choose_split("cal")
    found = certify(cal.scores, cal.labels, cal.tasks, side="release")
    document = answer.json
    assert {"predicted_coverage", "gates", "tasks_needed", "labels_needed"} <= set(document)
    assert (document["tasks"], document["labels"]) == (80, 480.0)
    assert document["labels_needed"] == 6 * document["tasks_needed"]
    assert document["success_rate"] == pytest.approx(found.success_rate)
    assert document["auroc"] == pytest.approx(observe(cal.scores, cal.labels, cal.tasks).auroc)
    learn, _, samples = document["gates"]
    assert set(learn) == {"name", "passed", "value", "threshold", "reason"}
    assert samples["value"] == pytest.approx(found.n_eff) and "lower 95 % bound" in learn["reason"]
    lines = call(asked).out.splitlines()
    assert lines[0].startswith("480 labels of 80 tasks are expected to decide")
    assert lines[1].startswith(f"With {document['tasks_needed']} tasks (")
    enough = call(f"{asked} --tasks {document['tasks_needed']}").out
    assert "that chance is" not in enough, "the first line says it"
    fewer = call(f"{asked} --tasks 30 --attempts 2 --json").json
    assert (fewer["tasks"], fewer["labels"]) == (30, 60.0)
    proved = call(f"{asked} --promise proved --json")
    assert proved.json == call(f"{asked} --procedure one_run --json").json


def test_labels_that_can_certify_nothing_end_with_three(call: Call, scores: Path) -> None:
    answer = call(f"plan {scores} --tasks 5 --json")
    assert answer.code == 3 and answer.json["chance"] == 0.0 and answer.json["tasks_needed"]


def test_a_blind_judge_ends_with_three(call: Call, scores: Path) -> None:
    answer = call(f"plan {scores} --success-rate .5 --auroc .5 --json")
    assert answer.code == 3 and answer.json["predicted_coverage"] == 0.0
    assert (answer.json["tasks_needed"], answer.json["labels_needed"]) == (None, None)
    said = call(f"plan {scores} --success-rate .5 --auroc .5").out
    assert "With 80 tasks, no simulation certifies anything" in said
    assert "A better judge or a larger α" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("same.csv --promise proved --procedure naive", "--promise names the procedure"),
        ("missing.csv", "does not exist"),
        ("same.csv", "are equal. Guess --success-rate and --auroc"),
        ("same.csv --auroc nan", "not"),
        ("same.csv --procedure betting", "betting cannot be planned"),
    ],
)
def test_refusals(
    call: Call, arguments: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    score_rows(tasks=9, attempts=1).assign(outcome=1).to_csv("same.csv", index=False)
    answer = call(f"plan {arguments} --json")
    assert answer.code == 2 and words in answer.err and not answer.out
    assert len(answer.err.splitlines()) == 1
