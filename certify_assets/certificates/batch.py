"""A finite batch, and its plan, which is fixed before any label is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, model_validator

from certify_assets.arrays import Booleans, Floats
from certify_assets.certificates.counts import covers
from certify_assets.certificates.inputs import ScoreRange
from certify_assets.documents import CLOSED, Document, OpenShare, Real, Share
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes

Side = Literal["reject", "release"]
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
    scores: Floats

    @classmethod
    def of(cls, trajectories: Sequence[str], tasks: Sequence[str], scores: ArrayLike) -> Batch:
        """Order the runs by their ids, so that the order of a file decides nothing."""
        values = np.asarray(scores, dtype=np.float64)
        order = sorted(range(len(trajectories)), key=lambda place: str(trajectories[place]))
        if len(set(trajectories)) < len(trajectories):
            raise InputError("The batch holds a run twice. Give every run once.")
        return cls(
            tuple(str(trajectories[place]) for place in order),
            tuple(str(tasks[place]) for place in order),
            values[order],
        )

    def __len__(self) -> int:
        return len(self.trajectories)

    def decided(self, side: str, threshold: float) -> Booleans:
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
    """The plan of one side, fixed before any label of the batch is drawn.

    Attributes
    ----------
    side, alpha, delta
        Error budget and risk limit of the side.
    thresholds : tuple of float
        Nested sets, the strictest first.
    weights : tuple of float
        Weight of each agent that is predicted; see `batch_tables`.
    means : tuple of tuple of float
        Its error in each set. They decide when to give up, and never what is certified.
    expected_labels, expected_net_share : float
        Predicted number of labels, and predicted share of the batch decided less labels.
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
        At most one for each side, reject first.
    cut : float or None
        Runs up to this score may be rejected, those above it released; None with one side.
    certificate_sha256, history_sha256 : str
        Hashes of the files that the plan was made from; "" for a file that was not given.
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
