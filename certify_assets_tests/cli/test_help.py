"""What is mistyped, swapped or in the place of something else is named."""

from pathlib import Path

import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [
        ("deside c.json s.csv", "'certify decide'"),
        ("corpus lst", "'list'"),
        ("certificate s.csv --aplha .1", "--alpha"),
        ("research simualte", "'simulate'"),
        ("--verison", "--version"),
    ],
)
def test_what_is_mistyped_is_suggested(call: Call, line: str, suggestion: str) -> None:
    answer = call(line)
    assert answer.code == 2 and suggestion in answer.err and answer.out == ""
    assert "Did you mean" not in call("zzzzzz").err


@pytest.mark.parametrize(
    "line",
    [
        "decide {scores} {certificate}",
        "verify {scores} {certificate}",
        "audit {scores} {certificate}",
        "monitor {scores} {certificate}",
        "report {scores} {certificate}",
        "batch plan {scores} {certificate}",
    ],
)
def test_swapped_arguments_are_named(call: Call, tmp_path: Path, line: str) -> None:
    scores, certificate = tmp_path / "scores.csv", tmp_path / "c.json"
    score_rows(tasks=60, attempts=4).to_csv(scores, index=False)
    assert call(f"certificate {scores} --out {certificate} --json").code == 0
    answer = call(line.format(scores=scores, certificate=certificate))
    assert answer.code == 2
    assert f"{scores} is a table" in answer.err or f"{certificate} is a certificate" in answer.err
    assert "the order is CERTIFICATE " in answer.err


def test_a_certificate_is_no_score_table(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    score_rows(tasks=60, attempts=4).to_csv(path, index=False)
    call(f"certificate {path} --side reject --out {tmp_path}/c.json --json")
    answer = call(f"certificate {tmp_path}/c.json")
    assert answer.code == 2 and "is a certificate, not a score table" in answer.err
    broken = tmp_path / "broken.json"
    broken.write_text((tmp_path / "c.json").read_text("utf-8")[:-9], encoding="utf-8")
    assert "not a JSON document" in call(f"verify {broken} {path}").err


def test_a_file_in_the_place_of_something_else_is_told_where_to_go(
    call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "scores.csv"
    score_rows(tasks=20, attempts=2).to_csv(path, index=False)
    assert f"Did you mean 'certify certificate {path}'?" in call(str(path)).err
    assert f"'certify corpus import {tmp_path} --name NAME'" in call(str(tmp_path)).err
    answer = call(f"run {path} --root {tmp_path}/root")
    assert answer.code == 2 and "is a path, and corpora are called by name" in answer.err
    answer = call(f"corpus import {path} --name mine --root {tmp_path}/root")
    assert answer.code == 2 and "for a table of scores use `certify certificate`" in answer.err
