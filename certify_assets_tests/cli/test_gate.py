"""What a CI system reads: exit codes, job summary, annotations, JUnit; nothing injects into it."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from certify_assets.cli.gate import Case, CiResult, Gate, junit_xml, markdown
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


def cases(path: Path) -> dict[str, str]:
    """Read JUnit XML; return what became of each test case."""
    suites = ElementTree.parse(path).getroot()
    (suite,) = suites
    assert suites.tag == "testsuites" and suite.attrib["name"] == "certify"
    found = {}
    for case in suite.findall("testcase"):
        states = [child.tag for child in case if child.tag != "system-out"]
        found[case.attrib["name"]] = states[0] if states else "passed"
    assert suite.attrib["tests"] == str(len(found))
    assert suite.attrib["failures"] == str(list(found.values()).count("failure"))
    return found


def test_less_than_the_asked_coverage_closes_the_gate(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    plain = call(f"certificate {scores} --json")
    decided = plain.json["decided"]
    assert plain.code == 0 and 0 < decided < 0.98
    closed = call(f"certificate {scores} --json --min-coverage 98% --junit-xml {tmp_path}/a.xml")
    assert closed.code == 3 and closed.json == plain.json
    assert closed.err == (
        f"certify: {100 * decided:.1f} % of runs are decided, less than the 98.0 % of "
        "--min-coverage.\n"
    )
    assert cases(tmp_path / "a.xml")["min coverage"] == "failure"
    exactly = call(f"certificate {scores} --json --min-coverage {decided!r}")
    assert exactly.code == 0 and exactly.json == plain.json


def test_one_side_is_asked_for_its_own_coverage(call: Call, scores: Path, tmp_path: Path) -> None:
    side = call(f"certificate {scores} --side reject --json").json
    asked = f"certificate {scores} --side reject --json --junit-xml {tmp_path}/b.xml"
    assert call(f"{asked} --min-coverage {side['coverage'] + 0.01}").code == 3
    again = call(f"{asked} --min-coverage {side['coverage'] - 0.01}")
    assert again.code == 0 and again.json == side
    assert cases(tmp_path / "b.xml") == {"reject": "passed", "min coverage": "passed"}
    both = call(f"certificate {scores} --procedure all --min-coverage 10%")
    assert both.code == 2 and "goes with one procedure" in both.err


def test_github_gets_a_summary_and_annotations(
    call: Call, scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    plain = call(f"certificate {scores}")
    answer = call(f"certificate {scores} --format github")
    assert answer.code == 0 and answer.out == plain.out
    assert answer.err.startswith("::notice title=certify certificate::")
    assert "%25 of runs are decided" in answer.err
    first = (tmp_path / "summary.md").read_text("utf-8")
    assert "`█" in first and "█ rejected ░ human review ▒ released`" in first
    assert r"scores\.csv" in first and "> Together" in first
    refused = call(f"certificate {scores} --format github --min-coverage 98% --json")
    assert refused.code == 3 and json.loads(refused.out)["certificates"]
    assert "::error title=certify certificate::min coverage: " in refused.err
    second = (tmp_path / "summary.md").read_text("utf-8")
    assert second.startswith(first) and "| min coverage | **failed** |" in second
    wrong = call(f"certificate {tmp_path}/absent.csv --format github")
    assert wrong.code == 2 and wrong.err.startswith("::error title=certify certificate::")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert "no job summary" in call(f"certificate {scores} --format github").err


def test_verify_and_audit_are_gates_too(
    call: Call, scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    stored, report = tmp_path / "c.json", tmp_path / "r.xml"
    document = call(f"certificate {scores} --out {stored} --json").json
    options = f"--format github --junit-xml {report}"
    assert call(f"verify {stored} {scores} {options}").code == 0
    assert cases(report) == {"verify": "passed"}
    document["certificates"][0]["alpha"] = 0.2
    (tmp_path / "forged.json").write_text(json.dumps(document), encoding="utf-8")
    forged = call(f"verify {tmp_path}/forged.json {scores} {options}")
    assert forged.code == 3 and "::error title=certify verify::verify: " in forged.err
    assert cases(report) == {"verify": "failure"}
    rows = score_rows(tasks=60, attempts=6, seed=8)
    later, turned = tmp_path / "later.csv", tmp_path / "turned.csv"
    rows.to_csv(later, index=False)
    rows.assign(outcome=1 - rows["outcome"]).to_csv(turned, index=False)
    assert call(f"audit {stored} {later} --json {options}").code == 0
    assert set(cases(report).values()) == {"passed"}
    failed = call(f"audit {stored} {turned} {options}")
    assert failed.code == 3 and "::error title=certify audit::audit of " in failed.err
    assert cases(report) == {"audit of reject": "failure", "audit of release": "failure"}


def test_a_report_over_an_input_is_refused(call: Call, scores: Path, tmp_path: Path) -> None:
    answer = call(f"certificate {scores} --junit-xml {scores}")
    assert answer.code == 2 and "would be overwritten" in answer.err
    assert call(f"verify {tmp_path}/c.json {scores} --junit {scores}").code == 2


def test_names_inject_nothing_into_github(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    hostile = (Case(HOSTILE, "failed", HOSTILE),)
    result = CiResult(HOSTILE, HOSTILE, hostile, promise=(HOSTILE,), warnings=(HOSTILE,) * 200)
    Gate(f"certify {HOSTILE}", True, None).report(result)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 + 9 + 1 and "more findings" in lines[-1]
    # a line is one command, and its data hold neither an end of line nor an escape of one
    assert all(re.match(r"::(error|warning) title=[^:,]*::", line) for line in lines)
    assert not any("%0A" in line or "\r" in line for line in lines)
    text = summary.read_text("utf-8")
    for mark in ("<", "[", "]", "!", "|", "`", "*", "@"):
        assert not re.search(rf"(?<!\\){re.escape(mark)}", markdown(HOSTILE))
    cells = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in cells} == {4}
    assert "100 more findings are not listed" in text


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


def test_names_are_data_in_junit(tmp_path: Path) -> None:
    name = 'a"<b>&\x00\x1b\ufffe\ud800]]>'
    text = junit_xml(
        "certify audit", CiResult(name, name, (Case(name, "skipped", name),), warnings=(name,))
    )
    (tmp_path / "a.xml").write_text(text, encoding="utf-8")
    assert list(cases(tmp_path / "a.xml").values()) == ["skipped"]


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("10%", None),
        ("0.1", None),
        ("12,5%", "not a share"),
        ("10", "10%"),
        ("x", "like .1 or 10%"),
    ],
)
def test_a_budget_in_percent_is_read_or_refused_with_the_remedy(
    call: Call, scores: Path, given: str, answer: str | None
) -> None:
    got = call(f"certificate {scores} --side reject --json --alpha {given}")
    if answer is None:
        assert got.json["alpha"] == 0.1
    else:
        assert got.code == 2 and answer in got.err
