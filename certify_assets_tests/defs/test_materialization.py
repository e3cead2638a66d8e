"""The whole pipeline on an embedded corpus, as Dagster, MLflow, the files and a browser show it."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from certify_assets.definitions import defs
from certify_assets.judges.specs import QUICK_JUDGES
from certify_assets.storage.events import Stored
from certify_assets.storage.store import Store
from certify_assets.storage.tracking import Tracker
from certify_assets_tests.conftest import Demo, platform_environment
from certify_assets_tests.faults.servers import serving
from certify_assets_tests.paths import REPOSITORY, assert_painted

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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
    for name in ("page_file", "data_docs"):
        assert Path(str(page[name].value)).is_file()
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
    url = _materialization(instance, "judges", "lexical", "certificate").metadata["mlflow_run"]
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
    for run in summaries.values():
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


def test_the_stored_certificates_verify_from_the_command_line(demo: Demo) -> None:
    folder = demo.root / f"pages/judges/lexical/{CORPUS}"
    command = [
        sys.executable,
        "-m",
        "certify_assets.cli",
        "verify",
        folder / "certificates.json",
        folder / "scores.parquet",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["certificates"] == 16


@pytest.fixture(scope="module")
def webserver(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("ui") / "server.log"
    with serving(demo.environment, log) as address:
        yield address


@pytest.mark.browser
def test_the_dagster_ui_shows_the_lineage(webserver: str, browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1500, "height": 900})
    page.goto(f"{webserver}/assets/judges/lexical/certificate?view=lineage")
    for name in (
        "model",
        "scores",
        "certificate",
        "audit",
        "report",
        "split_manifest",
        "cal_split",
    ):
        page.get_by_text(re.compile(rf"^{name}$")).first.wait_for(timeout=60_000)
    page.screenshot(path=tmp_path / "lineage.png")
    assert_painted(tmp_path / "lineage.png")
    page.goto(f"{webserver}/assets/judges/lexical/certificate?partition={CORPUS}&view=partitions")
    page.get_by_text("reject_coverage_at_0.2").first.wait_for(timeout=60_000)
    page.get_by_text("Materialized").first.wait_for(timeout=60_000)
    page.close()


def _run_corpus(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "certify_assets.cli", "run", CORPUS]
    return subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def _killed_at(step: int, environment: dict[str, str]) -> str:
    """Start a run, another beside it that is refused, and kill the first; return what it said."""
    command = [sys.executable, "-m", "certify_assets.cli", "run", CORPUS]
    victim = subprocess.Popen(
        command,
        env=environment,
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert victim.stderr is not None
    said = ""
    for line in victim.stderr:
        said += line
        if line.strip().startswith(f"{step}/"):
            break
    # it waits, or it would be further by the time that the second has started
    os.killpg(victim.pid, signal.SIGSTOP)
    second = _run_corpus(environment)
    assert second.returncode == 2 and "is at work on" in second.stderr
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait()
    victim.stderr.close()
    return said


def _as_issued(store: Store, key: str) -> object:
    """Return a document without the head of the ledger, which has a time in it."""
    if not key.endswith(".json"):
        return store.sha256(key)
    return [
        {name: value for name, value in item.items() if name != "ledger"}
        for item in store.read_json(key)["certificates"]
    ]


def test_a_killed_materialization_goes_on_and_ends_with_the_same_bytes(
    demo: Demo, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    environment = platform_environment(root)
    (root / "dagster").mkdir(parents=True)
    # killed early, and the run that resumes it when most of the work is done
    for step, resumed in ((2, False), (12, True)):
        said = _killed_at(step, environment)
        assert ("resuming a run that was stopped" in said) == resumed
    key = f"corpora/{CORPUS}/trajectories.parquet"
    before = Store(str(root)).events(CORPUS, Stored, key)
    done = _run_corpus(environment)
    assert done.returncode == 0, done.stderr
    assert "resuming a run that was stopped" in done.stderr
    made, again = Store(str(demo.root)), Store(str(root))
    assert again.events(CORPUS, Stored, key) == before != []
    for name in ("splits/manifest.json", "trajectories.parquet"):
        name = f"corpora/{CORPUS}/{name}"
        assert again.sha256(name) == made.sha256(name)
    for judge in QUICK_JUDGES:
        for name in ("scores.parquet", "certificates.json"):
            path = f"judges/{judge}/{CORPUS}/{name}"
            assert _as_issued(again, path) == _as_issued(made, path), path
    with dg.DagsterInstance.from_config(str(root / "dagster")) as opened:
        ends = sorted(run.status.value for run in opened.get_runs())
    assert ends == ["FAILURE", "FAILURE", "SUCCESS"]
