"""The pages on certificates name everything that one can say, and say of the paper what is measured."""

import ast
import re
from pathlib import Path

import pytest

from certify_assets.certificates import findings, monitor
from certify_assets.certificates.guard import GUARDS
from certify_assets.certificates.procedures import PROCEDURES
from certify_assets.evaluation import left_out_agents, score_table
from certify_assets.operations import monitoring
from certify_assets_tests.paths import REPOSITORY, benchmark

PAGE = (REPOSITORY / "docs/certificates.md").read_text("utf-8")
FINDINGS, PAPER, VALIDITY = (
    (REPOSITORY / f"docs/{name}.md").read_text("utf-8")
    for name in ("findings", "paper", "validity")
)


def _tuples(module: object) -> set[str]:
    """First parts of the pairs (code, message) that a module writes down."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))  # type: ignore[attr-defined]
    pairs = (node for node in ast.walk(tree) if isinstance(node, ast.Tuple) and len(node.elts) == 2)
    firsts = (pair.elts[0] for pair in pairs)
    return {
        first.value
        for first in firsts
        if isinstance(first, ast.Constant)
        and isinstance(first.value, str)
        and re.fullmatch(r"[a-z]+(_[a-z]+)*", first.value)
    }


def _keys(module: object) -> set[str]:
    """Values of "code" in the dictionaries that a module writes down."""
    text = Path(str(module.__file__)).read_text("utf-8")  # type: ignore[attr-defined]
    return set(re.findall(r"\"code\": \"([a-z_]+)\"", text))


CODES = (
    (
        _tuples(findings)
        | _tuples(monitor)
        | _keys(monitoring)
        | _keys(score_table)
        | _keys(left_out_agents)
    )
    # pairs of other things: the choices that the monitor checks
    - {"e_process", "shiryaev_roberts"}
)


def test_the_codes_are_found() -> None:
    assert len(CODES) >= 25
    assert {
        "nothing_passes",
        "any_judge",
        "pilot_missing",
        "stream_rewritten",
        "nothing_covered",
    } <= CODES


def test_every_finding_has_its_row() -> None:
    assert set(re.findall(r"^\| `([a-z_]+)` \|", FINDINGS, flags=re.MULTILINE)) == CODES


@pytest.mark.parametrize("name", PROCEDURES)
def test_every_procedure_has_its_row(name: str) -> None:
    assert re.search(rf"^\| `{name}`", PAGE, flags=re.MULTILINE)


def test_validity_and_estimand_are_those_of_the_code() -> None:
    rows = {
        row.split("|")[1].strip(" `"): row
        for row in PAGE.splitlines()
        if re.match(r"\| `[a-z_]+` \| (Among|The|At most|As|A) ", row)
    }
    assert set(rows) == set(PROCEDURES)
    for name, row in rows.items():
        cells = [cell.strip() for cell in row.split("|")]
        assert cells[4] == PROCEDURES[name].validity
        assert cells[3].startswith("tasks" if PROCEDURES[name].estimand == "task" else "runs"), name


@pytest.mark.parametrize("name", GUARDS)
def test_every_guard_is_named(name: str) -> None:
    assert f"--guard {name}`" in VALIDITY


def test_what_the_paper_prints_is_measured_on_the_page() -> None:
    for fact in benchmark("paper_facts").arithmetic_facts():
        assert f"| {fact.statement} | {fact.paper} | {fact.measured} |" in PAPER, fact.key
