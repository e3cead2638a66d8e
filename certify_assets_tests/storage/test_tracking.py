"""Records in MLflow: up, down, and next to a data root that was copied."""

import json
import math
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from certify_assets._version import __version__
from certify_assets.errors import InputError
from certify_assets.storage import tracking
from certify_assets.storage.store import Store
from certify_assets.storage.tracking import (
    DatasetRead,
    Record,
    Summary,
    Tracker,
    make_database,
    without_credentials,
    write_record,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::sqlalchemy.exc.SADeprecationWarning"
)

DOWN = "http://user:pass-word-1@127.0.0.1:9"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database: making one costs a second, copying it nothing."""
    root = tmp_path_factory.mktemp("mlflow") / "root"
    make_database(root / "mlflow/mlflow.db")
    return root / "mlflow/mlflow.db"


@pytest.fixture
def store(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    (tmp_path / "root/mlflow").mkdir(parents=True)
    shutil.copy(database, tmp_path / "root/mlflow/mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", DOWN)
    for name, value in (("MAX_RETRIES", "0"), ("TIMEOUT", "2"), ("BACKOFF_FACTOR", "1")):
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)
    tracking._FAILED.clear()
    return Store(str(tmp_path / "root"))


def _record(name: str, **more: Any) -> Record:
    return Record(
        name,
        tags={"dagster.asset": name, "certify.ledger": f"c:1:{name}"},
        params={"alpha": 0.1},
        metrics={"coverage": 0.5, "none": None},
        **more,
    )


def _runs(store: Store) -> list[Any]:
    client = Tracker.for_store(store)._client()
    found = client.get_experiment_by_name("certify_assets")
    return list(client.search_runs([found.experiment_id], order_by=["attributes.start_time ASC"]))


def _summary(version: str = "1", **metrics: float | None) -> Summary:
    read = DatasetRead("c cal", "corpora/c/splits/cal.parquet", "ab" * 32, "calibration")
    of = {"certify.corpus_version": version}
    return Summary(
        "lexical on c", of, metrics, [read], [name for name in metrics if name != "cost"]
    )


def test_runs_of_a_judge_and_version_are_children_of_one_summary(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    for name, summary in {
        "scores": _summary(auroc=0.8, error=0.1),
        "audit": _summary(error=None),
        "later": _summary("2", auroc=0.9),
    }.items():
        write_record(store, _record(name, summary=summary))
    runs = {run.data.tags.get("dagster.asset", run.info.run_id): run for run in _runs(store)}
    parents = {name: runs[name].data.tags["mlflow.parentRunId"] for name in ("scores", "audit")}
    (parent,) = set(parents.values())
    assert runs["later"].data.tags["mlflow.parentRunId"] != parent and len(runs) == 5
    summed = runs[parent]
    assert summed.info.run_name == "lexical on c" and summed.info.status == "FINISHED"
    assert summed.data.metrics["auroc"] == 0.8
    assert runs["audit"].data.tags["certify.ledger"] == "c:1:audit"
    # the newest head that its figures rest on
    assert summed.data.tags["certify.ledger"] == "c:1:audit"
    assert math.isnan(summed.data.metrics["error"]), "an error that no longer holds is not shown"
    for run in runs.values():
        assert run.data.tags["certify.version"] == __version__
        assert run.data.tags["mlflow.source.type"] == "JOB"
    (dataset,) = summed.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("c cal", "ab" * 16)
    assert json.loads(dataset.dataset.source)["sha256"] == "ab" * 32
    assert {tag.key: tag.value for tag in dataset.tags} == {"mlflow.data.context": "calibration"}


def test_a_judge_has_a_logged_model_with_metrics_by_data_set(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    write_record(store, _record("scores", summary=_summary(auroc=0.8, cost=0.0)))
    write_record(store, _record("audit", summary=_summary(error=0.1)))
    client = Tracker.for_store(store)._client()
    (model,) = client.search_logged_models(["1"])
    found = {
        item.key: (item.value, item.dataset_name, item.dataset_digest) for item in model.metrics
    }
    of = ("c cal", "ab" * 16)
    assert found == {"auroc": (0.8, *of), "error": (0.1, *of), "cost": (0.0, None, None)}
    assert model.source_run_id == client.get_run(model.source_run_id).info.run_id
    with monkeypatch.context() as late:
        # of a machine whose clock is behind: the run keeps the other value, and so does the model
        late.setattr("certify_assets.storage.tracking.time.time", lambda: 1.0)
        write_record(store, _record("late", summary=_summary(cost=9.0)))
    # a metric that no longer holds would be shown as 0
    write_record(store, _record("again", summary=_summary(error=None, auroc=0.7)))
    found = client.get_run(model.source_run_id).outputs.model_outputs
    first, second = sorted(found, key=lambda item: item.step)
    kept = {item.key: item.value for item in client.get_logged_model(second.model_id).metrics}
    assert kept == {"auroc": 0.7, "cost": 0.0} and first.model_id == model.model_id


def test_a_page_is_kept_in_the_run_of_its_judge(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    page = Record("report", tags={}, documents={"page.html": "<p>"}, summary=_summary())
    url = write_record(store, page).url
    (summed,) = _runs(store)
    assert url is not None and url.endswith(summed.info.run_id)
    client = Tracker.for_store(store)._client()
    assert [item.path for item in client.list_artifacts(summed.info.run_id)] == ["page.html"]
    assert summed.info.status == "FINISHED"


def test_a_prompt_has_a_version_in_the_registry_for_each_text(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    for text in ("RUN {{run}}", "RUN {{run}}", "RUN\n{{run}}"):
        asked = [{"role": "user", "content": text}]
        write_record(store, _record("model", prompts={"certify-served": asked}))
    last = Tracker.for_store(store)._client().load_prompt("certify-served")
    assert last.version == 2 and last.template == asked and last.variables == {"run"}


def test_a_server_that_keeps_no_prompts_keeps_the_record(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    def refuse(*_: Any, **__: Any) -> None:
        raise MlflowException("no prompt registry")

    monkeypatch.setattr(MlflowClient, "load_prompt", refuse)
    recorded = write_record(store, _record("model", prompts={"certify-served": "RUN {{run}}"}))
    assert recorded.url is not None and "prompt certify-served (no prompt registry)" in caplog.text
    (run,) = _runs(store)
    assert run.data.metrics == {"coverage": 0.5}


def test_two_first_steps_at_once_make_one_summary(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    tracker = Tracker.for_store(store)
    records = [
        _record("scores", summary=_summary(auroc=0.5)),
        _record("audit", summary=_summary(error=0.5)),
    ]
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(tracker.write, records))
    runs = _runs(store)
    (summed,) = (run for run in runs if "certify.summary" in run.data.tags)
    assert set(summed.data.metrics) == {"auroc", "error"} and len(runs) == 3


@pytest.mark.slow
def test_a_server_that_is_down_is_asked_once_and_its_password_not_shown(store: Store) -> None:
    first = write_record(store, _record("a"))
    started = time.monotonic()
    second = write_record(store, _record("b"))
    assert time.monotonic() - started < 0.5, "one that was down a moment ago is not asked again"
    assert first == second and first.url is None and first.reason
    assert "pass-word-1" not in first.reason


def test_a_remote_data_root_without_mlflow_says_what_to_set(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    reason = write_record(Store("memory://no-mlflow"), _record("c")).reason
    assert "is remote" in reason and "set MLFLOW_TRACKING_URI to the address" in reason


def test_a_password_of_a_url_is_shown_nowhere() -> None:
    assert without_credentials(
        "API request to http://a:b@h:1/x and postgresql://u:p@h/db failed"
    ) == ("API request to http://h:1/x and postgresql://h/db failed")
    with pytest.raises(InputError, match="holds a password") as caught:
        Store("sftp://me:hidden@host/root")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("name", ["plain", "ü #x"])
def test_a_copied_data_root_writes_into_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, database: Path
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root, copy = tmp_path / name / "root", tmp_path / name / "copy"
    (root / "mlflow").mkdir(parents=True)
    shutil.copy(database, root / "mlflow/mlflow.db")

    def write(place: Path, text: str) -> None:
        record = _record("step", documents={"d.txt": text})
        recorded = write_record(Store(str(place)), record)
        assert recorded.url is not None, recorded

    write(root, "one")
    shutil.copytree(root, copy)
    write(copy, "two")
    write(copy, "three")
    write(root, "four")

    def texts(place: Path) -> list[str]:
        return sorted(path.read_text() for path in place.rglob("d.txt"))

    assert texts(root) == ["four", "one"] and texts(copy) == ["one", "three", "two"]
    assert {path.name for path in tmp_path.iterdir()} == {name}
    assert {path.name for path in (tmp_path / name).iterdir()} == {"root", "copy"}


@pytest.mark.parametrize("name", ["a?b", "a%20b"])
def test_mlflow_writes_nothing_next_to_a_data_root_whose_path_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    recorded = write_record(Store(str(tmp_path / name)), _record("step"))
    assert recorded.url is None and "set MLFLOW_TRACKING_URI" in recorded.reason
    assert {path.name for path in tmp_path.iterdir()} <= {name}
