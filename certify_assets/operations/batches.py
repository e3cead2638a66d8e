"""New runs become a batch, which is decided."""

# Runs are imported without their outcomes, compared with those that came before, and their tasks
# are drawn before anything is scored. A large delivery becomes several batches: every other writer
# waits while the indexes are written.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

from certify_assets.corpora.config import format_domain
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.deliveries import instruction_sha256, renamed_tasks, trajectory_sha256
from certify_assets.corpora.inbox import inbox_key, is_inbox_empty, settled_inbox
from certify_assets.errors import CertifyError, ChangedInputError, InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.names import in_both, shared_names
from certify_assets.operations.batch_audit import AuditSummary, BatchAudit, close_settled
from certify_assets.operations.batch_drawing import draw_waiting, waiting_runs
from certify_assets.operations.batch_record import (
    BatchRecord,
    ReceivedBatch,
    Refusal,
    UndoneBatch,
    batch_names,
    draw_of,
    identities_of,
    is_undone,
    ready_batches,
    unknown_batch,
    waiting_batches,
)
from certify_assets.operations.decisions import DecidedBatchError, decide_batch
from certify_assets.operations.delivery import DeliveredRun, new_runs
from certify_assets.operations.deployment import Deployment, load_deployment
from certify_assets.operations.labels import Labelled
from certify_assets.operations.monitoring import monitor_new_labels
from certify_assets.operations.sampling import TaskDraw
from certify_assets.storage.urls import local_copies, shown_url
from certify_assets.work import Report, silent

if TYPE_CHECKING:
    from certify_assets.corpora.formats import ImportFacts
    from certify_assets.corpora.formats.gathering import Gathered
    from certify_assets.corpora.schema import Trajectory

#: runs of a batch at most
MOST_RUNS: Final = 100_000
# so many new tasks, and this share of them, with the instruction of a known task are no chance
_FEWEST_RENAMED, _RENAMED = 3, 0.5


@dataclass(frozen=True)
class Received:
    """Summary of a delivery."""

    corpus: str
    batches: tuple[str, ...] = ()  # that hold its new runs
    runs: int = 0
    new: int = 0  # that no batch holds
    changed: int = 0  # that a batch holds under the same trajectory_id with other content
    known: int = 0  # that a batch holds as they are
    dropped: Mapping[str, int] | None = None  # records that could not be used, by reason
    files: int = 0
    sentences: tuple[str, ...] = ()  # what the user should look at
    read_as: tuple[str, ...] = ()  # what was understood of tables

    @property
    def batch(self) -> str | None:
        """The first batch that holds its new runs; None where there is none."""
        return self.batches[0] if self.batches else None


def receive(
    corpus: Corpus,
    paths: Sequence[str] = (),
    *,
    format: str = "",
    options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    new_tasks: bool = False,
) -> Received:
    """Import new runs, by default from the inbox, into a batch and draw its tasks, unscored.

    Without a format they are read as the corpus was; runs of another format or domain are refused,
    and, unless `new_tasks` says that they are new, known tasks under other ids.
    """
    from certify_assets.corpora.formats import gather_new_runs

    config, own = corpus.config, _own_format(corpus)
    named = format or ("auto" if own == "embedded" else own)
    chosen = {**({} if format else config.options), **(options or {})}
    places = list(paths) or [corpus.store.folder.locate(inbox_key(corpus.name))]
    if not paths and is_inbox_empty(corpus):
        sentence = f"{places[0]} holds no file: put new runs there, or name them."
        return Received(corpus.name, sentences=(sentence,))
    with (
        nullcontext() if dry_run else corpus.writing(),
        settled_inbox(corpus, watched=not paths) as unchanged,
        local_copies(places) as roots,
        gather_new_runs(roots, format=named, name=corpus.name, options=chosen) as (runs, facts),
    ):
        unchanged()
        if not _is_same_kind(corpus, own, facts.format):
            raise InputError(
                f"{corpus} was read as {own} and these runs are {facts.format}: the judge and its "
                "certificate are of other work; import them as a corpus of their own."
            )
        shown = [shown_url(place) for place in places]
        return _stored(corpus, runs, facts, shown, dry_run=dry_run, new_tasks=new_tasks)


