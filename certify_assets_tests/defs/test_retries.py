"""A step whose input is replaced while it works is run again, once."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from certify_assets.defs.assets import AssetStep, Made, asset
from certify_assets.storage import store as storage
from certify_assets.storage.store import Store
from certify_assets_tests.defs.running import materialize

INPUT, OUTPUT = "corpora/c/profile.json", "corpora/c/controls.json"


def _trial(store: Store, times: int) -> tuple[Any, list[int]]:
    """Materialize an asset of which somebody replaces the input so many times."""
    attempts: list[int] = []

    @asset("corpora", "corpora", name="leak_controls", deps=[dg.AssetKey(["corpora", "profile"])])
    def trial(step: AssetStep) -> Made:
        attempts.append(step.store.read_json(INPUT))
        if len(attempts) <= times:
            Store(store.root).write_json(INPUT, len(attempts))
        step.store.write_json(OUTPUT, attempts[-1])
        return step.made({})

    return materialize([trial], store, raise_on_error=False), attempts


@pytest.mark.parametrize("times", [0, 1])
def test_a_step_is_repeated_once_and_says_what_it_read(tmp_path: Path, times: int) -> None:
    store = Store(str(tmp_path))
    store.write_json(INPUT, 0)
    result, attempts = _trial(store, times)
    assert result.success and attempts == list(range(times + 1))
    (made,) = result.asset_materializations_for_node("corpora__leak_controls")
    tags, metadata = made.tags or {}, made.metadata
    assert store.read_json(OUTPUT) == times
    assert tags["dagster/data_version"] == store.sha256(OUTPUT)
    assert tags["dagster/input_data_version/corpora/profile"] == store.sha256(INPUT)
    corpus, sequence, sha256 = str(metadata["ledger"].value).split(":")
    assert store.now().holds(corpus, int(sequence), sha256)


def test_a_step_whose_commit_was_lost_is_repeated_and_stores_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    store.write_json(INPUT, 0)
    commits, real = [], storage.append

    def lost(*arguments: Any) -> Any:
        commits.append(real(*arguments))
        if len(commits) == 1:
            raise sa.exc.OperationalError("COMMIT", {}, Exception("server closed the connection"))
        return commits[-1]

    monkeypatch.setattr(storage, "append", lost)
    result, attempts = _trial(store, 0)
    assert result.success and attempts == [0, 0] and store.read_json(OUTPUT) == 0


def test_a_step_that_is_disturbed_twice_fails_with_the_sentence(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_json(INPUT, 0)
    result, attempts = _trial(store, 2)
    assert not result.success and len(attempts) == 2 and not store.exists(OUTPUT)
    failure = next(event for event in result.all_events if event.is_step_failure)
    said = str(failure.step_failure_data.error)
    assert "another process replaced corpora/c/profile.json. Run this again" in said
