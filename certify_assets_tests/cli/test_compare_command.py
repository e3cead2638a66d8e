"""``certify judge compare``: tables, documents, exports, and what cannot be compared."""

import re
from pathlib import Path

import pytest

from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call

pytestmark = pytest.mark.slow


def test_the_judges_of_named_corpora_are_compared(call: Call, corpora: Store) -> None:
    answer = call("judge compare one two --json")
    assert answer.code == 0
    assert [item["corpus"] for item in answer.json["corpora"]] == ["one", "two"]
    shown = call("judge compare one")
    assert shown.code == 0
    assert "lexical" in shown.out
    assert "length_only" in shown.out
    assert re.search("Not scored: .*base.*: certify run one --judge NAME", shown.out)
    assert "Best judges on one" in shown.out


def test_the_page_is_written(call: Call, corpora: Store, tmp_path: Path) -> None:
    answer = call(f"judge compare three --json --html {tmp_path}/page.html")
    assert answer.code == 0 and len(answer.json["corpora"]) == 1
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")


def test_what_cannot_be_compared_is_a_sentence(call: Call, corpora: Store) -> None:
    for line in ("judge compare nope", "corpus show nope"):
        unknown = call(line)
        assert unknown.code == 2 and "no corpus is called 'nope'" in unknown.err
