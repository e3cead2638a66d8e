"""A population of tasks with a given success rate, AUROC and label ICC, solved by quadrature.

The process is that of the paper's synthetic study, matched to what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from certify_assets.arrays import Floats, Integers
from certify_assets.errors import InputError, quoted

LEAST_AUROC, LARGEST_AUROC, LARGEST_ICC = 0.5, 0.9999, 0.95
#: loading over separation in the paper's process
_RATIO = 0.9 / 2.2
_WIDEST_EFFECT, _WIDEST_SCALE, _WIDEST_LOADING = 200.0, 40.0, 10.0
_REACH, _THRESHOLDS = 6.0, 2001


def normal_nodes() -> tuple[Floats, Floats]:
    """Return nodes and weights (summing to 1) that integrate over a standard normal variable."""
    # the trapezoid rule converges exponentially for functions analytic near the axis that decay at
    # both ends
    nodes = np.linspace(-9.0, 9.0, 601)
    density = np.exp(-np.square(nodes) / 2)
    return nodes, density / density.sum()


def side_shares(
    thresholds: ArrayLike,
    side: str,
    success: Floats,
    weight: Floats,
    *,
    separation: float,
    shift: Floats,
) -> tuple[Floats, Floats]:
    """Return the shares of trajectories that thresholds cover, and that are errors among them."""
    # Success, weight and shift (c·u) are those of each task effect; a success scores d + shift + ε
    # and a failure −d + shift + ε with d the separation and ε standard normal.
    from scipy.special import ndtr

    sign = 1.0 if side == "reject" else -1.0
    reach = np.asarray(thresholds, dtype=np.float64)[..., None] - shift
    # no matrix product: its last bit depends on how many thresholds are asked for together
    right = (ndtr(sign * (reach - separation)) * (success * weight)).sum(axis=-1)
    wrong = (ndtr(sign * (reach + separation)) * ((1 - success) * weight)).sum(axis=-1)
    return right + wrong, right if side == "reject" else wrong


class Sample(NamedTuple):
    """One drawn table; an outcome is 1 for a success."""

    scores: Floats
    outcomes: Integers
    tasks: Integers


@dataclass(frozen=True, kw_only=True)
class Population:
    """Tasks with a Gaussian effect on the logit of success, and scores with Gaussian noise.

    u_g ~ N(0, τ²), y_gj ~ Bernoulli(σ(b₀ + u_g)) and s_gj = d(2y_gj − 1) + c·u_g + ε_gj with
    ε_gj ~ N(0, 1); base, spread, separation and loading are b₀, τ, d and c. `sizes` are attempts a
    task: one number for all, or sizes that are equally likely.
    """

    base: float
    spread: float
    separation: float = 0.0
    loading: float = 0.0
    sizes: tuple[int, ...] = (1,)

    def draw(self, tasks: int, key: tuple[int, ...]) -> Sample:
        """Draw tasks; under one key a smaller draw is the beginning of a larger one."""
        effect = self.spread * np.random.default_rng([*key, 0]).standard_normal(tasks)
        size: Integers = np.full(tasks, self.sizes[0])
        if len(self.sizes) > 1:
            drawn = np.random.default_rng([*key, 1]).integers(len(self.sizes), size=tasks)
            size = np.array(self.sizes)[drawn]
        owner = np.repeat(np.arange(tasks), size)
        chance = _logistic(self.base + effect[owner])
        outcomes = (np.random.default_rng([*key, 2]).random(owner.size) < chance).astype(np.int64)
        noise = np.random.default_rng([*key, 3]).standard_normal(owner.size)
        scores = self.separation * (2 * outcomes - 1) + self.loading * effect[owner] + noise
        return Sample(scores, outcomes, owner)

    @property
    def success_rate(self) -> float:
        """π of the population."""
        success, weight = self._success
        return float(weight @ success)

    @property
    def icc(self) -> float:
        """Correlation of the outcomes of two attempts at one task."""
        success, weight = self._success
        mean = float(weight @ success)
        return float(weight @ np.square(success - mean)) / (mean * (1 - mean))

    @property
    def auroc(self) -> float:
        """Probability that a success scores above a failure of another task."""
        from scipy.special import ndtr

        success, weight = self._success
        # the nodes are equally spaced, so the pairs of effects have as many differences as there
        # are places between them
        gap = np.correlate(weight * success, weight * (1 - success), mode="full")
        nodes, _ = normal_nodes()
        apart = (np.arange(gap.size) - (nodes.size - 1)) * (nodes[1] - nodes[0])
        reach = 2 * self.separation + self.loading * self.spread * apart
        return float(gap @ ndtr(reach / math.sqrt(2)) / gap.sum())

    @property
    def _success(self) -> tuple[Floats, Floats]:
        nodes, weight = normal_nodes()
        return _logistic(self.base + self.spread * nodes), weight

    def errors_by_coverage(self, side: str) -> tuple[Floats, Floats]:
        """Return coverage and true selective error of ever wider thresholds."""
        success, weight = self._success
        shift = self.loading * self.spread * normal_nodes()[0]
        width = self.separation + _REACH * math.hypot(1.0, self.loading * self.spread)
        thresholds = np.linspace(-width, width, _THRESHOLDS)
        covered, errors = side_shares(
            thresholds, side, success, weight, separation=self.separation, shift=shift
        )
        if side == "release":
            covered, errors = covered[::-1], errors[::-1]
        kept = covered > 1e-6
        return covered[kept], errors[kept] / covered[kept]

    def coverage_at(self, alpha: float, side: str) -> float:
        """Return the largest coverage at which the true error is at most α, 0 if none."""
        covered, error = self.errors_by_coverage(side)
        inside = np.flatnonzero(error <= alpha)
        if not inside.size:
            return 0.0
        last = int(inside[-1])
        if last + 1 == covered.size:
            return 1.0
        return float(np.interp(alpha, error[last : last + 2], covered[last : last + 2]))


def match_population(
    *,
    success_rate: float,
    auroc: float,
    icc: float,
    sizes: tuple[int, ...],
    within_auroc: float | None = None,
) -> Population:
    """Solve the population for what was measured, by quadrature.

    An AUROC below one half and one of 1 are taken as the nearest that a draw can have, and so is an
    ICC of 1. Without the AUROC within tasks, loading and separation have the ratio of the paper's
    process; so they have where that AUROC cannot be had together with the one over all tasks.
    """
    facts = {"success_rate": success_rate, "auroc": auroc, "icc": icc, "within_auroc": within_auroc}
    for name, value in facts.items():
        if value is not None and not 0 <= value <= 1:
            raise InputError(f"{name} is {quoted(value)}; give a number from 0 to 1.")
    if not 0 < success_rate < 1:
        raise InputError(
            f"success_rate is {quoted(success_rate)}; give a share strictly between 0 and 1, or "
            "there is nothing to tell apart."
        )
    if not sizes or min(sizes) < 1:
        raise InputError(f"sizes is {quoted(sizes)}; give at least one attempt a task.")

    def with_spread(spread: float) -> Population:
        reach = abs(math.log(success_rate / (1 - success_rate))) + 1.0 + 9.0 * spread
        base = _solved(
            lambda base: Population(base=base, spread=spread).success_rate,
            success_rate,
            (-reach, reach),
        )
        return Population(base=base, spread=spread, sizes=sizes)

    spread = 0.0
    if icc > 0:
        spread = _solved(
            lambda spread: with_spread(spread).icc, min(icc, LARGEST_ICC), (0.0, _WIDEST_EFFECT)
        )
    return _with_scores(with_spread(spread), min(auroc, LARGEST_AUROC), within_auroc)


def _with_scores(tasks: Population, auroc: float, within: float | None) -> Population:
    """Return a population of tasks with scores of a given AUROC."""
    from scipy.special import ndtri

    if auroc <= LEAST_AUROC:
        return tasks
    if within is not None:
        # Φ(√2·d) is the AUROC within tasks; a judge that ranks the attempts of one task better
        # than any others would need a negative loading, and has none then
        nearest = min(max(within, LEAST_AUROC), auroc)
        tasks = replace(tasks, separation=float(ndtri(nearest)) / math.sqrt(2))
        if tasks.spread <= 0 or within >= auroc:
            return tasks

        def loaded(load: float) -> float:
            return replace(tasks, loading=load).auroc

        loads = np.linspace(0.0, _WIDEST_LOADING, 41)
        enough = next((place for place, load in enumerate(loads) if loaded(load) >= auroc), 0)
        if enough:
            ends = (loads[enough - 1], loads[enough])
            return replace(tasks, loading=_solved(loaded, auroc, ends))

    def scaled(scale: float) -> Population:
        return replace(tasks, separation=scale, loading=_RATIO * scale)

    return scaled(_solved(lambda scale: scaled(scale).auroc, auroc, (0.0, _WIDEST_SCALE)))


def _solved(figure: Callable[[float], float], wanted: float, ends: tuple[float, float]) -> float:
    """Return where a rising figure has the value wanted."""
    from scipy.optimize import brentq

    return float(brentq(lambda value: figure(value) - wanted, *ends, xtol=1e-10))


def _logistic(values: Floats) -> Floats:
    from scipy.special import expit

    return expit(values)