def _require_known_names(corpus: Corpus, runs: Sequence[DeliveredRun], *, new_tasks: bool) -> None:
    """Refuse runs and tasks of the corpus that come under another task id: they would be new."""
    import pandas as pd

    if not runs or not corpus.has("trajectories.parquet"):
        return
    stored = corpus.columns(("trajectory_id", "task_id", "instruction"))
    tasks = dict(zip(stored["trajectory_id"], stored["task_id"], strict=True))
    moved = [
        run for run in runs if tasks.get(run.id, run.trajectory.task_id) != run.trajectory.task_id
    ]
    if moved:
        first = moved[0]
        raise InputError(
            f"{len(moved)} runs have the trajectory_id of a run of {corpus} under another task_id, "
            f"such as {first.id!r} (here {first.trajectory.task_id!r}, there {tasks[first.id]!r}); "
            "give them the task_id that they had, or ids of their own. Nothing was stored."
        )
    if new_tasks:
        return
    delivered_tasks = sorted({run.trajectory.task_id for run in runs})
    found = shared_names(delivered_tasks, sorted(set(stored["task_id"])))
    if spelled := [(name, other) for name, other in found if name != other]:
        raise InputError(
            f"{len(spelled)} tasks are tasks of {corpus} in another spelling, such as "
            f"{in_both(*spelled[0])}. Give them the ids that they had, or say --new-tasks where "
            "they are new. Nothing was stored."
        )
    rows = [(run.trajectory.task_id, run.instruction_sha256) for run in runs]
    delivered = pd.DataFrame(rows, columns=["task_id", "instruction"])
    known = stored.assign(instruction=stored["instruction"].map(instruction_sha256))
    renamed = renamed_tasks(known, delivered)
    new = set(delivered["task_id"]) - set(known["task_id"])
    if len(renamed) >= max(_FEWEST_RENAMED, _RENAMED * len(new)):
        name, before = next(iter(renamed.items()))
        raise InputError(
            f"{len(renamed)} of {len(new)} new tasks have the instruction of a task of {corpus} "
            f"under another id, such as {name!r} (there {before!r}), so its certificate would "
            "decide known tasks as new ones; give them the ids that they had, or say --new-tasks "
            "where they are new. Nothing was stored."
        )


def _own_format(corpus: Corpus) -> str:
    """Return what the runs of the corpus were read as."""
    declared = corpus.config.format
    if declared == "auto" and corpus.has("import.json"):
        return corpus.import_summary.format
    return declared


def _is_same_kind(corpus: Corpus, own: str, given: str) -> bool:
    if own in ("auto", given):
        return True
    return own == "embedded" and (
        given == "table" or format_domain(given).name == corpus.domain.name
    )


def decide_ready(
    corpus: Corpus, *, report: Report = silent, draw: bool = False
) -> list[BatchRecord]:
    """Decide the batches that wait, the oldest first; return their documents.

    With `draw` all runs that wait for a draw are drawn from, however few.
    """
    # a batch whose deciding was killed still waits
    with corpus.writing():
        # an audit that was edited decides nothing of its batch, and is no matter of the next one
        close_settled(corpus)
        draw_waiting(corpus)
    records = []
    for name in waiting_batches(corpus):
        # an alarm or another deployment may have come during the previous batch
        corpus.store.refresh()
        # another process may be deciding the same batches
        with suppress(DecidedBatchError):
            records.append(decide_batch(_standing(corpus), name, report=report, reopened=_standing))
    if draw:
        with corpus.writing():
            draw_waiting(corpus, every=True)
    return records


def _standing(corpus: Corpus) -> Deployment:
    """Open the deployment after the labels that are there were put to the monitor."""
    deployment = Deployment.of(corpus)
    # a refusal stays whatever the labels are
    if deployment.refusal is not None:
        return deployment
    try:
        monitor_new_labels(corpus)
    except ChangedInputError:
        # another process was faster, which says nothing of the labels
        raise
    except CertifyError as error:
        sentence = (
            "the labels that are there cannot be put to the monitor, so an alarm may be missed: "
            f"{error}"
        )
        return deployment.refused(Refusal("alarm", sentence))
    return Deployment.of(corpus)


def close_batches(corpus: Corpus) -> tuple[list[AuditSummary], list[str]]:
    """Close the provisional batches whose labels settle them; return the audits of all batches.

    Runs that waited long enough for a draw get it. An audit that was edited is not among the
    audits: a sentence on each is returned as well.
    """
    audits, faults = audit_summaries(corpus)
    settled = any(item.state == "provisional" and not item.labels_wanted for item in audits)
    if settled or any(item.is_due for item in waiting_runs(corpus)):
        # where another process was faster, the next look closes them
        with suppress(CertifyError), corpus.writing():
            close_settled(corpus)
            draw_waiting(corpus)
        audits, faults = audit_summaries(corpus)
    return audits, faults


def audit_summaries(corpus: Corpus) -> tuple[list[AuditSummary], list[str]]:
    """Return the audits of all batches, and a sentence on each that was edited."""
    summaries, faults = [], []
    for name in batch_names(corpus):
        try:
            audit = BatchAudit.load(corpus, name)
        except CertifyError as error:
            faults.append(str(error))
            continue
        summaries += [] if audit is None else [audit.summary()]
    return summaries, faults


def audits_version(corpus: Corpus) -> str:
    """Return the version of the audits of all batches."""
    audits, _ = audit_summaries(corpus)
    return sha256_bytes(canonical_json([asdict(item) for item in audits]))


def _identified(runs: Gathered) -> Iterator[DeliveredRun]:
    for place, run in enumerate(runs.trajectories()):
        yield DeliveredRun(
            replace(run, instruction="", steps=()),
            place,
            instruction_sha256(run.instruction),
            trajectory_sha256(run),
            numbered=runs.rows[place].draft.trajectory_id is None,
        )


