"""New runs become batches: imported, told apart from those before, and drawn from."""

# Runs are imported without their outcomes, and their tasks are drawn before anything is scored. A
# large delivery becomes several batches: every other writer waits while the indexes are written.

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import sqlalchemy as sa

from certify_assets.corpora.config import format_domain
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.deliveries import renamed_tasks
from certify_assets.corpora.inbox import inbox_key, is_inbox_empty, settled_inbox
from certify_assets.corpora.trajectory import instruction_sha256, trajectory_sha256
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.names import in_both, shared_names
from certify_assets.operations.audit_sample import RunDraw, RunsOfTask
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.batch_drawing import waiting_runs
from certify_assets.operations.batches import (
    ReceivedBatch,
    UndoneBatch,
    draw_of,
    identities_of,
    is_undone,
    known_runs,
    known_tasks,
    ready_batches,
    unknown_batch,
)
from certify_assets.operations.deployment import DeploymentRecord, load_deployment, open_deployment
from certify_assets.operations.labels import Labelled
from certify_assets.operations.outcomes import OutcomeKnown
from certify_assets.storage.urls import local_copies, shown_url

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.formats.gathering import Gathered
    from certify_assets.corpora.imported import ImportFacts

#: runs of a batch at most
MOST_RUNS: Final = 100_000
# so many new tasks, and this share of them, with the instruction of a known task are no chance
_FEWEST_RENAMED, _RENAMED = 3, 0.5
_SHOWN: Final = 5
# what a batch says of its delivery
_OF_DELIVERY = [
    "delivery_sha256",
    "paths",
    "dropped",
    "runs",
    "new",
    "changed",
    "known",
    "sentences",
]
_IDENTITIES = ["trajectory_id", "task_id", "agent", "content_sha256", "changed"]


@dataclass(frozen=True)
class Received:
    """Summary of a delivery."""

    corpus: str
    batches: tuple[str, ...] = ()  # that hold its new runs
    runs: int = 0
    new: int = 0  # that no batch holds
    changed: int = 0  # that a batch holds under the same trajectory_id with other content
    known: int = 0  # that a batch holds as they are
    dropped: Mapping[str, int] = field(default_factory=dict)  # unusable records, by reason
    files: int = 0
    sentences: tuple[str, ...] = ()  # what the user should look at
    read_as: tuple[str, ...] = ()  # what was understood of tables
    delivery_sha256: str = ""
    paths: tuple[str, ...] = ()  # without credentials

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
    """Import new runs, by default from the inbox, as batches, and draw their audit sample.

    Nothing is scored. By default the format is that of the corpus. Runs of another format or domain
    are refused. Known tasks under other ids are refused too, unless `new_tasks` is true.
    """
    from certify_assets.corpora.formats import gather_corpus

    own = corpus.config.format
    if own == "auto" and corpus.has("import.json"):
        own = corpus.import_summary.format
    named = format or ("auto" if own == "embedded" else own)
    chosen = {**({} if format else corpus.config.options), **(options or {})}
    chosen["keep_unlabelled"] = True
    places = list(paths) or [corpus.store.folder.locate(inbox_key(corpus.name))]
    if not paths and is_inbox_empty(corpus):
        sentence = f"{places[0]} holds no file. Put new runs there, or give their path."
        return Received(corpus.name, sentences=(sentence,))
    with (
        nullcontext() if dry_run else corpus.writing(),
        settled_inbox(corpus, watched=not paths) as unchanged,
        local_copies(places) as roots,
        gather_corpus(roots, format=named, name=corpus.name, options=chosen) as (runs, facts),
    ):
        unchanged()
        if not _is_same_kind(corpus, own, facts.format):
            raise InputError(
                f"{corpus} was read as {own}, but these runs are {facts.format}. Judge and "
                "certificate do not apply to them; import them as another corpus."
            )
        every = _table(runs)
        new, again = new_runs(corpus, every)
        _require_known_names(corpus, new, new_tasks=new_tasks)
        # ids where the source has them, and contents, whatever the files are called
        ids = every["trajectory_id"].mask(every["numbered"], "")
        contents = sorted(map(list, zip(ids, every["content_sha256"], strict=True)))
        delivery = sha256_bytes(canonical_json(contents))
        # runs of a batch that was undone are new again, though others of the delivery are not
        held = [name for name in ready_batches(corpus) if name.endswith(f"-{delivery[:12]}")]
        changed = int(new["changed"].sum())
        found = Received(
            corpus.name,
            batches=tuple(held),
            runs=len(every),
            new=len(new) - changed,
            changed=changed,
            known=len(every) - len(new),
            dropped=facts.dropped,
            files=len(facts.files),
            sentences=tuple(_sentences(new, again, facts)),
            read_as=facts.read_as,
            delivery_sha256=delivery,
            paths=tuple(map(shown_url, places)),
        )
        if dry_run:
            return replace(found, sentences=(*found.sentences, *_outlook(corpus, new)))
        return replace(found, batches=(*held, *_stored(corpus, runs, new, found, facts)))


