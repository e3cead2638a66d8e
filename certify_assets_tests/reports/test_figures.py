import re
from xml.etree import ElementTree

import numpy as np

from certify_assets.reports.figures import score_distribution
from certify_assets.reports.svg import figure_svg, style_context

SCORES, OUTCOMES = np.linspace(-1, 1, 100), np.tile([0, 1], 50).astype(np.int8)
NAMED = {"name": "s", "label": "Scores"}


def drawn() -> str:
    thresholds = {"reject": -0.5}
    return score_distribution(SCORES, OUTCOMES, thresholds=thresholds, scale="votes", **NAMED)


def test_a_figure_is_a_labelled_element_whatever_the_users_settings() -> None:
    import matplotlib as mpl

    first = drawn()
    ElementTree.fromstring(first)
    assert first.startswith("<svg") and 'role="img"' in first and "aria-label=" in first
    assert not re.search(r"https?:|xmlns|<metadata|<style|<!--|font-family", first)
    own = {"font.size": 22, "axes.grid": False, "svg.fonttype": "path", "lines.linewidth": 9}
    with mpl.rc_context(own):
        assert drawn() == first


def test_saturated_and_missing_scores_do_not_break_the_distribution() -> None:
    scores = np.array([np.nan, 500.0, -500.0, *np.linspace(-1, 1, 997)])
    outcomes = np.tile([0, 1], 500).astype(np.int8)
    markup = score_distribution(scores, outcomes, thresholds={}, scale="votes", **NAMED)
    assert "<path" in markup and "log-odds" not in markup
    alike = score_distribution(np.zeros(5), outcomes[:5], thresholds={}, scale="votes", **NAMED)
    assert "<path" in alike


def test_text_is_never_parsed_as_mathematics() -> None:
    from matplotlib.figure import Figure

    with style_context():
        figure = Figure(figsize=(2, 1))
        figure.text(0.1, 0.5, "$x^2$ <script>alert(1)</script>")
        markup = figure_svg(figure, "t", 'a "quoted" <label>')
    assert "$x^2$ &lt;script&gt;" in markup and "<script" not in markup
    assert 'aria-label="a &quot;quoted&quot; &lt;label&gt;"' in markup
