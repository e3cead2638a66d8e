from __future__ import annotations

import re
from xml.etree import ElementTree

from certify_assets.reports.histogram import outcome_histogram

SPREAD = {"edges": [0.0, 10.0, 20.0, 30.0], "successes": [1, 3, 0], "failures": [0, 50, 50]}


def test_each_outcome_is_drawn_in_shares_of_its_own() -> None:
    drawn = outcome_histogram(SPREAD, "characters & more", name="h")
    root = ElementTree.fromstring(drawn)
    up, down = [
        path.get("d", "")
        for path in root
        if path.tag == "path" and (path.get("fill") or "none") != "none"
    ][:2]
    heights = [
        [float(height) for height in re.findall(r"(?<=v)[\d.]+", path)] for path in (up, down)
    ]
    assert heights == [[26.0, 78.0], [52.0, 52.0]]
    assert "characters &amp; more" in drawn and "half of the successes are below about 20" in drawn


def test_whole_numbers_are_named_by_themselves() -> None:
    drawn = outcome_histogram(
        {"edges": [2.5, 3.5, 4.5], "successes": [1, 1], "failures": [0, 2]}, "steps", name="h"
    )
    assert ">3</text>" in drawn and ">4</text>" in drawn and "2.5</text>" not in drawn


def test_one_outcome_alone_is_drawn() -> None:
    for failures in (4, 0):
        drawn = outcome_histogram(
            {"edges": [0.0, 1.0], "successes": [0], "failures": [failures]}, "steps", name="h"
        )
        assert ElementTree.fromstring(drawn).tag.endswith("svg")