def undo_batch(corpus: Corpus, batch: str) -> None:
    """Take a batch back: its runs are in no queue and no figure, and may come again."""
    # what it holds stays; so does a batch with a labelled run, on which what reviewers said depends
    with corpus.writing():
        if batch not in ready_batches(corpus, undone=True):
            raise unknown_batch(corpus, batch)
        if is_undone(corpus, batch):
            # by a call that was killed before it said so
            return
        runs = set(identities_of(corpus, batch)["trajectory_id"])
        # watched: a label that comes meanwhile keeps the batch
        said = corpus.store.events(corpus.name, Labelled)
        if labelled := runs & {event.content.trajectory_id for event in said}:
            raise InputError(
                f"{len(labelled)} runs of {batch} have labels of reviewers, for example "
                f"{min(labelled)!r}; a reviewed batch cannot be undone."
            )
        home = draw_of(corpus, batch)
        shared = BatchAudit.load(corpus, home) if home else None
        if shared is not None and shared.labels_used:
            raise InputError(
                f"{batch} shares the draw of {home}, of which {shared.labels_used} runs have "
                "labels; a reviewed batch cannot be undone."
            )
        corpus.store.append(corpus.name, UndoneBatch(batch=batch))


def _stored(
    corpus: Corpus,
    gathered: Gathered,
    facts: ImportFacts,
    paths: Sequence[str],
    *,
    dry_run: bool,
    new_tasks: bool,
) -> Received:
    from certify_assets.corpora.formats.gathering import NO_INSTRUCTION

    runs = list(_identified(gathered))
    new = new_runs(corpus, runs)
    _require_known_names(corpus, new.kept, new_tasks=new_tasks)
    # ids where the source has them, and contents, whatever the files are called
    ids = sorted(["" if run.numbered else run.id, run.content] for run in runs)
    delivery = sha256_bytes(canonical_json(ids))
    ending = f"-{delivery[:12]}"
    found = Received(
        corpus.name,
        tuple(name for name in ready_batches(corpus) if name.endswith(ending)),
        runs=len(runs),
        new=len(new.kept) - new.changed,
        changed=new.changed,
        known=len(runs) - len(new.kept),
        dropped=facts.dropped,
        files=len(facts.files),
        sentences=(
            *new.sentences,
            *(f"{count} {note}." for note, count in facts.notes.items() if note == NO_INSTRUCTION),
            *(item.sentence() for item in (waiting_runs(corpus) if dry_run else ())),
        ),
        read_as=facts.read_as,
    )
    # runs of a batch that was undone are new again, though other batches of the delivery stand
    if not new.kept or dry_run:
        return found
    objects, last = corpus.store.objects, corpus.store.last(corpus.name, ReceivedBatch)
    files, made = objects.put_json(facts.files), []
    for number, part in enumerate(_parts(new.kept), 1 if last is None else last.content.number + 1):
        batch = ReceivedBatch(
            batch=f"{number:06d}{ending}",
            number=number,
            delivery_sha256=delivery,
            format=facts.format,
            paths=tuple(paths),
            dropped=facts.dropped,
            examples=facts.examples,
            rows=len(part),
            **{name: getattr(found, name) for name in ("runs", "new", "changed", "known")},
            outcomes_left_out=sum(run.trajectory.outcome is not None for run in part),
            sentences=found.sentences,
            objects={
                "runs": objects.put_stream(partial(_write, gathered=gathered, runs=part)),
                "identities": objects.put_table(new.table(part)),
                "draw": objects.put_json(_drawn(corpus, part).to_dict()),
                "files": files,
            },
        )
        corpus.store.append(corpus.name, batch)
        made.append(batch.batch)
    return replace(found, batches=(*found.batches, *made))


def _parts(runs: Sequence[DeliveredRun]) -> Iterator[Sequence[DeliveredRun]]:
    """Divide runs, which are in the order of their tasks, into batches; a task stays whole."""
    start = 0
    while start < len(runs):
        end = min(start + MOST_RUNS, len(runs))
        cut = end
        while cut < len(runs) and cut > start and _task(runs[cut]) == _task(runs[cut - 1]):
            cut -= 1
        # a task of more runs than a batch may have is divided all the same
        end = cut if cut > start else end
        yield runs[start:end]
        start = end


def _task(run: DeliveredRun) -> str:
    return run.trajectory.task_id


def _write(sink: IO[bytes], *, gathered: Gathered, runs: Sequence[DeliveredRun]) -> None:
    from certify_assets.corpora.schema import row_groups, write_groups

    sizes = (gathered.chars(run.place) for run in runs)
    write_groups(
        sink,
        ([_whole(gathered, run) for run in runs[start:end]] for start, end in row_groups(sizes)),
    )


def _whole(gathered: Gathered, run: DeliveredRun) -> Trajectory:
    texts = gathered.trajectory(run.place)
    return replace(run.trajectory, instruction=texts.instruction, steps=texts.steps, outcome=None)


def _drawn(corpus: Corpus, runs: Iterable[DeliveredRun]) -> TaskDraw:
    # one that cannot be read draws nothing: nobody would be asked about the runs that it decides
    # once it can be
    record = load_deployment(corpus)
    if record is None:
        return TaskDraw(drawn={})
    return TaskDraw.of(record.number, record.sampling, corpus.name, map(_task, runs))
