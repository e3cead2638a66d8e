"""The batch certificate: a risk-limiting audit of one finite batch, by labels drawn from it.

The only randomness is the draw, so the promise holds for any batch: new agents, drift, clustered or
hostile runs. A side has a chain of nested sets S₁ ⊂ … ⊂ S_J, fixed before the seed. One order of
all runs follows from the seed, and the order of a set is its restriction. A set is crossed when
some first labels of its own order have few enough errors (`batch_tables`), and certified when all
sets up to it are crossed. Let S be the first set above its budget. To certify any set above its
budget S must be crossed, which has a probability of at most δ. Every set is tested at the whole δ,
and no rule of stopping changes this. Labels begin in the surest set and go on in wider ones.

Two sides have no run in common, δ/2 each, and hold at once by the union bound.

References
----------
Maurer, Hothorn and Lehmacher (1995), Multiple comparisons in drug clinical trials and preclinical
assays: a-priori ordered hypotheses.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from certify_assets.certificates.batch_stopping import Before, Stopping, stopping
from certify_assets.certificates.batch_tables import SetTable, set_table
from certify_assets.certificates.counts import covers
from certify_assets.certificates.inputs import ScoreRange
from certify_assets.documents import (
    CLOSED,
    Count,
    Document,
    JsonObject,
    OpenShare,
    Positive,
    Real,
    Share,
)
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes

#: keys of a certificate in a document of several sides, whose numbers are added up
_ADDED: Final = ("decided", "labels_used", "errors_found")

Side = Literal["reject", "release"]
State = Literal["certified", "continue", "not_worth_it", "to_reviewers"]
_CERTIFIED: State = "certified"
_Floats = NDArray[np.float64]
_OneOrMore = Field(min_length=1)


@dataclass(frozen=True)
class Batch:
    """The runs of a finite batch, frozen before anything is drawn.

    Parameters
    ----------
    trajectories, tasks : sequence of str
        Every trajectory once.
    scores : array_like of float
        NaN where unscored: such runs are in no set.
    """

    trajectories: tuple[str, ...]
    tasks: tuple[str, ...]
    scores: _Floats

    @classmethod
    def of(cls, trajectories: Sequence[str], tasks: Sequence[str], scores: ArrayLike) -> Batch:
        """Order the runs by their ids, so that the order of a file decides nothing."""
        values = np.asarray(scores, dtype=np.float64)
        order = sorted(range(len(trajectories)), key=lambda place: str(trajectories[place]))
        if len(set(trajectories)) < len(trajectories):
            raise InputError("A run is twice in the batch. Give every run once.")
        return cls(
            tuple(str(trajectories[place]) for place in order),
            tuple(str(tasks[place]) for place in order),
            values[order],
        )

    def __len__(self) -> int:
        return len(self.trajectories)

    def decided(self, side: str, threshold: float) -> NDArray[np.bool_]:
        """Return which runs a threshold decides."""
        return covers(side, threshold, self.scores)

    def side(self, side: str, cut: float | None) -> Batch:
        """Return the batch with the scores of one side only: a reject side ends at the cut."""
        if cut is None:
            return self
        with np.errstate(invalid="ignore"):
            mine = self.scores <= cut if side == "reject" else self.scores > cut
        return Batch(self.trajectories, self.tasks, np.where(mine, self.scores, np.nan))


class SidePlan(BaseModel):
    """What is fixed of one side before a batch is drawn from.

    Attributes
    ----------
    side, alpha, delta
        Error budget and risk limit of the side.
    thresholds : tuple of float
        Nested sets, the strictest first.
    weights : tuple of float
        Weight of each agent that is predicted; see `batch_stopping`.
    means : tuple of tuple of float
        Its error in each set. They say when to give up, and never what is certified.
    expected_labels, expected_net_share : float
        Labels, and share of the batch decided less labels, as the predictions have it.
    """

    model_config = ConfigDict(**CLOSED, frozen=True)

    side: Side
    alpha: OpenShare
    delta: OpenShare
    thresholds: Annotated[tuple[Real, ...], _OneOrMore]
    weights: Annotated[tuple[Share, ...], _OneOrMore]
    means: tuple[tuple[OpenShare, ...], ...]
    expected_labels: Annotated[Real, Field(ge=0)]
    expected_net_share: Real

    @model_validator(mode="after")
    def _nested(self) -> Self:
        ordered = sorted(set(self.thresholds), reverse=self.side == "release")
        if list(self.thresholds) != ordered:
            raise ValueError("the thresholds are nested, the strictest first")
        if len(self.means) != len(self.weights) or any(
            len(row) != len(self.thresholds) for row in self.means
        ):
            raise ValueError("each predicted agent has a mean error for each threshold")
        return self


class BatchPlan(Document):
    """Everything that is fixed before a batch is drawn from.

    Attributes
    ----------
    sides : tuple of SidePlan
        At most one a side, reject first.
    cut : float or None
        Runs up to this score may be rejected, those above it released; None with one side.
    certificate_sha256, history_sha256 : str
        What the plan was made from; "" where there was none.
    scores, score_range
        How the scores of the certificate were read, and their range.
    """

    SCHEMA = "certify_assets/batch_plan/3"
    TITLE = "batch plan"

    sides: Annotated[tuple[SidePlan, ...], _OneOrMore]
    cut: Real | None = None
    certificate_sha256: str = ""
    history_sha256: str = ""
    scores: dict[str, str] = Field(default_factory=dict)
    score_range: ScoreRange | None = None

    @model_validator(mode="after")
    def _parted(self) -> Self:
        sides = [plan.side for plan in self.sides]
        if sides != sorted(set(sides)) or (len(sides) > 1) != (self.cut is not None):
            raise ValueError("a plan has each side once, and a cut between two of them")
        return self

    @property
    def delta(self) -> float:
        """Risk limit of all sides together."""
        return math.fsum(plan.delta for plan in self.sides)

    def frozen_sha256(self, batch: Batch) -> str:
        """Return the hash of the plan and of every run with its score."""
        scores = [None if math.isnan(score) else score for score in batch.scores.tolist()]
        runs = list(zip(batch.trajectories, batch.tasks, scores, strict=True))
        return sha256_bytes(canonical_json({"plan": self.to_dict(), "runs": runs}))


class BatchCertificate(Document):
    """What the labels of a draw say of one side of a batch.

    Attributes
    ----------
    certified : bool
        At most α of the decided runs are wrong, with confidence 1 − δ over the draw alone.
    side, alpha, delta
        As planned.
    runs, decided : int
        Runs of the batch, and of the certified set, labelled ones included; 0 where none is.
    labels_used, errors_found : int
        Labels up to the one that settled it (all that count, while nothing is), and errors among
        them. Both are of the certified set, or of the set that is being labelled.
    e_value, critical_value : float
        Test statistic of this set at these labels, at most 10¹⁵, and where it certifies.
    state : {"certified", "continue", "not_worth_it", "to_reviewers"}
        `not_worth_it` where more labels are expected to cost more than they decide. More of them
        may be given all the same. `to_reviewers` where more errors were found than the budget has.
    threshold : float or None
    label_next : tuple of str
        Runs whose labels certify the next set if none is an error; empty where none is worth it.
    batch_sha256 : str
    seed : int
    """

    SCHEMA = "certify_assets/batch_certificate/3"
    TITLE = "batch certificate"

    certified: bool
    side: Side
    alpha: OpenShare
    delta: OpenShare
    runs: Positive
    decided: Count
    labels_used: Count
    errors_found: Count
    e_value: Real
    critical_value: Real
    state: State
    threshold: Real | None
    label_next: tuple[str, ...]
    batch_sha256: str
    seed: Count

    @staticmethod
    def together(found: Sequence[BatchCertificate]) -> JsonObject:
        """Return one document: of one side its certificate, of both their sums and both."""
        if len(found) == 1:
            return found[0].to_dict()
        return {
            "certified": any(item.certified for item in found),
            "delta": math.fsum(item.delta for item in found),
            "runs": found[0].runs,
            **{name: sum(getattr(item, name) for item in found) for name in _ADDED},
            "certificates": [item.to_dict() for item in found],
        }


@dataclass(frozen=True)
class Progress:
    """The set of a chain that is being labelled.

    Attributes
    ----------
    runs, labels, errors : int
        Runs of the set, first labels of its order, and errors among these.
    limit : int
        Smallest number of errors above its budget.
    wanted : tuple of str
        Runs that certify it if none of them is an error; none where labels are not worth it.
    decided : int
        Runs that it decides beyond the set that is certified.
    """

    runs: int
    labels: int
    errors: int
    limit: int
    wanted: tuple[str, ...]
    decided: int

    @property
    def state(self) -> State:
        """State of the batch where no set of the side is certified."""
        if self.errors >= self.limit:
            return "to_reviewers"
        return "continue" if self.wanted else "not_worth_it"

    def sentence(self) -> str:
        """Say how many labels there are, and what more of them would do."""
        errors = f"{self.errors} of them wrong" if self.errors else "none wrong"
        so_far = f"{self.runs} runs: {self.labels} labelled, {errors}"
        if self.state == "to_reviewers":
            return f"{so_far}. These are more errors than the budget allows."
        if self.wanted:
            return f"{so_far}; {len(self.wanted)} more without an error certify them."
        if not self.labels:
            return f"Stop: certifying {self.runs} runs is expected to cost more than it saves."
        return (
            f"Stop: {self.errors} of the first {self.labels} labels are wrong. At this error rate, "
            f"certifying these {self.runs} runs costs more labels than it saves. You can continue; "
            "certificates already issued stay valid."
        )


@dataclass(frozen=True, eq=False)
class SideDraw:
    """The draw of one side.

    Parameters
    ----------
    plan : SidePlan
    batch : Batch
        With the scores of the side only.
    order : sequence of int
        All places of the batch in the order of drawing.
    seed, batch_sha256
        Of the whole draw.
    """

    plan: SidePlan
    batch: Batch
    order: Sequence[int]
    seed: int
    batch_sha256: str

    @cached_property
    def sets(self) -> tuple[tuple[float, tuple[str, ...]], ...]:
        """Threshold of each set, and its runs in the order of drawing; none that adds no run."""
        found: list[tuple[float, tuple[str, ...]]] = []
        for threshold in self.plan.thresholds:
            inside = self.batch.decided(self.plan.side, threshold)
            names = tuple(self.batch.trajectories[place] for place in self.order if inside[place])
            if len(names) > (len(found[-1][1]) if found else 0):
                found.append((threshold, names))
        if not found:
            raise InputError("No threshold of the plan decides a run of this batch.")
        return tuple(found)

    @cached_property
    def tables(self) -> tuple[SetTable, ...]:
        """Test of each set."""
        return tuple(
            set_table(len(names), self.plan.alpha, self.plan.delta) for _, names in self.sets
        )

    @cached_property
    def stoppings(self) -> tuple[Stopping, ...]:
        """Return where to give up each set."""
        return _stoppings(
            self.plan, tuple((threshold, len(names)) for threshold, names in self.sets)
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Runs of the widest set in the order in which they are labelled if none is wrong."""
        found: dict[str, None] = {}
        for table, (_, names) in zip(self.tables, self.sets, strict=True):
            found |= dict.fromkeys(names[: table.needed[0]])
        return tuple(found | dict.fromkeys(self.sets[-1][1]))

    def _errors(self, place: int, outcomes: Mapping[str, int]) -> NDArray[np.int64]:
        """Return the errors of the first runs of a set that have labels, up to one too many."""
        wrong, left = int(self.plan.side == "reject"), self.tables[place].limit
        found: list[int] = []
        for name in self.sets[place][1]:
            if name not in outcomes or not left:
                break
            found.append(int(outcomes[name] == wrong))
            left -= found[-1]
        return np.array(found, dtype=np.int64)

    def crossings(self, outcomes: Mapping[str, int]) -> list[int]:
        """Return the labels that certified each set, up to the first that is not certified."""
        found: list[int] = []
        for place, table in enumerate(self.tables):
            crossing = table.crossing(self._errors(place, outcomes))
            if crossing is None:
                break
            found.append(crossing)
        return found

    def progress(self, outcomes: Mapping[str, int]) -> Progress | None:
        """Return the set that is being labelled; None where all are certified."""
        place = len(self.crossings(outcomes))
        if place == len(self.sets):
            return None
        table, errors = self.tables[place], self._errors(place, outcomes)
        labels, wrong, names = errors.size, int(errors.sum()), self.sets[place][1]
        given_up = self.stoppings[place].errors
        wanted: tuple[str, ...] = ()
        if labels < given_up.size and wrong < min(int(given_up[labels]), table.needed.size):
            first = names[: table.needed[wrong]]
            wanted = tuple(name for name in first if name not in outcomes)
        before = self.tables[place - 1].runs if place else 0
        return Progress(table.runs, labels, wrong, table.limit, wanted, table.runs - before)

    def close(self, outcomes: Mapping[str, int]) -> BatchCertificate:
        """Certify the widest set that the labels allow.

        Parameters
        ----------
        outcomes : mapping of str to int
            Outcome, 0 or 1, of runs by trajectory. Of each set the first ones of its order count,
            up to the first that has no label.
        """
        wrong = int(self.plan.side == "reject")
        errors = {name for name, outcome in outcomes.items() if outcome == wrong}
        crossings = self.crossings(outcomes)
        # a set with more errors found than its budget is not certified, whatever was before
        while crossings and (
            len(errors.intersection(self.sets[len(crossings) - 1][1]))
            >= self.tables[len(crossings) - 1].limit
        ):
            crossings.pop()
        now, state = self.progress(outcomes), _CERTIFIED
        if not crossings:
            state = now.state if now else "to_reviewers"
        place = max(len(crossings) - 1, 0)
        first = crossings or [self._errors(0, outcomes).size]
        used = {
            name
            for (_, names), labels in zip(self.sets, first, strict=False)
            for name in names[:labels]
        }
        (threshold, names), table = self.sets[place], self.tables[place]
        own = len(errors.intersection(names[: first[-1]]))
        return BatchCertificate(
            certified=bool(crossings),
            side=self.plan.side,
            alpha=self.plan.alpha,
            delta=self.plan.delta,
            runs=len(self.batch),
            decided=len(names) if crossings else 0,
            labels_used=len(used),
            errors_found=len(errors & used),
            e_value=table.e_value(first[-1], own),
            critical_value=table.critical_value,
            state=state,
            threshold=threshold if crossings else None,
            label_next=now.wanted if now else (),
            batch_sha256=self.batch_sha256,
            seed=self.seed,
        )


