"""Locks between processes of one Dagster home: a look and an act on it are one, and a kill lets go of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from certify_assets.errors import CertifyError
from certify_assets.storage.locks import lock_file

__all__ = ["at_work_on", "instance_with"]


@contextmanager
def at_work_on(job: str, corpus: str) -> Iterator[None]:
    """Hold the place of the one process that runs a job on a corpus.

    Raises
    ------
    CertifyError
        If another process of this machine holds it.
    """
    path = _folder() / f"{job}_{corpus}.lock"
    with path.open("a+", encoding="utf-8") as stream:
        if not lock_file(stream.fileno(), wait=False):
            stream.seek(0)
            raise CertifyError(
                f"process {stream.read().strip() or 'of another run'} is at work on {corpus}; wait for its end, or end it first."
            )
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield


@contextmanager
def instance_with(partitions: str, names: list[str]) -> Iterator[dg.DagsterInstance]:
    """Open the instance with these partitions in it; one process after another, because neither making its databases nor adding is atomic."""
    with (_folder() / "instance.lock").open("a") as stream:
        lock_file(stream.fileno())
        with dg.DagsterInstance.get() as instance:
            instance.add_dynamic_partitions(partitions, names)
    with dg.DagsterInstance.get() as instance:
        yield instance


def _folder() -> Path:
    """Return where the locks of the Dagster home lie; without a home, Dagster itself says what is missing."""
    folder = (
        Path(os.environ.get("DAGSTER_HOME") or dg.DagsterInstance.get().root_directory) / "locks"
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder
