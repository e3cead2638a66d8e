"""The audit of dependencies in ``make lint``: an advisory fails it, and silence is never taken for a pass."""

import importlib.util
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from certify_assets_tests.paths import REPOSITORY

FINE = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "version": "1", "skip_reason": "Dependency not found on PyPI"}
BAD = {
    "name": "c",
    "version": "1",
    "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}, {"id": "CVE-2", "fix_versions": []}],
}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "audit_dependencies", REPOSITORY / "tools/audit_dependencies.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    """A program in the place of pip-audit: the advisory service cannot be reached from everywhere."""

    def make(body: str) -> str:
        path = tmp_path / "pip-audit"
        script = tmp_path / "script.py"
        script.write_text(f"{body}\n", "utf-8")
        # an interpreter whose path has a space cannot stand behind #!
        command = shlex.join([sys.executable, str(script)])
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
        path.chmod(0o755)
        return str(path)

    return make


def _says(*pins: object) -> str:
    return f"print({json.dumps(json.dumps({'dependencies': pins}))})"


@pytest.mark.parametrize(
    ("pins", "code", "said"),
    [
        ((FINE, FINE), 0, "2 pinned dependencies audited, no advisory.\n"),
        (
            (FINE, SKIPPED, BAD),
            1,
            "1 of 3 pinned dependencies have advisories:\nc 1: CVE-1, CVE-2 (fixed in 2)",
        ),
        (
            (FINE, SKIPPED),
            0,
            "SKIPPED in part: 1 of 2 pins audited, no advisory; not known to the service: b",
        ),
    ],
)
def test_what_was_audited_is_said(
    tool: ModuleType,
    program: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
    pins: tuple[object, ...],
    code: int,
    said: str,
) -> None:
    assert tool.main([program(_says(*pins))]) == code
    assert capsys.readouterr().out.startswith(said)


@pytest.mark.parametrize(
    "body",
    [
        _says(SKIPPED, SKIPPED),
        "print('no JSON')",
        "import sys; sys.exit('no route to the service')",
        _says(),
    ],
)
def test_silence_is_skipped_and_said(
    tool: ModuleType, program: Callable[[str], str], capsys: pytest.CaptureFixture[str], body: str
) -> None:
    assert tool.main([program(body)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("SKIPPED: dependencies were not audited") and "This is no pass" in said


def test_a_missing_program_is_said(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["/nowhere/pip-audit"]) == 0
    assert "is not installed" in capsys.readouterr().out
