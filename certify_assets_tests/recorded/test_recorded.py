"""What the product prints is what it printed before the rebuild."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from certify_assets_tests.recorded.canonical import clean, differences
from certify_assets_tests.recorded.record import compare, main

HERE = Path(__file__).parent


def test_what_varies_by_itself_is_left_out_and_what_is_read_is_kept() -> None:
    document = {
        "coverage": 0.123456789012,
        "time": "2026-01-01T00:00:00+00:00",
        "seconds": 3.2,
        "scores_sha256": "0" * 64,
        "page": "/somewhere/page.html",
        "reason": "This is a sentence which may be written anew.",
        "verdict": "PASS",
        "value": math.nan,
        "findings": [{"code": "two_sides", "message": "Both hold."}, {"code": "asymptotic_only"}],
    }
    assert clean(document) == {
        "coverage": 0.123456789,
        "verdict": "PASS",
        "value": "nan",
        "findings": ["asymptotic_only", "two_sides"],
    }


def test_a_difference_is_named_with_both_values(capsys: pytest.CaptureFixture[str]) -> None:
    before = {"a": {"coverage": 0.25, "verdict": "PASS"}, "b": {"skipped": "no data"}}
    after = {"a": {"coverage": 0.25 + 1e-13, "verdict": "WARN", "n": 3}, "b": {"n": 1}}
    assert [path for path, *_ in differences(before["a"], after["a"])] == ["/n", "/verdict"]
    assert compare({"embedded": before}, {"embedded": after}) == 2
    assert 'embedded/a/verdict: "PASS" → "WARN"' in capsys.readouterr().out
    assert [*differences(True, 1)], "a truth is no number"


@pytest.mark.statistics
@pytest.mark.smoke
def test_nothing_that_the_embedded_corpora_gave_is_lost(tmp_path: Path) -> None:
    record = HERE / "embedded.json"
    out = tmp_path / "now.json"
    arguments = ["--only", "embedded", "--out", str(out), "--compare", str(record)]
    assert main(arguments) == 0, "the differences are printed above"
    assert set(json.loads(out.read_text("utf-8"))) == {"schema", "embedded"}
