"""Draw the pictures of the documentation again, from a data root that `certify demo` made.

    certify demo && certify ops deploy miniwob_weak combined
    certify certificate docs/examples/scores.csv --out certificate.json
    certify report certificate.json docs/examples/scores.csv --out .certify/pages/example.html
    python tools/docs_pictures.py .certify

Those of the Dagster and MLflow user interfaces are taken by hand.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[1] / "docs"
CERTIFICATE = "judges/lexical/miniwob_weak/page.html"


class Picture(NamedTuple):
    """A page of the data root as a reader sees its first screen."""

    file: str
    page: str
    width: int
    height: int
    dark: bool = False


PICTURES = (
    Picture("certificate.png", "example.html", 1400, 900),
    Picture("images/certificate_audited.png", CERTIFICATE, 1400, 900),
    Picture("images/certificate_dark.png", CERTIFICATE, 1400, 900, dark=True),
    Picture("images/certificate_phone.png", CERTIFICATE, 390, 844),
    Picture("images/start_page.png", "index.html", 1400, 960),
    Picture("images/corpus.png", "corpora/miniwob_weak/page.html", 1400, 900),
    Picture("images/comparison.png", "comparison/miniwob_weak/comparison.html", 1400, 900),
)


def main() -> None:
    """Write every picture."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    pages = Path(sys.argv[1]).resolve() / "pages"
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        # a container runs it as root, and without a sandbox of its own
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for picture in PICTURES:
            page = browser.new_page(
                viewport={"width": picture.width, "height": picture.height},
                color_scheme="dark" if picture.dark else "light",
            )
            page.goto((pages / picture.page).as_uri())
            drawn = Image.open(io.BytesIO(page.screenshot()))
            # a page has few colours; a third of the bytes
            drawn.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(
                DOCS / picture.file, optimize=True
            )
        browser.close()


if __name__ == "__main__":
    main()
