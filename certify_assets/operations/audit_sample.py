"""The audit sample: which runs are drawn before anything is scored, and which of them count.

A share of the tasks is drawn, and of each drawn task one run, or as many as the corpus says. A task
is drawn, or not, in the batch that first brings it. Runs that come later are not drawn.
"""

# A task counts when it was drawn before anything was scored and every drawn run of it has
# an outcome of a majority of its reviewers. Labels of its other runs count nothing: reviewers got
# these because the judge could not decide them. Draws and decisions are objects, which never
# change. Tasks that are open or tied are left out and reported, not corrected for, so
# whether a task gets complete must not depend on its outcomes: a few open tasks are enough to hide
# half of the errors where reviewers put off what went badly.
#
# Labels of drawn runs certify and monitor. Those of runs that the judge could not decide are of the
# hardest runs, so they do neither. Labels of a batch draw certify their batch alone: they are drawn
# by score among runs that the corpus certificate does not cover.

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from certify_assets.certificates.sampling import RUNS, Draw, Estimand
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import Document
from certify_assets.errors import InputError, IntegrityError
from certify_assets.operations.batches import (
    REFUSALS,
    batch_names,
    changed_batches,
    decided_version,
    is_decided,
    is_undone,
    known_runs,
    received,
)
from certify_assets.operations.decisions import CLOSED, NOT_COVERED, decisions_of, no_decisions
from certify_assets.operations.labels import Label, read_labels, resolve_labels
from certify_assets.storage.database import insert, number_column, tables, text_column
from certify_assets.storage.moment import remembered
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.config import CorpusConfig
    from certify_assets.storage.events import Event


