"""How far the scores of an engine are from those of the reference on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from certify_assets.errors import StaleCertificateError
from certify_assets.judges.base import Scores
from certify_assets.judges.lm.language_model import Encoded, Hardware, LanguageModel
from certify_assets.judges.lm.score import ScoringConfig, score_prompts

# prompts that are compared
_ROWS = 16


@dataclass(frozen=True, slots=True)
class Parity:
    """Differences of two engines, and what is allowed."""

    rows: int
    unscored_by_one: int
    # of the log-odds, absolute
    max_difference: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the engine may stand in for the reference."""
        return self.rows > 0 and self.max_difference <= self.tolerance and not self.unscored_by_one

    def require(self, engine: str) -> None:
        """Raise unless the engine passed."""
        if not self.passed:
            raise StaleCertificateError(
                f"engine {engine} differs from the reference on {self.rows} rows: log-odds by up "
                f"to {self.max_difference:.2g} ({self.tolerance:g} allowed), "
                f"{self.unscored_by_one} rows scored by one of them alone. Certify with the "
                "reference's scores, or calibrate again with this engine's."
            )

    def to_dict(self) -> dict[str, float]:
        """Return the report as a JSON object."""
        return {**asdict(self), "passed": self.passed}


def parity(reference: Scores, engine: Scores, *, tolerance: float = 0.02) -> Parity:
    """Compare two engines on the same rows."""
    a, b = reference.score, engine.score
    both = ~np.isnan(a) & ~np.isnan(b)
    first, second = a[both], b[both]
    # equal infinities are no difference
    with np.errstate(invalid="ignore"):
        apart = np.where(first == second, 0.0, np.abs(first - second))
    return Parity(
        rows=int(both.sum()),
        unscored_by_one=int((np.isnan(a) != np.isnan(b)).sum()),
        max_difference=float(apart.max(initial=0.0)),
        tolerance=tolerance,
    )


def engine_limits(judge: LanguageModel) -> dict[str, Any]:
    """Return what `engine_parity` asks for, as JSON values."""
    # weights of eight bits of precision round otherwise in other batches; an engine that read
    # another row's tokens, or the wrong position, would differ by the spread of the scores
    return {"rows": _ROWS, "tolerance": 0.5 if Hardware.of(judge.model).half else 1e-3}


def engine_parity(
    judge: LanguageModel, prompts: Sequence[Encoded], *, config: ScoringConfig
) -> Parity:
    """Compare an engine with the reference, which reads each row alone."""
    order = sorted(range(len(prompts)), key=lambda row: (len(prompts[row].ids), prompts[row].ids))
    sample = [prompts[row] for row in order[:: max(1, len(order) // _ROWS)][:_ROWS]]
    reference = score_prompts(judge, sample, config=ScoringConfig(rows=1))
    # of scores that are far apart, between which rounding moves further
    spread = max(1.0, float(np.nanstd(reference.score)))
    return parity(
        reference,
        score_prompts(judge, sample, config=config),
        tolerance=engine_limits(judge)["tolerance"] * spread,
    )
