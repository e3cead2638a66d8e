"""A small share of the kills of `kill_points`: the table of all of them is in docs/faults.md."""

import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.paths import REPOSITORY

#: a replacement, a removal, a chain of documents, and a journal
_COMMANDS = r"--(replace|add)|corpus rm|ops ingest$|labels"
#: answers of a server, arms, and children of their own
_RESEARCH = r"score, endpoint|train, grpo|research (harvest|simulate)"


@pytest.mark.slow
@pytest.mark.parametrize(("commands", "points"), [(_COMMANDS, 12), (_RESEARCH, 5)])
def test_killed_commands_lose_nothing_and_are_called_again(
    tmp_path: Path, commands: str, points: int
) -> None:
    words = ["--points", str(points), "--seed", "5", "--conditions", "alone,clock jumps"]
    environment = platform_environment(tmp_path)
    for name in ("CERTIFY_ROOT", "DAGSTER_HOME"):
        del environment[name]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "certify_assets_tests.faults.kill_points"),
            *("--only", commands, "--scratch", str(tmp_path / "scratch"), *words),
        ],
        cwd=REPOSITORY,
        env={**environment, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = done.stdout.splitlines()[-1].split()[-8:]
    killed, lost, mixed, outlived, differing, leftovers, _, failed = figures
    assert int(killed) >= points * 3 // 4
    assert {lost, mixed, outlived, differing, leftovers, failed} == {"0"}
