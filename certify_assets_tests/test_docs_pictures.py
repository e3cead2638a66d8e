"""Pictures of the documentation: of this version, and of pages that still say the same."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from certify_assets import __version__
from certify_assets_tests.conftest import Demo
from certify_assets_tests.paths import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = REPOSITORY / "docs"
COMMAND = "draw it again: python tools/docs_pictures.py .certify"
Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.png")), ids=lambda path: path.stem)
def test_a_picture_is_of_this_version(path: Path) -> None:
    with Image.open(path) as picture:
        assert picture.info.get("Software") == f"certify_assets {__version__}", COMMAND


@pytest.mark.slow
@pytest.mark.browser
def test_a_picture_shows_what_the_page_says(demo: Demo, browser: "Browser", tmp_path: Path) -> None:
    demo = demo._replace(root=Path(shutil.copytree(demo.root, tmp_path / "root")))
    for command in ("run miniwob_weak", "ops deploy miniwob_weak combined"):
        words = [sys.executable, "-m", "certify_assets.cli", *command.split()]
        subprocess.run(words, env=demo.environment, check=True)
    tool, pages = runpy.run_path(str(REPOSITORY / "tools/docs_pictures.py")), demo.root / "pages"
    tool["draw_example"](pages)
    stale = []
    for picture in tool["PICTURES"]:
        page = browser.new_page(viewport={"width": picture.width, "height": picture.height})
        page.goto((pages / picture.page).as_uri())
        with Image.open(DOCS / picture.file) as drawn:
            if drawn.info["Description"] != tool["shown_text"](page):
                stale.append(picture.file)
        page.close()
    assert stale == [], COMMAND
