"""Records that two readers could read differently are left out, and say why."""

import sys
from pathlib import Path

import pytest

from certify_assets.cli import main
from certify_assets.corpora.formats import import_corpus
from certify_assets.corpora.judged import read_judged
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import write_json
from certify_assets_tests.corpora.formats.promptfoo import result

GOOD = '{"task_id": "a", "text": "x", "outcome": 1}'


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ('"outcome": 0, "outcome": 1', "it has the key 'outcome' twice in one object"),
        ('"trajectory_id": "\\udfff", "outcome": 1', "Unicode"),
    ],
)
def test_an_ambiguous_record_is_left_out(tmp_path: Path, fields: str, words: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(f'{GOOD}\n{{"task_id": "b", "text": "x", {fields}}}\n', "utf-8")
    imported = import_corpus(path, name="c")
    assert imported.dropped == {"unreadable_record": 1} and len(imported.frame) == 1
    example = imported.examples["unreadable_record"]
    assert "runs.jsonl row 2" in example and words in example


def test_the_option_agent_names_all_runs_of_promptfoo(tmp_path: Path) -> None:
    path = write_json(tmp_path / "r.json", {"results": {"results": [result("t", 0, passed=True)]}})
    options: list[dict[str, str]] = [{}, {"agent": "mine"}]
    agents = [import_corpus(path, name="c", options=one).frame["agent"].item() for one in options]
    assert agents == ["echo", "mine"]


def test_a_metric_that_is_called_success_is_not_the_verdict(tmp_path: Path) -> None:
    runs = [result(f"t{number}", 0, passed=number == 0) for number in range(2)]
    for run in runs:
        (found, _) = run["gradingResult"]["componentResults"]
        found["score"], found["assertion"]["metric"] = 1.0, "success"
        names = {"metric": "success/format"}
        run["gradingResult"]["componentResults"] += [{**found, "assertion": names}]
    path = write_json(tmp_path / "results.json", {"results": {"results": runs}, "evalId": "e"})
    assert import_corpus(path, name="c").frame["outcome"].tolist() == [1, 0]


def test_assertions_of_one_name_that_differ_are_refused(tmp_path: Path) -> None:
    run = result("t", 0, passed=True)
    for found in run["gradingResult"]["componentResults"]:
        found["assertion"]["metric"] = "rubric"
    path = write_json(tmp_path / "results.json", {"results": {"results": [run]}, "evalId": "e"})
    with pytest.raises(InputError, match=r"several outcomes \(success, rubric, rubric\)"):
        import_corpus(path, name="c", options={"label": "rubric"})


def test_several_rubrics_of_one_metric_are_one_score(tmp_path: Path) -> None:
    runs = [result(f"t{number}", 0, passed=number > 1, judge=number / 4) for number in range(4)]
    for run in runs:
        found = run["gradingResult"]["componentResults"]
        found.append({**found[1], "score": 1.0})
    path = write_json(tmp_path / "results.json", {"results": {"results": runs}, "evalId": "e"})
    judged = read_judged([path])
    assert judged.source["judge"].tolist() == [0.5, 0.625, 0.75, 0.875]
    assert judged.columns_of("judge") == {"score": "judge"}, "two rubrics are no second score"


@pytest.mark.skipif(sys.platform != "linux", reason="a file that opens and cannot be read")
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mem.csv").symlink_to("/proc/self/mem")
    with pytest.raises(SystemExit) as end:
        main(["corpus", "import", f"{tmp_path}/mem.csv", "--name", "c", "--root", str(tmp_path)])
    assert end.value.code == 2
    # a slow machine says above it that the command is at work
    assert capsys.readouterr().err.splitlines()[-1] == (
        "certify: mem.csv: Input/output error; check the path, its permissions and the free space."
    )
