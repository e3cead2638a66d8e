"""Every benchmark runs in its quick form from an installation, wherever it is started."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets_tests.paths import REPOSITORY

BENCHMARKS = [
    path
    for path in sorted((REPOSITORY / "benchmarks").glob("[a-z]*.py"))
    if '"--quick"' in path.read_text("utf-8")
]
#: their own tests run them whole; here they are only loaded
ELSEWHERE = {"year"}


@pytest.mark.statistics
@pytest.mark.parametrize("script", BENCHMARKS, ids=lambda path: path.stem)
def test_the_quick_form_runs(script: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    for folder in (site, elsewhere):
        folder.mkdir()
    # the package alone, as an installation has it: not the root, which would also give the tests
    (site / "certify_assets").symlink_to(REPOSITORY / "certify_assets")
    done = subprocess.run(
        [sys.executable, str(script), "--help" if script.stem in ELSEWHERE else "--quick"],
        cwd=elsewhere,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # without a CUDA device gpu.py says so
    assert done.stdout.strip()


def test_the_runner_says_how_long_each_takes() -> None:
    def ran(*names: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(REPOSITORY / "benchmarks"), *names]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = ran("eager_user")
    assert done.returncode == 0 and re.search(
        r"^\[1/1\] eager_user done, \d+ s$", done.stdout, re.M
    )
    refused = ran("eager_user", "nothing")
    assert refused.returncode == 2 and "there is no nothing; name some of" in refused.stderr
