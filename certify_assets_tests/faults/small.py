"""A small corpus whose whole pipeline takes seconds, run as users run it, in a process of its own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from certify_assets.files import canonical_json
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.paths import REPOSITORY

__all__ = ["CORPUS", "command", "environment", "is_whole", "moments", "prepare", "results", "run"]

CORPUS = "small"
#: what is of the moment, not of the work: times, run ids, and the databases of Dagster and MLflow
_OF_THE_MOMENT = ("ledger", "leases", "dagster", "mlflow", "tracking", "incoming")
_MEASURED = ("timings.json", "comparison.html")
_CHAIN = ("time", "previous")  # a line's hash has its time in it
_HEAD = re.compile(rb'"ledger_head": "[0-9a-f]{64}"')
#: pages say on which day a certificate was made, and midnight may pass between two runs
_DAY = re.compile(rb"\b20\d\d-\d\d-\d\d\b")


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
    return [sys.executable, "-m", "certify_assets.cli", "run", name]


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


def results(root: Path) -> dict[str, bytes]:
    """Every document and table of the platform by its key, without what is of the moment: seconds, memory, the times in the ledger."""
    files = [
        path
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] not in _OF_THE_MOMENT
    ]
    kept = [path for path in files if path.name not in _MEASURED and not path.name.startswith(".")]
    return {path.relative_to(root).as_posix(): _without_moment(path) for path in kept}


def _without_moment(path: Path) -> bytes:
    data = path.read_bytes()
    if path.name == "audits.json":
        return _HEAD.sub(b"", data)
    if path.name == "spending.jsonl":
        return canonical_json(
            [
                {name: value for name, value in json.loads(line).items() if name not in _CHAIN}
                for line in data.splitlines()
            ]
        )
    if path.name == "comparison.json":
        return canonical_json(
            [
                {name: value for name, value in row.items() if name != "cost"}
                for row in json.loads(data)["rows"]
            ]
        )
    if path.suffix == ".html":
        return _DAY.sub(b"DAY", data)
    return data


def is_whole(name: str, data: bytes) -> bool:
    """Whether a document is one, though later steps of the same run write it again (the index, the Data Docs)."""
    if name.endswith((".json", ".jsonl")):
        json.loads(data)
        return True
    return name.endswith(".html") and data.rstrip().endswith(b"</html>")


def moments(root: Path) -> dict[str, int]:
    """When every finished document was written."""
    return {name: (root / name).stat().st_mtime_ns for name in results(root)}
