"""A step whose input is replaced while it works is run again, once."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from certify_assets.defs import resources
from certify_assets.defs.assets import MaterializeResult, asset_step
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.storage import store as storage
from certify_assets.storage.events import parse_head
from certify_assets.storage.store import Store
from certify_assets.storage.tracking import Record, Recorded
from certify_assets_tests.defs import running
from certify_assets_tests.defs.running import PROJECT, materialize

INPUT, OUTPUT = "corpora/c/profile.json", "corpora/c/controls.json"


def _trial(store: Store, times: int, **made: Any) -> tuple[Any, list[int]]:
    """Materialize an asset of which somebody replaces the input so many times."""
    attempts: list[int] = []

    @dg.asset(
        **PROJECT.about("corpora/leak_controls", "results"), deps=[PROJECT.key("corpora/profile")]
    )
    def trial(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        with asset_step(PROJECT, context, data_root, mlflow) as step:
            attempts.append(step.store.read_json(INPUT))
            if len(attempts) <= times:
                Store(store.root).write_json(INPUT, len(attempts))
            step.store.write_json(OUTPUT, attempts[-1])
            return step.made({}, **made)

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


def test_mlflow_hears_of_what_was_committed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, note = Store(str(tmp_path)), tmp_path / "note.txt"
    store.write_json(INPUT, 0)
    note.write_text("kept", "utf-8")
    heard: list[tuple[str, str]] = []

    def write(_: Store, record: Record) -> Recorded:
        (copied,) = record.files
        heard.append((record.tags["certify.ledger"], copied.read_text("utf-8")))
        return Recorded(None, "nobody listens")

    monkeypatch.setattr(resources, "write_record", write)
    told = {"data_root": DataRoot(root=store.root), "mlflow": MlflowTracker()}
    monkeypatch.setattr(running, "resources", lambda _: told)
    result, attempts = _trial(store, 1, files={note: "notes"})
    assert result.success and len(attempts) == 2 and len(heard) == 1
    head, text = heard[0]
    assert store.now().holds(**parse_head(head)) and text == "kept"


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
