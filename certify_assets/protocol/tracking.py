"""MLflow records of what a step made: parameters, metrics, documents, and the Dagster run, asset and partition as tags.

The client is used without MLflow's global state, so that two steps of one process cannot write into each other's run. Tracking is a
record, not a condition: a step whose record fails goes on and says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from certify_assets.protocol.store import Store

__all__ = ["Record", "Tracker", "tracking_uri"]

_UI = "http://127.0.0.1:5000"
_MAX_PARAM = 500


def tracking_uri(store: Store) -> str:
    """Return where MLflow records go: ``MLFLOW_TRACKING_URI``, else a SQLite file in the data root."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{store.local_path('mlflow/mlflow.db')}"


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
    """

    name: str
    tags: Mapping[str, str]
    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)


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
        return cls(uri=tracking_uri(store), artifact_root=store.locate("mlflow/artifacts"), experiment=experiment)

    def write(self, record: Record) -> str:
        """Write one finished MLflow run; return the address of its page in the MLflow UI."""
        client = self._client()
        found = client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else self._create_experiment(client)
        run = client.create_run(experiment, run_name=record.name, tags=dict(record.tags)).info.run_id
        try:
            for name, value in record.params.items():
                client.log_param(run, name, str(value)[:_MAX_PARAM])
            for name, number in record.metrics.items():
                if number is not None:
                    client.log_metric(run, name, float(number))
            for name, text in record.documents.items():
                client.log_text(run, text, name)
        except BaseException:
            client.set_terminated(run, status="FAILED")
            raise
        client.set_terminated(run)
        base = self.uri if self.uri.startswith("http") else os.environ.get("MLFLOW_UI_URL", _UI)
        return f"{base.rstrip('/')}/#/experiments/{experiment}/runs/{run}"

    def _create_experiment(self, client: Any) -> str:
        # a server decides for itself where artifacts go
        location = None if self.uri.startswith("http") else self.artifact_root
        return str(client.create_experiment(self.experiment, artifact_location=location))

    def _client(self) -> Any:
        # imported here: MLflow costs about two CPU seconds, and only steps that record pay them
        import logging

        for name in ("mlflow.store.db.utils", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        from mlflow.tracking import MlflowClient

        return MlflowClient(tracking_uri=self.uri)
