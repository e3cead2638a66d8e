"""MLflow down, slow or refusing: records wait in the data root and are sent once."""

import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from certify_assets._version import __version__
from certify_assets.errors import InputError
from certify_assets.storage import tracking as late_records
from certify_assets.storage.mlflow_server import without_credentials
from certify_assets.storage.store import Store
from certify_assets.storage.tracking import (
    DatasetRead,
    Record,
    Summary,
    Tracker,
    waiting_records,
    write_or_keep,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::sqlalchemy.exc.SADeprecationWarning"
)

DOWN = "http://user:pass-word-1@127.0.0.1:9"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database: making one costs a second, copying it nothing."""
    root = tmp_path_factory.mktemp("mlflow") / "root"
    (root / "mlflow").mkdir(parents=True)
    Tracker(uri=f"sqlite:///{root}/mlflow/mlflow.db", artifact_root="").find({})
    return root / "mlflow/mlflow.db"


@pytest.fixture
def store(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    (tmp_path / "root/mlflow").mkdir(parents=True)
    shutil.copy(database, tmp_path / "root/mlflow/mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", DOWN)
    for name, value in (("MAX_RETRIES", "0"), ("TIMEOUT", "2"), ("BACKOFF_FACTOR", "1")):
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)
    return Store(str(tmp_path / "root"))


def _record(name: str, **more: Any) -> Record:
    return Record(
        name,
        tags={"dagster.asset": name},
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
    return Summary("lexical on c", {"certify.corpus_version": version}, metrics, [read])


@pytest.mark.slow
def test_records_wait_while_mlflow_is_down_and_are_sent_once_with_the_next(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "adapter.json"
    document.write_text("{}", "utf-8")
    first = write_or_keep(
        store,
        _record("a", curves={"loss": [(0, 1.0), (1, 0.5)]}, files={document: "adapter"}),
        experiment="certify_assets",
    )
    started = time.monotonic()
    second = write_or_keep(store, _record("b"), experiment="certify_assets")
    assert time.monotonic() - started < 0.5, (
        "a server that was down a moment ago is not asked again"
    )
    assert first.url is None and second.url is None and len(waiting_records(store)) == 2
    assert "sent with a later record" in first.reason
    assert "pass-word-1" not in first.reason + second.reason
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    third = write_or_keep(store, _record("c"), experiment="certify_assets")
    assert third.url is not None and third.sent_late == 2 and waiting_records(store) == []
    runs = {run.data.tags["dagster.asset"]: run for run in _runs(store)}
    assert set(runs) == {"a", "b", "c"} and runs["a"].data.metrics == {"coverage": 0.5, "loss": 0.5}
    assert runs["a"].data.params == {"alpha": "0.1"}
    assert "certify.kept" in runs["a"].data.tags
    assert "certify.kept" not in runs["c"].data.tags
    assert list((tmp_path / "root/mlflow/artifacts").rglob("adapter/adapter.json"))


def test_runs_of_a_judge_and_version_are_children_of_one_summary(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    for name, summary in {
        "scores": _summary(auroc=0.8, error=0.1),
        "audit": _summary(error=None),
        "later": _summary("2", auroc=0.9),
    }.items():
        # as if each were a process of its own
        late_records._FOUND.clear()
        write_or_keep(store, _record(name, summary=summary), experiment="certify_assets")
    runs = {run.data.tags.get("dagster.asset", run.info.run_id): run for run in _runs(store)}
    parents = {name: runs[name].data.tags["mlflow.parentRunId"] for name in ("scores", "audit")}
    (parent,) = set(parents.values())
    assert runs["later"].data.tags["mlflow.parentRunId"] != parent and len(runs) == 5
    summed = runs[parent]
    assert summed.info.run_name == "lexical on c" and summed.info.status == "FINISHED"
    assert summed.data.metrics["auroc"] == 0.8
    assert math.isnan(summed.data.metrics["error"]), "an error that no longer holds is not shown"
    for run in runs.values():
        assert run.data.tags["certify.version"] == __version__
        assert run.info.user_id and run.data.tags["mlflow.source.type"] == "JOB"
    (dataset,) = summed.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("c cal", "ab" * 16)
    assert json.loads(dataset.dataset.source)["sha256"] == "ab" * 32
    assert {tag.key: tag.value for tag in dataset.tags} == {"mlflow.data.context": "calibration"}


def test_a_late_record_joins_its_summary_and_replaces_no_newer_figure(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, late = _summary(auroc=0.5, decided=None), _summary(auroc=0.8)
    write_or_keep(store, _record("a", summary=early), experiment="certify_assets")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    # what is kept has the second of its time
    done = write_or_keep(store, _record("b", summary=late), experiment="certify_assets")
    assert done.sent_late == 1
    runs = {run.data.tags.get("dagster.asset", "summary"): run for run in _runs(store)}
    assert runs["a"].data.tags["mlflow.parentRunId"] == runs["summary"].info.run_id
    assert runs["summary"].data.metrics["auroc"] == 0.8
    assert math.isnan(runs["summary"].data.metrics["decided"])


def test_a_kill_between_sending_and_taking_away_sends_nothing_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_or_keep(store, _record("a"), experiment="certify_assets")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    kept = store.read_bytes(waiting_records(store)[0])
    key = waiting_records(store)[0]
    write_or_keep(store, _record("b"), experiment="certify_assets")
    store.write_bytes(key, kept)
    assert write_or_keep(store, _record("c"), experiment="certify_assets").sent_late == 0
    assert [run.data.tags["dagster.asset"] for run in _runs(store)].count("a") == 1
    assert waiting_records(store) == []


def test_a_queue_has_an_end_and_no_mlflow_at_all_keeps_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_records, "_LONGEST_QUEUE", 1)
    write_or_keep(store, _record("a"), experiment="certify_assets")
    assert (
        "1 records wait already, so it was not kept"
        in write_or_keep(store, _record("b"), experiment="certify_assets").reason
    )
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    remote = Store("memory://no-mlflow")
    reason = write_or_keep(remote, _record("c"), experiment="certify_assets").reason
    assert "is remote" in reason and "set MLFLOW_TRACKING_URI to the address" in reason
    assert waiting_records(remote) == []


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
        recorded = write_or_keep(Store(str(place)), record, experiment="e")
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
    recorded = write_or_keep(Store(str(tmp_path / name)), _record("step"), experiment="e")
    assert recorded.url is None and "rename the folder" in recorded.reason
    assert {path.name for path in tmp_path.iterdir()} <= {name}
