"""The site builds without a warning, loads nothing from elsewhere, and is searched from disk."""

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from certify_assets_tests.doc_commands import PAGES
from certify_assets_tests.paths import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow
for _package in ("mkdocs", "material", "mkdocstrings"):
    pytest.importorskip(_package, reason="pip install certify_assets[docs]")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; a warning, such as one of a link that leads nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = [path for path in site.rglob("*.html") if path.name != "404.html"]
    # README.md is index.md; deploy/README.md, the changelog and the notebook are pages too
    assert len(pages) == len(PAGES) + 2
    notebook = (site / "notebook.html").read_text("utf-8")
    assert "The promise and its findings" in notebook and notebook.count("<svg") > 2
    for path in pages:
        text = path.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?([^\"\s>]+)", text)
        loaded += re.findall(r"<link\b[^>]*\bhref=\"?([^\"\s>]+)", text)
        assert loaded and not [one for one in loaded if re.match(r"(https?:)?//", one)], path.name
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert not any(re.search(r"url\(['\"]?(https?:)?//", text) for text in styles)


def test_the_reference_has_every_command_and_field(site: Path) -> None:
    from certify_assets.cli import cli
    from certify_assets.corpora.config import CorpusConfig

    commands = (site / "reference/cli.html").read_text("utf-8")
    assert all(f"certify-{name}" in commands for name in cli.list_commands(None))  # type: ignore[arg-type]
    assert "--min-coverage" in commands
    fields = (site / "reference/configuration.html").read_text("utf-8")
    assert all(
        f"<code>{name}</code>" in fields
        for name in CorpusConfig.__dataclass_fields__
        if name != "name"
    )
    assert "verify" in (site / "reference/python.html").read_text("utf-8")


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_are_searched_from_disk(
    site: Path, browser: "Browser", width: int, scheme: Any
) -> None:
    look = {"width": width, "height": 900}
    page = browser.new_context(viewport=look, color_scheme=scheme).new_page()  # type: ignore[arg-type]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in ("tutorial", "certificates", "reference/cli", "promise", "index"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        colours = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(map(int, re.findall(r"\d+", colours)[:3])) < 384
        assert dark == (scheme == "dark")
    if width < 1000:
        page.locator("label[for=__search]").first.click()
    page.locator("input[name=query]").press_sequentially("pseudo-task")
    found = page.locator(".md-search-result__item a").first
    found.wait_for(timeout=120_000)
    assert "thresholds are tested" in found.inner_text()
    assert not [url for url in asked if not url.startswith(("file:", "data:", "about:"))]
