import json
from pathlib import Path

import pytest

from certify_assets_tests.cli.calling import Call


def test_a_small_study_as_json_and_file(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "study.json"
    more = "--trials 4 --procedure naive --procedure taskboot --json"
    answer = call(f"research simulate --tasks 20 --tasks 30 --rho .1 --rho 0.5 {more} --out {out}")
    assert answer.code == 0 and json.loads(out.read_text("utf-8")) == answer.json
    cells = answer.json["cells"]
    assert [(cell["tasks"], cell["rho"]) for cell in cells] == [
        (20, 0.1), (20, 0.5), (30, 0.1), (30, 0.5)
    ]  # fmt: skip
    naive, taskboot = cells[0]["procedures"]
    assert (naive["procedure"], taskboot["procedure"]) == ("naive", "taskboot")
    assert naive["paper"] == {"violation_conditional": 0.0, "coverage": 0.65}
    assert "4 of 4: paper G=30 ρ=0.5" in answer.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--design none", "give one of paper"),
        ("--tasks 1", "not in the range"),
        ("--procedure none", "not available"),
        ("--alpha 0.12345", "four decimals"),
        ("stray", "unexpected"),
    ],
)
def test_refusals(call: Call, arguments: str, words: str) -> None:
    answer = call(f"research simulate {arguments}")
    assert answer.code == 2 and words in answer.err and not answer.out
    assert len(answer.err.splitlines()) == 1
