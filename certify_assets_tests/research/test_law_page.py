import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from certify_assets.research.certifiability import Certifiability, Measured, fit_measured
from certify_assets.research.law import LawPoint
from certify_assets.research.pages.law_page import law_markdown, law_metrics, render_law
from certify_assets.research.paper import law_points
from certify_assets_tests.pages import (
    HOSTILE,
    assert_figures_seen,
    assert_fits,
    assert_stands_alone,
    outline,
    text_of,
)
from certify_assets_tests.paths import assert_painted

PAPER_POINTS = law_points()


def measured(point: LawPoint) -> Measured:
    return Measured(point, "lexical" if point.coverage else None, point.coverage, "00" * 32)


def found(number: int = 7) -> Certifiability:
    return fit_measured(
        [measured(point) for point in PAPER_POINTS[:number]],
        [("other", "lexical has no certificates on other.")],
    )


@pytest.mark.parametrize("number", [7, 5, 2, 0])
def test_the_page_is_one_well_formed_file_that_loads_and_runs_nothing(number: int) -> None:
    html = render_law(found(number))
    assert_stands_alone(html)
    assert html == render_law(found(number))


def test_fit_forms_honesty_and_residuals_are_there() -> None:
    made = found()
    text = text_of(render_law(made))
    assert made.law is not None
    assert "Certified coverage = 1.075 (1−π)(2A₀−1) − 0.048 over 7 corpora" in text
    for _, message in made.findings:
        assert message in text
    for cells in (
        "0.977 0.964 0.039 0.977 0.964 0.039 0.977 0.964 0.039",
        "– – –",
        "−0.091 0.485 0.145 0.993",
    ):
        assert cells in text
    assert "other lexical has no certificates on other." in text
    assert "Anchor: nothing certified." in text
    for corpus in ("Tool", "Code-O"):
        assert re.search(rf'<svg[^>]*aria-label="[^"]*{corpus} at index', render_law(made))


def test_marks_differ_in_shape_and_lines_in_dash() -> None:
    svg = re.search(r"<svg class=\"plot\".*?</svg>", render_law(found()), flags=re.DOTALL)
    assert svg is not None
    for words in (
        "certified",
        "fewer than 20 tasks",
        "nothing certified",
        "95 % prediction interval",
        "no parameters",
        "the paper",
    ):
        assert f">{words}" in unescape(svg[0])
    shapes = {
        re.sub(r"[-\d. \n]+", " ", path)
        for path in re.findall(r"<defs><path[^>]*? d=\"([^\"]+)\"", svg[0])
    }
    assert len(shapes) >= 3
    assert len(set(re.findall(r"stroke-dasharray: ([^;\"]+)", svg[0]))) >= 2


@pytest.mark.parametrize("number", [0, 2])
def test_too_few_corpora_are_shown_next_to_the_papers(number: int) -> None:
    text = text_of(render_law(found(number)))
    assert "No fit yet" in text
    assert f"a fit needs certificates on 3 corpora and here are {number}" in text
    assert "the paper's corpora" in text and "the paper's fit: 1.075 x −0.048" in text
    assert law_metrics(found(number)) == {}


def test_a_line_that_predicts_nothing_is_called_that() -> None:
    points = [
        replace(PAPER_POINTS[place], coverage=coverage)
        for place, coverage in ((0, 0.0), (2, 0.5), (5, 0.4), (6, 0.0))
    ]
    text = text_of(render_law(fit_measured([measured(point) for point in points])))
    assert "A line that does not predict" in text and "would have predicted better" in text


@pytest.mark.parametrize("number", [7, 3, 0])
def test_the_block_is_short_and_holds_no_name(number: int) -> None:
    block = law_markdown(found(number))
    assert len(block) < 1000
    assert "Tool" not in block
    assert "| the paper's | 7 | 1.075 | −0.048 | 0.977 | 0.964 | 0.039 |" in block
    metrics = law_metrics(found(number))
    assert len(metrics) <= 12 and all(isinstance(value, float) for value in metrics.values())


@pytest.mark.parametrize("text", HOSTILE)
def test_names_are_text(text: str) -> None:
    points = [replace(point, corpus=f"{text}{place}") for place, point in enumerate(PAPER_POINTS)]
    html = render_law(fit_measured([measured(point) for point in points], [(text, text)]))
    parsed = outline(html)
    assert not {"script", "img"} & set(parsed.tags) and not parsed.handlers
    assert text in unescape(html)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("number", [7, 0])
def test_the_page_is_whole_and_fits(opened, width: int, number: int, tmp_path: Path) -> None:
    page = opened(render_law(found(number)), width)
    headings = [heading.inner_text() for heading in page.get_by_role("heading", level=2).all()]
    assert headings[1:] == [
        "Coverage against the index",
        "How far to trust it",
        "Forms",
        "Corpora, residuals and what each does to the fit",
        "The paper's points, for reference",
    ]
    assert assert_figures_seen(page, height=160) == 1
    assert_fits(page, width)
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert_painted(tmp_path / "page.png")
