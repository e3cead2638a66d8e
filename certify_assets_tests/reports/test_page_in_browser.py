"""The page in a real browser: from disk, with scripts off, on a wide screen, a phone and paper."""

from pathlib import Path

import pytest

from certify_assets.certificates import Sides
from certify_assets.reports.index_page import CorpusEntry, IndexEntry, PageLink, render_index
from certify_assets_tests.pages import assert_figures_seen, assert_fits, unfold
from certify_assets_tests.paths import assert_painted
from certify_assets_tests.reports.conftest import Case

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize("width", [1280, 420])
def test_the_certificate_page_is_whole_and_fits(
    certified: Case, opened, width: int, tmp_path: Path
) -> None:
    page = opened(certified.html, width)
    banner = page.get_by_role("region", name="Certified")
    assert banner.first.is_visible()
    for words in ("auto-fail", "reviewers", "auto-pass", "runs rejected", "assumption:"):
        assert words in banner.first.inner_text()
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
    assert page.get_by_role("main").count() == 1
    assert_fits(page, width)
    unfold(page)
    assert assert_figures_seen(page) == 10
    assert_fits(page, width)
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert_painted(tmp_path / "page.png")


def test_details_open_without_a_script(certified: Case, opened) -> None:
    page = opened(certified.html, 1280)
    document = page.locator("details details pre").first
    page.locator("summary", has_text="Lineage").click()
    assert not document.is_visible()
    page.locator("details details summary").first.click()
    assert document.is_visible() and '"procedure": "pseudo_task"' in document.inner_text()


def test_a_page_without_a_certificate_reads_as_one(nothing: Case, opened, tmp_path: Path) -> None:
    for width in (1280, 420):
        page = opened(nothing.html, width)
        assert page.get_by_role("heading", name="Nothing certified").is_visible()
        assert page.get_by_role("heading", name="What is not certified, and why").is_visible()
        unfold(page)
        assert_fits(page, width)
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert_painted(tmp_path / "page.png")


def test_the_page_prints_on_a4(certified: Case, opened) -> None:
    page = opened(certified.html, 1280)
    paper = page.pdf(prefer_css_page_size=True, print_background=True)
    assert paper.startswith(b"%PDF") and 3 <= paper.count(b"/Type /Page\n") <= 10
    page.emulate_media(media="print")
    assert page.get_by_role("heading", name="The promise").is_visible()
    assert page.locator("#promise blockquote").first.is_visible(), "paper cannot be unfolded"


def test_the_index_leads_to_the_page(certified: Case, opened, tmp_path: Path) -> None:
    first = next(c for c in certified.certificates if c.certified)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "page.html").write_text(certified.html, "utf-8")
    entry = IndexEntry.of(
        Sides.strictest([first]), "lexical", [PageLink("Certificate", "one/page.html")]
    )
    corpus = CorpusEntry("synthetic", "nothing", "No judge is deployed", judges=(entry,))
    page = opened(render_index([corpus]), 420)
    assert_fits(page, 420)
    page.get_by_role("link", name="Certificate of lexical on synthetic").click()
    page.get_by_role("heading", name="synthetic, lexical judge", level=1).wait_for()
