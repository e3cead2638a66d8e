"""The page in a real browser: from disk, with scripts off, on a wide screen, a phone and paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from certify_assets.reports.certificate_page import IndexEntry, render_index
from certify_assets_tests.paths import assert_painted
from certify_assets_tests.reports.conftest import Case

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def opened(browser, tmp_path: Path):
    contexts = []

    def show(html: str, width: int):
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(
            java_script_enabled=False, viewport={"width": width, "height": 900}
        )
        contexts.append(context)
        page = context.new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        assert asked == [path.as_uri()]
        return page

    yield show
    for context in contexts:
        context.close()


def assert_fits(page, width: int) -> None:
    # scripts are off, so the browser is asked from outside the page
    sizes = page.context.new_cdp_session(page).send("Page.getLayoutMetrics")
    assert sizes["cssContentSize"]["width"] <= width


@pytest.mark.parametrize("width", [1280, 420])
def test_the_certificate_page_is_whole_and_fits(
    certified: Case, opened, width: int, tmp_path: Path
) -> None:
    page = opened(certified.html, width)
    banner = page.get_by_role("region", name="Certified")
    assert banner.first.is_visible()
    assert "of runs can be rejected without review" in banner.first.inner_text()
    headings = [heading.inner_text() for heading in page.get_by_role("heading", level=2).all()]
    assert headings[1:] == [
        "What is certified",
        "The promise",
        "Audit on TEST",
        "Agents that the certificate has not seen",
        "Corpus and judge",
        "Figures",
        "Procedures side by side",
        "Findings",
        "Lineage",
        "Where the guarantee ends",
    ]
    assert page.get_by_role("main").count() == 1 and page.get_by_role("navigation").count() == 1
    figures = page.locator("figure svg[role=img]").all()
    assert len(figures) == 10
    for figure in figures:
        box = figure.bounding_box()
        assert box is not None and box["width"] > 250 and box["height"] > 120
    assert_fits(page, width)
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert_painted(tmp_path / "page.png")


def test_details_open_without_a_script(certified: Case, opened) -> None:
    page = opened(certified.html, 1280)
    document = page.locator("details pre").first
    assert not document.is_visible()
    page.locator("details summary").first.click()
    assert document.is_visible() and '"procedure": "guarded_taskboot"' in document.inner_text()


def test_a_page_without_a_certificate_reads_as_one(nothing: Case, opened, tmp_path: Path) -> None:
    for width in (1280, 420):
        page = opened(nothing.html, width)
        assert page.get_by_role("heading", name="Nothing certified").is_visible()
        assert page.get_by_role("heading", name="What is not certified, and why").is_visible()
        assert_fits(page, width)
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert_painted(tmp_path / "page.png")


def test_the_page_prints_on_a4(certified: Case, opened) -> None:
    page = opened(certified.html, 1280)
    paper = page.pdf(prefer_css_page_size=True, print_background=True)
    assert paper.startswith(b"%PDF") and 3 <= paper.count(b"/Type /Page\n") <= 10
    page.emulate_media(media="print")
    assert not page.get_by_role("navigation").is_visible()
    assert page.get_by_role("heading", name="The promise").is_visible()


def test_the_index_leads_to_the_page(certified: Case, opened, tmp_path: Path) -> None:
    first = next(c for c in certified.certificates if c.certified)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "page.html").write_text(certified.html, encoding="utf-8")
    page = opened(
        render_index([IndexEntry.of(first, "synthetic, lexical judge", "one/page.html")]), 420
    )
    assert_fits(page, 420)
    page.get_by_role("link", name="synthetic, lexical judge").click()
    page.get_by_role("heading", name="synthetic, lexical judge", level=1).wait_for()
