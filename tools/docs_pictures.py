"""Draw every picture of the documentation again, from a data root that `certify demo` made.

    certify demo && certify ops deploy miniwob_weak combined
    python tools/docs_pictures.py .certify

Each picture carries the version and the text that it shows, by which a test finds a stale one.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from certify_assets._version import __version__

if TYPE_CHECKING:
    from playwright.sync_api import Page

DOCS = Path(__file__).parents[1] / "docs"
CERTIFICATE = "judges/lexical/miniwob_weak/page.html"
EXAMPLE = "example.html"
_CHANGING = re.compile(r"\d{4}-\d\d-\d\d|\b[0-9a-f]{40,64}\b|\b0\.\d{4,}\b|\b\d\.\d+e−\d\d\b")


class Picture(NamedTuple):
    """A page of the data root as a reader sees its first screen."""

    file: str
    page: str
    width: int
    height: int
    dark: bool = False


PICTURES = (
    Picture("certificate.png", EXAMPLE, 1400, 900),
    Picture("images/certificate_audited.png", CERTIFICATE, 1400, 900),
    Picture("images/certificate_dark.png", CERTIFICATE, 1400, 900, dark=True),
    Picture("images/certificate_phone.png", CERTIFICATE, 390, 844),
    Picture("images/start_page.png", "index.html", 1400, 960),
    Picture("images/corpus.png", "corpora/miniwob_weak/page.html", 1400, 900),
    Picture("images/comparison.png", "comparison/miniwob_weak/comparison.html", 1400, 900),
)


def draw_example(folder: Path) -> None:
    """Write the certificate page of the tutorial into a folder."""
    scores, document = DOCS / "examples" / "scores.csv", folder / "certificate.json"
    for words in (
        ["certificate", scores, "--out", document],
        ["report", document, scores, "--out", folder / EXAMPLE],
    ):
        _certify(*map(str, words))


def shown_text(page: Page) -> str:
    """Return what a page shows, without dates, hashes and measured seconds."""
    return _CHANGING.sub("…", page.inner_text("body"))


def _certify(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "certify_assets.cli", *words], check=True)


def _keep(shot: bytes, file: str, text: str) -> None:
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    about = PngInfo()
    about.add_text("Software", f"certify_assets {__version__}")
    about.add_itxt("Description", text, zip=True)
    # a page has few colours; a third of the bytes
    drawn = Image.open(io.BytesIO(shot)).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    drawn.save(DOCS / file, optimize=True, pnginfo=about)


@contextmanager
def _servers(root: Path) -> Iterator[dict[str, str]]:
    """Yield the addresses of the Dagster and MLflow UIs of a data root."""
    command = [sys.executable, "-m", "certify_assets.cli", "ui", "--root", str(root)]
    command += ["--port", "3300", "--mlflow-port", "5500"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert served.stdout is not None
        found: dict[str, str] = {}
        for line in served.stdout:
            name, _, address = line.partition(" ")
            found[name] = address.strip()
            if {"Dagster", "MLflow"} <= set(found):
                break
        yield found
    finally:
        served.terminate()
        served.wait()


def _draw_servers(page: Page, root: Path) -> None:
    asset = "assets/judges/lexical/certificate?partition=miniwob_mixed&view=partitions"
    page.set_default_timeout(90_000)
    with _servers(root) as addresses:
        page.set_viewport_size({"width": 1400, "height": 860})
        page.goto(f"{addresses['Dagster']}/asset-groups")
        page.locator(':text-is("research"):visible').last.wait_for()
        page.wait_for_timeout(3000)
        _keep_part(page, "images/dagster_lineage.png", (540, 110, 860, 690))
        page.goto(f"{addresses['Dagster']}/{asset}")
        page.get_by_text("coverage_reject_at_0.2").first.wait_for()
        page.wait_for_timeout(3000)
        _keep_part(page, "images/dagster_certificate.png", (240, 0, 1160, 760))
        page.set_viewport_size({"width": 1500, "height": 760})
        wanted = quote("tags.`certify.summary` != ''"), quote("metrics.`decided_at_0.1`")
        page.goto(
            f"{addresses['MLflow']}?searchFilter={wanted[0]}&orderByKey={wanted[1]}&orderByAsc=false"
        )
        page.get_by_text("combined on").first.wait_for()
        page.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="Columns").click()
        for name in ("Source", "Models", "Dataset"):
            page.get_by_text(name, exact=True).last.click()
        for name in ("auroc", "decided_at_0.1", "decided_at_0.2", "error_reject_at_0.2"):
            page.get_by_placeholder("Search columns").fill(name)
            page.get_by_text(name, exact=True).last.click()
        page.keyboard.press("Escape")
        page.wait_for_timeout(3000)
        _keep_part(page, "images/mlflow_judges.png", (200, 95, 1290, 300))


def _keep_part(page: Page, file: str, box: tuple[int, int, int, int]) -> None:
    x, y, width, height = box
    shot = page.screenshot(clip={"x": x, "y": y, "width": width, "height": height})
    _keep(shot, file, "")


def main() -> None:
    """Write every picture."""
    from playwright.sync_api import sync_playwright

    root = Path(sys.argv[1]).resolve()
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        # a container runs it as root, and without a sandbox of its own
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        draw_example(Path(folder))
        for picture in PICTURES:
            page = browser.new_page(
                viewport={"width": picture.width, "height": picture.height},
                color_scheme="dark" if picture.dark else "light",
            )
            home = Path(folder) if picture.page == EXAMPLE else root / "pages"
            page.goto((home / picture.page).as_uri())
            _keep(page.screenshot(), picture.file, shown_text(page))
        _draw_servers(browser.new_page(), root)
        browser.close()


if __name__ == "__main__":
    main()
