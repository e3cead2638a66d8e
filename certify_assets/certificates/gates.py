"""The three gates of the paper: can the judge learn, what is to gain, are the tasks enough.

The paper states them after the fact (Eq. 7: A₀ ≫ .5, A_SFT < A_sat, n_eff ≳ n_min). Here each has a
threshold, and a reason that gives the numbers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from certify_assets.arrays import Names
from certify_assets.certificates.auroc import Ranking
from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.inputs import Observations, observe

_NAMES = {
    "judge_can_learn": "judge can learn",
    "sft_not_saturated": "fine-tuning not saturated",
    "enough_samples": "enough samples",
}
_BOUND = 0.05
_FEWEST_DRAWS, _MOST_CELLS = 100, 20_000_000
_CHUNK_CELLS = 2_000_000
#: the judge can learn when the lower bound of A₀ is above the first; fine-tuning is saturated from
#: the second on
LEARNABLE, SATURATED = 0.60, 0.97


@dataclass(frozen=True)
class GateResult:
    """One gate.

    Attributes
    ----------
    name : {"judge_can_learn", "sft_not_saturated", "enough_samples"}
    passed : bool or None
        None where what it asks for is unknown.
    value : float or None
        What is compared: lower bound of A₀, A_SFT, n_eff.
    threshold : float
    reason : str
    """

    name: str
    passed: bool | None
    value: float | None
    threshold: float
    reason: str

    def to_dict(self) -> dict[str, object]:
        """Return the gate as a JSON object."""
        return asdict(self)

    def sentence(self) -> str:
        """Return the gate in words: a symbol, whether it passed, its name and the reason."""
        look = {None: "? unknown", True: "● passed", False: "○ not passed"}[self.passed]
        return f"{look}: {_NAMES[self.name]}. {self.reason}"


def judge_gate(area: float | None, bound: float | None = None) -> GateResult:
    """Gate 1: the judge's AUROC A₀, or its lower 95 % bound where known, is above a threshold."""
    value = area if bound is None else bound
    if area is None or value is None:
        reason = "A0 is undefined: all scored outcomes are equal, so there is nothing to rank."
        return GateResult("judge_can_learn", None, None, LEARNABLE, reason)
    figure = f"A0 is {area:.3f}, without a bound"
    if bound is not None:
        figure = f"The lower 95 % bound of A0 is {bound:.3f} (task bootstrap; A0 {area:.3f})"
    passed = value > LEARNABLE
    verdict = "above {:g}: scores follow the outcome." if passed else "not above {:g}."
    reason = f"{figure}, {verdict.format(LEARNABLE)}"
    return GateResult("judge_can_learn", passed, value, LEARNABLE, reason)


def saturation_gate(sft: float | None, base: float | None = None) -> GateResult:
    """Gate 2: the AUROC of the fine-tuned judge, A_SFT, lies below a threshold.

    Without A_SFT an A₀ from the threshold on closes the gate: fine-tuning is taken not to make a
    judge worse.
    """
    value, name = sft, "A_SFT"
    if sft is None and base is not None and base >= SATURATED:
        value, name = base, "A_SFT is unknown, but A0"
    passed, reason = None, "A_SFT is unknown: give the AUROC of the fine-tuned judge."
    if value is not None:
        passed = value < SATURATED
        verdict = f"not below {SATURATED:g}: training on top of it has nothing to gain."
        if passed:
            verdict = f"below {SATURATED:g}: there is something left to gain."
        reason = f"{name} {value:.3f} is {verdict}"
    return GateResult("sft_not_saturated", passed, value, SATURATED, reason)


def sample_gate(
    n_eff: float | None, *, alpha: float = 0.1, delta: float = 0.05, grid: float = 40
) -> GateResult:
    """Gate 3: as many effective trajectories as an error-free sample that excludes α at δ/|Θ|.

    The paper compares with n_min at δ (29 at α .1, δ .05). A certificate tests every threshold at
    δ/|Θ| (64), which decides here.
    """
    at_delta, needed = n_min(alpha, delta), n_min(alpha, delta / grid)
    passed, reason = None, f"The number of tasks is unknown; needed are {needed} effective runs."
    if n_eff is not None:
        passed = n_eff >= needed
        verdict = "enough." if passed else "too few."
        if not passed and n_eff >= at_delta:
            verdict += f" The paper's rule, {at_delta}, would let it pass."
        reason = f"Effective sample size {n_eff:.1f}, needed {needed}: {verdict}"
    return GateResult("enough_samples", passed, n_eff, float(needed), reason)


def auroc_lower_bound(
    observations: Observations, *, draws: int = 1000, seed: int = 42
) -> float | None:
    """One-sided lower 95 % bound of the AUROC: the 5 % quantile over resamples of tasks."""
    scores, right, tasks = observations.scored_rows
    present, owner = np.unique(tasks, return_inverse=True)
    if observations.auroc is None or present.size < 2:
        return None
    ranking = Ranking.of(scores, right)
    # large tables are resampled fewer times: the bound is close there anyway
    draws = max(min(draws, _MOST_CELLS // scores.size), min(draws, _FEWEST_DRAWS))
    rng = np.random.default_rng(seed)
    areas = np.empty(0)
    while areas.size < draws:
        piece = min(draws - areas.size, max(1, _CHUNK_CELLS // scores.size))
        often = rng.multinomial(present.size, np.full(present.size, 1 / present.size), size=piece)
        areas = np.concatenate([areas, ranking.aurocs(often[:, owner].astype(np.float64))])
    known = areas[np.isfinite(areas)]
    return float(np.quantile(known, _BOUND)) if known.size else None


def table_gates(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    *,
    alpha: float = 0.1,
    delta: float = 0.05,
    grid: float = 40,
    sft_auroc: float | None = None,
    draws: int = 1000,
    seed: int = 42,
) -> tuple[GateResult, GateResult, GateResult]:
    """Return the three gates of a score table of a judge before fine-tuning.

    Parameters
    ----------
    scores, outcomes, tasks
        As for :func:`certify_assets.certificates.certify`.
    alpha, delta, grid
        Of the certificate in question.
    sft_auroc : float, optional
        AUROC of the fine-tuned judge.
    draws, seed : int
        Of the task bootstrap.
    """
    observations = observe(scores, outcomes, tasks)
    area = observations.auroc
    bound = auroc_lower_bound(observations, draws=draws, seed=seed)
    n_eff = observations.clusters.n_eff
    return (
        judge_gate(area, bound),
        saturation_gate(sft_auroc, area),
        sample_gate(n_eff, alpha=alpha, delta=delta, grid=grid),
    )
