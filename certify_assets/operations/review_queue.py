"""The review queue: runs that wait for a label, the most urgent first, and their cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from certify_assets.certificates.batch_sides import settled
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError
from certify_assets.operations.agreement import Agreement, measure_agreement
from certify_assets.operations.audit_sample import not_covered
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.batch_record import batch_names
from certify_assets.operations.labels import Resolved, read_gold_labels, read_labels, resolve_labels
from certify_assets.operations.layout import load_decisions
from certify_assets.operations.review_gold import gold_pairs
from certify_assets.operations.review_order import (
    KINDS,
    MINUTES_PER_RUN,
    review_place,
    threshold_distance,
)

if TYPE_CHECKING:
    import pandas as pd

#: of every run that waits: what a reviewer may see of it
BLIND_COLUMNS: Final = (
    "place",
    "kind",
    "trajectory_id",
    "task_id",
    "batch",
    "attempt",
    "reviews",
    "disputed",
    "labels",
    "task_labels",
    "why",
)

#: the same, with what could sway a reviewer
QUEUE_COLUMNS: Final = (
    *BLIND_COLUMNS,
    "agent",
    "score",
    "decision",
    "reason",
    "reject_threshold",
    "release_threshold",
)

_AUTOMATIC = ("reject", "release")


@dataclass(frozen=True)
class Asked:
    """The decided runs of a corpus that need a label, labelled or not."""

    # rows with `asked` set or drawn from a provisional batch, the oldest first; the later row of a
    # run decided twice
    frame: pd.DataFrame
    decided: int  # runs with a decision, all of them
    saved: int  # of these, runs that the certificate decided and that need no label
    audits: tuple[BatchAudit, ...] = ()  # of provisional batches, closed or not
    faults: tuple[str, ...] = ()  # why a batch is not asked about: its audit was edited


@dataclass(frozen=True)
class KindBudget:
    """Cost of one kind: runs, tasks, and labels, more than runs where two reviewers are asked."""

    kind: str
    runs: int
    tasks: int
    labels: int
    disputed: int


@dataclass(frozen=True)
class DrawBudget:
    """Labels that the draw of a provisional batch still wants, and what they save."""

    batch: str
    least: int  # until a certificate, were all of them right
    most: int  # until every drawn run is labelled
    runs: int  # of the batch, that wait
    saved: int  # of these, decided without a label after the least number; 0 where none can be

    def sentence(self) -> str:
        """Describe the draw."""
        if not self.least and self.saved:
            return (
                f"Batch {self.batch}: {self.saved} of {self.runs} runs can be decided without a "
                "label; "
                f"up to {self.most} labels more may save more of them."
            )
        wanted = f"{self.least} to {self.most}" if self.least < self.most else f"{self.most}"
        return (
            f"Batch {self.batch}: its draw wants {wanted} labels more; where the first "
            f"{self.least} agree "
            f"with the judge, {self.saved} of {self.runs} runs are decided without one."
        )


@dataclass(frozen=True)
class Budget:
    """Cost of the queue."""

    minutes_per_run: ClassVar = MINUTES_PER_RUN

    kinds: tuple[KindBudget, ...]  # in the order of KINDS, empty ones too
    decided: int
    saved: int
    draws: tuple[DrawBudget, ...] = ()  # of batches that wait for their certificates

    @property
    def labels(self) -> int:
        """Labels of all kinds."""
        return sum(kind.labels for kind in self.kinds)

    @property
    def disputed(self) -> int:
        """Runs of all kinds on which reviewers are tied."""
        return sum(kind.disputed for kind in self.kinds)

    @property
    def minutes(self) -> float:
        """Minutes that the labels take."""
        return self.labels * self.minutes_per_run

    @property
    def saved_minutes(self) -> float:
        """Minutes that runs decided by the certificate would have taken."""
        return self.saved * self.minutes_per_run

    def to_dict(self) -> dict[str, Any]:
        """Return the budget as a document."""
        kinds = [
            {**asdict(kind), "minutes": round(kind.labels * self.minutes_per_run, 1)}
            for kind in self.kinds
        ]
        sums = {
            "labels": self.labels,
            "minutes": round(self.minutes, 1),
            "saved_minutes": round(self.saved_minutes, 1),
        }
        return {
            "kinds": kinds,
            **sums,
            "minutes_per_run": self.minutes_per_run,
            "decided": self.decided,
            "saved": self.saved,
            "draws": [asdict(draw) for draw in self.draws],
        }


@dataclass(frozen=True)
class Queue:
    """Runs that wait for a label."""

    frame: pd.DataFrame  # QUEUE_COLUMNS, the most needed first
    budget: Budget
    reviewers: Mapping[str, frozenset[str]]  # of each run so far: they are not asked again
    settled: tuple[str, ...] = ()  # provisional batches whose labels suffice to close them
    faults: tuple[str, ...] = ()  # as those of `Asked`


def load_asked(corpus: Corpus) -> Asked:
    """Read which decided runs need a label."""
    audits, faults = [], []
    drawn: set[str] = set()
    for batch in batch_names(corpus):
        try:
            if (audit := BatchAudit.load(corpus, batch)) is not None:
                audits.append(audit)
                drawn.update(audit.record.order)
        except IntegrityError as error:
            # nothing of this batch is decided; other runs wait for labels all the same
            faults.append(str(error))
    every = load_decisions(corpus)
    saved = int(((every["asked"] == "") & every["decision"].isin(_AUTOMATIC)).sum())
    asked = every[(every["asked"] != "") | every["trajectory_id"].isin(drawn)]
    if unknown := sorted(set(asked["asked"]) - {*KINDS, ""}):
        raise InputError(
            f"the decisions of {corpus} ask for {unknown[0]!r}; decide the batch again: a "
            f"reviewer is asked for {', '.join(KINDS)}."
        )
    last = asked.drop_duplicates("trajectory_id", keep="last", ignore_index=True)
    return Asked(last, len(every), saved, tuple(audits), tuple(faults))


def load_queue(corpus: Corpus, *, double: float = 0.0) -> Queue:
    """Read decisions and labels and return the queue; as `build_queue`."""
    return build_queue(load_asked(corpus), resolve_labels(read_labels(corpus)), double=double)


def queue_agreement(corpus: Corpus) -> Agreement:
    """Measure the agreement of reviewers on the decided runs of a corpus."""
    labels = read_labels(corpus)
    labelled = {label.trajectory_id for label in labels}
    frame = load_decisions(corpus)
    frame = frame[frame["trajectory_id"].isin(labelled)]
    tasks = dict(zip(frame["trajectory_id"], frame["task_id"], strict=True))
    return measure_agreement(labels, tasks, gold=gold_pairs(read_gold_labels(corpus)))


def build_queue(asked: Asked, resolved: Mapping[str, Resolved], *, double: float = 0.0) -> Queue:
    """Order the runs that lack a label by need; a share of them needs two reviewers."""
    # A run waits while it lacks a label or its reviewers are tied: one more is asked. Batch draws
    # before the audit sample before spot checks before undecided runs; tied runs at the top of
    # their kind. Batch draws: in the order of the draw. Audit sample: whole tasks together, since a
    # task counts only when every attempt is labelled, those that lack fewest labels first; labels
    # of runs that may be drawn by score move no task. Spot checks: as they came. Undecided:
    # unscored first, then those nearest to a threshold, then those decided without one.
    if not 0.0 <= double <= 1.0:
        raise InputError(f"double is {double!r}; give a share between 0 and 1.")
    open_draws = _open_draws(asked, resolved)
    every = _with_draws(asked, open_draws)
    names = every["trajectory_id"].tolist()
    votes = [resolved[name].votes if name in resolved else () for name in names]
    tied = np.array(
        [name in resolved and resolved[name].outcome is None for name in names], dtype=bool
    )
    reviews = np.array([len(said) for said in votes], dtype=np.int64)
    wanted = 1 + np.array([review_place(name) < double for name in names], dtype=np.int64)
    labels = np.maximum(wanted - reviews, tied.astype(np.int64))
    frame = every.rename(columns={"asked": "kind"}).assign(
        reviews=reviews, disputed=tied, labels=labels
    )
    ordered = _ordered(frame[labels > 0])
    said = {
        name: frozenset(who for who, _ in those)
        for name, those in zip(names, votes, strict=True)
        if those
    }
    draws = tuple(_draw_budget(item.audit, item.known) for item in open_draws)
    enough = tuple(item.audit.record.batch for item in open_draws if not item.wanted)
    budget = _budget(ordered, asked, draws)
    return Queue(ordered, budget, said, enough, asked.faults)


class _OpenDraw(NamedTuple):
    audit: BatchAudit
    known: dict[str, int]  # outcomes of the draw, without those that are tied
    wanted: tuple[str, ...]  # runs that need a label next, which depends on the labels so far


def _open_draws(asked: Asked, resolved: Mapping[str, Resolved]) -> list[_OpenDraw]:
    found = []
    for audit in asked.audits:
        if audit.closing is None:
            drawn = (resolved[name] for name in audit.record.order if name in resolved)
            known = {one.trajectory_id: one.outcome for one in drawn if one.outcome is not None}
            found.append(_OpenDraw(audit, known, audit.draw.wanted(known)))
    return found


def _with_draws(asked: Asked, open_draws: Sequence[_OpenDraw]) -> pd.DataFrame:
    """Return the rows that need a label or have one, with their place in a draw as ``rank``."""
    # those of one draw together, whatever batches it is of
    wanted = (name for item in open_draws for name in item.wanted)
    ranks = {name: rank for rank, name in enumerate(wanted, 1)}
    labelled = [name for item in open_draws for name in item.known]
    names, kinds = asked.frame["trajectory_id"], asked.frame["asked"]
    drawn = names.isin(list(ranks)) | (names.isin(labelled) & (kinds == ""))
    frame = asked.frame.assign(
        asked=kinds.mask(drawn, "batch_draw"),
        rank=[ranks.get(name, 0) for name in names],
    )
    return frame[frame["asked"] != ""]


def _draw_budget(audit: BatchAudit, known: Mapping[str, int]) -> DrawBudget:
    """Count the labels that the draw of an open audit wants at least and at most."""
    least = most = saved = 0
    draw = audit.draw
    sides = zip(draw.sides, draw.orders, draw.close(known), strict=True)
    for side, names, now in sides:
        if settled(side.plan, now, len(names)):
            saved += round(now.net_share * now.runs)
            continue
        right = 0 if side.plan.side == "reject" else 1
        trace = side.trace([known.get(name, right) for name in names])
        missing = np.cumsum([name not in known for name in names])
        start = max(now.labels_used - 1, 0)
        ends = start + np.flatnonzero(np.any(trace.certified, axis=-2)[start:])
        if ends.size:
            least += 0 if now.certified else int(missing[ends[0]])
            saved += int(trace.saved[ends[0]])
        most += int(missing[-1])
    return DrawBudget(audit.record.batch, least, most, len(audit.runs), saved)


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    audit, undecided = frame["kind"] == "audit_sample", frame["kind"] == "undecided"
    drawn = frame["kind"] == "batch_draw"
    tasks = frame.groupby(["kind", "task_id"])
    batch = frame["batch"].astype("category").cat.codes
    first_batch = batch.groupby([frame["kind"], frame["task_id"]]).transform("min")
    distance, known = threshold_distance(frame)
    frame = frame.assign(task_labels=tasks["labels"].transform("sum"), why="")
    covered = frame["labels"].mask(not_covered(frame), 0)
    lack = covered.groupby([frame["kind"], frame["task_id"]]).transform("sum")
    keys = {
        "kind": frame["kind"].map({kind: place for place, kind in enumerate(KINDS)}),
        "settled": ~tasks["disputed"].transform("any").where(audit, frame["disputed"]).astype(bool),
        "lack": lack.where(audit, np.where(undecided, known, 0)),
        "near": first_batch.where(audit, np.where(drawn, frame["rank"], batch))
        .where(~undecided, distance)
        .astype(np.float64),
        "task": frame["task_id"].where(~undecided, ""),
        "untied": ~frame["disputed"],
        "batch": batch,
        "attempt": frame["attempt"],
        "name": frame["trajectory_id"],
    }
    order = (
        frame.assign(**{f"_{name}": values for name, values in keys.items()})
        .sort_values([f"_{name}" for name in keys])
        .index
    )
    frame = frame.loc[order].assign(
        place=np.arange(1, len(frame) + 1), why=_whys(frame.loc[order], distance.loc[order])
    )
    return frame[list(QUEUE_COLUMNS)].reset_index(drop=True)


def _whys(frame: pd.DataFrame, distance: pd.Series) -> list[str]:
    rows = zip(
        frame["kind"],
        frame["disputed"],
        frame["task_labels"],
        frame["reason"],
        frame["score"],
        distance,
        strict=True,
    )
    return ["reviewers are tied" if tied else _why(kind, *row) for kind, tied, *row in rows]


def _why(kind: str, task_labels: int, reason: str, score: float, distance: float) -> str:
    if kind == "audit_sample":
        return f"its task lacks {task_labels}"
    if kind in ("batch_draw", "spot_check"):
        return "random check"
    if np.isnan(score):
        return "unscored"
    # the distance to the threshold would reveal the score to the reviewer
    return "not decided" if np.isfinite(distance) else str(reason).replace("_", " ")


def _budget(frame: pd.DataFrame, asked: Asked, draws: tuple[DrawBudget, ...]) -> Budget:
    kinds = []
    for kind in KINDS:
        rows = frame[frame["kind"] == kind]
        kinds.append(
            KindBudget(
                kind,
                len(rows),
                rows["task_id"].nunique(),
                int(rows["labels"].sum()),
                int(rows["disputed"].sum()),
            )
        )
    return Budget(tuple(kinds), asked.decided, asked.saved, draws)