def chain_stopping(tables: Sequence[SetTable], weights: _Floats, means: _Floats) -> list[Stopping]:
    """Return where to give up each set of a chain, from the widest to the strictest.

    Parameters
    ----------
    tables : sequence of SetTable
        The strictest first.
    weights : float array, shape (components,)
    means : float array, shape (components, sets)
    """
    found: list[Stopping] = []
    gain = labels = 0.0
    for place in reversed(range(len(tables))):
        strict = tables[place - 1] if place else None
        (one,) = stopping(tables[place], weights, means[:, place], [Before(strict, gain, labels)])
        gain, labels = one.value, one.labels
        found.append(one)
    return found[::-1]


@lru_cache(maxsize=64)
def _stoppings(plan: SidePlan, sets: tuple[tuple[float, int], ...]) -> tuple[Stopping, ...]:
    """Return where to give up sets of some thresholds and sizes; every draw of a plan asks."""
    tables = [set_table(runs, plan.alpha, plan.delta) for _, runs in sets]
    places = [plan.thresholds.index(threshold) for threshold, _ in sets]
    means = np.array(plan.means)[:, places]
    return tuple(chain_stopping(tables, np.array(plan.weights), means))


@dataclass(frozen=True, eq=False)
class BatchDraw:
    """The draw of a frozen batch under a plan: its order follows from the seed and the hash.

    Parameters
    ----------
    plan : BatchPlan
    batch : Batch
    seed : int
        Chosen by chance, after the batch was frozen.
    """

    plan: BatchPlan
    batch: Batch
    seed: int

    @cached_property
    def batch_sha256(self) -> str:
        """Hash of the plan and of every run with its score."""
        return self.plan.frozen_sha256(self.batch)

    @cached_property
    def sides(self) -> tuple[SideDraw, ...]:
        """Return the draw of each side, all in one order: by SHA-256 of seed, batch and run."""
        start = f"{self.seed}\0{self.batch_sha256}\0"
        keys = [
            hashlib.sha256(f"{start}{name}".encode()).digest() for name in self.batch.trajectories
        ]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        return tuple(
            SideDraw(
                plan, self.batch.side(plan.side, self.plan.cut), order, self.seed, self.batch_sha256
            )
            for plan in self.plan.sides
        )

    @cached_property
    def places(self) -> dict[str, int]:
        """Place of each run in the order in which runs are labelled, the sides in turns."""
        turns = sorted(
            (rank, number, name)
            for number, side in enumerate(self.sides)
            for rank, name in enumerate(side.names)
        )
        return {name: place for place, (_, _, name) in enumerate(turns)}

    @property
    def order(self) -> tuple[str, ...]:
        """Return the runs of all sides in the order in which they are labelled if none is wrong."""
        return tuple(self.places)

    def close(self, outcomes: Mapping[str, int]) -> tuple[BatchCertificate, ...]:
        """Certify each side by the labels that count."""
        return tuple(side.close(outcomes) for side in self.sides)

    def wanted(self, outcomes: Mapping[str, int]) -> tuple[str, ...]:
        """Return the runs to label now, the sides in turns; none where all are settled."""
        found = (side.progress(outcomes) for side in self.sides)
        names = (name for now in found if now is not None for name in now.wanted)
        return tuple(sorted(names, key=self.places.__getitem__))


def certificate_sentence(found: BatchCertificate, now: Progress | None) -> str:
    """Say what is certified, and what more labels would do."""
    if not found.certified:
        return "" if now is None else now.sentence()
    share, sure = (f"{100 * value:.10g} %" for value in (found.alpha, 1 - found.delta))
    said = (
        f"{found.decided} runs are certified: at most {share} of them are wrong, with confidence "
        f"{sure} over the draw. Correct the errors that the labels found."
    )
    if now is None or not now.wanted:
        return said
    return (
        f"{said} Widening to {now.runs} takes {len(now.wanted)} more labels without an error and "
        f"decides {now.decided} more runs: worth it."
    )
