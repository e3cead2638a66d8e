"""MLflow records of steps."""

# The client is used without MLflow's global state, so that two steps of one process cannot write
# into each other's run. Tracking is a record, not a condition: a step whose record fails continues.
# For two minutes after a failure no step of the process asks again, so that a server that hangs
# costs one step its time limit, not all.

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from certify_assets._version import __version__
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, lock_file, sha256_bytes
from certify_assets.storage.mlflow_server import mlflow_client, said_by, without_credentials
from certify_assets.storage.store import Store

#: experiment of the records where nothing else is asked for
EXPERIMENT = "certify_assets"
_UI = "http://127.0.0.1:5000"
_MAX_PARAM = 500
# what MLflow takes in one call, at most 1,000 of both
_MAX_PARAMS, _MAX_METRICS = 100, 900

_PAUSE_SECONDS = 120.0
_SUMMARY = "certify.summary"
_PARENT = "mlflow.parentRunId"
_CONTEXT = "mlflow.data.context"
# MLflow takes no longer digest of a data set
_DIGEST = 32
# server → when and why it did not take a record of this process
_FAILED: dict[str, tuple[float, str]] = {}

_Points = Sequence[tuple[int, float]]


def tracking_uri(store: Store) -> str:
    """Return ``MLFLOW_TRACKING_URI``, else the address of a SQLite file in the data root."""
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return uri
    if not store.is_local:
        raise InputError(
            f"MLflow cannot keep its records in {store.root}, which is remote, so there are none; "
            "set MLFLOW_TRACKING_URI to the address of an MLflow server or database."
        )
    path = str(store.local_path("mlflow/mlflow.db"))
    if {"?", "%"} & set(path):
        # MLflow takes one for the end of the path and the other for a code, quoted or not, and
        # would write next to the data root
        raise InputError(
            f"MLflow cannot keep its records in {store.root}, whose path has '?' or '%'; rename "
            "the folder, or set MLFLOW_TRACKING_URI."
        )
    return f"sqlite:///{path}"


def make_database(path: Path) -> None:
    """Make MLflow's database of a data root where there is none yet, whole or not at all."""
    # its migrations are no transaction: of a database that a kill left between two of them MLflow
    # never takes a record again
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(".certify.mlflow.part")
    with path.with_name(".certify.mlflow.lock").open("a") as lock:
        lock_file(lock.fileno())
        if path.exists():
            return
        part.unlink(missing_ok=True)
        try:
            mlflow_client(f"sqlite:///{part}").search_experiments(max_results=1)
            part.replace(path)
        finally:
            # one that a full disk cut off takes room
            part.unlink(missing_ok=True)


@dataclass(frozen=True)
class DatasetRead:
    """Rows that a step read."""

    # such as miniwob_mixed cal
    name: str
    # storage key, and hash of the file
    key: str
    sha256: str
    # what they were read for, such as calibration
    context: str


@dataclass(frozen=True)
class Summary:
    """The MLflow run that sums steps up: their runs are its children."""

    name: str
    # one run has all of them: the first step makes it, the others find it
    tags: Mapping[str, str]
    # what the step adds; None takes back what an earlier one said, which MLflow shows as NaN
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    datasets: Sequence[DatasetRead] = ()


@dataclass(frozen=True)
class Record:
    """One MLflow run of a step."""

    # such as judges/lexical/certificate miniwob_weak
    name: str
    # dagster.run_id, dagster.asset, dagster.partition, hashes
    tags: Mapping[str, str]
    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, _Points] = field(default_factory=dict)
    # artifact folder of each file
    files: Mapping[Path, str] = field(default_factory=dict)
    summary: Summary | None = None