def _outlook(corpus: Corpus, new: pd.DataFrame) -> Iterator[str]:
    """Say which new runs the corpus certificate would not decide, and what waits for a draw."""
    deployment = open_deployment(corpus)
    if deployment.judge is not None and deployment.refusal is None:
        known = deployment.judge.calibration[0]["agent"]
        strange = new.loc[~new["agent"].isin(known), "agent"]
        if len(strange):
            names = ", ".join(sorted(set(strange))[:_SHOWN])
            yield (
                f"{len(strange):,} runs are of agents that CAL lacks ({names}). If CAL has them "
                "under another name, give that name with --option agent=NAME."
            )
    yield from (item.outlook() for item in waiting_runs(corpus))


def _is_same_kind(corpus: Corpus, own: str, given: str) -> bool:
    if own in ("auto", given):
        return True
    return own == "embedded" and (
        given == "table" or format_domain(given).name == corpus.domain.name
    )


def _table(gathered: Gathered) -> pd.DataFrame:
    """Return the runs of a delivery without their texts, which may be larger than the memory."""
    import pandas as pd

    rows = (
        (
            run.trajectory_id,
            run.task_id,
            run.agent,
            run.attempt,
            trajectory_sha256(run),  # of task, agent and texts: the same run under any id
            instruction_sha256(run.instruction),
            run.outcome is not None,
        )
        for run in gathered.trajectories()
    )
    names = ["trajectory_id", "task_id", "agent", "attempt", "content_sha256", "instruction"]
    table = pd.DataFrame(rows, columns=[*names, "labelled"])
    # the source has no ids: those of these runs were made of task, agent and attempt
    numbered = [row.draft.trajectory_id is None for row in gathered.rows]
    return table.assign(numbered=np.array(numbered, bool), place=np.arange(len(table)))


