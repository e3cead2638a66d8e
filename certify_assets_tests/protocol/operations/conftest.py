"""One small corpus with a certified and audited lexical judge, copied for every test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from certify_assets.protocol.store import Store
from certify_assets_tests.operations_builders import certified_corpus


@pytest.fixture(scope="session")
def _certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("operations") / "root"
    certified_corpus(root)
    return root


@pytest.fixture
def operated(_certified: Path, tmp_path: Path) -> Store:
    """A data root whose corpus `c` has a lexical judge that may be deployed, for one test alone."""
    shutil.copytree(_certified, tmp_path / "root")
    return Store(str(tmp_path / "root"))
