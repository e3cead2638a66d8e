"""Steps and commands take turns on a corpus, by its lease."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs import assets
from certify_assets.defs.assets import AssetStep, Made, asset
from certify_assets.defs.execution import one_writer
from certify_assets.defs.resources import EXECUTOR_VARIABLE
from certify_assets.errors import CertifyError
from certify_assets.storage import lease
from certify_assets.storage.lease import OWNER_VARIABLE, Held, Lease
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.defs.running import partitions, resources
from certify_assets_tests.paths import REPOSITORY

KEY = "leases/c.json"


def _owner(store: Store) -> str:
    held = Held.parse(store.read_bytes(KEY))
    assert held is not None
    return held.owner


def _materialize(store: Store, **about: Any) -> tuple[dg.ExecuteInProcessResult, list[str]]:
    """Materialize two assets that say who owns the corpus while they work."""
    owners: list[str] = []

    @asset("corpora", "corpora", **about)
    def first(step: AssetStep) -> Made:
        owners.append(_owner(step.store))
        return step.made({}, version="1")

    @asset("corpora", "corpora", deps=[first])
    def second(step: AssetStep) -> Iterator[Any]:
        yield step.made({}, version="1")
        owners.append(_owner(step.store))

    with partitions("c") as instance:
        result = dg.materialize(
            [first, second], instance=instance, partition_key="c", resources=resources(store)
        )
    assert result.success
    return result, owners


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A data root of this process, on which waiting is short."""
    monkeypatch.setenv("CERTIFY_ROOT", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(assets, "_LOGGED_SECONDS", 0.1)
    return Store(str(tmp_path))


def test_every_step_holds_the_lease_of_its_corpus_as_its_run(store: Store) -> None:
    result, owners = _materialize(store)
    assert owners == [f"run {result.run_id}"] * 2 and not store.exists(KEY)


@pytest.mark.parametrize(("about", "retries"), [({}, 0), ({"pool": "gpu"}, 1)])
def test_a_step_waits_for_a_command_and_not_in_its_place_of_a_pool(
    store: Store,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    about: dict[str, str],
    retries: int,
) -> None:
    command = Lease(store, "c", owner="command 1", what="materialization")
    assert command.take() is None
    describe = Held.describe

    def and_end(held: Held, name: str) -> str:
        assert command.leave()
        return describe(held, name)

    # the command ends as soon as the step has seen it
    monkeypatch.setattr(Held, "describe", and_end)
    result, owners = _materialize(store, **about)
    assert owners == [f"run {result.run_id}"] * 2
    assert "command 1 is at work on c (materialization) since" in capfd.readouterr().err
    assert sum(event.is_step_up_for_retry for event in result.all_events) == retries


_TWO_STEPS = """
from certify_assets.defs.execution import execute, instance_with, one_writer
from certify_assets.defs.names import key
with one_writer("c"), instance_with(["c"]) as instance:
    result = execute("onboard_corpus", instance, "c", {key("corpora/trajectories")})
assert result.success
"""


@pytest.mark.slow
def test_steps_of_a_command_that_are_processes_share_its_lease(
    store: Store, tmp_path: Path
) -> None:
    register_runs(store, "c", write_runs(tmp_path / "c.jsonl", tasks=40, attempts=3))
    (tmp_path / "dagster").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _TWO_STEPS],
        env={**platform_environment(tmp_path), EXECUTOR_VARIABLE: "multiprocess"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert store.exists("corpora/c/import.json") and not store.exists(KEY)


def test_a_command_refuses_a_corpus_that_a_run_writes_and_hands_its_lease_to_its_steps(
    store: Store,
) -> None:
    run = Lease(store, "c", owner="run 1", what="scores")
    assert run.take() is None
    with (
        pytest.raises(
            CertifyError, match=r"run 1 is at work on c \(scores\) since .* Wait for its"
        ),
        one_writer("c"),
    ):
        raise AssertionError
    assert run.leave()
    with one_writer("c"):
        owner = os.environ[OWNER_VARIABLE]
        assert _materialize(store)[1] == [owner] * 2
        # what is part of the command holds its lease again
        with one_writer("c"), Corpus(store, "c").writing("part"):
            assert _owner(store) == os.environ[OWNER_VARIABLE] == owner
    assert OWNER_VARIABLE not in os.environ and not store.exists(KEY)
