import re
from xml.etree import ElementTree

import numpy as np
import pytest

from certify_assets.certificates import threshold_curve
from certify_assets.corpora.leakage import Spread
from certify_assets.reports.figures import (
    error_histogram,
    outcome_histogram,
    risk_coverage,
    score_distribution,
    tail_curve,
)
from certify_assets.reports.svg import figure_svg, style_context
from certify_assets_tests.reports.conftest import arrays
from certify_assets_tests.reports.synthetic import score_table

SPREAD = Spread((0.0, 10.0, 20.0, 30.0), (1, 3, 0), (0, 50, 50))


@pytest.fixture(scope="module")
def curve():
    return threshold_curve(
        *arrays(score_table(40, seed=7, signal=1.2)), side="reject", alpha=0.1, grid=20
    )


def drawings(curve) -> dict[str, str]:
    errors = np.linspace(0.02, 0.14, 400)
    outcomes = (np.arange(200) % 3 == 0).astype(np.int8)
    scores = np.where(outcomes == 1, 1.5, -1.5) + np.linspace(-1, 1, 200)
    return {
        "risk": risk_coverage(curve, alpha=0.1, point=(0.4, 0.05), name="risk"),
        "tail": tail_curve(curve, level=0.00125, guard_level=0.00625, point=0.4, name="tail"),
        "histogram": error_histogram(
            errors, alpha=0.1, side="reject", observed=0.06, name="histogram"
        ),
        "scores": score_distribution(
            scores,
            outcomes,
            thresholds={"reject": -0.5, "release": 2.0},
            scale="log-odds",
            name="scores",
        ),
        "length": outcome_histogram(SPREAD, "characters & more", name="length"),
    }


def test_every_figure_is_a_small_labelled_element_without_addresses(curve) -> None:
    for name, markup in drawings(curve).items():
        ElementTree.fromstring(markup)
        assert markup.startswith("<svg") and 'role="img"' in markup and "aria-label=" in markup
        assert not re.search(r"https?:|xmlns|<metadata|<style|<!--|font-family", markup), name
        assert len(markup) < 40_000


def test_equal_inputs_draw_equal_bytes_whatever_the_users_settings(curve) -> None:
    import matplotlib as mpl

    first = drawings(curve)
    with mpl.rc_context(
        {"font.size": 22, "axes.grid": False, "svg.fonttype": "path", "lines.linewidth": 9}
    ):
        assert drawings(curve) == first


def test_ids_are_unique_across_figures_and_resolve(curve) -> None:
    markup = "".join(drawings(curve).values())
    ids = re.findall(r'\bid="([^"]+)"', markup)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', markup)) <= set(ids)


def test_the_histogram_says_the_share_above_the_budget(curve) -> None:
    errors = np.array([0.05] * 90 + [0.2] * 10)
    markup = error_histogram(errors, alpha=0.1, side="release", observed=None, name="h")
    assert "10\N{NARROW NO-BREAK SPACE}% of them have an error above" in markup
    assert "released runs of TEST" in markup


def test_a_histogram_says_the_medians_of_both_outcomes() -> None:
    markup = outcome_histogram(SPREAD, "characters & more", name="h")
    assert "characters &amp; more" in markup
    assert "half of the successes are below about 20" in markup
    assert "half of the failures below about 20" in markup
    assert "below about –" in outcome_histogram(Spread((0.0, 1.0), (0,), (0,)), "steps", name="h")


def test_saturated_and_missing_scores_do_not_break_the_distribution() -> None:
    scores = np.array([np.nan, 500.0, -500.0, *np.linspace(-1, 1, 997)])
    outcomes = np.tile([0, 1], 500).astype(np.int8)
    markup = score_distribution(scores, outcomes, thresholds={}, scale="votes", name="s")
    assert "no certified threshold" in markup and "log-odds" not in markup
    alike = score_distribution(np.zeros(5), outcomes[:5], thresholds={}, scale="votes", name="s")
    assert "<path" in alike


def test_text_is_never_parsed_as_mathematics() -> None:
    from matplotlib.figure import Figure

    with style_context():
        figure = Figure(figsize=(2, 1))
        figure.text(0.1, 0.5, "$x^2$ <script>alert(1)</script>")
        markup = figure_svg(figure, "t", 'a "quoted" <label>')
    assert "$x^2$ &lt;script&gt;" in markup and "<script" not in markup
    assert 'aria-label="a &quot;quoted&quot; &lt;label&gt;"' in markup
