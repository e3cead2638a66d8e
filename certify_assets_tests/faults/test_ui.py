"""The Dagster UI in a real browser: the verdict, checks, and hostile text.

Screenshots go to ``CERTIFY_ARTEFACTS``, else to pytest's base folder.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs
from certify_assets_tests.conftest import Demo
from certify_assets_tests.faults.servers import serving
from certify_assets_tests.paths import assert_painted
from certify_assets_tests.security.hostile import CANARY, write_hostile_runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

CORPUS, HOSTILE = "miniwob_mixed", "hostile"
_WAIT = 90_000.0


class Site(NamedTuple):
    """A running UI, its data root, and where screenshots go."""

    address: str
    pictures: Path
    root: Path

    def keep(self, page: Page, name: str) -> None:
        """Keep a screenshot that shows something."""
        page.wait_for_timeout(1500)
        page.screenshot(path=self.pictures / f"{name}.png")
        assert_painted(self.pictures / f"{name}.png")


@pytest.fixture(scope="module")
def site(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """``dagster dev`` on a copy of the demo's data root with a corpus whose every text is hostile."""
    import shutil
    import sys

    folder = tmp_path_factory.mktemp("ui")
    demo = demo._replace(root=Path(shutil.copytree(demo.root, folder / "root")))
    source = write_hostile_runs(folder / "runs.jsonl")
    register_runs(
        Store(str(demo.root)), HOSTILE, source, rl=False, accept_structural_leak="shown on purpose"
    )
    command = [sys.executable, "-m", "certify_assets.cli", "run", HOSTILE]
    done = subprocess.run(
        command, env=demo.environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    pictures = Path(os.environ.get("CERTIFY_ARTEFACTS") or folder / "screenshots")
    pictures.mkdir(parents=True, exist_ok=True)
    with serving(demo.environment, folder / "server.log", daemon=True) as address:
        yield Site(address, pictures, demo.root)
    print(f"\nscreenshots: {', '.join(sorted(path.name for path in pictures.glob('*.png')))}")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 1400, "height": 860})
    opened.set_default_timeout(_WAIT)
    yield opened
    opened.close()


def test_the_asset_page_has_the_verdict(site: Site, page: Page) -> None:
    from playwright.sync_api import expect

    page.goto(
        f"{site.address}/assets/judges/lexical/certificate?partition={CORPUS}&view=partitions"
    )
    page.get_by_text("coverage_reject_at_0.2").first.wait_for()
    cell = page.locator("tr", has_text="verdict").first
    # the row is there before what it says
    sentence = re.compile(r"auto-fail\s+[\d.]+\s*%")
    expect(cell).to_contain_text(sentence, use_inner_text=True, timeout=_WAIT)
    assert "decided" in cell.inner_text()
    site.keep(page, "certificate")


def test_checks_say_what_they_found(site: Site, page: Page) -> None:
    page.goto(f"{site.address}/assets/corpora/leak_controls?view=checks")
    page.get_by_text("blocking").first.wait_for()
    page.get_by_text(re.compile("Passed|Warning")).first.wait_for()
    assert page.get_by_text("no_structural_leak").count() >= 1
    site.keep(page, "checks")


@pytest.mark.parametrize(
    "asset",
    [
        "corpora/report",
        "corpora/profile",
        "corpora/comparison",
        "corpora/leak_controls",
        "corpora/trajectories",
        "judges/lexical/certificate",
        "judges/lexical/report",
    ],
)
def test_no_text_of_a_run_runs_in_the_ui(site: Site, page: Page, asset: str) -> None:
    dialogs = _dialogs(page)
    page.goto(f"{site.address}/assets/{asset}?partition={HOSTILE}&view=partitions")
    page.get_by_text("Materialized").first.wait_for()
    page.wait_for_timeout(1500)
    # longer texts are behind a link, and are drawn when it is followed
    for label in ("[Show Markdown]", "[Show JSON]"):
        for link in page.get_by_text(label, exact=True).all():
            link.click()
            page.wait_for_timeout(800)
            page.keyboard.press("Escape")
            page.wait_for_timeout(300)
    assert page.evaluate(f"typeof window.{CANARY}") == "undefined" and dialogs == []
    assert page.locator("a[href^='javascript:' i]").count() == 0


def _dialogs(page: Page) -> list[str]:
    found: list[str] = []
    page.on("dialog", lambda dialog: (found.append(dialog.message), dialog.dismiss()))
    return found
