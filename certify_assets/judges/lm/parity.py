"""Whether another engine gives the scores of the reference, compared row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict

import numpy as np

from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.judges.base import Scores
from certify_assets.judges.lm.adapters import bulk_weights
from certify_assets.judges.lm.contract import Encoded, Hardware, LanguageModel
from certify_assets.judges.lm.scoring import ScoringConfig, score_prompts


@dataclass(frozen=True, slots=True)
class Parity:
    """How far the scores of an engine are from those of the reference on the same rows."""

    rows: int
    unscored_by_one: int
    # of the log-odds, absolute
    max_difference: float
    mean_difference: float
    rank_agreement: float  # Kendall's tau-b of the two orders; 1 where all rows tie in both
    tolerance: float
    least_agreement: float

    @property
    def passed(self) -> bool:
        """Whether the engine may stand in for the reference."""
        close = (
            self.max_difference <= self.tolerance and self.rank_agreement >= self.least_agreement
        )
        return self.rows > 0 and close and self.unscored_by_one == 0

    def require(self, engine: str) -> None:
        """Raise unless the engine passed."""
        if not self.passed:
            raise StaleCertificateError(
                f"engine {engine} differs from the reference on {self.rows} rows: log-odds by up "
                f"to {self.max_difference:.2g} ({self.tolerance:g} allowed), rank agreement "
                f"{self.rank_agreement:.4f} (at least {self.least_agreement:g}), "
                f"{self.unscored_by_one} rows scored by one of them alone; certify with the "
                "reference's scores, or calibrate again with this engine's."
            )

    def to_dict(self) -> dict[str, float]:
        """Return the report as a JSON object."""
        return {**asdict(self), "passed": self.passed}


def parity(
    scores_a: Scores,
    scores_b: Scores,
    *,
    tolerance: float = 0.02,
    least_agreement: float = 0.99,
) -> Parity:
    """Compare two engines on the same rows."""
    from scipy.stats import kendalltau

    a, b = scores_a.score, scores_b.score
    if a.shape != b.shape or not len(a):
        raise InputError(
            f"the engines scored {len(a)} and {len(b)} rows; give the same rows, at least one, to "
            "both."
        )
    both = ~np.isnan(a) & ~np.isnan(b)
    first, second = a[both], b[both]
    # equal infinities are no difference
    with np.errstate(invalid="ignore"):
        apart = np.where(first == second, 0.0, np.abs(first - second))
    flat = len(first) < 2 or (np.ptp(first) == 0 and np.ptp(second) == 0)
    tau = 1.0 if flat else float(kendalltau(first, second).statistic)
    return Parity(
        rows=int(both.sum()),
        unscored_by_one=int((np.isnan(a) != np.isnan(b)).sum()),
        max_difference=float(apart.max(initial=0.0)),
        mean_difference=float(apart.mean()) if len(apart) else 0.0,
        rank_agreement=0.0 if np.isnan(tau) else tau,
        tolerance=tolerance,
        least_agreement=least_agreement,
    )


_ROWS = 16


class EngineLimits(TypedDict):
    """What the parity of an engine asks for."""

    rows: int
    tolerance: float
    least_agreement: float


def engine_limits(judge: LanguageModel) -> EngineLimits:
    """Return what `engine_parity` asks for, as JSON values."""
    # weights of eight bits of precision round otherwise in other batches and when an adapter is
    # added to them, so that log-odds differ in the second digit; an engine that read another row's
    # tokens, or the wrong position, would differ by the spread of the scores
    half = Hardware.of(judge.model).half
    return {
        "rows": _ROWS,
        "tolerance": 0.25 if half else 1e-3,
        "least_agreement": 0.8 if half else 0.99,
    }


def engine_parity(
    judge: LanguageModel, prompts: Sequence[Encoded], *, config: ScoringConfig
) -> Parity:
    """Compare an engine with the reference, which reads each row alone, adapter not merged."""
    limits = engine_limits(judge)
    order = sorted(range(len(prompts)), key=lambda row: (len(prompts[row].ids), prompts[row].ids))
    step = max(1, len(order) // limits["rows"])
    sample = [prompts[row] for row in order[::step][:_ROWS]]
    reference = score_prompts(judge, sample, config=ScoringConfig(rows=1))
    with bulk_weights(judge.model):
        found = score_prompts(judge, sample, config=config)
    return parity(
        reference.scores,
        found.scores,
        tolerance=limits["tolerance"],
        least_agreement=limits["least_agreement"],
    )
