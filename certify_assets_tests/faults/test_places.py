"""A data root that was copied, in a folder of a name that is hard to write in an address."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets.files import sha256_file
from certify_assets_tests.conftest import Demo
from certify_assets_tests.paths import REPOSITORY

CORPUS = "miniwob_mixed"
OTHER = REPOSITORY / "certify_assets/corpora/embedded/miniwob_weak.parquet"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ü #x", "a?b%20"])
def test_a_copy_works_where_it_is_and_never_writes_into_the_original(
    demo: Demo, tmp_path: Path, name: str
) -> None:
    original, before = demo.made_at, _files(demo.made_at)
    demo = demo._replace(root=Path(shutil.copytree(original, tmp_path / name / "root")))
    done = _called(demo, f"run {CORPUS}")
    if "?" in name:
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert "let DAGSTER_HOME name another" in done.stderr.splitlines()[-1]
    else:
        assert done.returncode == 0, done.stderr
    for line in (
        f"ops deploy {CORPUS} combined",
        f"ops ingest {CORPUS} {OTHER}",
        f"ops status {CORPUS}",
    ):
        done = _called(demo, line)
        assert done.returncode in (0, 3) and "Traceback" not in done.stderr, (line, done.stderr)
    assert len(list((demo.root / "operations" / CORPUS).rglob("decisions.parquet"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert [path.name for path in (tmp_path / name).iterdir()] == ["root"]
    assert _files(original) == before


def _called(demo: Demo, line: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "certify_assets.cli", *line.split()]
    return subprocess.run(
        command,
        env=demo.environment,
        cwd=demo.root,
        capture_output=True,
        text=True,
        check=False,
    )


def _files(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): sha256_file(path)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
