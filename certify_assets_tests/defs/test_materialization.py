"""The whole pipeline on an embedded corpus, as Dagster, MLflow, the files and a browser show it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from certify_assets.definitions import defs
from certify_assets.judges.specs import QUICK_JUDGES
from certify_assets.storage.store import Store
from certify_assets.storage.tracking import Tracker
from certify_assets_tests.conftest import Demo
from certify_assets_tests.defs.running import observed

if TYPE_CHECKING:
    pass

# `certify run` on an embedded corpus takes 40 CPU seconds
pytestmark = pytest.mark.slow
CORPUS = "miniwob_mixed"


@pytest.fixture(scope="module")
def instance(demo: Demo) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(demo.root / "dagster")) as opened:
        yield opened


def _materialization(instance: dg.DagsterInstance, *path: str) -> dg.AssetMaterialization:
    record = instance.get_latest_materialization_event(dg.AssetKey(list(path)))
    assert record is not None and record.asset_materialization is not None
    return record.asset_materialization


def _of_the_corpus() -> set[dg.AssetKey]:
    return set(defs.resolve_job_def("onboard_corpus").asset_layer.executable_asset_keys)


def test_every_asset_of_the_corpus_is_materialized(instance: dg.DagsterInstance) -> None:
    for key in _of_the_corpus():
        assert instance.get_materialized_partitions(key) == {CORPUS}, key


@pytest.mark.smoke
def test_every_check_was_evaluated_and_none_that_blocks_failed(
    instance: dg.DagsterInstance,
) -> None:
    graph = defs.resolve_asset_graph()
    for key in (key for key in graph.asset_check_keys if key.asset_key in _of_the_corpus()):
        records = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        assert records and records[0].event is not None, key
        event: Any = records[0].event
        evaluation = event.dagster_event.asset_check_evaluation_data
        assert evaluation.passed or evaluation.severity == dg.AssetCheckSeverity.WARN, (
            key,
            evaluation.description,
        )


def test_asset_metadata_is_what_the_pages_need(instance: dg.DagsterInstance) -> None:
    metadata = _materialization(instance, "judges", "lexical", "certificate").metadata
    # Dagster shows a longer block only behind a click, and plots twelve numbers
    assert len(str(metadata["verdict"].value)) < 1000
    floats = [value for value in metadata.values() if isinstance(value, dg.FloatMetadataValue)]
    assert 4 <= len(floats) <= 12
    page = _materialization(instance, "corpora", "report").metadata
    assert Path(str(page["page"].value)).is_file()
    scores = _materialization(instance, "judges", "lexical", "scores").metadata
    assert {"dagster/row_count", "dagster/column_schema", "dagster/column_lineage"} <= set(scores)
    runs = _materialization(instance, "corpora", "trajectories").metadata["dagster/column_schema"]
    assert isinstance(runs, dg.TableSchemaMetadataValue)
    assert all(column.description for column in runs.schema.columns)
    tags = {name for run in instance.get_runs() for name in run.tags}
    assert not [name for name in tags if name.startswith("certify/")]


@pytest.mark.smoke
def test_mlflow_holds_the_runs_with_their_dagster_tags(
    demo: Demo, instance: dg.DagsterInstance
) -> None:
    url = observed(instance, "judges/lexical/certificate")["mlflow_run"]
    assert isinstance(url, dg.UrlMetadataValue) and url.url is not None
    with sqlite3.connect(demo.root / "mlflow/mlflow.db") as database:
        tags = dict(
            database.execute(
                "select key, value from tags where run_uuid = ?", (url.url.rsplit("/", 1)[-1],)
            ).fetchall()
        )
        metrics = dict(
            database.execute(
                "select key, value from latest_metrics where run_uuid = ?",
                (url.url.rsplit("/", 1)[-1],),
            ).fetchall()
        )
    run = instance.get_run_by_id(tags["dagster.run_id"])
    assert run is not None and run.status == dg.DagsterRunStatus.SUCCESS
    assert tags["dagster.asset"] == "judges/lexical/certificate"
    assert tags["dagster.partition"] == CORPUS
    assert {"coverage_reject_at_0.2", "decided"} <= set(metrics)
    stored = list((demo.root / "mlflow/artifacts").rglob("reject_0.1_pseudo_task.json"))
    assert stored and json.loads(stored[0].read_text("utf-8"))["side"] == "reject"


def test_mlflow_compares_the_judges_in_one_run_each(demo: Demo) -> None:
    client = Tracker.for_store(Store(str(demo.root)))._client()
    runs = client.search_runs(["1"], max_results=1000)
    summaries = {run.data.tags["certify.judge"]: run for run in runs if _is_summary(run)}
    assert set(summaries) == set(QUICK_JUDGES)
    wanted = {"auroc", "decided_at_0.1", "coverage_reject_at_0.1", "train_cpu_seconds", "cost"}
    assert all(wanted <= set(run.data.metrics) for run in summaries.values())
    assert not [run for run in runs if run.info.run_name.startswith(("corpora/", "research/"))]
    assert not [run for run in runs if "/report " in run.info.run_name]
    for run in summaries.values():
        (made,) = run.outputs.model_outputs
        metrics = client.get_logged_model(made.model_id).metrics
        rows = {item.key: item.dataset_name for item in metrics}
        assert rows["auroc"] == rows["decided"] == f"{CORPUS} cal" and rows["cost"] is None
        read = {item.tags[0].value: item.dataset for item in run.inputs.dataset_inputs}
        assert {"training", "calibration", "test"} == set(read)
        stored = Store(str(demo.root)).sha256(f"corpora/{CORPUS}/splits/test.parquet")
        assert read["test"].digest == stored[:32]


def _is_summary(run: Any) -> bool:
    return "certify.summary" in run.data.tags


@pytest.mark.smoke
def test_the_demo_certifies_an_embedded_corpus(demo: Demo) -> None:
    corpus = demo.document["corpora"][0]
    assert corpus["corpus"] == CORPUS and corpus["tasks"] >= 100
    assert {judge["judge"] for judge in corpus["judges"]} == set(QUICK_JUDGES)
    cells = [cell for judge in corpus["judges"] for cell in judge["certificates"]]
    assert any(
        cell["certified"] and cell["alpha"] == 0.2 and cell["side"] == "reject" for cell in cells
    )
    assert all(Path(judge["page"]).is_file() for judge in corpus["judges"])
