"""Why a judge scores a run as it does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from certify_assets.corpora.rendering import render_frame
from certify_assets.judges.base import ExplainedJudge, Reason, score_table
from certify_assets.judges.judged import JudgedCorpus

if TYPE_CHECKING:
    import pandas as pd

_REASONS = 5


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
