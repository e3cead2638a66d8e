"""MLflow records of what a step made: parameters, metrics, curves, documents, files, and the Dagster run, asset and partition as tags.

The client is used without MLflow's global state, so that two steps of one process cannot write into each other's run. Tracking is a
record, not a condition: a step whose record fails goes on and says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from certify_assets.storage.store import Store

__all__ = ["Record", "Tracker", "thinned", "tracking_uri", "without_credentials"]

_UI = "http://127.0.0.1:5000"
_MAX_PARAM = 500
_MAX_POINTS = 200
# nothing that could hold a pickle
_SUFFIXES = {".safetensors", ".json"}

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
# MLflow's own limits let one step wait for a quarter of an hour on a server that hangs
_LIMITS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}

_Points = Sequence[tuple[int, float]]


def thinned(points: _Points, most: int = _MAX_POINTS) -> list[tuple[int, float]]:
    """Return at most so many points of a curve, evenly taken, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def without_credentials(text: str) -> str:
    """Take user and password out of every URL in a text.

    Examples
    --------
    >>> without_credentials("http://me:secret@host:5000/a refused")
    'http://host:5000/a refused'
    """
    return _CREDENTIALS.sub("", text)


def tracking_uri(store: Store) -> str:
    """Return where MLflow records go: ``MLFLOW_TRACKING_URI``, else a SQLite file in the data root."""
    return (
        os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{store.local_path('mlflow/mlflow.db')}"
    )


@dataclass(frozen=True)
class Record:
    """What a step wants recorded.

    Parameters
    ----------
    name : str
        Name of the MLflow run, such as ``lexical/certificate miniwob_weak``.
    tags : mapping of str to str
        ``dagster.run_id``, ``dagster.asset``, ``dagster.partition``, hashes.
    params, metrics, documents : mapping
        Parameters, numbers (None is left out), and texts by file name.
    curves : mapping of str to sequence of (int, float)
        Metrics with steps; at most 200 points of each are written.
    files : mapping of Path to str
        The artifact folder of each file; safetensors and JSON alone.
    """

    name: str
    tags: Mapping[str, str]
    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, _Points] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if wrong := [path.name for path in self.files if path.suffix not in _SUFFIXES]:
            raise ValueError(
                f"{wrong[0]} cannot be an artifact: only {' and '.join(sorted(_SUFFIXES))} are"
            )


@dataclass(frozen=True)
class Tracker:
    """Writes records to one MLflow server or file.

    Parameters
    ----------
    uri : str
        MLflow tracking URI; ``sqlite:///…`` or a server. ``file://`` is refused by MLflow itself.
    artifact_root : str
        Where documents go when this tracker creates the experiment.
    experiment : str
        Name of the experiment.
    """

    uri: str
    artifact_root: str
    experiment: str = "certify_assets"

    @classmethod
    def for_store(cls, store: Store, *, experiment: str = "certify_assets") -> Tracker:
        """Return the tracker that belongs to a data root."""
        if store.is_local:
            store.local_path("mlflow").mkdir(parents=True, exist_ok=True)
        return cls(
            uri=tracking_uri(store),
            artifact_root=store.locate("mlflow/artifacts"),
            experiment=experiment,
        )

    def write(self, record: Record) -> str:
        """Write one finished MLflow run; return the address of its page in the MLflow UI."""
        client = self._client()
        found = client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else self._create_experiment(client)
        run = client.create_run(
            experiment, run_name=record.name, tags=dict(record.tags)
        ).info.run_id
        try:
            for name, value in record.params.items():
                client.log_param(run, name, str(value)[:_MAX_PARAM])
            for name, number in record.metrics.items():
                if number is not None:
                    client.log_metric(run, name, float(number))
            for name, text in record.documents.items():
                client.log_text(run, text, name)
            _write_curves(client, run, record.curves)
            for path, folder in record.files.items():
                client.log_artifact(run, str(path), folder)
        except BaseException:
            client.set_terminated(run, status="FAILED")
            raise
        client.set_terminated(run)
        base = self.uri if self.uri.startswith("http") else os.environ.get("MLFLOW_UI_URL", _UI)
        return f"{without_credentials(base).rstrip('/')}/#/experiments/{experiment}/runs/{run}"

    def find(self, tags: Mapping[str, str]) -> str | None:
        """Return the id of the latest finished run with these tags, if there is one."""
        client = self._client()
        experiment = client.get_experiment_by_name(self.experiment)
        if experiment is None:
            return None
        wanted = " and ".join(
            [
                "attributes.status = 'FINISHED'",
                *(f"tags.`{name}` = '{value}'" for name, value in tags.items()),
            ]
        )
        found = client.search_runs(
            [experiment.experiment_id],
            wanted,
            max_results=1,
            order_by=["attributes.start_time DESC"],
        )
        return str(found[0].info.run_id) if found else None

    def _create_experiment(self, client: Any) -> str:
        # a server decides for itself where artifacts go
        location = None if self.uri.startswith("http") else self.artifact_root
        return str(client.create_experiment(self.experiment, artifact_location=location))

    def _client(self) -> Any:
        # imported here: MLflow costs about two CPU seconds, and only steps that record pay them
        import logging

        for name in ("mlflow.store.db.utils", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        for name, value in _LIMITS.items():
            os.environ.setdefault(name, value)
        from mlflow.tracking import MlflowClient

        return MlflowClient(tracking_uri=self.uri)


def _write_curves(client: Any, run: str, curves: Mapping[str, _Points]) -> None:
    import time

    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    for name, points in curves.items():
        client.log_batch(
            run, metrics=[Metric(name, float(value), now, step) for step, value in thinned(points)]
        )
