"""Why a judge scores as it does: what features are worth to it, and what makes a run's score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from certify_assets.corpora.rendering import render_frame
from certify_assets.judges.base import ExplainedJudge, Reason, score_table
from certify_assets.judges.judged import JudgedCorpus

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate

_NEAREST, _REASONS = 3, 5
#: features that are worth anything to a judge, at most so many
_SHOWN: Final = 12


@dataclass(frozen=True)
class ExplainedRun:
    """A run, its score, and what the features that matter most add to it."""

    task_id: str
    trajectory_id: str
    side: str
    score: float
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Explanation:
    """What a page says of the reasons of a judge."""

    #: AUROC lost on SFT tasks that the judge's trees had no part of, by feature, the largest first
    importance: Mapping[str, float] = field(default_factory=dict)
    #: decided runs nearest to a threshold: the least sure decisions
    runs: tuple[ExplainedRun, ...] = ()


def explain(judge: JudgedCorpus, certificates: Sequence[Certificate]) -> Explanation | None:
    """Explain a judge and its least sure decisions on CAL; None where its family does not."""
    if not judge.spec.explained:
        return None
    worth = judge.artifact.detail("importance")
    ordered = sorted((-value, name) for name, value in worth.items() if value > 0)[:_SHOWN]
    cal, _, _ = judge.calibration
    found: list[ExplainedRun] = []
    for item in certificates:
        if item.certified and item.threshold is not None:
            found += _nearest(judge, cal, item.side, item.threshold)
    return Explanation({name: -value for value, name in ordered}, tuple(found))


def reasons_of(judge: JudgedCorpus, runs: pd.DataFrame) -> list[tuple[float, tuple[Reason, ...]]]:
    """Return the score of each run and its reasons; no reasons where the family gives none."""
    model = judge.load() if judge.spec.explained else None
    if not isinstance(model, ExplainedJudge):
        return [(math.nan, ())] * len(runs)
    rendered = render_frame(runs, judge.renderer)
    scores = score_table(model, runs, judge.renderer, rendered=rendered)["score"]
    reasons = model.reasons(runs, [item.text for item in rendered])
    return [
        (float(score), tuple(run[:_REASONS])) for score, run in zip(scores, reasons, strict=True)
    ]


def _nearest(
    judge: JudgedCorpus, cal: pd.DataFrame, side: str, threshold: float
) -> list[ExplainedRun]:
    scores = cal["score"].to_numpy(np.float64)
    decided = scores <= threshold if side == "reject" else scores >= threshold
    places = np.flatnonzero(decided)
    places = places[np.argsort(np.abs(scores[places] - threshold), kind="stable")][:_NEAREST]
    rows = cal.iloc[places]
    runs = judge.labelled_runs(judge.calibration_splits).set_index("trajectory_id")
    runs = runs.loc[rows["trajectory_id"]].reset_index()
    return [
        ExplainedRun(str(row.task_id), str(row.trajectory_id), side, score, reasons)
        for row, (score, reasons) in zip(rows.itertuples(), reasons_of(judge, runs), strict=True)
    ]
