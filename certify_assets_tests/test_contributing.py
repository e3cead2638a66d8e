"""Recipes of CONTRIBUTING.md: a column on the certificate page; others are tested where they belong."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets_tests.doc_commands import recipe
from certify_assets_tests.paths import REPOSITORY

PAGE = "certify_assets/reports/certificate_page.py"


@pytest.mark.slow
@pytest.mark.smoke
def test_a_column_of_the_certificate_page_is_two_lines(tmp_path: Path) -> None:
    shutil.copytree(
        REPOSITORY / "certify_assets", tmp_path / "certify_assets", copy_function=os.symlink
    )
    page, text = tmp_path / PAGE, (REPOSITORY / PAGE).read_text("utf-8")
    for new, following in re.findall(r"^\+(.*\n) (.*\n)", recipe(PAGE), re.MULTILINE):
        assert text.count(following) == 1, following
        text = text.replace(following, new + following)
    page.unlink()
    page.write_text(text, "utf-8")
    scores = REPOSITORY / "docs/examples/scores.csv"
    for command in (f"certificate {scores} --out c.json", f"report c.json {scores} --out c.html"):
        subprocess.run(
            [sys.executable, "-c", "from certify_assets.cli import main; main()", *command.split()],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            check=True,
        )
    assert "errors seen" in (tmp_path / "c.html").read_text("utf-8")
