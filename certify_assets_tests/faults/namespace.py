"""Run a script where a folder is a small disk or cannot be written, without touching the machine: a mount namespace of its own."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from certify_assets_tests.paths import REPOSITORY

__all__ = ["CALL", "codes", "in_namespace"]

#: a command of certify whose code is told, with the last line of what it says
CALL = "$PYTHON -m certify_assets.cli {} > $AWAY/out 2>&1; echo RC $?; tail -n 1 $AWAY/out"


def codes(said: str) -> list[int]:
    """Return the codes that were told."""
    return [int(line[3:]) for line in said.splitlines() if line.startswith("RC ")]


def in_namespace(shell: str, environment: Mapping[str, str], *, seconds: float = 400) -> str:
    """Run shell commands as root of a user and mount namespace; ``$PYTHON`` is this Python. Skips where none can be made."""
    allowed = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        check=False,
    )
    if allowed.returncode:
        pytest.skip("no mount namespace can be made here, so no small disk and no read-only folder")
    done = subprocess.run(
        ["unshare", "-rm", "bash", "-eu", "-c", shell],
        env={**environment, "PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
        cwd=Path(REPOSITORY),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr
