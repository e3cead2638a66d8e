"""What an import says of marks, labels and agents is true, and the most important comes first."""

from pathlib import Path

from certify_assets_tests.cli.calling import Call
from certify_assets_tests.paths import shared_data
from certify_assets_tests.right_answers.importing import Import, imported, inspect_log

__all__ = ["imported"]

MARKS = (
    "outcomes between 0 and 1 counted as failures; the option threshold says where success begins"
)


def test_only_marks_that_count_are_noted(imported: Import, tmp_path: Path) -> None:
    partly = inspect_log(tmp_path / "a.json", "C", "P", 0.5, "I", {"right": 0.5}, "0.25", 0)
    assert imported(partly).json["notes"] == {MARKS: 4}
    assert imported(partly, "--option", "threshold=0.5").json["notes"] == {}
    text = partly.read_text("utf-8")
    partly.write_text(text.replace('"judge": {', '"exact": {"value": 1}, "judge": {'), "utf-8")
    assert imported(partly, "--option", "scorer=exact").json["notes"] == {}
    assert imported(partly, "--option", "scorer=judge").json["notes"] == {MARKS: 4}


def test_the_reported_marks(imported: Import) -> None:
    for name, noted in (("f8_p.json", {MARKS: 1}), ("only_p.json", {MARKS: 4})):
        assert imported(shared_data("reported", name)).json["notes"] == noted
    asked = ("--option", "scorer=exact")
    assert imported(shared_data("reported", "two_scorers.json"), *asked).json["notes"] == {}


def test_without_outcomes_no_success_rate_is_said(
    call: Call, imported: Import, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("task_id,outcome,text\na,,one\nb,,two\n", "utf-8")
    asked = ("--option", "keep_unlabelled=true")
    assert imported(path, *asked).json["success_rate"] is None
    shown = call("corpus", "import", path, *asked, "--name", "d", "--root", tmp_path / "root")
    assert "no outcome known" in shown.out and "0.0 %" not in shown.out
    page = call(f"corpus show d --root {tmp_path}/root")
    assert "no outcome known" in page.out


def test_a_refusal_quotes_the_most_frequent_reason(imported: Import, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = ["a,1", *(f"t{row},,did {row}" for row in range(19)), "b,1,did,more"]
    path.write_text("\n".join(["task_id,outcome,text", *rows]), "utf-8")
    answer = imported(path)
    assert answer.code == 2 and "a.csv row 3 has no outcome" in answer.err
    assert "19 of 21 records are left out for this reason." in answer.err


def test_the_largest_agents_come_first(call: Call, imported: Import, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    agents = ["b"] * 3 + ["d"] * 4 + ["a"] + ["c"] * 2
    rows = [f"t{row},{row % 2},{agent},did {row}" for row, agent in enumerate(agents)]
    path.write_text("\n".join(["task_id,outcome,agent,text", *rows]), "utf-8")
    assert list(imported(path).json["agents"].items()) == [("d", 4), ("b", 3), ("c", 2), ("a", 1)]
    shown = call(f"corpus import {path} --name d --root {tmp_path}/root")
    assert "d: 4, b: 3, c: 2, and 1 more" in shown.out
