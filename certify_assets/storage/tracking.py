"""MLflow records of steps."""

# The client is used without MLflow's global state, so that two steps of one process cannot write
# into each other's run. Tracking is a record, not a condition: a step whose record fails continues.
# For two minutes after a failure no step of the process asks again, so that a server that hangs
# costs one step its time limit, not all.

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from certify_assets._version import __version__
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, lock_file, sha256_bytes
from certify_assets.storage.database import parts
from certify_assets.storage.store import Store

_EXPERIMENT = "certify_assets"
_UI = "http://127.0.0.1:5000"
_MAX_PARAM = 500
# what MLflow takes in one call
_MAX_METRICS = 1000

_PAUSE_SECONDS = 120.0
# columns of MLflow's table of runs, which its client leaves empty
_SOURCE = {
    "mlflow.source.name": "certify_assets",
    "mlflow.source.type": "JOB",
    "certify.version": __version__,
}
_SUMMARY, _PARENT, _LEDGER = "certify.summary", "mlflow.parentRunId", "certify.ledger"
# MLflow takes no longer digest of a data set
_DIGEST = 32
# server → when and why it did not take a record of this process
_FAILED: dict[str, tuple[float, str]] = {}

# up to the last @ before the path: a password may hold one, as clients read it
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+@")
_SETTINGS = {
    # MLflow's own limits let one step wait for a quarter of an hour on a server that hangs
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    # as in dagster.yaml: who uses the records has not agreed to report on them
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # its progress bars would be printed between the lines of a command
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def without_credentials(text: str) -> str:
    """Remove user and password from every URL in a text."""
    return _CREDENTIALS.sub("", text)


def said_by(error: Exception) -> str:
    """Return the beginning of an error of MLflow or the network, in one line."""
    return without_credentials(" ".join(str(error).split()))[:200]


def mlflow_client(uri: str) -> Any:
    """Return MLflow's client of a server or database, with short timeouts."""
    # imported here: MLflow costs about two CPU seconds, and only steps that record pay them
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from mlflow.tracking import MlflowClient

    # the error comes back and is said in a sentence; MLflow would print its traceback as well
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    return MlflowClient(tracking_uri=uri)


def tracking_uri(store: Store) -> str:
    """Return ``MLFLOW_TRACKING_URI``, else the address of a SQLite file in the data root."""
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return uri
    path = store.folder.locate("mlflow/mlflow.db")
    # MLflow takes one for the end of the path and the other for a code, quoted or not, and would
    # write next to the data root
    if not store.is_local or {"?", "%"} & set(path):
        raise InputError(
            f"MLflow cannot keep its records in {store.root}, which is remote or has '?' or '%' in "
            "its path; set MLFLOW_TRACKING_URI to the address of an MLflow server or database."
        )
    return f"sqlite:///{path}"


def make_database(path: Path) -> None:
    """Make MLflow's database of a data root if it is missing, completely or not at all."""
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


#: a template as MLflow takes it: one text, or messages of a chat
Prompt = str | Sequence[Mapping[str, str]]


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
    """The MLflow run that sums up steps; their runs are its children."""

    name: str
    # one run has all of them: the first step makes it, the others find it
    tags: Mapping[str, str]
    # what the step adds; None takes back what an earlier one said, which MLflow shows as NaN
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    datasets: Sequence[DatasetRead] = ()
    # metrics of the rows of the last data set; others are of no rows, such as costs
    measured: Collection[str] = ()


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
    # values by steps
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    # artifact folder of each file
    files: Mapping[Path, str] = field(default_factory=dict)
    summary: Summary | None = None
    # templates for the prompt registry, by name
    prompts: Mapping[str, Prompt] = field(default_factory=dict)

    @property
    def is_page(self) -> bool:
        """Whether it has documents alone, which belong to its summary."""
        return not (self.params or self.metrics or self.curves or self.files or self.prompts)


@dataclass(frozen=True)
class Tracker:
    """Writes records to one MLflow server or file."""

    # sqlite:///… or a server; file:// is refused by MLflow itself
    uri: str
    # where documents go when this tracker creates the experiment
    artifact_root: str
    # held while experiment, summary and data sets are looked for: two first steps make one each
    lock: Path
    # the database is that of the data root, whose artifacts it names by their path
    own: bool = False

    @classmethod
    def for_store(cls, store: Store) -> Tracker:
        """Return the tracker that belongs to a data root."""
        place = store.folder.locate("mlflow/artifacts").replace("%", "%25")
        own = not os.environ.get("MLFLOW_TRACKING_URI")
        return cls(tracking_uri(store), place, store.scratch("mlflow") / ".lock", own)

    def write(self, record: Record) -> str:
        """Write one finished MLflow run; return the address of its page in the MLflow UI.

        A page alone has no run of its own: it goes to the summary.
        """
        from mlflow.entities import Metric, Param

        client, now = self._client(), int(1000 * time.time())
        tags, parent = {**_SOURCE, **record.tags}, ""
        with self.lock.open("a") as lock:
            lock_file(lock.fileno())
            experiment = self._experiment_id(client)
            if record.summary is not None:
                head = record.tags.get(_LEDGER, "")
                tags[_PARENT] = parent = _sum_up(client, experiment, record.summary, head, now)
            for name, template in record.prompts.items():
                _register_prompt(client, name, template)
        if parent and record.is_page:
            run = parent
        else:
            run = client.create_run(experiment, run_name=record.name, tags=tags).info.run_id
        try:
            known = {name: value for name, value in record.metrics.items() if value is not None}
            metrics = [Metric(name, float(value), now, 0) for name, value in known.items()]
            for name, curve in record.curves.items():
                metrics += [Metric(name, float(value), now, step) for step, value in curve]
            params = [Param(name, str(of)[:_MAX_PARAM]) for name, of in record.params.items()]
            # one transaction for many values: MLflow commits each call
            client.log_batch(run, params=params)
            for portion in parts(metrics, _MAX_METRICS):
                client.log_batch(run, metrics=portion)
            for name, text in record.documents.items():
                client.log_text(run, text, name)
            for path, folder in record.files.items():
                client.log_artifact(run, str(path), folder)
        except BaseException:
            client.set_terminated(run, status="FAILED")
            raise
        client.set_terminated(run)
        base = self.uri if self.uri.startswith("http") else os.environ.get("MLFLOW_UI_URL", _UI)
        return f"{without_credentials(base).rstrip('/')}/#/experiments/{experiment}/runs/{run}"

    def experiment_page(self, address: str) -> str:
        """Return the address at which an MLflow UI shows the records; its first page does not."""
        return f"{address}/#/experiments/{self._experiment_id(self._client())}/runs"

    def _experiment_id(self, client: Any) -> str:
        """Return the id of the experiment of the records; make the experiment if it is missing."""
        # a server decides for itself where artifacts go
        place = None if self.uri.startswith("http") else self.artifact_root
        name = _EXPERIMENT
        found = client.get_experiment_by_name(name)
        if found and self.own and found.artifact_location.removeprefix("file://") != place:
            # of a data root that was copied or moved: MLflow would write into the original's
            name = f"{name} in {place}"
            found = client.get_experiment_by_name(name)
        return str(found.experiment_id if found else client.create_experiment(name, place))

    def _client(self) -> Any:
        if self.own:
            make_database(Path(self.uri.removeprefix("sqlite:///")))
        return mlflow_client(self.uri)


def _sum_up(client: Any, experiment: str, summary: Summary, head: str, now: int) -> str:
    """Add a step's results to its summary run, made if it is missing; return the run's id."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, RunTag

    name = sha256_bytes(canonical_json(dict(summary.tags)))
    found = client.search_runs([experiment], f"tags.`{_SUMMARY}` = '{name}'", max_results=1)
    tags = {**_SOURCE, **summary.tags, _SUMMARY: name}
    made = found[0] if found else client.create_run(experiment, run_name=summary.name, tags=tags)
    run = str(made.info.run_id)
    inputs = []
    for read in summary.datasets:
        source = canonical_json({"key": read.key, "sha256": read.sha256}).decode().strip()
        dataset = Dataset(read.name, read.sha256[:_DIGEST], "certify_assets", source)
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", read.context)]))
    if inputs:
        client.log_inputs(run, inputs)
    model, figures = _logged_model(client, made, summary, now) if summary.metrics else ("", [])
    for metric, value in summary.metrics.items():
        of: dict[str, str] = {}
        if value is not None:
            of["model_id"] = model
            if summary.datasets and metric in summary.measured:
                read = summary.datasets[-1]
                of |= {"dataset_name": read.name, "dataset_digest": read.sha256[:_DIGEST]}
        # the latest value of a metric counts
        figures.append(
            Metric(metric, float("nan") if value is None else float(value), now, 0, **of)
        )
    client.log_batch(run, metrics=figures, tags=[RunTag(_LEDGER, head)] if head else [])
    client.set_terminated(run)
    return run


def _logged_model(client: Any, run: Any, summary: Summary, now: int) -> tuple[str, list[Any]]:
    """Return the logged model of a summary, which has its metrics for each data set.

    For a new one, also return the metrics of the last one that still hold.
    """
    from mlflow.entities import LoggedModelOutput, Metric

    gone = {name for name, value in summary.metrics.items() if value is None}
    shown: dict[str, Any] = {}
    # MLflow returns models and metrics in no order
    made = {item.step: item.model_id for item in (run.outputs.model_outputs if run.outputs else ())}
    if made:
        # a logged model shows a metric that was taken back as 0, so it gets a successor
        last = str(made[max(made)])
        values = client.get_logged_model(last).metrics or ()
        shown = {item.key: item for item in sorted(values, key=lambda item: item.timestamp)}
        if not gone & shown.keys():
            return last, []
    where, name = run.info, summary.name
    model = client.create_logged_model(
        where.experiment_id, name, where.run_id, tags={**_SOURCE, **summary.tags}
    )
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(where.run_id, [LoggedModelOutput(model.model_id, len(made))])
    successor = str(model.model_id)
    kept = [
        Metric(
            *(item.key, item.value, now, item.step),
            model_id=successor,
            dataset_name=item.dataset_name,
            dataset_digest=item.dataset_digest,
        )
        for name, item in shown.items()
        if name not in summary.metrics
    ]
    return successor, kept


def _register_prompt(client: Any, name: str, template: Prompt) -> None:
    """Register a prompt, as a new version where the last one differs; warn if that fails."""
    from mlflow.exceptions import MlflowException

    try:
        known = client.load_prompt(name, allow_missing=True)
        if known is None or known.template != template:
            client.register_prompt(name, template)
    except MlflowException as error:
        # some servers keep runs, and no prompts
        logging.getLogger("certify_assets").warning(
            f"MLflow did not take the prompt {name} ({said_by(error)}); the record goes on "
            "without it."
        )


class Recorded(NamedTuple):
    """Result of recording: the page in the MLflow UI, or why MLflow refused the record."""

    url: str | None
    reason: str = ""


def write_record(store: Store, record: Record) -> Recorded:
    """Write a record to MLflow; if MLflow refuses it, say why."""
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
        # any exception of MLflow's backend: no result may depend on its record
        reason = f"{type(error).__name__}: {said_by(error)}"
        _FAILED[place] = (time.monotonic(), reason)
        return Recorded(None, reason)
