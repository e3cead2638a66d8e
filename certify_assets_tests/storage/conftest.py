"""A data root on each database."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from certify_assets.storage.database import VARIABLE
from certify_assets.storage.store import Store


@pytest.fixture(scope="session")
def _postgresql() -> Iterator[str]:
    from certify_assets_tests.services import postgres_server

    with postgres_server("certify") as databases:
        yield databases["certify"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def new_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Store]:
    """Make an empty data root in a folder; on PostgreSQL the ones before are out of use then."""

    def make(folder: str) -> Store:
        if request.param == "postgresql":
            server, name = request.getfixturevalue("_postgresql"), f"c{uuid.uuid4().hex}"
            engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.execute(sa.text(f"CREATE DATABASE {name}"))
            engine.dispose()
            monkeypatch.setenv(VARIABLE, server.rpartition("/")[0] + f"/{name}")
        return Store(str(tmp_path / folder))

    return make


@pytest.fixture
def store(new_store: Callable[[str], Store]) -> Store:
    """An empty data root."""
    return new_store("root")
