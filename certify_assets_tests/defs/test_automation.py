"""What is kept current by itself, and what sensors observe of data that others write."""

import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)

from certify_assets.corpora.config import CorpusConfig, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.definitions import defs
from certify_assets.defs.execution import observe_sources
from certify_assets.defs.names import VERSION, source_version
from certify_assets.judges.specs import JUDGES
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.defs.running import PROJECT, SENSORS, partitions, tick

REPORT = PROJECT.key("judges/lexical/report")
CERTIFICATE = PROJECT.key("judges/lexical/certificate")


def test_pages_comparisons_monitors_and_histories_are_kept_current_and_nothing_that_costs() -> None:
    graph = defs.resolve_asset_graph()
    kept = {
        found.to_user_string()
        for found in graph.get_all_asset_keys()
        if graph.get(found).automation_condition is not None
    }
    assert kept == {
        "corpora/report",
        "corpora/comparison",
        "research/main_table",
        "operations/monitor",
        "operations/history",
        *(f"judges/{judge}/{part}" for judge in JUDGES for part in ("report", "monitor")),
    }
    conditions = [graph.get(PROJECT.key(name)).automation_condition for name in kept]
    assert {found and found.get_label() for found in conditions} == {"kept_current"}
    expiring = {
        found.to_user_string()
        for found in graph.get_all_asset_keys()
        if graph.get(found).freshness_policy is not None
    }
    assert expiring == {
        "operations/monitor",
        *(f"judges/{judge}/{part}" for judge in JUDGES for part in ("certificate", "monitor")),
    }


def _made(instance: dg.DagsterInstance, asset: dg.AssetKey, version: str) -> None:
    event = dg.AssetMaterialization(asset, partition="c", tags={VERSION: version})
    instance.report_runless_asset_event(event)


def _block(instance: dg.DagsterInstance) -> None:
    filters = dg.AssetRecordsFilter(asset_key=CERTIFICATE, asset_partitions=["c"])
    (latest,) = instance.fetch_materializations(filters, limit=1).records
    event = dg.AssetCheckEvaluation(
        asset_key=CERTIFICATE,
        check_name="reproducible",
        passed=False,
        metadata={},
        partition="c",
        target_materialization_data=AssetCheckEvaluationTargetMaterializationData(
            storage_id=latest.storage_id, run_id=latest.run_id, timestamp=latest.timestamp
        ),
    )
    instance.report_runless_asset_event(event)


def _ticks(instance: dg.DagsterInstance, asset: dg.AssetKey) -> Iterator[int]:
    """Evaluate the condition of a page again and again; give the number of requests."""
    result = None
    while True:
        result = dg.evaluate_automation_conditions(
            defs=defs,
            instance=instance,
            asset_selection=dg.AssetSelection.assets(asset),
            cursor=result.cursor if result else None,
        )
        yield result.total_requested


@pytest.mark.slow
def test_a_page_is_drawn_again_after_its_certificate_changed_unless_a_check_blocks() -> None:
    with partitions("c") as instance:
        for parent in defs.resolve_asset_graph().get(REPORT).parent_keys:
            _made(instance, parent, "1")
        # what was never drawn is not begun
        ticks = _ticks(instance, REPORT)
        assert next(ticks) == 0
        _made(instance, CERTIFICATE, "2")
        assert next(ticks) == 0
        _made(instance, REPORT, "1")
        assert next(ticks) == 0
        _made(instance, CERTIFICATE, "3")
        _block(instance)
        assert next(ticks) == 0
        _made(instance, CERTIFICATE, "4")
        assert next(ticks) == 1
        # once
        assert next(ticks) == 0


@pytest.fixture
def landed(tmp_path: Path) -> Path:
    path = tmp_path / "incoming" / "mine" / "runs.jsonl"
    path.parent.mkdir(parents=True)
    write_runs(path, tasks=2)
    os.utime(path, (1, 1))
    return path


def _observed(result: object) -> list[tuple[str, str | None, str]]:
    assert isinstance(result, dg.SensorResult)
    return [
        (event.asset_key.to_user_string(), event.partition, event.tags[VERSION])
        for event in result.asset_events
    ]


def test_sensors_observe_source_runs_as_a_command_does(
    tmp_path: Path, landed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CERTIFY_ROOT", str(tmp_path))
    (event,) = _observed(tick(SENSORS["new_runs"], tmp_path))
    version = source_version(Corpus(Store(str(tmp_path)), "mine"))
    assert event == ("corpora/source_runs", "mine", version)
    # the same content is no new version for a command
    with partitions("mine") as instance:
        for _ in range(2):
            observe_sources(instance, "mine")
        filters = dg.AssetRecordsFilter(asset_key=PROJECT.key("corpora/source_runs"))
        (record,) = instance.fetch_observations(filters, limit=5).records
        assert record.asset_observation is not None
        assert record.asset_observation.data_version == version


def test_a_sensor_observes_inboxes(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    save_config(store, CorpusConfig("mine"))
    store.local_path("inbox/mine").mkdir(parents=True)
    inbox = write_runs(store.local_path("inbox/mine/runs.jsonl"), tasks=2)
    os.utime(inbox, (1, 1))
    ((name, corpus, _),) = _observed(tick(SENSORS["new_inbox"], tmp_path))
    assert (name, corpus) == ("operations/inbox", "mine")
