"""The one way from the command line to Dagster: jobs are executed in this process, by name."""

from __future__ import annotations

import importlib
import importlib.resources
import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.cli.output import NOTHING, printable, say
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError, StepFailedError
from certify_assets.files import write_atomic
from certify_assets.storage.root import default_root
from certify_assets.storage.store import Store
from certify_assets.storage.urls import absolute

if TYPE_CHECKING:
    from certify_assets.corpora.deliveries import Delivered
    from certify_assets.research.tables import Outcome

_EXECUTION, _STUDY = "certify_assets.defs.execution", "certify_assets.defs.study"


def open_store(root: str | None) -> Store:
    """Return the data root that an option names, else this process's."""
    return Store(default_root() if root is None else absolute(root)).now()


def dagster_environment(store: Store) -> dict[str, str]:
    """Return the environment of a Dagster process on a data root; make its home if needed."""
    home = os.environ.get("DAGSTER_HOME") or str(store.local_path("dagster"))
    path = Path(home).absolute()
    if {"?", "%"} & set(str(path)):
        # its addresses of SQLite files end at one and take the other for a code
        raise InputError(
            f"Dagster cannot keep its databases in {path}, whose path has '?' or '%'. Rename the "
            "folder, or let DAGSTER_HOME name another."
        )
    path.mkdir(parents=True, exist_ok=True)
    if not (path / "dagster.yaml").exists():
        template = importlib.resources.files("certify_assets") / "dagster.yaml"
        write_atomic(path / "dagster.yaml", template.read_bytes())
    return {**os.environ, "DAGSTER_HOME": str(path), "CERTIFY_ROOT": store.root}


def change_partition(store: Store, name: str, *, add: bool) -> None:
    """Add a corpus to the partitions of the Dagster instance, or remove it; say what failed."""
    try:
        with platform(store) as execution:
            (execution.add_partitions if add else execution.remove_partitions)([name])
    except Exception as error:  # the corpus is stored or gone whatever Dagster's database says
        say(
            f"Partition {name} could not be {'added' if add else 'removed'} ({_reason(error)}). "
            "Do that in the Dagster UI."
        )


@contextmanager
def platform(store: Store, module: str = _EXECUTION) -> Iterator[Any]:
    """Give a module that executes jobs, in the environment of a data root.

    It is loaded by its name: the command line depends on no module of the code location. What
    the jobs print goes to stderr, since stdout is the command's own.
    """
    before = dict(os.environ)
    os.environ.update(dagster_environment(store))
    try:
        with redirect_stdout(sys.stderr):
            yield importlib.import_module(module)
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_corpus(corpus: Corpus, *, shown: str, judges: Sequence[str] = ()) -> None:
    """Materialize the whole pipeline for one corpus, with only the judges that are named.

    `shown` is one of `Shown` of the module that executes it.

    Raises
    ------
    StepFailedError
        If the run failed. Finished steps are kept, and the next run resumes from them.
    IntegrityError
        If a blocking check stopped it; the next run would stop there again.
    """
    known = corpus.deliveries.read()
    if gone := corpus.missing_source:
        say(f"{gone} is missing. The runs are used as they were imported.")
    with platform(Store(corpus.store.root)) as execution:
        try:
            code = execution.run_corpus(corpus.name, shown=shown, judges=judges)
        except Exception as error:
            # SQLAlchemy names the error of the database
            if not isinstance(getattr(error, "orig", error), sqlite3.Error | OSError):
                raise
            home = os.environ["DAGSTER_HOME"]
            raise StepFailedError(
                f"{home} cannot be read or written ({_reason(error)}); free space or correct "
                "permissions there, and call again to resume."
            ) from error
    say_versions(Corpus(Store(corpus.store.root), corpus.name), known)
    if code == NOTHING:
        raise IntegrityError(
            f"{corpus} is stopped by a check (see above), and nothing of it is certified; "
            f"`certify corpus show {corpus}` says more."
        )
    if code:
        raise StepFailedError(
            f"the run of {corpus} failed (see above, or `certify ui` for its log); finished assets "
            "are kept, call it again to resume."
        )


def say_versions(corpus: Corpus, known: Sequence[Delivered]) -> None:
    """Say what the versions of a corpus changed that were not known before."""
    for version in corpus.deliveries.read()[len(known) :]:
        if known and version.changes:
            for sentence in version.changes.sentences():
                say(f"Version {version.number}: {sentence}")


def run_study(store: Store, corpora: Sequence[str], profile: str) -> list[Outcome]:
    """Run the study of a data root, what is not up to date of it; return what became of it."""
    with platform(store, _STUDY) as study:
        found: list[Outcome] = study.run_study(corpora, profile=profile, say=say)
        return found


def _reason(error: Exception) -> str:
    inner = getattr(error, "orig", error)
    text = inner.strerror if isinstance(inner, OSError) and inner.strerror else str(inner)
    return (text.strip().splitlines() or [type(error).__name__])[-1]


#: what the start page shows of operation
_ON_START_PAGE = {"operations/deployment", "operations/recertification"}


def report_stored(corpus: Corpus, command: str, *assets: str, refused: bool = False) -> None:
    """Report to Dagster what a command stored, if it is there.

    The start page is drawn again where it shows that, or says why a batch was refused.
    """
    # the files that the command has verified are not read again; what others wrote since is
    corpus.store.refresh()
    shown = refused or _ON_START_PAGE & set(assets)
    if shown and corpus.store.exists("index.html"):
        from certify_assets.reports.index_page import write_index

        write_index(corpus.store)
    # without one nothing is reported, and nobody waits for Dagster to be imported
    if not _has_instance(corpus.store):
        return
    try:
        with platform(Store(corpus.store.root), _EXECUTION) as reporting:
            reporting.report(corpus.current, assets, f"certify {command}")
    except Exception as error:  # what was stored is stored, whatever Dagster's database says
        logging.getLogger("certify_assets").warning(
            "%s of %s stored, but not reported to Dagster (%s).",
            ", ".join(assets),
            corpus.name,
            printable(_reason(error)),
        )


def _has_instance(store: Store) -> bool:
    if home := os.environ.get("DAGSTER_HOME"):
        return Path(home).is_dir()
    return store.is_local and store.local_path("dagster/dagster.yaml").is_file()


def find_program(name: str) -> str | None:
    """Return a program installed next to this Python, else on the path."""
    here = Path(sys.executable).with_name(name)
    return str(here) if here.exists() else shutil.which(name)
