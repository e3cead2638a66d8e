"""What a CI system reads: exit codes, job summary, annotations; nothing injects into it."""

import json
import re
from pathlib import Path

import pytest

from certify_assets.cli.gate import markdown, report_gate
from certify_assets.cli.output import console, emit_json, show_table
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

# a name that would set a mask, end a table cell, add a link, an image and an element
HOSTILE = (
    "a\n::error title=x::y\r%0A ::add-mask::1 ##[error]z | [l](https://e.x) ![i](j) <img src=k>"
)
COMMAND = re.compile(r"^\s*::[a-z-]+[^:]*::|##\[", re.MULTILINE)


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    score_rows(tasks=80, attempts=6, seed=3).to_csv(path, index=False)
    return path


def test_less_than_the_asked_coverage_closes_the_gate(call: Call, scores: Path) -> None:
    plain = call(f"certificate {scores} --json")
    decided = plain.json["decided"]
    assert plain.code == 0 and 0 < decided < 0.98
    closed = call(f"certificate {scores} --json --min-coverage .98")
    assert closed.code == 3 and closed.json == plain.json
    assert f"{100 * decided:.1f} % of runs are decided, less than the 98.0 % of" in closed.err
    exactly = call(f"certificate {scores} --json --min-coverage {decided!r}")
    assert exactly.code == 0 and exactly.json == plain.json
    both = call(f"certificate {scores} --procedure all --min-coverage .1")
    assert both.code == 2 and "needs one procedure" in both.err


def test_github_gets_a_summary_and_annotations(
    call: Call, scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, summary = call(f"certificate {scores}"), tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    answer = call(f"certificate {scores}")
    assert answer.code == 0 and answer.out == plain.out
    assert answer.err.startswith("::notice title=certify certificate::")
    assert "%25 of runs are decided" in answer.err
    first = summary.read_text("utf-8")
    for words in ("█ auto\\-fail ░ review ▒ auto\\-pass", r"scores\.csv", "Reject at score"):
        assert words in first
    refused = call(f"certificate {scores} --min-coverage .98 --json")
    assert refused.code == 3 and refused.json["certificates"]
    assert "::error title=certify certificate::" in refused.err
    second = summary.read_text("utf-8")
    assert second.startswith(first) and "**Failed**: " in second
    closed = call(f"certificate {scores} --min-coverage .98 --out {tmp_path}/c.json")
    assert closed.code == 3 and "next: certify decide" not in closed.out
    summary.unlink()
    assert call(f"certificate {scores} --alpha .001").code == 3
    assert summary.read_text("utf-8").lower().count("nothing is certified") == 1
    wrong = call(f"certificate {tmp_path}/absent.csv")
    assert wrong.code == 2 and wrong.err.startswith("::error title=certify certificate::")


def test_verify_and_audit_are_gates_too(
    call: Call, scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    stored, table = tmp_path / "c.json", tmp_path / "later.csv"
    document = call(f"certificate {scores} --out {stored} --json").json
    rows = score_rows(tasks=60, attempts=6, seed=8)
    rows.to_csv(table, index=False)
    for command, name in (
        (f"verify {stored} {scores}", "verify"),
        (f"audit {stored} {table}", "audit"),
    ):
        passed = call(command)
        assert passed.code == 0 and f"::notice title=certify {name}::" in passed.err
    document["certificates"][0]["alpha"] = 0.2
    stored.with_name("forged.json").write_text(json.dumps(document), encoding="utf-8")
    forged = call(f"verify {tmp_path}/forged.json {scores}")
    assert forged.code == 3 and "::error title=certify verify::Not verified: " in forged.err
    rows.assign(outcome=1 - rows["outcome"]).to_csv(table, index=False)
    failed = call(f"audit {stored} {table}")
    assert failed.code == 3
    for side in ("auto-fail", "auto-pass"):
        assert f"::error title=certify audit::audit of {side}: ERROR" in failed.err


def test_names_inject_nothing_into_github(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    report_gate(HOSTILE, [HOSTILE], [HOSTILE], [HOSTILE] * 200)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 + 10
    # a line is one command, and its data hold neither an end of line nor an escape of one
    assert all(re.match(r"::(error|warning) title=[^:,]*::", line) for line in lines)
    assert not any("%0A" in line or "\r" in line for line in lines)
    text = summary.read_text("utf-8")
    for mark in ("<", "[", "]", "!", "|", "`", "*", "@"):
        assert not re.search(rf"(?<!\\){re.escape(mark)}", markdown(HOSTILE))
    assert "more lines are not listed" in text


def test_names_in_what_is_printed_are_no_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("COLUMNS", "40")
    name = "::error::a" + "b" * 29 + "::stop-commands::x ##[add-mask]y"
    show_table(name, ["name", "value", "more"], [[name, name, name]])
    console().print(name)
    emit_json({name: name})
    printed = capsys.readouterr().out
    assert not COMMAND.search(printed) and "::" not in printed
    assert json.loads(printed[printed.index("{") :]) == {name: name}
    monkeypatch.delenv("GITHUB_ACTIONS")
    emit_json(name)
    assert "::error::" in capsys.readouterr().out
