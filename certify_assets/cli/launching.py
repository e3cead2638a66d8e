"""Start Dagster in a process of its own, so that a command does not pay for loading it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from certify_assets.cli.output import NOTHING
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError, StepFailedError
from certify_assets.files import write_atomic
from certify_assets.storage.store import Store, default_root

_INSTANCE = """\
# Written by certify where no instance was; edit it as you like.
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  runs:
    max_concurrent_runs: 2
  pools:
    # ops that train or score with a language model are in the pool "gpu": one at a time
    default_limit: 1
    granularity: op
"""


def open_store(root: str | None) -> Store:
    """Return the data root that an option names, else this process's."""
    if root is None:
        return Store(default_root())
    return Store(root if "://" in root else str(Path(root).absolute()))


def open_corpus_store(root: str | None, corpus: str) -> Store:
    """Return the data root, after checking that it knows the corpus."""
    from certify_assets.corpora.config import load_config

    store = open_store(root)
    load_config(store, corpus)
    return store


def dagster_environment(store: Store) -> dict[str, str]:
    """Return the environment of a Dagster process on a data root; make its home if missing."""
    home = os.environ.get("DAGSTER_HOME") or str(store.local_path("dagster"))
    path = Path(home).absolute()
    path.mkdir(parents=True, exist_ok=True)
    if not (path / "dagster.yaml").exists():
        write_atomic(path / "dagster.yaml", _INSTANCE.encode("utf-8"))
    return {**os.environ, "DAGSTER_HOME": str(path), "CERTIFY_ROOT": store.root}


def add_partitions(store: Store, names: Sequence[str]) -> str:
    """Add corpora as partitions of the Dagster instance; return a sentence."""
    if reason := _launch(store, "add", *names):
        return (
            f"The corpus is stored; its partition could not be added ({reason}). Add it in the "
            "Dagster UI."
        )
    return f"Partition {', '.join(names)} is in the Dagster instance."


def remove_partition(store: Store, name: str) -> str:
    """Remove a corpus from the partitions of the Dagster instance; return a sentence."""
    if reason := _launch(store, "remove", name):
        return (
            f"The corpus is removed; its partition could not be ({reason}). Remove it in the "
            "Dagster UI."
        )
    return f"Partition {name} is no longer in the Dagster instance."


def _launch(store: Store, *arguments: str) -> str:
    """Change partitions in a process of its own; return the reason where it failed."""
    command = [sys.executable, "-m", "certify_assets.defs.launch", *arguments]
    done = subprocess.run(
        command, env=dagster_environment(store), capture_output=True, text=True, check=False
    )
    return (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else ""


def run_corpus(corpus: Corpus, *, quiet: bool, judges: Sequence[str] = ()) -> None:
    """Run the pipeline of one corpus, or the chains of language-model judges on it."""
    key = corpus.key("import.json")
    if corpus.store.exists(key) and corpus.store.read_json(key).get("label_facts", {}).get(
        "labels_only"
    ):
        raise InputError(
            f"{corpus} holds labels without runs: it has a profile (`certify corpus show "
            f"{corpus}`) and nothing that could be judged; import the "
            "runs too."
        )
    command = [
        sys.executable,
        "-m",
        "certify_assets.defs.launch",
        "run",
        corpus.name,
        *(part for name in judges for part in ("--judge", name)),
    ]
    done = subprocess.run(
        [*command, "--quiet"] if quiet else command,
        env=dagster_environment(corpus.store),
        stdout=sys.stderr,
        check=False,
    )
    if done.returncode == NOTHING:
        raise IntegrityError(
            f"{corpus} is stopped by a check (see above), and nothing of it is certified; "
            f"`certify corpus show {corpus}` says more."
        )
    if done.returncode:
        raise StepFailedError(
            f"the run of {corpus} failed (see above, or `certify ui` for its log); finished "
            "assets are kept, call it again to go on."
        )


def find_program(name: str) -> str | None:
    """Return a program installed beside this Python, else on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)
