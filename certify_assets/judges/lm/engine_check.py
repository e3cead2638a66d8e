"""The comparison that stands before the scores of a fast engine: packed rows and merged weights against the reference on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from certify_assets.judges.lm.adapters import bulk_weights
from certify_assets.judges.lm.contract import Encoded, LanguageModel
from certify_assets.judges.lm.hardware import Hardware
from certify_assets.judges.lm.parity import Parity, parity
from certify_assets.judges.lm.scoring import ScoringConfig, score_prompts

__all__ = ["engine_limits", "engine_parity"]

_ROWS = 16


def engine_limits(judge: LanguageModel) -> dict[str, Any]:
    """Return what `engine_parity` asks for, as JSON values.

    Notes
    -----
    Weights of eight bits of precision round otherwise in other batches and when an adapter is added to them, so that log-odds differ in the second
    digit; an engine that read another row's tokens, or the wrong position, would differ by the spread of the scores.
    """
    half = Hardware.of(judge.model).half
    return {
        "rows": _ROWS,
        "tolerance": 0.25 if half else 1e-3,
        "least_agreement": 0.8 if half else 0.99,
    }


def engine_parity(
    judge: LanguageModel, prompts: Sequence[Encoded], *, config: ScoringConfig
) -> Parity:
    """Compare an engine with the reference: the same model on the same device, a row a batch, its own attention, adapter not merged.

    Parameters
    ----------
    judge : LanguageModel
    prompts : sequence of Encoded
        What is to be scored; rows of all lengths are taken from it, evenly.
    config : ScoringConfig
        Of the engine.
    """
    limits = engine_limits(judge)
    order = sorted(range(len(prompts)), key=lambda row: (len(prompts[row].ids), prompts[row].ids))
    step = max(1, len(order) // limits.pop("rows"))
    sample = [prompts[row] for row in order[::step][:_ROWS]]
    reference = score_prompts(judge, sample, config=ScoringConfig(rows=1))
    with bulk_weights(judge.model):
        found = score_prompts(judge, sample, config=config)
    return parity(reference.scores, found.scores, thresholds=(), **limits)
