"""Fixtures that several folders share: a real browser, and one real run of the platform."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from certify_assets_tests.paths import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from certify_assets.storage.store import Store

# `make` exports the data root of the demo; what tests start must use neither it nor a developer's own
for _name in ("DAGSTER_HOME", "CERTIFY_ROOT"):
    os.environ.pop(_name, None)

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium of this machine, or a skip with the reason."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("no Chromium here; Debian: apt-get install chromium")


@pytest.fixture
def browser(chromium: str) -> Iterator[Browser]:
    """A real headless browser, for one test: while it is open, its event loop stands in the way of every other in the process."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def _small_corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from certify_assets_tests.builders import certify_small_corpora

    root = tmp_path_factory.mktemp("corpora") / "root"
    certify_small_corpora(root)
    return root


@pytest.fixture
def corpora(_small_corpora: Path, tmp_path: Path) -> Store:
    """A data root with three small certified corpora, for one test alone."""
    from certify_assets.storage.store import Store

    shutil.copytree(_small_corpora, tmp_path / "root")
    return Store(str(tmp_path / "root"))


@pytest.fixture
def one_step_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the judge grpo have one step an arm."""
    from certify_assets.judges.specs import JUDGES
    from certify_assets_tests.arms_builders import TINY

    monkeypatch.setitem(JUDGES, "grpo", TINY)


@pytest.fixture(scope="session")
def _audited_arms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from certify_assets.judges.specs import JUDGES
    from certify_assets_tests.arms_builders import TINY, audited_arms

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(JUDGES, "grpo", TINY)
        return Path(audited_arms(tmp_path_factory.mktemp("arms"), tasks=40).root)


@pytest.fixture
def arms_store(_audited_arms: Path, one_step_arms: None, tmp_path: Path) -> Store:
    """A data root where the judge grpo was chosen among arms of one step, and TEST read for all of them, for one test alone."""
    from certify_assets.storage.store import Store

    shutil.copytree(_audited_arms, tmp_path / "root")
    return Store(str(tmp_path / "root"))


class Demo(NamedTuple):
    """What one run of the demo left."""

    root: Path
    document: dict[str, Any]
    stderr: str

    @property
    def environment(self) -> dict[str, str]:
        return platform_environment(self.root)


def platform_environment(root: Path) -> dict[str, str]:
    """The environment of a process on a data root of a test: nothing of the machine's own Dagster or MLflow."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DAGSTER", "MLFLOW", "CERTIFY"))
    }
    return {
        **kept,
        "CERTIFY_ROOT": str(root),
        "DAGSTER_HOME": str(root / "dagster"),
        "PYTHONWARNINGS": "default",
    }


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The whole graph materialized on an embedded corpus, by the command that users call."""
    root = tmp_path_factory.mktemp("demo") / "root"
    command = [
        sys.executable,
        "-m",
        "certify_assets.cli",
        "run",
        "miniwob_mixed",
        "--root",
        str(root),
        "--json",
    ]
    environment = {
        name: value
        for name, value in platform_environment(root).items()
        if name not in {"DAGSTER_HOME", "CERTIFY_ROOT"}
    }
    done = subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Demo(root, json.loads(done.stdout), done.stderr)


@pytest.fixture(scope="session")
def _operated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from certify_assets_tests.operations_builders import certified_corpus

    root = tmp_path_factory.mktemp("operations") / "root"
    certified_corpus(root)
    return root


@pytest.fixture
def operated(_operated: Path, tmp_path: Path) -> Store:
    """A data root whose corpus `c` has a lexical judge that may be deployed, for one test alone."""
    from certify_assets.storage.store import Store

    shutil.copytree(_operated, tmp_path / "root")
    return Store(str(tmp_path / "root"))