@dataclass(frozen=True)
class Tracker:
    """Writes records to one MLflow server or file."""

    # sqlite:///… or a server; file:// is refused by MLflow itself
    uri: str
    # where documents go when this tracker creates the experiment
    artifact_root: str
    # the database is that of the data root, whose artifacts it names by their path
    own: bool = False

    @classmethod
    def for_store(cls, store: Store) -> Tracker:
        """Return the tracker that belongs to a data root."""
        if store.is_local:
            store.local_path("mlflow").mkdir(parents=True, exist_ok=True)
        return cls(
            uri=tracking_uri(store),
            artifact_root=store.folder.locate("mlflow/artifacts").replace("%", "%25"),
            own=store.is_local and "MLFLOW_TRACKING_URI" not in os.environ,
        )

    def write(self, record: Record) -> str:
        """Write one finished MLflow run; return the address of its page in the MLflow UI."""
        from mlflow.entities import Metric, Param

        client = self._client()
        experiment = self._experiment_id(client)
        tags = {**_source(), **record.tags}
        if record.summary is not None:
            tags[_PARENT] = _summary_run(client, experiment, record.summary)
        run = client.create_run(experiment, run_name=record.name, tags=tags).info.run_id
        try:
            now = int(1000 * time.time())
            params = [Param(name, str(of)[:_MAX_PARAM]) for name, of in record.params.items()]
            points = [
                *((name, number, 0) for name, number in record.metrics.items()),
                *((name, of, step) for name, all in record.curves.items() for step, of in all),
            ]
            metrics = [
                Metric(name, float(number), now, step)
                for name, number, step in points
                if number is not None
            ]
            # one transaction for many values: MLflow commits each call
            while params or metrics:
                client.log_batch(run, params=params[:_MAX_PARAMS], metrics=metrics[:_MAX_METRICS])
                params, metrics = params[_MAX_PARAMS:], metrics[_MAX_METRICS:]
            for name, text in record.documents.items():
                client.log_text(run, text, name)
            for path, folder in record.files.items():
                client.log_artifact(run, str(path), folder)
            if record.summary is not None:
                _add(client, tags[_PARENT], record.summary, now)
        except BaseException:
            client.set_terminated(run, status="FAILED")
            raise
        client.set_terminated(run)
        base = self.uri if self.uri.startswith("http") else os.environ.get("MLFLOW_UI_URL", _UI)
        return f"{without_credentials(base).rstrip('/')}/#/experiments/{experiment}/runs/{run}"

    def experiment_page(self, address: str) -> str:
        """Return where an MLflow UI shows the records; its first page shows other things."""
        return f"{address}/#/experiments/{self._experiment_id(self._client())}/runs"

    def find(self, tags: Mapping[str, str]) -> str | None:
        """Return the id of the latest finished run with these tags, if there is one."""
        client = self._client()
        experiment, _ = self._experiment(client)
        return None if experiment is None else _find(client, experiment.experiment_id, tags)

    def _experiment(self, client: Any) -> tuple[Any, str]:
        """Return the experiment of the records, None where there is none yet, and its name."""
        found = client.get_experiment_by_name(EXPERIMENT)
        place = found and found.artifact_location.removeprefix("file://").rstrip("/")
        if found is None or not self.own or place == self.artifact_root.rstrip("/"):
            return found, EXPERIMENT
        # of a data root that was copied or moved: MLflow would write into the original's artifacts
        name = f"{EXPERIMENT} in {self.artifact_root}"
        return client.get_experiment_by_name(name), name

    def _experiment_id(self, client: Any) -> str:
        """Return the id of the experiment of the records, made where there is none."""
        found, name = self._experiment(client)
        # a server decides for itself where artifacts go
        place = None if self.uri.startswith("http") else self.artifact_root
        return str(found.experiment_id if found else client.create_experiment(name, place))

    def _client(self) -> Any:
        if self.own:
            make_database(Path(self.uri.removeprefix("sqlite:///")))
        return mlflow_client(self.uri)


def _source() -> dict[str, str]:
    """Return columns of MLflow's table of runs, which its client leaves empty."""
    found = {
        "mlflow.source.name": "certify_assets",
        "mlflow.source.type": "JOB",
        "certify.version": __version__,
    }
    # an account without a name, as in a container, is none
    with suppress(KeyError, OSError):
        found["mlflow.user"] = os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    return found


def _summary_run(client: Any, experiment: str, summary: Summary) -> str:
    """Return the run of a summary, made where there is none."""
    name = {_SUMMARY: sha256_bytes(canonical_json(dict(summary.tags)))}
    found = _find(client, experiment, name, first=True)
    if found is not None:
        return found
    tags = {**_source(), **summary.tags, **name}
    made = str(client.create_run(experiment, run_name=summary.name, tags=tags).info.run_id)
    client.set_terminated(made)
    # two steps may have made one each: the first is that of both
    found = _find(client, experiment, name, first=True) or made
    if found != made:
        client.delete_run(made)
    return found


def _find(
    client: Any, experiment: str, tags: Mapping[str, str], *, first: bool = False
) -> str | None:
    """Return the last finished run with these tags, or the first run, finished or not."""
    conditions = [f"tags.`{name}` = '{value}'" for name, value in tags.items()]
    found = client.search_runs(
        [experiment],
        " and ".join(conditions + ([] if first else ["attributes.status = 'FINISHED'"])),
        max_results=1,
        order_by=[f"attributes.start_time {'ASC' if first else 'DESC'}"],
    )
    return str(found[0].info.run_id) if found else None


def _add(client: Any, run: str, summary: Summary, now: int) -> None:
    """Add what a step found to the run of its summary; the latest value of a metric counts."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric
    from mlflow.exceptions import MlflowException

    if summary.metrics:
        figures = {
            name: float("nan") if value is None else float(value)
            for name, value in summary.metrics.items()
        }
        client.log_batch(run, metrics=[Metric(*item, now, 0) for item in figures.items()])
    if summary.datasets:
        inputs = [
            DatasetInput(
                Dataset(
                    item.name,
                    item.sha256[:_DIGEST],
                    "certify_assets",
                    canonical_json({"key": item.key, "sha256": item.sha256}).decode().strip(),
                ),
                [InputTag(_CONTEXT, item.context)],
            )
            for item in summary.datasets
        ]
        try:
            client.log_inputs(run, inputs)
        except MlflowException:
            # another step may have written the same data set between MLflow's look and its write
            client.log_inputs(run, inputs)


@dataclass(frozen=True)
class Recorded:
    """Result of recording: the page in the MLflow UI, or why MLflow did not take the record."""

    url: str | None
    reason: str = ""


def write_record(store: Store, record: Record) -> Recorded:
    """Write a record to MLflow; say why where MLflow does not take it."""
    place = os.environ.get("MLFLOW_TRACKING_URI", "")
    failed, reason = _FAILED.get(place, (-_PAUSE_SECONDS, ""))
    if time.monotonic() - failed < _PAUSE_SECONDS:
        return Recorded(None, reason)
    try:
        return Recorded(Tracker.for_store(store).write(record))
    except CertifyError as error:
        # no MLflow is configured, so that none will ever take it
        return Recorded(None, str(error))
    except Exception as error:
        # whatever MLflow's backend raises: no result may depend on the record of it
        reason = f"{type(error).__name__}: {said_by(error)}"
        _FAILED[place] = (time.monotonic(), reason)
        return Recorded(None, reason)