def new_runs(corpus: Corpus, runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the runs of a delivery that no batch holds yet, by the index of runs.

    They are in the order of task and id. Column ``changed`` marks those that came before under the
    same id with other content. The ids of those that came before under other ids follow.
    """
    # two deliveries at once: the second one sees that it asked an older index
    ready_batches(corpus)
    given = runs[~runs["numbered"]].set_index("trajectory_id")["content_sha256"].to_dict()
    held = list(_indexed(corpus, known_runs.c.run, given))
    same = {name for name, content in held if content == given[name]}
    by_id = runs["trajectory_id"].isin([name for name, _ in held]) & ~runs["numbered"]
    contents = {bytes.fromhex(content) for content in runs["content_sha256"]}
    # how often a run came, by its content, under ids that the delivery does not have
    often = Counter(content for _, content in _indexed(corpus, known_runs.c.content, contents))
    often.subtract(given[name] for name in same)
    others = runs[~by_id]
    earlier = np.array([often[content] for content in others["content_sha256"]], dtype=np.int64)
    came = others.groupby("content_sha256").cumcount() < earlier
    changed = by_id & ~runs["trajectory_id"].isin(same)
    kept = runs.assign(changed=changed)
    kept = kept[changed | ~(by_id | came.reindex(runs.index, fill_value=False))]
    # A source without ids numbers the attempts of one delivery; a run of a later delivery gets
    # the next free number.
    tasks = set(runs.loc[runs["numbered"], "task_id"])
    taken = {*given, *(name for name, _ in _indexed(corpus, known_runs.c.task, tasks))}
    names, attempts = list[str](), list[int]()
    columns = ["trajectory_id", "task_id", "agent", "attempt", "numbered"]
    for name, task, agent, attempt, numbered in kept[columns].itertuples(index=False, name=None):
        while numbered and (name := f"{task}/{agent}/{attempt}") in taken:
            attempt += 1
        taken.add(name)
        names.append(name)
        attempts.append(attempt)
    kept = kept.assign(trajectory_id=names, attempt=attempts)
    again = others.loc[came & ~others["numbered"], "trajectory_id"].tolist()
    return kept.sort_values(["task_id", "trajectory_id"], ignore_index=True), again


def _indexed(
    corpus: Corpus, column: sa.Column[Any], values: Collection[Any]
) -> Iterator[tuple[str, str]]:
    """Give id and content of the runs that have one of the values."""
    query = sa.select(known_runs.c.run, known_runs.c.content)
    query = query.where(known_runs.c.corpus == corpus.name)
    for row in corpus.store.indexed(query, column, values):
        yield row.run, row.content.hex()


def _require_known_names(corpus: Corpus, runs: pd.DataFrame, *, new_tasks: bool) -> None:
    """Refuse runs and tasks of the corpus that come under another task id: they would be new."""
    if runs.empty or not corpus.has("trajectories.parquet"):
        return
    stored = corpus.columns(("trajectory_id", "task_id", "instruction"))
    both = runs.merge(stored, on="trajectory_id", suffixes=("", "_there"))
    moved = both[both["task_id"] != both["task_id_there"]]
    if len(moved):
        first = moved.iloc[0]
        raise InputError(
            f"{len(moved):,} runs have the trajectory_id of a run of {corpus} but another task_id, "
            f"such as {first['trajectory_id']!r} (here {first['task_id']!r}, there "
            f"{first['task_id_there']!r}). Give them the task_id that they had, or new ids. "
            "Nothing was stored."
        )
    if new_tasks:
        return
    remedy = (
        "Give them the ids that they had, or add --new-tasks if they are new. Nothing was stored."
    )
    found = shared_names(sorted(set(runs["task_id"])), sorted(set(stored["task_id"])))
    if spelled := [(name, other) for name, other in found if name != other]:
        raise InputError(
            f"{len(spelled):,} tasks are tasks of {corpus} in another spelling, such as "
            f"{in_both(*spelled[0])}. {remedy}"
        )
    known = stored.assign(instruction=stored["instruction"].map(instruction_sha256))
    renamed = renamed_tasks(known, runs)
    new = set(runs["task_id"]) - set(known["task_id"])
    if len(renamed) >= max(_FEWEST_RENAMED, _RENAMED * len(new)):
        name, before = next(iter(renamed.items()))
        raise InputError(
            f"{len(renamed):,} of {len(new):,} new tasks have the instruction of a task of "
            f"{corpus} under another id, such as {name!r} (there {before!r}). The certificate "
            f"would decide known tasks as new ones. {remedy}"
        )


def _sentences(new: pd.DataFrame, again: Sequence[str], facts: ImportFacts) -> Iterator[str]:
    """Say what the user should look at."""
    from certify_assets.corpora.formats.gathering import NO_INSTRUCTION

    changed = new.loc[new["changed"], "trajectory_id"]
    if len(changed):
        yield (
            f"{len(changed):,} runs came before under the same trajectory_id with other content, "
            f"such as {min(changed)}. Reviewers decide them. Give a repeated run a new id."
        )
    if again:
        yield (
            f"{len(again):,} runs came before under other ids, with the same task, agent and "
            f"texts, such as {min(again)}. They are not decided again."
        )
    if lacking := facts.notes.get(NO_INSTRUCTION):
        yield f"{lacking} {NO_INSTRUCTION}."


def _stored(
    corpus: Corpus, gathered: Gathered, new: pd.DataFrame, found: Received, facts: ImportFacts
) -> Iterator[str]:
    """Store the new runs of a delivery as batches; give their names."""
    objects, last = corpus.store.objects, corpus.last(ReceivedBatch)
    files, deployed = objects.put_json(facts.files), load_deployment(corpus)
    about = {name: getattr(found, name) for name in _OF_DELIVERY}
    first = 1 if last is None else last.content.number + 1
    for number, rows in enumerate(_parts(new), first):
        # without a deployment nobody would be asked about the runs that one decides later
        draw = RunDraw(drawn=()) if deployed is None else _draw(corpus, deployed, rows)
        batch = ReceivedBatch(
            batch=f"{number:06d}-{found.delivery_sha256[:12]}",
            number=number,
            rows=len(rows),
            outcomes_left_out=int(rows["labelled"].sum()),
            objects={
                "runs": objects.put_stream(partial(_write, gathered=gathered, rows=rows)),
                "identities": objects.put_table(rows[_IDENTITIES]),
                "draw": objects.put_json(draw.to_dict()),
                "files": files,
            },
            **about,
        )
        corpus.append(batch)
        yield batch.batch


def _draw(corpus: Corpus, deployed: DeploymentRecord, rows: pd.DataFrame) -> RunDraw:
    """Draw from the new runs of a batch, those of known tasks left out."""
    plan, names = deployed.sampling, zip(rows["task_id"], rows["trajectory_id"], strict=True)
    before = known_tasks(corpus, set(rows["task_id"]))
    of_task = RunsOfTask.of(corpus.config, plan)
    return RunDraw.of(deployed.number, plan, of_task, names, corpus=corpus.name, before=before)


def _parts(runs: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Divide runs, which are in the order of their tasks, into batches; a task stays whole."""
    starts = np.flatnonzero(~runs["task_id"].duplicated())
    start = 0
    while start < len(runs):
        end = start + MOST_RUNS
        whole = starts[(starts > start) & (starts <= end)]
        # a task of more runs than a batch may have is divided all the same
        if end < len(runs) and len(whole):
            end = int(whole[-1])
        yield runs.iloc[start:end].reset_index(drop=True)
        start = end


def _write(sink: IO[bytes], *, gathered: Gathered, rows: pd.DataFrame) -> None:
    """Write whole runs under the ids that they have now, without outcomes."""
    from certify_assets.corpora.schema import write_trajectories

    named = rows[["place", "trajectory_id", "attempt"]].to_numpy(object).tolist()
    write_trajectories(
        sink,
        (
            replace(
                gathered.trajectory(place), trajectory_id=name, attempt=int(attempt), outcome=None
            )
            for place, name, attempt in named
        ),
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
        # watched: a label or an outcome that comes meanwhile keeps the batch
        said = corpus.events(Labelled)
        labelled = runs & {event.content.trajectory_id for event in said}
        known = {one.content.trajectory_id for one in corpus.events(OutcomeKnown)}
        if monitored := known & {*RunDraw.load(corpus, batch).drawn}:
            raise InputError(
                f"{batch} has {len(monitored):,} drawn runs whose outcomes the monitor reads. It "
                "cannot be undone."
            )
        draw = draw_of(corpus, batch)
        shared = BatchAudit.load(corpus, draw) if draw else None
        if labelled or (shared is not None and shared.labels_used):
            raise InputError(
                f"{batch}, or a batch in the same draw, has labels of reviewers. A reviewed batch "
                "cannot be undone."
            )
        corpus.append(UndoneBatch(batch=batch))
