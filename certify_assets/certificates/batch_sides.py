"""The batch certificate of both sides: one seed, two disjoint sets, δ/2 a side.

A score at which half of the past runs succeeded parts the batch before anything is drawn: below it
a run may only be rejected, above it only released, so that the sets of the two sides have no run in
common whatever their thresholds. Each side is drawn from, and tested, by itself: its e-process is
one under its own hypothesis whatever the labels of the other side are, and when its labelling stops
moves nothing, since the test is anytime-valid. By the union bound both certificates hold at once
with probability at least 1 − δ over the seed. No independence of the draws is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from certify_assets.certificates.batch import (
    Batch,
    BatchCertificate,
    BatchDraw,
    BatchPlan,
    RiskCurve,
)
from certify_assets.certificates.batch_planning import History, plan_batch
from certify_assets.certificates.counts import SIDES
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes

SCHEMA: Final = "certify_assets/batch_sides_plan/1"
# labels beyond those that were expected, at which a reviewer is asked again
_FURTHER = 10


@dataclass(frozen=True)
class SidesPlan:
    """The plans of the sides that a draw is worth its labels on, and the score that parts them.

    Parameters
    ----------
    plans : tuple of BatchPlan
        At most one a side.
    cut : float or None
        Runs up to this score may be rejected, those above it released; None where there is one
        side.
    """

    plans: tuple[BatchPlan, ...]
    cut: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plans as a JSON object."""
        return {"plans": [plan.to_dict() for plan in self.plans], "cut": self.cut}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> SidesPlan:
        """Read the plans from their JSON object.

        Raises
        ------
        InputError
            If they are none: two of one side, or two sides that no score parts.
        """
        try:
            plans = tuple(BatchPlan.from_dict(item) for item in document["plans"])
            cut = None if document["cut"] is None else float(document["cut"])
        except (KeyError, TypeError, ValueError):
            plans, cut = (), None
        sides = [plan.side for plan in plans]
        parted = cut is not None and math.isfinite(cut)
        if not sides or len(set(sides)) < len(sides) or (len(sides) > 1 and not parted):
            raise InputError(
                "This is not a plan of both sides as `certify batch plan --side both --out` "
                "writes it."
            )
        return cls(plans, cut)


def plan_sides(
    batch: Batch, *, alphas: Mapping[str, float], delta: float, history: History
) -> SidesPlan:
    """Plan every side with a budget; a side on which nothing is expected to be saved is left out.

    Parameters
    ----------
    batch : Batch
    alphas : mapping of str to float
        Budget of each side.
    delta : float
        Risk limit of all sides together: each that is planned gets an equal part, which is fixed
        with the plans, before the draw.
    history : History
    """
    cut = _cut(history) if len(alphas) > 1 else None
    plans = []
    for side in SIDES:
        part = side_of(batch, side, cut)
        if side in alphas and np.isfinite(part.scores).any():
            made = plan_batch(
                part, side=side, alpha=alphas[side], delta=delta / len(alphas), history=history
            )
            plans += [made] if made.expected_net_share else []
    if 0 < len(plans) < len(alphas):
        return plan_sides(
            batch, alphas={item.side: item.alpha for item in plans}, delta=delta, history=history
        )
    return SidesPlan(tuple(plans), cut)


def side_of(batch: Batch, side: str, cut: float | None) -> Batch:
    """Return a batch with the scores of one side only."""
    if cut is None:
        return batch
    with np.errstate(invalid="ignore"):
        mine = batch.scores <= cut if side == "reject" else batch.scores > cut
    return Batch(batch.trajectories, batch.tasks, np.where(mine, batch.scores, np.nan))


def _cut(history: History) -> float | None:
    """Return the largest score up to which a success is no likelier than a failure."""
    successes = (history.outcomes == 1).astype(np.int64)
    curve = RiskCurve.fit("reject", history.scores, successes)
    below = [score for score, rate in zip(curve.scores, curve.errors, strict=True) if rate <= 0.5]
    return max(below, default=min(history.scores.tolist()))