@dataclass(frozen=True)
class SamplingPlan:
    """How many tasks are drawn, and the seed that draws them."""

    audit_rate: float = 0.05  # share of tasks whose drawn runs extend CAL and feed the monitor
    seed: int = 42  # keep it from the authors of agents: it shows which tasks nobody reads

    def __post_init__(self) -> None:
        if not 0.0 <= self.audit_rate <= 1.0:
            raise InputError(f"audit_rate is {self.audit_rate!r}. Give a share between 0 and 1.")

    @property
    def runs_seed(self) -> int:
        """The seed of the runs within tasks, which certificates name; it does not give `seed`."""
        digest = hashlib.sha256(f"{self.seed}\0runs".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    def draws(self, corpus: str, task: str) -> bool:
        """Whether a task is drawn."""
        # seed, corpus and task and nothing else: no score, outcome or agent, so the draw is as
        # if made before scoring
        digest = hashlib.sha256(f"{self.seed}\0{corpus}\0{task}".encode()).digest()
        uniform = int.from_bytes(digest[:8], "big") / 2.0**64
        return uniform < self.audit_rate


@dataclass(frozen=True)
class RunsOfTask:
    """Which runs of a drawn task are labelled, and whose errors a recertification then counts."""

    attempts: int = 1
    estimand: Estimand = "tasks"
    most: int = 1
    seed: int = 42

    @classmethod
    def of(cls, config: CorpusConfig, plan: SamplingPlan) -> Self:
        """Return what the configuration of a corpus asks for."""
        return cls(config.audit_runs, config.estimand, config.most or 1, plan.runs_seed)

    def words(self) -> str:
        """Say what is drawn of a task, and what counts once."""
        counts = "every task counts once"
        if self.estimand == RUNS:
            counts = f"every run counts once, and a task as at most {self.most:,} runs"
        return f"{self.attempts} of a task, drawn by seed {self.seed}; {counts}"

    def draw(self, count: int, sha256: str = "") -> Draw:
        """Return the draw from a table with this number of runs, as a certificate names it."""
        return Draw(count, self.attempts, self.estimand, self.most, self.seed, sha256)


def asked_rows(
    drawn: NDArray[np.bool_], decisions: NDArray[Any], excluded: NDArray[np.bool_]
) -> NDArray[np.object_]:
    """Return why each row is in the review queue; "" where it is not."""
    asked = np.where(decisions == "human", "undecided", "").astype(object)
    # what is excluded, a seen task or a run that came before, is no draw from the new ones
    asked[drawn & ~excluded] = "audit_sample"
    return asked


class RunDraw(Document):
    """The drawn runs of a batch."""

    SCHEMA = "certify_assets/draw/3"
    TITLE = "draw"
    REFUSAL = IntegrityError

    deployment: int | None = None  # whose plan drew them; None where no judge was deployed
    plan: SamplingPlan | None = None
    runs: RunsOfTask = RunsOfTask()
    before: tuple[str, ...] = ()  # tasks of the batch that earlier batches brought: not drawn
    drawn: tuple[str, ...]  # runs

    @classmethod
    def of(
        cls,
        number: int,
        plan: SamplingPlan,
        runs: RunsOfTask,
        names: Iterable[tuple[str, str]],
        *,
        corpus: str,
        before: Collection[str] = (),
    ) -> RunDraw:
        """Draw from the tasks and runs of a batch by the plan of a deployment."""
        names = sorted(names)
        able = [(task, run) for task, run in names if task not in before]
        able = [(task, run) for task, run in able if plan.draws(corpus, task)]
        tasks, ids = [task for task, _ in able], [run for _, run in able]
        rows = runs.draw(max(1, len(able))).rows(tasks, ids)
        return cls(
            deployment=number,
            plan=plan,
            runs=runs,
            before=tuple(sorted(before)),
            drawn=tuple(ids[row] for row in sorted(rows.tolist())),
        )

    @classmethod
    def load(cls, corpus: Corpus, batch: str) -> RunDraw:
        """Read the draw of a batch."""
        return cls.from_dict(corpus.store.objects.get_json(received(corpus, batch).objects["draw"]))


#: share of drawn tasks that are open or tied above which a recertification carries a warning
OPEN_SHARE: Final = 0.05
#: why a drawn task does not count
REASONS: Final = {
    "open": "not every drawn run is labelled",
    "tied": "reviewers of a drawn run disagree and neither side has a majority",
    "in_splits": "the task is in the splits of the corpus",
    "changed_run": (
        "a run came twice under one name with different content, so it is unclear which was "
        "labelled"
    ),
    "drawn_otherwise": (
        "its runs were drawn with another seed or estimand than the deployment has"
    ),
    "other_adapter": "a drawn run was scored by another adapter than the current one",
}


@dataclass(frozen=True, eq=False)
class CountedTasks:
    """The tasks that count and those that do not."""

    # every drawn row of every task that counts, in the order of completion; those of a refused
    # batch were never scored
    rows: pd.DataFrame
    others: pd.DataFrame  # rows, without outcomes, of the runs that these were drawn from
    drawn: int
    left_out: Mapping[str, int]  # drawn tasks that do not count, by the keys of REASONS
    unresolved: pd.DataFrame  # drawn rows, scores alone, of the tasks that are open or tied

    @property
    def tasks(self) -> list[str]:
        """The tasks that count, in the order of completion."""
        return [str(task) for task in self.rows["task_id"].drop_duplicates()]

    @property
    def open_share(self) -> float:
        """Share of the tasks that could count which are open or tied."""
        waiting = self.left_out.get("open", 0) + self.left_out.get("tied", 0)
        able = waiting + len(self.tasks)
        return waiting / able if able else 0.0


def not_covered(frame: pd.DataFrame) -> pd.Series[bool]:
    """Return which decisions are of runs that the corpus certificate does not cover."""
    return frame["reason"].isin([*NOT_COVERED, *CLOSED])


@remembered
def drawn_decisions(corpus: Corpus) -> pd.DataFrame:
    """Return all decisions, with a column ``drawn`` for the audit sample."""
    import pandas as pd

    parts = [_drawn(corpus, name) for name in batch_names(corpus)]
    return pd.concat(parts, ignore_index=True) if parts else no_decisions().assign(drawn=False)


def _drawn(corpus: Corpus, batch: str) -> pd.DataFrame:
    rows = decisions_of(corpus, batch)
    return rows.assign(drawn=rows["trajectory_id"].isin(RunDraw.load(corpus, batch).drawn))


#: drawn runs, as they are decided now: the monitor reads no table of a batch
monitored = sa.Table(
    "monitored",
    tables,
    text_column("corpus", primary_key=True),
    text_column("batch", primary_key=True),
    # among the decisions of the batch, from 0
    number_column("place", primary_key=True),
    text_column("trajectory_id"),
    text_column("task_id"),
    sa.Column("score", sa.Float),
    *map(text_column, ("decision", "reason", "asked", "adapter_sha256")),
)
_COLUMNS: Final = [column.name for column in monitored.columns][3:]


def follow(store: Store, connection: sa.Connection, rows: Sequence[Event[Any]]) -> None:
    """Bring the index of drawn runs to the state after these events."""
    for name, mine in groupby(rows, key=lambda row: row.corpus):
        corpus = Corpus(store.within(connection), name)
        for batch in sorted({batch for row in mine for batch in changed_batches(corpus, row)}):
            its = monitored.c.corpus == name, monitored.c.batch == batch
            connection.execute(monitored.delete().where(*its))
            if is_undone(corpus, batch) or not is_decided(corpus, batch):
                continue
            frame = _drawn(corpus, batch)
            drawn = frame[frame["drawn"]]
            columns = (drawn[column].tolist() for column in _COLUMNS)
            values = zip(drawn.index.tolist(), *columns, strict=True)
            insert(connection, monitored, ((name, batch, *row) for row in values))


@remembered
def monitored_rows(corpus: Corpus) -> pd.DataFrame:
    """Return the decided runs that were drawn, the oldest batch first.

    Column ``twice`` says whether the run came again in another batch.
    """
    import pandas as pd

    # a step that reads the index notices decisions and closings of others by their events
    decided_version(corpus)
    batches, store = set(batch_names(corpus)), corpus.store
    query = sa.select(monitored).where(monitored.c.corpus == corpus.name)
    # pandas looks into what is no plain tuple
    found = map(tuple, store.indexed(query.order_by(monitored.c.batch, monitored.c.place)))
    frame = pd.DataFrame(found, columns=monitored.columns.keys()).astype({"score": float})
    here = known_runs.c.corpus == corpus.name
    several = sa.select(known_runs.c.run).where(here).group_by(known_runs.c.run)
    again = known_runs.c.run.in_(several.having(sa.func.count() > 1))
    names = store.indexed(sa.select(known_runs.c.run, known_runs.c.batch).where(here, again))
    times = Counter(row.run for row in names if row.batch in batches)
    twice = [name for name, count in times.items() if count > 1]
    return frame.assign(twice=frame["trajectory_id"].isin(twice))


def with_labels(frame: pd.DataFrame, labels: Iterable[Label]) -> pd.DataFrame:
    """Return decisions with the columns ``outcome``, missing where there is none, and ``tied``."""
    resolved = resolve_labels(labels)
    found = [resolved.get(str(name)) for name in frame["trajectory_id"]]
    outcome = np.array(
        [np.nan if item is None or item.outcome is None else item.outcome for item in found],
        dtype=np.float64,
    )
    tied = [item is not None and item.outcome is None for item in found]
    return frame.assign(outcome=outcome, tied=tied)


def completed_at(
    labels: Iterable[Label],
    runs: Mapping[str, Sequence[str]],
    outcomes: Sequence[Label] = (),
) -> dict[str, int]:
    """Return the number of the label with which every run of a task first had an outcome.

    A run stays settled once it has one of `outcomes`, even where a label denies it.
    """
    # Labels are numbered as they were stored, whatever the clock said, so the order never changes.
    # A task without runs is complete from the start, at 0.
    owner = {run: task for task, names in runs.items() for run in names}
    waiting = {task: set(names) for task, names in runs.items()}
    votes: dict[str, dict[str, int]] = {}
    known: dict[str, int] = {}
    for item in outcomes:
        known.setdefault(item.trajectory_id, item.number)
    found = {task: 0 for task, names in waiting.items() if not names}
    for label in sorted([*labels, *outcomes], key=lambda item: item.number):
        task = owner.get(label.trajectory_id)
        if task is None or task in found:
            continue
        of_run = votes.setdefault(label.trajectory_id, {})
        of_run.pop(label.reviewer, None)
        if label.outcome is not None:
            of_run[label.reviewer] = label.outcome
        # as many successes as failures are no outcome, and neither is nothing
        settled = 2 * sum(of_run.values()) != len(of_run)
        settled |= known.get(label.trajectory_id, label.number + 1) <= label.number
        (waiting[task].discard if settled else waiting[task].add)(label.trajectory_id)
        if not waiting[task]:
            found[task] = label.number
    return found


def rows_in_order(frame: pd.DataFrame, places: Mapping[str, int]) -> pd.DataFrame:
    """Return the rows of tasks that have a place, in the order of these."""
    found = frame["task_id"].map(dict(places))
    order = np.argsort(found[found.notna()].to_numpy(), kind="stable")
    return frame[found.notna()].iloc[order]


def count_audit_tasks(
    corpus: Corpus,
    *,
    adapter_sha256: str,
    plan: SamplingPlan,
) -> CountedTasks:
    """Find the tasks that extend CAL; rows that another judge scored do not count.

    Parameters
    ----------
    corpus : Corpus
    adapter_sha256 : str
        Hash of the judge.
    plan : SamplingPlan
        That of the deployment: tasks whose runs another seed drew do not count.
    """
    frame = drawn_decisions(corpus)
    labels = read_labels(corpus)
    frame["twice"] = frame["trajectory_id"].duplicated(keep=False)
    draws = {name: RunDraw.load(corpus, name).runs for name in frame["batch"].unique()}
    wanted = RunsOfTask.of(corpus.current.config, plan)
    frame["otherwise"] = [draws[name] != wanted for name in frame["batch"]]
    audit = with_labels(frame[frame["drawn"].astype(bool)], labels)
    reasons = _reasons(audit, corpus.manifest.assignment, adapter_sha256)
    runs = audit.groupby("task_id", sort=False)["trajectory_id"].agg(list)
    rows = rows_in_order(audit, completed_at(labels, runs[reasons == ""].to_dict()))
    waiting = audit[audit["task_id"].map(reasons).isin(["open", "tied"])]
    counts = reasons.value_counts()
    names = ["trajectory_id", "task_id", "agent", "batch", "score"]
    rows = rows.assign(refused=_never_scored(rows)).astype({"outcome": "int8"})
    # the runs of a task that came with those that were drawn
    home = frame["task_id"].map(dict(zip(rows["task_id"], rows["batch"], strict=True)))
    others = frame[(frame["batch"] == home) & ~frame["trajectory_id"].isin(rows["trajectory_id"])]
    return CountedTasks(
        rows=rows[[*names, "outcome", "refused"]].reset_index(drop=True),
        others=others[names].reset_index(drop=True),
        drawn=len(reasons),
        left_out={name: int(counts[name]) for name in REASONS if name in counts},
        unresolved=waiting[names].reset_index(drop=True),
    )


def _never_scored(rows: pd.DataFrame) -> pd.Series[bool]:
    """Return which rows are of a batch that was refused and not scored either."""
    # one that waited for a certificate of its own was, and counts alike before and after it closed
    return rows["reason"].isin(REFUSALS) & rows["score"].isna()


def _reasons(
    audit: pd.DataFrame, in_splits: Mapping[str, str], adapter_sha256: str
) -> pd.Series[str]:
    """Return why each drawn task does not count; "" where it does."""
    tasks, tied = audit["task_id"], audit["tied"].astype(bool)
    return first_faults(
        {
            "in_splits": tasks.isin([*in_splits]),
            "changed_run": audit["twice"] | (audit["asked"] != "audit_sample"),
            "drawn_otherwise": audit["otherwise"].astype(bool),
            "other_adapter": (audit["adapter_sha256"] != adapter_sha256) & ~_never_scored(audit),
            "open": audit["outcome"].isna() & ~tied,
            "tied": tied,
        },
        tasks,
    )


def first_faults(faults: Mapping[str, pd.Series[bool]], tasks: pd.Series[str]) -> pd.Series[str]:
    """Return by task the first fault that a row of it has; "" where none has one."""
    import pandas as pd

    found = pd.DataFrame(dict(faults)).astype(bool).groupby(tasks, sort=False).any()
    names = np.select([found[name] for name in faults], list(faults), "")
    return pd.Series(names, found.index, dtype=object)
