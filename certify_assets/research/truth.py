"""The truth of a design, checked: its error by quadrature against the error counted in a large draw, in standard errors of the draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.populations import Design

__all__ = ["CHECK_TASKS", "TruthCheck", "check_truth"]

CHECK_TASKS = 100_000
#: the thresholds nearest to these errors: where errors are rarer, a draw of this size counts none
_ERRORS = (0.02, 0.1, 0.3)
_QUANTILES = np.linspace(0.05, 0.95, 91)


@dataclass(frozen=True)
class TruthCheck:
    """One threshold of one design.

    Attributes
    ----------
    design : str
    rho, true_error : float or None
        Nominal label ICC; error of fooled tasks.
    side, estimand : str
    threshold : float
    truth, drawn, drawn_se : float
        By quadrature, counted in the draw, and the draw's standard error over tasks.
    """

    design: str
    rho: float | None
    true_error: float | None
    side: str
    estimand: str
    threshold: float
    truth: float
    drawn: float
    drawn_se: float

    @property
    def distance(self) -> float:
        """Difference in standard errors of the draw."""
        return (
            abs(self.truth - self.drawn) / self.drawn_se
            if self.drawn_se
            else 0.0
            if self.truth == self.drawn
            else float("inf")
        )


def check_truth(
    designs: Sequence[Design], *, tasks: int = CHECK_TASKS, seed: int = 0
) -> list[TruthCheck]:
    """Compare the truth of designs with large draws.

    Parameters
    ----------
    designs : sequence of Design
        Those that differ in the number of tasks only are one population and are drawn once.
    tasks : int
        Tasks of a draw.
    seed : int

    Returns
    -------
    list of TruthCheck
        For both sides and both estimands, at up to three score quantiles, with errors near .02, .1 and .3.
    """
    populations = {
        (f"{whole!r}", getattr(whole, "side", None)): whole
        for whole in (replace(cast(Any, design), tasks=tasks) for design in designs)
    }
    return [
        found
        for place, whole in enumerate(populations.values())
        for found in _checks(whole, np.random.default_rng([seed, place]))
    ]


def _checks(design: Design, rng: np.random.Generator) -> list[TruthCheck]:
    sample = design.draw(rng)
    sizes = np.bincount(sample.tasks, minlength=design.tasks).astype(np.float64)
    grid = np.quantile(sample.scores, _QUANTILES)
    found = []
    for side in SIDES:
        wrong = sample.outcomes == (1 if side == "reject" else 0)
        truths = design.true_error(grid, side)
        for place in sorted({int(np.argmin(np.abs(truths - error))) for error in _ERRORS}):
            threshold = float(grid[place])
            inside = sample.scores <= threshold if side == "reject" else sample.scores >= threshold
            covered = np.bincount(sample.tasks[inside], minlength=design.tasks)
            errors = np.bincount(sample.tasks[inside & wrong], minlength=design.tasks)
            for estimand in ("trajectory", "task"):
                scale = 1.0 if estimand == "trajectory" else sizes
                n, k = covered / scale, errors / scale
                truth = float(design.true_error(threshold, side, estimand))
                # of a ratio of sums over tasks; a draw without errors shows no scatter, so it is at least that of independent trajectories
                alone = truth * (1 - truth) * float((covered / np.square(scale)).sum())
                error = math.sqrt(max(float(np.square(k - truth * n).sum()), alone)) / float(
                    n.sum()
                )
                about = (design.name, design.rho, getattr(design, "share", None), side, estimand)
                found.append(TruthCheck(*about, threshold, truth, float(k.sum() / n.sum()), error))
    return found
