"""Assets and jobs as a run executes them: on a data root, quietly, without MLflow."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from certify_assets.defs.names import CORPORA
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.defs.sensors import platform_sensors
from certify_assets.storage.store import Store
from certify_assets_tests.paths import REPOSITORY

#: a code location with every judge, and its sensors by name
PROJECT = Project.of()
SENSORS = {sensor.name: sensor for sensor in platform_sensors(PROJECT)}
__all__ = [
    "PROJECT",
    "SENSORS",
    "configured",
    "materialize",
    "observed",
    "partitions",
    "resources",
    "tick",
]


@contextmanager
def partitions(*corpora: str) -> Iterator[dg.DagsterInstance]:
    """An instance that knows these corpora."""
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(CORPORA, list(corpora))
        yield instance


@contextmanager
def configured(home: Path, *corpora: str) -> Iterator[dg.DagsterInstance]:
    """An instance as the example configuration makes it, on this disk, that knows these corpora."""
    home.mkdir()
    (home / "dagster.yaml").write_bytes((REPOSITORY / "certify_assets/dagster.yaml").read_bytes())
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.add_dynamic_partitions(CORPORA, list(corpora))
        yield instance


def observed(instance: dg.DagsterInstance, asset: str) -> Mapping[str, dg.MetadataValue[Any]]:
    """Metadata of the last observation of an asset, which names its MLflow run."""
    asked = dg.AssetKey(asset.split("/"))
    (record,) = instance.fetch_observations(asked, limit=1).records
    assert record.asset_observation is not None
    return record.asset_observation.metadata


def tick(sensor: dg.SensorDefinition, root: Path, cursor: str | None = None) -> dg.SensorResult:
    """Evaluate a sensor once, in an instance that knows nothing yet."""
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(
            instance=instance, cursor=cursor, resources={"data_root": DataRoot(root=str(root))}
        ) as context,
    ):
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def resources(root: Store | Path) -> dict[str, Any]:
    folder = root.root if isinstance(root, Store) else str(root)
    return {"data_root": DataRoot(root=folder), "mlflow": MlflowTracker(enabled=False)}


def materialize(
    what: Sequence[Any] | dg.JobDefinition,
    root: Store | Path,
    corpus: str | None = "c",
    *,
    instance: dg.DagsterInstance | None = None,
    ops: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    """Materialize assets, or execute a job; in an instance of its own where none is given."""
    if instance is None:
        with partitions(*[corpus] if corpus else ()) as made:
            return materialize(what, root, corpus, instance=made, ops=ops, **options)
    run = (
        what.execute_in_process
        if isinstance(what, dg.JobDefinition)
        else partial(dg.materialize, what)
    )
    config = {name: {"config": dict(values)} for name, values in (ops or {}).items()}
    return run(
        instance=instance,
        partition_key=corpus,
        resources=resources(root),
        run_config={
            "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            **({"ops": config} if config else {}),
        },
        **options,
    )
