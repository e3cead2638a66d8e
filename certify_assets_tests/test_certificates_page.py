"""The pages on certificates name everything that one can say, and say of the paper what is measured."""

import re
from pathlib import Path

import pytest

from certify_assets.certificates import findings, monitor
from certify_assets.certificates.procedures import PROCEDURES
from certify_assets.cli import monitor as monitor_command
from certify_assets.operations import monitoring
from certify_assets.tables import score_table
from certify_assets_tests.paths import REPOSITORY, benchmark

PAGE = (REPOSITORY / "docs/certificates.md").read_text("utf-8")
FINDINGS, PAPER = (
    (REPOSITORY / f"docs/{name}.md").read_text("utf-8") for name in ("findings", "paper")
)


def _keys(module: object) -> set[str]:
    """Values of "code" in the dictionaries that a module writes down."""
    text = Path(str(module.__file__)).read_text("utf-8")  # type: ignore[attr-defined]
    return set(re.findall(r"\"code\": \"([a-z_]+)\"", text))


CODES = (
    {*findings.SENTENCES, *monitor.SENTENCES, findings.RELABELLED, findings.SHARED_TASKS}
    | _keys(monitoring)
    | _keys(monitor_command)
    | _keys(score_table)
)


def test_every_finding_has_its_row() -> None:
    assert len(CODES) > 20, "the codes are found"
    assert set(re.findall(r"^\| `([a-z_]+)` \|", FINDINGS, flags=re.MULTILINE)) == CODES


@pytest.mark.parametrize("name", PROCEDURES)
def test_every_procedure_has_its_row(name: str) -> None:
    assert re.search(rf"^\| `{name}`", PAGE, flags=re.MULTILINE)


def test_what_the_paper_prints_is_measured_on_the_page() -> None:
    for fact in benchmark("paper_facts").arithmetic_facts():
        assert f"| {fact.statement} | {fact.paper} | {fact.measured} |" in PAPER, fact.key
