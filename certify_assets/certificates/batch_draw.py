"""The batch certificate: a risk-limiting audit of one finite batch, by labels drawn from it.

The only randomness is the draw, so the promise holds for any batch: new agents, drift, clustered or
hostile runs. A side has a chain of nested sets S₁ ⊂ … ⊂ S_J, fixed before the seed. One order of
all runs follows from the seed, and the order of a set is its restriction. A set is crossed when
some first labels of its own order have few enough errors (`batch_tables`). It is certified when all
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
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from certify_assets.arrays import Integers
from certify_assets.certificates.batch import Batch, BatchPlan, Side, SidePlan
from certify_assets.certificates.batch_tables import SetTable, Stopping, chain_stopping, set_table
from certify_assets.documents import Count, Document, JsonObject, OpenShare, Positive, Real
from certify_assets.errors import InputError

#: keys of a certificate in a document of several sides, whose numbers are added up
_ADDED = ("decided", "labels_used", "errors_found")

State = Literal["certified", "continue", "not_worth_it", "to_reviewers"]
_CERTIFIED: State = "certified"


class BatchCertificate(Document):
    """The result of a draw for one side of a batch.

    Attributes
    ----------
    certified : bool
        At most α of the decided runs are wrong, with confidence 1 − δ over the draw alone.
    side, alpha, delta
        As planned.
    runs, decided : int
        Runs of the batch, and of the certified set (0 without one); labelled ones included.
    labels_used, errors_found : int
        Labels up to the one that settled the set (until then, all that count), and the errors among
        them. The set is the certified one, or the one that is being labelled.
    e_value, critical_value : float
        Test statistic of this set at these labels, at most 10¹⁵, and the value that certifies.
    state : {"certified", "continue", "not_worth_it", "to_reviewers"}
        `not_worth_it` where more labels are expected to cost more than they decide. More labels are
        still accepted. `to_reviewers` where more errors were found than the budget allows.
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
        """Return one document: the certificate of one side, or both certificates and their sums."""
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
        Runs that certify it if none of them is an error; empty where labels are not worth it.
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
        """Say how many labels there are, and what more labels would achieve."""
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
class DrawnSet:
    """A set of runs that is certified by its first labels.

    Attributes
    ----------
    threshold : float
    names : tuple of str
        Its runs in the order of drawing.
    table : SetTable
    give_up : int array
        Smallest number of errors, after each number of labels, at which more are not worth it.
    """

    threshold: float
    names: tuple[str, ...]
    table: SetTable
    give_up: Integers

    def errors(self, outcomes: Mapping[str, int], wrong: int) -> Integers:
        """Return the errors of the first runs that have labels, up to one too many."""
        found, left = list[int](), self.table.limit
        for name in self.names:
            if name not in outcomes or not left:
                break
            found.append(int(outcomes[name] == wrong))
            left -= found[-1]
        return np.array(found, dtype=np.int64)


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
    def sets(self) -> tuple[DrawnSet, ...]:
        """Sets of the chain, the strictest first, without those that add no run."""
        found: dict[int, tuple[float, tuple[str, ...]]] = {}
        for threshold in self.plan.thresholds:
            inside = self.batch.decided(self.plan.side, threshold)
            names = tuple(self.batch.trajectories[place] for place in self.order if inside[place])
            if names:
                found.setdefault(len(names), (threshold, names))
        if not found:
            raise InputError("No threshold of the plan decides a run of this batch.")
        thresholds = tuple(threshold for threshold, _ in found.values())
        chain = _chain(self.plan, thresholds, tuple(found))
        return tuple(
            DrawnSet(*one, table, stop.errors)
            for one, (table, stop) in zip(found.values(), chain, strict=True)
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Runs of the widest set in the order in which they are labelled if none is wrong."""
        found: dict[str, None] = {}
        for one in self.sets:
            found |= dict.fromkeys(one.names[: one.table.needed[0]])
        return tuple(found | dict.fromkeys(self.sets[-1].names))

    @property
    def wrong(self) -> int:
        """Outcome of a run that the side decides wrongly."""
        return int(self.plan.side == "reject")

    def inside(self, threshold: float | None) -> tuple[str, ...]:
        """Return the runs that a threshold decides; no runs without a threshold."""
        return next((one.names for one in self.sets if one.threshold == threshold), ())

    def crossings(self, outcomes: Mapping[str, int]) -> list[int]:
        """Return the labels that certified each set, up to the first that is not certified."""
        found: list[int] = []
        for one in self.sets:
            crossing = one.table.crossing(one.errors(outcomes, self.wrong))
            if crossing is None:
                break
            found.append(crossing)
        return found

    def progress(
        self, outcomes: Mapping[str, int], tied: AbstractSet[str] = frozenset()
    ) -> Progress | None:
        """Return the set that is being labelled; None where all are certified.

        Of a tied run the judge counts as right until one more reviewer settles it.
        """
        best = {**outcomes, **dict.fromkeys(tied, 1 - self.wrong)}
        place = len(self.crossings(best))
        if place == len(self.sets):
            return None
        one, before = self.sets[place], self.sets[place - 1].table.runs if place else 0
        errors = one.errors(best, self.wrong)
        labels, wrong, needed = errors.size, int(errors.sum()), one.table.needed
        wanted: tuple[str, ...] = ()
        if labels < one.give_up.size and wrong < min(int(one.give_up[labels]), needed.size):
            wanted = tuple(name for name in one.names[: needed[wrong]] if name not in outcomes)
        runs = one.table.runs
        return Progress(runs, labels, wrong, one.table.limit, wanted, runs - before)

    def wanted(self, outcomes: Mapping[str, int], tied: AbstractSet[str]) -> set[str]:
        """Return the runs to label now: tied ones that a set rests on, else those of `progress`."""
        best = {**outcomes, **dict.fromkeys(tied, 1 - self.wrong)}
        crossed = zip(self.sets, self.crossings(best), strict=False)
        rests = {name for one, labels in crossed for name in one.names[:labels] if name in tied}
        now = self.progress(outcomes, tied)
        return rests or {*(now.wanted if now else ())}

    def close(
        self, outcomes: Mapping[str, int], tied: AbstractSet[str] = frozenset()
    ) -> BatchCertificate:
        """Certify the widest set that the labels allow.

        Parameters
        ----------
        outcomes : mapping of str to int
            Outcome, 0 or 1, of runs by trajectory. In each set, labels count in its order, up to
            the first run without one.
        tied : set of str
            Runs whose reviewers are tied: they say only whether more labels are wanted.
        """
        errors = {name for name, outcome in outcomes.items() if outcome == self.wrong}
        crossings = self.crossings(outcomes)
        # a set with more errors found than its budget is not certified, whatever was before
        while crossings:
            widest = self.sets[len(crossings) - 1]
            if len(errors.intersection(widest.names)) < widest.table.limit:
                break
            crossings.pop()
        now = self.progress(outcomes, frozenset() if self.wanted(outcomes, tied) else tied)
        state = _CERTIFIED
        if not crossings:
            state = now.state if now else "to_reviewers"
        first = crossings or [self.sets[0].errors(outcomes, self.wrong).size]
        one = self.sets[len(first) - 1]
        used = {
            name
            for each, labels in zip(self.sets, first, strict=False)
            for name in each.names[:labels]
        }
        own = len(errors.intersection(one.names[: first[-1]]))
        return BatchCertificate(
            certified=bool(crossings),
            side=self.plan.side,
            alpha=self.plan.alpha,
            delta=self.plan.delta,
            runs=len(self.batch),
            decided=one.table.runs if crossings else 0,
            labels_used=len(used),
            errors_found=len(errors & used),
            e_value=one.table.e_value(first[-1], own),
            critical_value=one.table.critical_value,
            state=state,
            threshold=one.threshold if crossings else None,
            label_next=now.wanted if now else (),
            batch_sha256=self.batch_sha256,
            seed=self.seed,
        )


@lru_cache(maxsize=64)
def _chain(
    plan: SidePlan, thresholds: tuple[float, ...], sizes: tuple[int, ...]
) -> list[tuple[SetTable, Stopping]]:
    """Return the table of each set and where to give it up; cached, as every draw needs it."""
    tables = [set_table(runs, plan.alpha, plan.delta) for runs in sizes]
    means = np.array(plan.means)[:, [plan.thresholds.index(value) for value in thresholds]]
    return list(zip(tables, chain_stopping(tables, np.array(plan.weights), means), strict=True))


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

    def close(
        self, outcomes: Mapping[str, int], tied: AbstractSet[str] = frozenset()
    ) -> tuple[BatchCertificate, ...]:
        """Certify each side by the labels that count."""
        return tuple(side.close(outcomes, tied) for side in self.sides)

    def wanted(
        self, outcomes: Mapping[str, int], tied: AbstractSet[str] = frozenset()
    ) -> tuple[str, ...]:
        """Return the runs to label now, the sides in turns; none where all are settled."""
        names = (name for side in self.sides for name in side.wanted(outcomes, tied))
        return tuple(sorted(names, key=self.places.__getitem__))


def certificate_sentence(found: BatchCertificate, now: Progress | None) -> str:
    """Say what is certified, and what more labels would achieve."""
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
