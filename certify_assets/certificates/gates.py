"""The three gates of the paper: can the judge learn, is there something to gain, are there enough
tasks.

The paper states them after the fact (Eq. 7: A₀ ≫ .5, A_SFT < A_sat, n_eff ≳ n_min). Here each gate
has a threshold, and a reason that gives the numbers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from numpy.typing import ArrayLike

from certify_assets.arrays import Names
from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.inputs import Observations, observe

_NAMES = {
    "judge_can_learn": "judge can learn",
    "sft_not_saturated": "fine-tuning not saturated",
    "enough_samples": "enough samples",
}
_CONFIDENCE = 0.95
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
        None where its value is unknown.
    value : float or None
        The figure compared: lower bound of A₀, A_SFT or n_eff.
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
        reason = "The judge's AUROC is undefined: all scored outcomes are equal."
        return GateResult("judge_can_learn", None, None, LEARNABLE, reason)
    figure = f"The judge's AUROC is {area:.3f}, without a bound"
    if bound is not None:
        figure = f"The judge's AUROC is {area:.3f}, its lower 95 % bound {bound:.3f}"
    passed = value > LEARNABLE
    verdict = "above {:g}: scores follow the outcome." if passed else "not above {:g}."
    reason = f"{figure}, {verdict.format(LEARNABLE)}"
    return GateResult("judge_can_learn", passed, value, LEARNABLE, reason)


def saturation_gate(sft: float | None, base: float | None = None) -> GateResult:
    """Gate 2: the AUROC of the fine-tuned judge, A_SFT, lies below a threshold.

    Without A_SFT, an A₀ at or above the threshold closes the gate: fine-tuning is assumed not to
    make a judge worse.
    """
    value, name = sft, "The fine-tuned judge's AUROC"
    if sft is None and base is not None and base >= SATURATED:
        value, name = base, "No fine-tuned judge is known, and the judge's own AUROC"
    passed, reason = None, "The AUROC of a fine-tuned judge is unknown."
    if value is not None:
        passed = value < SATURATED
        verdict = f"not below {SATURATED:g}: training on top of it has nothing to gain."
        if passed:
            verdict = f"below {SATURATED:g}: there is something left to gain."
        reason = f"{name} is {value:.3f}, {verdict}"
    return GateResult("sft_not_saturated", passed, value, SATURATED, reason)


def sample_gate(
    n_eff: float | None, *, alpha: float = 0.1, delta: float = 0.05, grid: float = 40
) -> GateResult:
    """Gate 3: n_eff is at least the error-free sample size that excludes α at δ/|Θ|.

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


def auroc_lower_bound(observations: Observations) -> float | None:
    """One-sided lower 95 % bound of the AUROC, by its standard error over tasks (Obuchowski)."""
    from scipy.special import stdtrit

    tasks = observations.task_sizes.size
    if observations.auroc is None or tasks < 2:
        return None
    area, spread = observations.clustered_auroc
    return max(0.0, area - float(stdtrit(tasks - 1, _CONFIDENCE)) * spread)


def table_gates(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    *,
    alpha: float = 0.1,
    delta: float = 0.05,
    grid: float = 40,
    sft_auroc: float | None = None,
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
    """
    observations = observe(scores, outcomes, tasks)
    area = observations.auroc
    return (
        judge_gate(area, auroc_lower_bound(observations)),
        saturation_gate(sft_auroc, area),
        sample_gate(observations.clusters.n_eff, alpha=alpha, delta=delta, grid=grid),
    )
