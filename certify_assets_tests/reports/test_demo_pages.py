"""Every page of a finished data root in a browser: links, widths, letters, contrast, dark, paper."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from certify_assets.reports.index_page import write_index
from certify_assets.storage.store import Store
from certify_assets_tests.conftest import Demo
from certify_assets_tests.pages import assert_fits, outline

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# scripts of the test, never of the page: what a reader sees of letters and colours
_LETTERS = """() => Math.min(99, ...[...document.querySelectorAll('svg text')]
  .filter(text => text.getBoundingClientRect().width > 0)
  .map(text => { const m = text.getScreenCTM();
    return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(m.a, m.b); }))"""
_CONTRAST = """() => {
  const channels = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => { const f = v => (v /= 255) <= .03928 ? v / 12.92
      : ((v + .055) / 1.055) ** 2.4; return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
  const behind = node => { for (; node; node = node.parentElement) {
      const c = channels(getComputedStyle(node).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
  const seen = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = walk.nextNode());) {
    const node = text.parentElement, style = getComputedStyle(node);
    if (!text.data.trim() || !node.getBoundingClientRect().width) continue;
    const ink = channels(node.closest('svg') ? style.fill : style.color);
    if (ink.length < 3) continue;
    const [a, b] = [light(ink), light(behind(node))].sort((x, y) => y - x);
    seen.push([(a + .05) / (b + .05), text.data.trim().slice(0, 40), node.className]);
  }
  return seen.sort((x, y) => x[0] - y[0])[0];
}"""
_GROUND = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"


def pages_of(root: Path) -> Iterator[Path]:
    """Every page of a data root; those of other programs lie in folders of their own."""
    for path in sorted(root.rglob("*.html")):
        if not {"mlflow", "mlartifacts", "dagster"} & set(path.relative_to(root).parts):
            yield path


@pytest.fixture(scope="module")
def root(demo: Demo) -> Path:
    write_index(Store(str(demo.root)))
    return demo.root / "pages"


@pytest.mark.smoke
def test_every_page_is_reached_from_the_start_page_and_leads_back(root: Path) -> None:
    start = root / "index.html"
    links: dict[Path, set[Path]] = {}
    waiting = [start]
    while waiting:
        page = waiting.pop()
        found = {
            (page.parent / unquote(address.partition("#")[0])).resolve()
            for address in outline(page.read_text("utf-8")).addresses
            if not address.startswith("#")
        }
        links[page] = found
        waiting += [path for path in found if path not in links and path not in waiting]
    assert set(links) == {path.resolve() for path in pages_of(root)}
    assert all(start.resolve() in found for page, found in links.items() if page != start)
    ids = outline(start.read_text("utf-8")).ids
    back = outline((root / "corpora/miniwob_mixed/page.html").read_text("utf-8")).addresses
    assert "../../index.html#miniwob_mixed" in back and "miniwob_mixed" in ids


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_every_page_is_read_in_every_look(
    browser: Any, root: Path, width: int, scheme: Any
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    for path in pages_of(root):
        asked.clear()
        page.goto(path.as_uri())
        assert asked == [path.as_uri()], "a page loads nothing else"
        assert_fits(page, width)
        page.add_style_tag(
            content="details::details-content { content-visibility: visible; height: auto }"
        )
        assert_fits(page, width)
        assert page.evaluate(_LETTERS) >= 10, path
        ratio, text, where = page.evaluate(_CONTRAST)
        assert ratio >= 4.5, (path, text, where)
        ground = page.evaluate(_GROUND)
        assert max(ground) < 50 if scheme == "dark" else min(ground) > 200


@pytest.mark.smoke
def test_the_first_screen_decides(browser: Any, root: Path) -> None:
    path = root / "judges/lexical/miniwob_mixed/page.html"
    for width, height in ((1400, 900), (390, 844)):
        page = browser.new_context(viewport={"width": width, "height": height}).new_page()
        page.goto(path.as_uri())
        verdict = page.locator("#verdict").bounding_box()
        assert verdict is not None and verdict["y"] + verdict["height"] <= height
        shown = page.locator("#verdict").inner_text()
        for words in ("auto-fail", "review", "auto-pass", "held-out check"):
            assert words in shown
        # what is folded opens where a link leads to it
        page.goto(f"{path.as_uri()}#audit")
        assert page.locator("#audit table").is_visible()


def test_the_rest_of_a_page_is_folded(browser: Any, root: Path) -> None:
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    for path, part in (
        ("corpora/miniwob_mixed/page.html", "leaks"),
        ("comparison/miniwob_mixed/comparison.html", "table-1"),
    ):
        page.goto((root / path).as_uri())
        assert page.evaluate("document.documentElement.scrollHeight") < 1400, path
        assert not page.locator(f"#{part} table").is_visible()
        page.goto(f"{(root / path).as_uri()}#{part}")
        assert page.locator(f"#{part} table").first.is_visible()


def test_paper_has_every_folded_part(browser: Any, root: Path) -> None:
    page = browser.new_context(color_scheme="dark").new_page()
    page.goto((root / "judges/lexical/miniwob_mixed/page.html").as_uri())
    paper = page.pdf(prefer_css_page_size=True, print_background=True)
    assert 3 <= len(re.findall(rb"/Type /Page\n", paper)) <= 10
    page.emulate_media(media="print")
    assert page.locator("#promise blockquote").first.is_visible()
    assert page.evaluate(_GROUND) == [255, 255, 255]
