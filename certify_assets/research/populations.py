"""Populations of tasks whose true selective error is known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.arrays import Floats, Integers
from certify_assets.errors import InputError, quoted

#: label ICC named in the paper → standard deviation of the task effect
TAU = {0.1: 0.9, 0.5: 2.6, 0.8: 5.0}
_LARGEST_ICC = 0.9


class Sample(NamedTuple):
    """One drawn table; an outcome is 1 for a success."""

    scores: Floats
    outcomes: Integers
    tasks: Integers


@dataclass(frozen=True, kw_only=True)
class Clustered:
    """The clustered process of the paper's synthetic study."""

    # u ~ N(0, τ²), y ~ Bernoulli(σ(base + u)),
    # s = separation (2y − 1) + loading u + ε; the paper's σ of the score is left out, because
    # certificates do not change under increasing maps
    name: str = "paper"
    tasks: int
    # nominal label ICC, see effect_sd
    rho: float
    # poisson: 1 + Poisson(7); sixteen; pareto: 1 + min(⌊4 Pareto(1.3)⌋ + 1, 60)
    sizes: str = "poisson"
    base: float = -0.8
    separation: float = 2.2
    loading: float = 0.9
    # taken off the task effect for each trajectory above the mean size
    size_slope: float = 0.0

    def draw(self, rng: np.random.Generator) -> Sample:
        """Draw a calibration set."""
        effect = rng.normal(0, effect_sd(self.rho), self.tasks)
        size = draw_sizes(self.sizes, self.tasks, rng)
        effect -= self.size_slope * (size - _mean_size(self.sizes))
        owner = np.repeat(np.arange(self.tasks), size)
        outcomes = (rng.random(owner.size) < 1 / (1 + np.exp(-(self.base + effect[owner])))).astype(
            np.int64
        )
        scores = (
            self.separation * (2 * outcomes - 1)
            + self.loading * effect[owner]
            + rng.normal(size=owner.size)
        )
        return Sample(scores, outcomes, owner)

    def true_error(
        self, thresholds: ArrayLike, side: str = "reject", estimand: str = "trajectory"
    ) -> NDArray[np.float64]:
        """Selective error of thresholds, by quadrature over task effect and size."""
        effect, weight = self._effects(estimand)
        success = 1 / (1 + np.exp(-(self.base + effect)))
        covered, errors = self._side_shares(thresholds, side, success, weight, effect)
        return np.asarray(
            np.divide(errors, covered, out=np.zeros_like(covered), where=covered > 0),
            dtype=np.float64,
        )

    def _side_shares(
        self, thresholds: ArrayLike, side: str, success: Floats, weight: Floats, effect: Floats
    ) -> tuple[Floats, Floats]:
        """Shares of trajectories that thresholds cover, and that are errors among them."""
        from scipy.special import ndtr

        sign = 1.0 if side == "reject" else -1.0
        reach = np.asarray(thresholds, dtype=np.float64)[..., None] - self.loading * effect
        # no matrix product: its last bit depends on how many thresholds are asked for together
        right = (ndtr(sign * (reach - self.separation)) * (success * weight)).sum(axis=-1)
        wrong = (ndtr(sign * (reach + self.separation)) * ((1 - success) * weight)).sum(axis=-1)
        return right + wrong, right if side == "reject" else wrong

    def _effects(self, estimand: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Task effects, and the share of trajectories or tasks with each, up to a factor."""
        nodes, density = _normal_nodes()
        effect = effect_sd(self.rho) * nodes
        if not self.size_slope:
            # trajectories of all sizes have the same law
            return effect, density
        size, mass = size_law(self.sizes)
        shifted = effect - self.size_slope * (size - size @ mass)[:, None]
        share = size * mass if estimand == "trajectory" else mass
        return shifted.ravel(), (share[:, None] * density).ravel()


@dataclass(frozen=True, kw_only=True)
class Fooled:
    """Errors of whole tasks that the score cannot detect."""

    name: str = "fooled"
    tasks: int
    # true error of the fooled side over trajectories
    share: float
    # 1: a task is wrong throughout or not at all; below, its error rate is beta distributed
    error_icc: float = 1.0
    # mean size of wrong tasks over that of the others; needs an error ICC of 1
    size_ratio: int = 1
    # sizes are 1 + Poisson(mean_size − 1) before the ratio
    mean_size: int = 8
    # a trial's numbers follow from the design as it is printed, and a mirror has the same
    side: str = field(default="reject", repr=False)

    @property
    def rho(self) -> None:
        """Not a setting: the ICC of errors is part of the design."""
        return

    def draw(self, rng: np.random.Generator) -> Sample:
        """Draw a calibration set."""
        size = 1 + rng.poisson(self.mean_size - 1, self.tasks)
        if self.error_icc >= 1:
            wrong = rng.random(self.tasks) < self.task_share
            owner = np.repeat(np.arange(self.tasks), size * np.where(wrong, self.size_ratio, 1))
            outcomes = wrong.astype(np.int64)[owner]
        else:
            spread = 1 / self.error_icc - 1
            rate = rng.beta(self.share * spread, (1 - self.share) * spread, self.tasks)
            owner = np.repeat(np.arange(self.tasks), size)
            outcomes = (rng.random(owner.size) < rate[owner]).astype(np.int64)
        scores = rng.normal(size=owner.size)
        return (
            Sample(scores, outcomes, owner)
            if self.side == "reject"
            else Sample(-scores, 1 - outcomes, owner)
        )

    def true_error(
        self, thresholds: ArrayLike, side: str = "reject", estimand: str = "trajectory"
    ) -> NDArray[np.float64]:
        """Selective error of thresholds, over trajectories or tasks: the same for all of them."""
        wrong = self.share if estimand == "trajectory" else self.task_share
        return np.full(np.shape(thresholds), wrong if side == self.side else 1 - wrong)

    @property
    def task_share(self) -> float:
        """Error with every task weighing the same: smaller where wrong tasks are larger."""
        return self.share / (self.share + self.size_ratio * (1 - self.share))


#: a population of tasks in which the error of every threshold is known
Design = Clustered | Fooled


def effect_sd(rho: float) -> float:
    """Standard deviation of the task effect for a nominal label ICC."""
    if rho in TAU:
        return TAU[rho]
    if not 0 <= rho <= _LARGEST_ICC:
        raise InputError(f"rho is {quoted(rho)}; give a label ICC from 0 to {_LARGEST_ICC}.")
    if rho == 0:
        return 0.0
    from scipy.optimize import brentq

    return float(brentq(lambda tau: _label_icc(tau, Clustered.base) - rho, 0.0, 60.0))


def draw_sizes(law: str, tasks: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the sizes of tasks."""
    if law == "sixteen":
        return np.full(tasks, 16)
    if law == "pareto":
        return 1 + np.minimum((4 * rng.pareto(1.3, tasks)).astype(np.int64) + 1, 60)
    return np.asarray(1 + rng.poisson(7, tasks))


def size_law(law: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sizes and their probabilities."""
    if law == "sixteen":
        return np.array([16.0]), np.array([1.0])
    if law == "pareto":
        # the largest size takes the whole tail; numpy's Pareto is Lomax: P(X ≥ x) = (1 + x)^-1.3
        beyond = (1 + np.arange(60) / 4) ** -1.3
        return np.arange(2.0, 62.0), np.append(beyond[:-1] - beyond[1:], beyond[-1])
    from scipy.stats import poisson

    extra = np.arange(60)
    return np.asarray(1.0 + extra, dtype=np.float64), np.asarray(
        poisson.pmf(extra, 7), dtype=np.float64
    )


def _mean_size(law: str) -> float:
    if law == "poisson":
        return 8.0
    size, mass = size_law(law)
    return float(size @ mass)


def _normal_nodes() -> tuple[Floats, Floats]:
    """Return nodes and weights (summing to 1) that integrate over a standard normal variable."""
    # the trapezoid rule converges exponentially for functions analytic near the axis that decay at
    # both ends
    nodes = np.linspace(-9.0, 9.0, 601)
    density = np.exp(-np.square(nodes) / 2)
    return nodes, density / density.sum()


def _label_icc(tau: float, base: float) -> float:
    nodes, weight = _normal_nodes()
    success = 1 / (1 + np.exp(-(base + tau * nodes)))
    mean = float(weight @ success)
    return float(weight @ np.square(success - mean)) / (mean * (1 - mean))


def pilot_of(design: Design, tasks: int, rng: np.random.Generator) -> Sample:
    """Draw new tasks of the same population, numbered after those of the calibration set."""
    drawn = replace(design, tasks=tasks).draw(rng)
    return Sample(drawn.scores, drawn.outcomes, drawn.tasks + design.tasks)