@dataclass(frozen=True, eq=False)
class SidesDraw:
    """The draw of a frozen batch for all its sides.

    Parameters
    ----------
    plan : SidesPlan
    batch : Batch
    seed : int
        Chosen by chance, after the batch was frozen.
    """

    plan: SidesPlan
    batch: Batch
    seed: int

    @cached_property
    def sides(self) -> tuple[BatchDraw, ...]:
        """Return the draw of each side."""
        return tuple(
            BatchDraw(plan, side_of(self.batch, plan.side, self.plan.cut), self.seed)
            for plan in self.plan.plans
        )

    @cached_property
    def orders(self) -> tuple[tuple[str, ...], ...]:
        """Return the runs of each side in the order of drawing."""
        return tuple(
            tuple(draw.batch.trajectories[place] for place in draw.order.tolist())
            for draw in self.sides
        )

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Return the runs of all sides, those of a side in its order, the sides in turns: in each
        part of the way each side has its part of the labels that it expects.
        """
        found = [
            (rank / max(1.0, draw.plan.expected_labels or 0.0), place, name)
            for place, (draw, names) in enumerate(zip(self.sides, self.orders, strict=True))
            for rank, name in enumerate(names)
        ]
        return tuple(name for _, _, name in sorted(found))

    def labelled(self, outcomes: Mapping[str, int]) -> tuple[dict[str, int], ...]:
        """Return of each side the labels that count: those of its first drawn runs."""
        found = []
        for names in self.orders:
            counted: dict[str, int] = {}
            for name in names:
                if name not in outcomes:
                    break
                counted[name] = outcomes[name]
            found.append(counted)
        return tuple(found)

    def close(self, outcomes: Mapping[str, int]) -> tuple[BatchCertificate, ...]:
        """Certify each side by the labels of its first drawn runs; others change nothing."""
        parts = self.labelled(outcomes)
        return tuple(draw.close(part) for draw, part in zip(self.sides, parts, strict=True))

    def wanted(self, outcomes: Mapping[str, int]) -> tuple[str, ...]:
        """Return the runs to label now, those of the sides in turns; none where all are settled.

        As many of a side as its plan expects are asked for at once, and then a few more at a time.
        """
        found = self.asked(outcomes)
        return tuple(sorted(found, key=lambda name: (*found[name], name)))

    def asked(self, outcomes: Mapping[str, int]) -> dict[str, tuple[float, int]]:
        """Return what orders the runs to label now: part of the way of a side, and the side."""
        found: dict[str, tuple[float, int]] = {}
        labelled = self.labelled(outcomes)
        for place, (draw, names) in enumerate(zip(self.sides, self.orders, strict=True)):
            if settled(draw.plan, draw.close(labelled[place]), len(names)):
                continue
            there = len(labelled[place])
            asked = max(math.ceil(draw.plan.expected_labels or 0), there + _FURTHER)
            found |= {
                name: (rank / asked, place)
                for rank, name in enumerate(names[:asked])
                if name not in outcomes
            }
        return found


def settled(plan: BatchPlan, now: BatchCertificate, drawn: int) -> bool:
    """Whether more labels are not wanted on a side: it is certified and no wider set is expected,
    it has failed, or nothing is expected after the labels that the plan expected.

    Until then labels are no loss where nothing is certified: those runs would be read anyway.
    """
    if now.status == "to_reviewers" or now.labels_used >= drawn:
        return True
    enough = now.certified or now.labels_used >= (plan.expected_labels or 0)
    return enough and not now.worth_more


def sides_sha256(plan: SidesPlan, batch: Batch) -> str:
    """Return the hash of plans and runs, which a batch is frozen by before its seed is drawn."""
    if len(set(batch.trajectories)) != len(batch):
        raise InputError("A run is twice in the batch; give every run once.")
    return sha256_bytes(canonical_json({**plan.to_dict(), "runs": batch.runs}))
