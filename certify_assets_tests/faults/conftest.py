import subprocess
from pathlib import Path

import pytest

from certify_assets.storage.store import Store
from certify_assets_tests.conftest import prepared_world
from certify_assets_tests.faults.small import prepare, run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "root"))


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root that nothing disturbed."""

    def finish(root: Path) -> None:
        prepare(root)
        # an interpreter of its own: with the same seed of hashes the same bytes would say less
        done = run(root, start=subprocess.run)
        assert done.returncode == 0, done.stderr

    return prepared_world(tmp_path_factory, "undisturbed", finish)
