from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import pytest

from certify_assets.certificates import certify, threshold_curve
from certify_assets.reports.sparkline import sparkline_svg, verdict_markdown
from certify_assets_tests.reports.conftest import arrays
from certify_assets_tests.reports.synthetic import score_table


@pytest.mark.parametrize("side", ["reject", "release"])
@pytest.mark.parametrize("signal", [0.15, 1.2])
def test_the_verdict_block_is_shown_inline(side: str, signal: float) -> None:
    table = arrays(score_table(60, seed=5, signal=signal, spread=1.0))
    certificate, curve = (
        certify(*table, side=side, alpha=0.2, grid=20),
        threshold_curve(*table, side=side, alpha=0.2, grid=20),
    )
    block = verdict_markdown(certificate, curve)
    assert len(block) < 1000
    words = (
        "Nothing certified"
        if not certificate.certified
        else f"{side} {100 * certificate.coverage:.1f}"
    )
    assert block.startswith("**") and words in block
    assert f"{certificate.covered_tasks}/{certificate.tasks}" in block
    image = re.search(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", block)
    assert image is not None
    ElementTree.fromstring(base64.b64decode(image[1]))


def test_the_sparkline_is_short_and_marks_the_certified_point() -> None:
    curve = threshold_curve(*arrays(score_table(60, seed=5)), side="reject", alpha=0.1)
    plain, marked = sparkline_svg(curve, alpha=0.1), sparkline_svg(curve, alpha=0.1, certified=0.5)
    assert len(marked) < 580
    assert "circle" not in plain and "cx='60'" in marked
