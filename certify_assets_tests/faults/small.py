"""A small corpus whose whole pipeline takes seconds, run as users run it, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.storage.events import Stored
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.paths import REPOSITORY

__all__ = ["CORPUS", "command", "environment", "left_parts", "made", "prepare", "results", "run"]

CORPUS = "small"
#: what depends on the inputs alone, not on the moment
_SAME = (".parquet", ".safetensors", ".json")
_OF_THE_MOMENT = ("timings.json", "audits.json", "comparison.json")


def prepare(
    root: Path, *, source: Path | None = None, tasks: int = 60, name: str = CORPUS
) -> Store:
    """Register the corpus in a data root; its source lies beside it, or where another root of the test has it."""
    root.mkdir(parents=True, exist_ok=True)
    source = source or root.parent / f"{name}.jsonl"
    if not source.exists():
        write_runs(source, tasks=tasks, attempts=4)
    store = Store(str(root))
    register_runs(store, name, source, rl=False)
    return store


def land(store: Store, name: str, data: bytes, moment: float = 1) -> Path:
    """Put a file, last written at a moment, into the folder for new runs."""
    path = Path(store.root) / "incoming" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (moment, moment))
    return path


def environment(root: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process on that root; one that writes no bytecode, so that trees can be compared."""
    (root / "dagster").mkdir(parents=True, exist_ok=True)
    return {
        **platform_environment(root),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        **(more or {}),
    }


def command(name: str = CORPUS) -> list[str]:
    return [sys.executable, "-m", "certify_assets.cli", "run", name, "--verbose"]


def run(
    root: Path,
    more: Mapping[str, str] | None = None,
    start: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Materialize the whole pipeline for the corpus."""
    return start(
        command(),
        env=environment(root, more),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        **options,
    )


def results(root: Path) -> dict[str, str]:
    """Return what every key of a data root names, verified; "" for what is of the moment."""
    store, found = Store(str(root)).now(), dict[str, str]()
    if not store.database.exists():
        return found
    for corpus in ("", *store.corpora()):
        for entry in store.events(corpus, Stored):
            found[entry.content.key] = entry.content.objects.get("content", "")
    store.database.engine.dispose()
    return {
        key: _without_moment(store, key, sha256) for key, sha256 in sorted(found.items()) if sha256
    }


def _without_moment(store: Store, key: str, sha256: str) -> str:
    data = store.objects.get(sha256)
    name = key.rpartition("/")[2]
    if not name.endswith(_SAME) or name in _OF_THE_MOMENT:
        return ""
    if name == "monitor.json":
        # hashes of certificates
        document = json.loads(data)
        del document["certificates"]
        return sha256_bytes(canonical_json(document))
    if name == "certificates.json":
        # the head of the ledger has a time in it, and a certificate its own hash
        for item in (document := json.loads(data))["certificates"]:
            item.pop("ledger", None)
            item.pop("digest")
        return sha256_bytes(canonical_json(document))
    return sha256


def made(root: Path) -> dict[str, int]:
    """Return the number of the event that every key was last stored by."""
    store = Store(str(root)).now()
    return {
        entry.content.key: entry.sequence
        for corpus in ("", *store.corpora())
        for entry in store.events(corpus, Stored)
    }


def left_parts(root: Path) -> list[Path]:
    """Return the files that killed writes left."""
    return list(root.rglob(".certify.*.part"))
