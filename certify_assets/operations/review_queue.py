"""The review queue: runs that wait for a label, the most urgent first, and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.specs import SIDES
from certify_assets.operations.batch_audit import GROWS, BatchAudit, batch_audits
from certify_assets.operations.batches import operation_key
from certify_assets.operations.decisions import load_decisions
from certify_assets.operations.labels import read_gold_labels, read_labels
from certify_assets.operations.review_index import KINDS, ReviewState, Row, TwiceReviewed, is_tied
from certify_assets.tables.agreement import Agreement, measure_agreement, valid_labels
from certify_assets.words import number_of

if TYPE_CHECKING:
    import pandas as pd

#: of every run that waits: agent, score and decision would sway a reviewer
QUEUE_COLUMNS: Final = (
    "place",
    "kind",
    "trajectory_id",
    "task_id",
    "batch",
    "attempt",
    "reviews",
    "disputed",
    "labels",
    "why",
)
#: of a label: an assumption, as in the paper's table of reviewer-hours
MINUTES_PER_RUN: Final = 6.0


def queue_key(corpus: str) -> str:
    """Return the key of the table of the queue."""
    return operation_key(corpus, "queue.parquet")


def queue_page_key(corpus: str) -> str:
    """Return the key of the page of the queue."""
    return operation_key(corpus, "queue.html")


@dataclass(frozen=True)
class KindBudget:
    """Cost of one kind: runs, tasks, and labels, more than runs where two reviewers are asked."""

    kind: str
    runs: int
    tasks: int
    labels: int
    disputed: int
    minutes: float


@dataclass(frozen=True)
class DrawBudget:
    """Labels that the draw of a provisional batch wants now, and what they save."""

    batch: str
    wanted: int  # labels that certify the next set of each side if none is an error
    runs: int  # of the batch, that wait
    saved: int  # of these, decided without a label then
    tied: int = 0  # of the wanted labels, those that settle tied runs

    def sentence(self) -> str:
        """Describe the draw."""
        if not self.wanted:
            return (
                f"Batch {self.batch}: its labels suffice to decide {self.saved:,} of its "
                f"{self.runs:,} runs without a label."
            )
        more = number_of(self.wanted, "more label")
        tied = ""
        if self.tied:
            runs = number_of(self.tied, "tied run")
            tied = f" First, a third reviewer settles {runs}: later labels count only then."
        return (
            f"Batch {self.batch}: if the judge is right on all of them, {more} decide "
            f"{self.saved:,} of its {self.runs:,} runs without a label. {GROWS}{tied}"
        )


@dataclass(frozen=True)
class Budget:
    """Cost of the queue."""

    kinds: tuple[KindBudget, ...]  # in the order of KINDS, empty ones too
    decided: int
    saved: int
    draws: tuple[DrawBudget, ...] = ()  # of batches that wait for their certificates

    @property
    def labels(self) -> int:
        """Labels of all kinds."""
        return sum(kind.labels for kind in self.kinds)

    @property
    def minutes(self) -> float:
        """Minutes that the labels take."""
        return self.labels * MINUTES_PER_RUN

    @property
    def saved_minutes(self) -> float:
        """Minutes that runs decided by the certificate would have taken."""
        return self.saved * MINUTES_PER_RUN

    def to_dict(self) -> dict[str, Any]:
        """Return the budget as a document."""
        names = ("labels", "minutes", "saved_minutes")
        about = {name: getattr(self, name) for name in names}
        return {**asdict(self), **about, "minutes_per_run": MINUTES_PER_RUN}


@dataclass(frozen=True)
class Queue:
    """Runs that wait for a label."""

    frame: pd.DataFrame  # QUEUE_COLUMNS, the most needed first
    budget: Budget
    faults: tuple[str, ...] = ()  # why a batch is not asked about: its audit was edited


def ask_twice(corpus: Corpus, share: float | None) -> None:
    """Ask two reviewers about this share of runs from now on; None leaves it as it is."""
    if share is not None and share != ReviewState(corpus).share:
        corpus.append(TwiceReviewed(share=share))


def load_queue(corpus: Corpus) -> Queue:
    """Return the runs that lack a label in the order of need.

    A run waits while it lacks a label or its reviewers are tied. The order is that of the index.
    """
    audits, faults = batch_audits(corpus)
    decisions = load_decisions(corpus)
    rows = [row for row in ReviewState(corpus).ordered() if row["draw"] not in faults]
    frame = _frame(rows)
    draws = tuple(_draw_budget(audit) for audit in audits if audit.closing is None)
    return Queue(frame, _budget(frame, decisions, draws), tuple(faults.values()))


def _frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return rows of the index that wait as a table."""
    import pandas as pd

    waiting = [
        {
            "place": place,
            "kind": KINDS[row["need"]],
            "trajectory_id": row["run"],
            "task_id": row["task"],
            "batch": row["batch"],
            "attempt": row["attempt"],
            "reviews": row["votes"],
            "disputed": is_tied(row),
            "labels": row["lacking"],
            "why": _why(row),
        }
        for place, row in enumerate(rows, 1)
    ]
    return pd.DataFrame(waiting, columns=list(QUEUE_COLUMNS))


def _why(row: Row) -> str:
    if is_tied(row):
        return "reviewers are tied"
    if KINDS[row["need"]] != "undecided":
        return "random check"
    if row["distance"] < 0:
        return "unscored"
    # the distance to the threshold would reveal the score to the reviewer
    return "no threshold" if np.isinf(row["distance"]) else "not decided"


def queue_agreement(corpus: Corpus) -> Agreement:
    """Measure how reviewers agree on decided runs, and how often they are right on known ones."""
    labels, gold = read_labels(corpus), read_gold_labels(corpus)
    frame = load_decisions(corpus)
    frame = frame[frame["trajectory_id"].isin([label.trajectory_id for label in labels])]
    tasks = dict(zip(frame["trajectory_id"], frame["task_id"], strict=True))
    # of a run whose known outcome was corrected, the last
    known = {one.trajectory_id: one.known for one in gold if one.known is not None}
    pairs = [(said, known[said.trajectory_id]) for said in valid_labels(gold)]
    return measure_agreement(labels, tasks, gold=pairs)


def _draw_budget(audit: BatchAudit) -> DrawBudget:
    """Count the labels that an open audit wants, and what they save if none is an error."""
    known = dict(audit.outcomes)
    for side in audit.draw.sides:
        known |= dict.fromkeys(side.wanted(audit.outcomes, audit.tied), 1 - side.wrong)
    saved = 0
    for side, found in zip(audit.draw.sides, audit.draw.close(known), strict=True):
        saved += sum(name not in known for name in side.inside(found.threshold))
    tied = len(audit.tied.intersection(audit.wanted))
    return DrawBudget(audit.record.batch, len(audit.wanted), len(audit.runs), saved, tied)


def _budget(frame: pd.DataFrame, decisions: pd.DataFrame, draws: tuple[DrawBudget, ...]) -> Budget:
    kinds = []
    for kind in KINDS:
        rows = frame[frame["kind"] == kind]
        labels, disputed = int(rows["labels"].sum()), int(rows["disputed"].sum())
        tasks, minutes = rows["task_id"].nunique(), labels * MINUTES_PER_RUN
        kinds.append(KindBudget(kind, len(rows), tasks, labels, disputed, minutes))
    saved = (decisions["asked"] == "") & decisions["decision"].isin(SIDES)
    return Budget(tuple(kinds), len(decisions), int(saved.sum()), draws)
