"""``certify judge compare``: tables, documents, exports, and what cannot be compared."""

import csv
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
    assert re.search("Not scored: .*base.* `certify run one --judge NAME`", shown.out)
    assert "Best judges on one" in shown.out


def test_page_and_tables_are_written(call: Call, corpora: Store, tmp_path: Path) -> None:
    paths = {kind: tmp_path / f"table.{kind}" for kind in ("html", "csv")}
    options = " ".join(f"--{kind} {path}" for kind, path in paths.items())
    answer = call(f"judge compare three --json {options}")
    (document,) = answer.json["corpora"]
    assert answer.code == 0
    assert paths["html"].read_text("utf-8").startswith("<!doctype html>")
    ranking = list(csv.reader(paths["csv"].read_text("utf-8").splitlines()))
    assert len(ranking) == 1 + len(document["rows"]) and ranking[1][:2] == ["three", "lexical"]
    assert (tmp_path / "table_cost.csv").is_file()


def test_what_cannot_be_compared_is_a_sentence(call: Call, corpora: Store, tmp_path: Path) -> None:
    for line in ("judge compare nope", "corpus show nope"):
        unknown = call(line)
        assert unknown.code == 2 and "no corpus is called 'nope'" in unknown.err
    same = call(f"judge compare one --html {tmp_path}/x --csv {tmp_path}/x")
    assert same.code == 2 and "would be overwritten" in same.err
