"""Resources: the data root, the tracker that writes to MLflow, and what runs the steps."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field, PrivateAttr

from certify_assets.defs.names import CORPORA_GROUP
from certify_assets.defs.project import PREFIX_VARIABLE
from certify_assets.errors import InputError, MissingToolError
from certify_assets.processes import end_with_parent
from certify_assets.storage.root import default_root
from certify_assets.storage.store import Store
from certify_assets.storage.tracking import Record, write_record


class DataRoot(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Where every table and document is stored."""

    root: str = Field(
        default="",
        description="Folder or fsspec URL; empty for CERTIFY_ROOT, else .certify in the working "
        "directory.",
    )

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """End the process of a step with the run that started it, also where that is killed."""
        # a run that has no process for each step is a process that its code server started, and
        # stays when that one is replaced
        if os.environ.get(EXECUTOR_VARIABLE) == "multiprocess":
            end_with_parent()

    def view(self) -> Store:
        """Return what the steps of one process share: an unchanged file is verified once."""
        root = self.root or default_root()
        if self._view is None or self._view.root != root:
            self._view = Store(root).now()
        # another process may have written since the last step
        self._view.refresh()
        return self._view

    def draw_index(self) -> None:
        """Draw the start page when the run, or its one step in this process, is over."""
        self._draws = True

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Draw the start page once for all pages that were drawn."""
        if self._draws:
            from certify_assets.reports.index_page import write_index

            write_index(self.view())

    _view: Store | None = PrivateAttr(default=None)
    _draws: bool = PrivateAttr(default=False)


class MlflowTracker(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Records what an asset made in MLflow, with the Dagster run, asset and partition as tags."""

    enabled: bool = Field(
        default=True, description="False records nothing, for machines without MLflow."
    )

    def record(
        self,
        context: dg.AssetExecutionContext,
        store: Store,
        *,
        name: str,
        tags: Mapping[str, str],
        page: str = "",
        **kept: Any,
    ) -> None:
        """Write one MLflow run of an asset when the run ends; an observation has its address.

        Nothing waits for MLflow, whose import takes seconds, and of a step that is not committed
        it hears nothing. Runs are found by `name`, that of the asset without a prefix. `page` is
        the name of the document that shows the asset. Files are copied at once, since the caller
        may remove them. What is made of a corpus before any judge, and a page that belongs to no
        judge, is in Dagster alone.
        """
        groups = context.assets_def.group_names_by_key
        if not self.enabled or groups[context.asset_key] == CORPORA_GROUP:
            return
        partition = context.partition_key if context.has_partition_key else None
        where = {"dagster.partition": partition} if partition else {}
        record = Record(
            name=" ".join([name, *where.values()]),
            tags={"dagster.run_id": context.run.run_id, "dagster.asset": name, **where, **tags},
            **kept,
        )
        if record.is_page and record.summary is None:
            return
        waiting = store, context.asset_key, partition, page, _with_copies(store, record)
        store.now().once_committed(lambda: self._waiting.append(waiting))

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Write what is recorded of the run, or of its one step in this process."""
        if context.instance is not None:
            self._write(context.instance)

    def _write(self, instance: dg.DagsterInstance) -> None:
        waiting, self._waiting = self._waiting, []
        for store, asset, partition, page, record in waiting:
            done = write_record(store, record)
            for folder in {path.parent for path in record.files}:
                shutil.rmtree(folder, ignore_errors=True)
            metadata: dict[str, dg.MetadataValue[Any]]
            if done.url is None:
                dg.get_dagster_logger("certify_assets").warning(
                    f"MLflow did not take the record of {record.name} ({done.reason}); the asset "
                    "is complete without it."
                )
                metadata = {"mlflow_run": dg.MetadataValue.text(f"not recorded: {done.reason}")}
            else:
                # the id next to the link, which is only as good as the address of the MLflow UI
                metadata = {
                    "mlflow_run": dg.MetadataValue.url(done.url),
                    "mlflow_run_id": dg.MetadataValue.text(done.url.rsplit("/", 1)[-1]),
                }
                if page:
                    # a reader of the UI may have no access to the disk of the data root
                    address = f"{done.url}/artifacts/{page}"
                    metadata["mlflow_page"] = dg.MetadataValue.url(address)
            instance.report_runless_asset_event(
                dg.AssetObservation(asset, partition=partition, metadata=metadata)
            )

    _waiting: list[tuple[Store, dg.AssetKey, str | None, str, Record]] = PrivateAttr(
        default_factory=list
    )


def _with_copies(store: Store, record: Record) -> Record:
    """Return a record with copies of its files, without them where there is no space."""
    files: dict[Path, str] = {}
    with suppress(OSError):
        if record.files:
            folder = tempfile.mkdtemp(dir=store.scratch("mlflow/files"))
            files = {Path(shutil.copy(path, folder)): of for path, of in record.files.items()}
    return replace(record, files=files)


def resources() -> dict[str, DataRoot | MlflowTracker]:
    """Return the resources of the code location by name."""
    return {"data_root": DataRoot(), "mlflow": MlflowTracker()}


EXECUTOR_VARIABLE = "CERTIFY_EXECUTOR"
_NAMES = ("in_process", "multiprocess", "ray")
# variables that a Ray job gets from the process that submits it; no passwords, since Ray's
# dashboard shows them
_HANDED_ON = [
    "DAGSTER_HOME",
    "CERTIFY_ROOT",
    "CERTIFY_JUDGES",
    PREFIX_VARIABLE,
    "CERTIFY_EXECUTOR",
    "MLFLOW_UI_URL",
    "RAY_DASHBOARD",
]


def job_executor() -> dg.ExecutorDefinition:
    """Return the executor that ``CERTIFY_EXECUTOR`` names; in_process by default."""
    named = os.environ.get(EXECUTOR_VARIABLE) or _NAMES[0]
    if named not in _NAMES:
        raise InputError(
            f"{EXECUTOR_VARIABLE} is {named!r}; give one of {', '.join(_NAMES)}, or leave it out."
        )
    if named == "ray":
        return _ray()
    # most steps are small: a process of its own for each costs more than the step
    return (
        dg.in_process_executor
        if named == "in_process"
        else dg.multiprocess_executor.configured({"max_concurrent": 2}, "two_processes")
    )


def _ray() -> dg.ExecutorDefinition:
    try:
        # costs a CPU second, and only who asks for Ray pays it
        from dagster_ray import ray_executor
    except ImportError:
        raise MissingToolError(
            f"{EXECUTOR_VARIABLE} is 'ray', and the package dagster-ray is not installed; install "
            "certify_assets[ray]."
        ) from None
    # a job without a number of cores is taken for one that needs none, and all of them would start
    # at once; a GPU is requested by a step's own tags
    configured: dg.ExecutorDefinition = ray_executor.configured(
        {"ray": {"env_vars": _HANDED_ON, "num_cpus": 1}}, "ray_jobs"
    )
    return configured
