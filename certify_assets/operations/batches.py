"""New runs become a batch: imported without their outcomes, told apart from what came before, and their tasks drawn before anything is scored.

A batch is ready when its ``import.json`` is there, and decided when its ``decisions.parquet`` is (`deciding`). Its name is its number and the
beginning of the hash of the delivery, so that the same files are the same batch however often they are given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.landing import inbox_key, is_inbox_empty, settled_inbox
from certify_assets.errors import CertifyError, InputError
from certify_assets.evaluation.score_table import read_rows
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.operations.deployment import load_deployment
from certify_assets.operations.fetching import local_copies, shown_url
from certify_assets.operations.identities import Identities, Run
from certify_assets.operations.layout import batch_key
from certify_assets.operations.sampling import draw_tasks
from certify_assets.storage.locks import lock_file

if TYPE_CHECKING:
    from certify_assets.corpora.formats import ImportFacts
    from certify_assets.corpora.formats.gathering import Gathered
    from certify_assets.corpora.schema import Trajectory

__all__ = ["SCHEMA", "Received", "corpus_lock", "ready_batches", "receive"]

SCHEMA: Final = "certify_assets/incoming/1"
_TABLES = (".csv", ".parquet", ".jsonl")


@dataclass(frozen=True)
class Received:
    """What a delivery brought.

    Parameters
    ----------
    corpus : str
    batch : str or None
        The batch that holds its new runs; None where there is none.
    runs : int
        Runs read.
    new, changed, known : int
        Runs that no batch holds, that a batch holds under the same trajectory_id with other content, and that a batch holds as they are.
    dropped : dict of str to int
        Records that could not be used, by reason.
    files : int
        Files read.
    sentences : tuple of str
        What somebody should look at.
    """

    corpus: str
    batch: str | None
    runs: int = 0
    new: int = 0
    changed: int = 0
    known: int = 0
    dropped: Mapping[str, int] | None = None
    files: int = 0
    sentences: tuple[str, ...] = ()


def receive(
    corpus: Corpus,
    paths: Sequence[str] = (),
    *,
    format: str = "",
    options: Mapping[str, Any] | None = None,
) -> Received:
    """Import new runs into a batch and draw its tasks; nothing is scored.

    Parameters
    ----------
    store : Store
    corpus : str
        A registered corpus.
    paths : sequence of str
        Files, folders, archives and fsspec URLs; the inbox of the corpus where there are none.
    format : str
        Source format, or ``auto``. Empty takes format and options of the corpus, and ``auto`` where it comes with the package.
    options : mapping, optional
        Options of the format.

    Raises
    ------
    InputError
        If nothing can be used, a file is a score table, or a file of the inbox is still being written.
    """
    config = corpus.config
    chosen = dict(config.options) if not format else {}
    named = format or ("auto" if config.format == "embedded" else config.format)
    chosen = {**chosen, **(options or {})}
    places = list(paths) or [corpus.store.locate(inbox_key(corpus.name)).removeprefix("file://")]
    if not paths and is_inbox_empty(corpus):
        return Received(
            corpus.name,
            None,
            sentences=(f"{places[0]} holds no file: put new runs there, or name them.",),
        )
    with (
        corpus_lock(corpus, "receive"),
        settled_inbox(corpus, watched=not paths) as unchanged,
        local_copies(places) as roots,
    ):
        try:
            with _gathered(roots, named, corpus.name, chosen) as (runs, facts):
                unchanged()
                return _stored(
                    corpus, list(_identified(runs)), facts, [shown_url(place) for place in places]
                )
        except InputError as error:
            _refuse_score_tables(roots)
            raise InputError(_without_copies(str(error), roots, places)) from None


def ready_batches(corpus: Corpus) -> list[str]:
    """Return the batches that are imported and drawn, decided or not, the oldest first."""
    return [
        name
        for name in corpus.store.names(f"operations/{corpus}/batches")
        if corpus.store.exists(batch_key(corpus.name, name, "import.json"))
    ]


@contextmanager
def corpus_lock(corpus: Corpus, what: str) -> Iterator[None]:
    """Let one process at a time do something with a corpus; a remote root has no lock, so let one process at a time work there."""
    if not corpus.store.is_local:
        yield
        return
    path = corpus.store.local_path(f"operations/{corpus}/{what}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        lock_file(stream.fileno())
        # who held the lock before may have written
        corpus.store.refresh()
        yield


@contextmanager
def _gathered(
    roots: Sequence[Path], format: str, corpus: str, options: Mapping[str, Any]
) -> Iterator[tuple[Gathered, ImportFacts]]:
    from certify_assets.corpora.formats import gather_new_runs

    with gather_new_runs(roots, format=format, name=corpus, options=options) as found:
        yield found


def _identified(runs: Gathered) -> Iterator[Run]:
    for row, trajectory in zip(runs.rows, runs.trajectories(), strict=True):
        steps = [[step.action, step.observation] for step in trajectory.steps]
        content = [trajectory.task_id, trajectory.agent, trajectory.instruction, steps]
        yield Run(
            trajectory,
            sha256_bytes(json.dumps(content).encode("ascii")),
            row.kept.trajectory_id is None,
        )


def _stored(
    corpus: Corpus, runs: Sequence[Run], facts: ImportFacts, paths: Sequence[str]
) -> Received:
    """Write the runs that no batch holds as a batch, and say what became of the others."""
    sorted_out = Identities.stored(corpus.store, corpus.name, ready_batches(corpus), runs).sort_out(
        runs
    )
    delivery = _delivery(runs)
    batch = _named(corpus, delivery)
    received = Received(
        corpus.name,
        batch,
        runs=len(runs),
        new=len(sorted_out.kept) - sorted_out.changed,
        changed=sorted_out.changed,
        known=len(runs) - len(sorted_out.kept),
        dropped=facts.dropped,
        files=len(facts.files),
        sentences=tuple(sorted_out.sentences),
    )
    if corpus.store.exists(batch_key(corpus.name, batch, "import.json")):
        return received
    if not sorted_out.kept:
        return replace(received, batch=None)
    rows = [replace(run.trajectory, outcome=None) for run in sorted_out.kept]
    about = {
        "schema": SCHEMA,
        "corpus": corpus.name,
        "batch": batch,
        "delivery_sha256": delivery,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "format": facts.format,
        "paths": list(paths),
        "files": facts.files,
        "dropped": facts.dropped,
        "examples": facts.examples,
        **{name: getattr(received, name) for name in ("runs", "new", "changed", "known")},
        "outcomes_left_out": sum(run.trajectory.outcome is not None for run in sorted_out.kept),
        "sentences": list(received.sentences),
        "runs_sha256": corpus.store.write_stream(
            batch_key(corpus.name, batch, "runs.parquet"), lambda sink: _write(sink, rows)
        ),
        "identities_sha256": corpus.store.write_table(
            batch_key(corpus.name, batch, "identities.parquet"), sorted_out.table()
        ),
        "draw_sha256": corpus.store.write_json(
            batch_key(corpus.name, batch, "draw.json"), _drawn(corpus, rows)
        ),
    }
    corpus.store.write_json(batch_key(corpus.name, batch, "import.json"), about)
    return received


def _write(sink: IO[bytes], rows: Sequence[Trajectory]) -> None:
    from certify_assets.corpora.schema import row_groups, write_groups

    sizes = (
        len(row.instruction) + sum(len(step.action) + len(step.observation) for step in row.steps)
        for row in rows
    )
    write_groups(sink, (list(rows[start:end]) for start, end in row_groups(sizes)))


def _delivery(runs: Sequence[Run]) -> str:
    """Return the hash of what was given: ids where the source has them, and contents, whatever the files are called."""
    return sha256_bytes(
        canonical_json(
            sorted(
                ["" if run.numbered else run.trajectory.trajectory_id, run.content] for run in runs
            )
        )
    )


def _named(corpus: Corpus, delivery: str) -> str:
    """Return the batch of a delivery: the one that has its hash, else the next."""
    names = corpus.store.names(f"operations/{corpus}/batches")
    found = next((name for name in names if name.endswith(f"-{delivery[:12]}")), None)
    last = max((int(name[:6]) for name in names if name[:6].isdecimal()), default=0)
    return found or f"{last + 1:06d}-{delivery[:12]}"


def _drawn(corpus: Corpus, rows: Iterable[Trajectory]) -> dict[str, Any]:
    """Draw the tasks by the plan of the deployment of now; nothing is drawn where there is none."""
    try:
        deployment = load_deployment(corpus)
    except CertifyError:
        # decisions will be refused, with the reason
        deployment = None
    if deployment is None:
        return {"deployment": None, "plan": None, "drawn": {}}
    tasks = sorted({row.task_id for row in rows})
    places = draw_tasks(deployment.sampling, corpus.name, tasks).tolist()
    drawn = {task: place for task, place in zip(tasks, places, strict=True) if place}
    return {"deployment": deployment.number, "plan": asdict(deployment.sampling), "drawn": drawn}


def _refuse_score_tables(roots: Sequence[Path]) -> None:
    """Name the other command where somebody gave scores instead of runs."""
    for path in (
        path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*")))
    ):
        if path.suffix.lower() not in _TABLES or not path.is_file():
            continue
        try:
            columns = set(read_rows(path, set())[0])
        except InputError:
            continue
        if "score" in columns and not columns & {"text", "steps"}:
            raise InputError(
                f"{path.name} is a table of scores, without runs; `certify decide CERTIFICATE {path.name}` takes it. Give the runs here."
            )


def _without_copies(sentence: str, roots: Sequence[Path], places: Sequence[str]) -> str:
    """Name the URL where a sentence names its copy."""
    for root, place in zip(roots, places, strict=True):
        sentence = sentence.replace(str(root), shown_url(place))
    return sentence
