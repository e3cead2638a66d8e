"""Integrals over a normal task effect: what a threshold covers, and how much of it is wrong, in a
population of tasks.

Populations of tasks whose selective error is known: clustered trajectories, and tasks that fool the
judge throughout.

A population of tasks that has a given success rate, AUROC and label ICC: the process of the paper,
solved for what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.errors import InputError, quoted


def normal_nodes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and weights (summing to 1) that integrate over a standard normal variable."""
    # the trapezoid rule converges exponentially for functions analytic near the axis that decay at
    # both ends
    nodes = np.linspace(-9.0, 9.0, 601)
    density = np.exp(-np.square(nodes) / 2)
    return nodes, density / density.sum()


def side_shares(
    thresholds: ArrayLike,
    side: str,
    success: NDArray[np.float64],
    weight: NDArray[np.float64],
    *,
    separation: float,
    shift: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shares of the trajectories that thresholds cover and that are errors among them,
    by quadrature over the task effect.
    """
    from scipy.special import ndtr

    sign = 1.0 if side == "reject" else -1.0
    reach = np.asarray(thresholds, dtype=np.float64)[..., None] - shift
    # no matrix product: its last bit depends on how many thresholds are asked for together
    right = (ndtr(sign * (reach - separation)) * (success * weight)).sum(axis=-1)
    wrong = (ndtr(sign * (reach + separation)) * ((1 - success) * weight)).sum(axis=-1)
    return right + wrong, right if side == "reject" else wrong


#: label ICC named in the paper → standard deviation of the task effect
TAU = {0.1: 0.9, 0.5: 2.6, 0.8: 5.0}
_LARGEST_ICC = 0.9
#: a task of a Poisson size exceeds the declared cap with at most this probability
_BEYOND_CAP = 1e-12


@dataclass(frozen=True)
class Sample:
    """One drawn table.

    Attributes
    ----------
    scores : float64 array, shape (rows,)
    outcomes : int64 array, shape (rows,)
        1 success, 0 failure.
    tasks : int64 array, shape (rows,)
    """

    scores: NDArray[np.float64]
    outcomes: NDArray[np.int64]
    tasks: NDArray[np.int64]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter((self.scores, self.outcomes, self.tasks))


class Design(Protocol):
    """A population of tasks from which calibration sets are drawn, and in which the error of every
    threshold is known.
    """

    @property
    def name(self) -> str:
        """Which design this is."""

    @property
    def tasks(self) -> int:
        """Tasks in a calibration set."""

    @property
    def rho(self) -> float | None:
        """Nominal label ICC; None where it is no setting."""

    @property
    def cap(self) -> int:
        """Trajectories of the largest task, as one would declare them."""

    def draw(self, rng: np.random.Generator) -> Sample:
        """Draw a calibration set."""

    def true_error(
        self, thresholds: ArrayLike, side: str = "reject", estimand: str = "trajectory"
    ) -> NDArray[np.float64]:
        """Selective error of thresholds in the population, over trajectories or with every task
        weighing the same.
        """


@dataclass(frozen=True, kw_only=True)
class Clustered:
    r"""The clustered process of the paper's synthetic study.

    .. math:: u_g \sim N(0, \tau^2), \quad y_{gj} \sim \mathrm{Bernoulli}(\sigma(b_0 + u_g)), \quad
              s_{gj} = d (2 y_{gj} - 1) + c\,u_g + \varepsilon_{gj}

    Attributes
    ----------
    name : str
    tasks : int
    rho : float
        Nominal label ICC, see :func:`effect_sd`.
    sizes : {"poisson", "sixteen", "pareto"}
        1 + Poisson(7), constant 16, or 1 + min(⌊4·Pareto(1.3)⌋ + 1, 60) trajectories a task.
    base, separation, loading : float
        b₀, d and c.
    size_slope : float
        Subtracted from the task effect for each trajectory above the mean size of the population.

    Notes
    -----
    Scores stay on the logit scale: the paper's σ is increasing, and certificates are invariant
    under it.
    """

    name: str = "paper"
    tasks: int
    rho: float
    sizes: str = "poisson"
    base: float = -0.8
    separation: float = 2.2
    loading: float = 0.9
    size_slope: float = 0.0

    @property
    def cap(self) -> int:
        """Trajectories of the largest task: the end of the law of sizes, for the Poisson law its 1
        − 1e-12 quantile.
        """
        return _poisson_cap(8) if self.sizes == "poisson" else int(_size_law(self.sizes)[0][-1])

    def draw(self, rng: np.random.Generator) -> Sample:
        """Draw a calibration set."""
        effect = rng.normal(0, effect_sd(self.rho), self.tasks)
        size = _draw_sizes(self.sizes, self.tasks, rng)
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
        """Selective error of thresholds in the population, by quadrature over task effect and size."""
        effect, weight = self._effects(estimand)
        success = 1 / (1 + np.exp(-(self.base + effect)))
        covered, errors = side_shares(
            thresholds,
            side,
            success,
            weight,
            separation=self.separation,
            shift=self.loading * effect,
        )
        return np.asarray(
            np.divide(errors, covered, out=np.zeros_like(covered), where=covered > 0),
            dtype=np.float64,
        )

    def population_icc(self) -> float:
        """Intraclass correlation of the outcomes of two trajectories of one task in the population
        (sizes left aside).
        """
        return _label_icc(effect_sd(self.rho), self.base)

    def _effects(self, estimand: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Task effects and the share of trajectories, or of tasks, that each stands for, up to a
        factor.
        """
        nodes, density = normal_nodes()
        effect = effect_sd(self.rho) * nodes
        if not self.size_slope:
            # trajectories of all sizes have the same law
            return effect, density
        size, mass = _size_law(self.sizes)
        shifted = effect - self.size_slope * (size - size @ mass)[:, None]
        share = size * mass if estimand == "trajectory" else mass
        return shifted.ravel(), (share[:, None] * density).ravel()


@dataclass(frozen=True, kw_only=True)
class Fooled:
    """Errors that come by task and that the score cannot see, so that every threshold on one side
    has the same true error.

    Attributes
    ----------
    name : str
    tasks : int
    share : float
        True trajectory-weighted error of the fooled side: the success rate on the reject side, the
        failure rate on the release side.
    error_icc : float
        1: a task is wrong throughout or not at all; below, a task's error rate is beta distributed
        with this ICC.
    size_ratio : float
        Mean size of wrong tasks over that of the others; needs ``error_icc`` 1.
    mean_size : int
        Sizes are 1 + Poisson(mean_size − 1) before the ratio.
    side : {"reject", "release"}
        The fooled side. The other one is the mirror: the same draws with score and outcome turned
        over.
    """

    name: str = "fooled"
    tasks: int
    share: float
    error_icc: float = 1.0
    size_ratio: int = 1
    mean_size: int = 8
    # a trial's numbers follow from the design as it is printed, and a mirror has the same
    side: str = field(default="reject", repr=False)

    @property
    def rho(self) -> None:
        """No setting: the errors' ICC is part of the design."""
        return

    @property
    def cap(self) -> int:
        """Trajectories of the largest task: the 1 − 1e-12 quantile of the sizes, times the ratio."""
        return _poisson_cap(self.mean_size) * self.size_ratio

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
        """Selective error of thresholds in the population, over trajectories or tasks: the same for
        all of them.
        """
        wrong = self.share if estimand == "trajectory" else self.task_share
        return np.full(np.shape(thresholds), wrong if side == self.side else 1 - wrong)

    @property
    def task_share(self) -> float:
        """Error with every task weighing the same: smaller than ``share`` where wrong tasks are
        larger.
        """
        return self.share / (self.share + self.size_ratio * (1 - self.share))


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


def _draw_sizes(law: str, tasks: int, rng: np.random.Generator) -> NDArray[np.int64]:
    if law == "sixteen":
        return np.full(tasks, 16)
    if law == "pareto":
        return 1 + np.minimum((4 * rng.pareto(1.3, tasks)).astype(np.int64) + 1, 60)
    return np.asarray(1 + rng.poisson(7, tasks))


def _size_law(law: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
    size, mass = _size_law(law)
    return float(size @ mass)


def _label_icc(tau: float, base: float) -> float:
    nodes, weight = normal_nodes()
    success = 1 / (1 + np.exp(-(base + tau * nodes)))
    mean = float(weight @ success)
    return float(weight @ np.square(success - mean)) / (mean * (1 - mean))


def _poisson_cap(mean_size: int) -> int:
    from scipy.stats import poisson

    return 1 + int(poisson.isf(_BEYOND_CAP, mean_size - 1))


def pilot_of(design: Design, tasks: int, rng: np.random.Generator) -> Sample:
    """Draw other tasks of the same population; their numbers follow those of the calibration set."""
    drawn = replace(cast(Any, design), tasks=tasks).draw(rng)
    return Sample(drawn.scores, drawn.outcomes, drawn.tasks + design.tasks)


LEAST_AUROC, LARGEST_AUROC, LARGEST_ICC = 0.5, 0.9999, 0.95
_RATIO = Clustered.loading / Clustered.separation
_WIDEST_EFFECT, _WIDEST_SCALE, _WIDEST_LOADING = 200.0, 40.0, 10.0
_REACH, _THRESHOLDS = 6.0, 2001


@dataclass(frozen=True, kw_only=True)
class Population:
    r"""Tasks with a Gaussian effect on the logit of success, and scores with Gaussian noise.

    .. math:: u_g \sim N(0, \tau^2), \quad y_{gj} \sim \mathrm{Bernoulli}(\sigma(b_0 + u_g)), \quad
              s_{gj} = d (2 y_{gj} - 1) + c\,u_g + \varepsilon_{gj}, \quad \varepsilon_{gj} \sim
              N(0, 1)

    Attributes
    ----------
    base, spread, separation, loading : float
        b₀, τ, d and c.
    sizes : tuple of int
        Attempts a task: one number for all tasks, or the sizes from which each task draws with
        equal probability.
    """

    base: float
    spread: float
    separation: float
    loading: float
    sizes: tuple[int, ...]

    def draw(self, tasks: int, key: tuple[int, ...]) -> Sample:
        """Draw tasks; under one key the tasks of a smaller draw are the first ones of a larger
        draw.
        """
        effect = self.spread * np.random.default_rng([*key, 0]).standard_normal(tasks)
        size: NDArray[np.int64] = np.full(tasks, self.sizes[0])
        if len(self.sizes) > 1:
            size = np.array(self.sizes)[
                np.random.default_rng([*key, 1]).integers(len(self.sizes), size=tasks)
            ]
        owner = np.repeat(np.arange(tasks), size)
        chance = _logistic(self.base + effect[owner])
        outcomes = (np.random.default_rng([*key, 2]).random(owner.size) < chance).astype(np.int64)
        noise = np.random.default_rng([*key, 3]).standard_normal(owner.size)
        return Sample(
            self.separation * (2 * outcomes - 1) + self.loading * effect[owner] + noise,
            outcomes,
            owner,
        )

    @property
    def success_rate(self) -> float:
        """π of the population."""
        return _success_rate(self.base, self.spread)

    @property
    def icc(self) -> float:
        """Correlation of the outcomes of two attempts at one task."""
        return _matched_icc(self.base, self.spread)

    @property
    def auroc(self) -> float:
        """Probability that a success scores above a failure of another task."""
        return _auroc(self.base, self.spread, self.separation, self.loading)

    @property
    def within_auroc(self) -> float:
        """Probability that a success scores above a failure of the same task: Φ(√2·d)."""
        from scipy.special import ndtr

        return float(ndtr(math.sqrt(2) * self.separation))

    def errors_by_coverage(self, side: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the coverage of ever wider thresholds and the true selective error of each, both
        of shape (thresholds,).
        """
        nodes, weight = normal_nodes()
        effect = self.spread * nodes
        success = _logistic(self.base + effect)
        width = self.separation + _REACH * math.hypot(1.0, self.loading * self.spread)
        thresholds = np.linspace(-width, width, _THRESHOLDS)
        covered, errors = side_shares(
            thresholds,
            side,
            success,
            weight,
            separation=self.separation,
            shift=self.loading * effect,
        )
        if side == "release":
            covered, errors = covered[::-1], errors[::-1]
        kept = covered > 1e-6
        return covered[kept], errors[kept] / covered[kept]

    def coverage_at(self, alpha: float, side: str) -> float:
        """Return the largest coverage at which the true error is at most α; 0 where there is none."""
        covered, error = self.errors_by_coverage(side)
        inside = np.flatnonzero(error <= alpha)
        if not inside.size:
            return 0.0
        last = int(inside[-1])
        if last + 1 == covered.size:
            return 1.0
        share = (alpha - error[last]) / (error[last + 1] - error[last])
        return float(covered[last] + share * (covered[last + 1] - covered[last]))


def match_population(
    *,
    success_rate: float,
    auroc: float,
    icc: float,
    sizes: tuple[int, ...],
    within_auroc: float | None = None,
) -> Population:
    """Solve the population for what was measured, by quadrature."""
    for name, value in (
        ("success_rate", success_rate),
        ("auroc", auroc),
        ("icc", icc),
        ("within_auroc", within_auroc),
    ):
        if value is not None and not 0 <= value <= 1:
            raise InputError(f"{name} is {quoted(value)}; give a number from 0 to 1.")
    if not 0 < success_rate < 1:
        raise InputError(
            f"success_rate is {quoted(success_rate)}; give a share strictly between 0 and 1, or "
            "there is nothing to tell apart."
        )
    if not sizes or min(sizes) < 1:
        raise InputError(f"sizes is {quoted(sizes)}; give at least one attempt a task.")
    spread = _spread(success_rate, min(icc, LARGEST_ICC))
    base = _base(success_rate, spread)
    separation, loading = _scores(
        base, spread, min(max(auroc, LEAST_AUROC), LARGEST_AUROC), within_auroc
    )
    return Population(base=base, spread=spread, separation=separation, loading=loading, sizes=sizes)


def _spread(success_rate: float, icc: float) -> float:
    if icc <= 0:
        return 0.0
    from scipy.optimize import brentq

    return float(
        brentq(
            lambda spread: _matched_icc(_base(success_rate, spread), spread) - icc,
            0.0,
            _WIDEST_EFFECT,
            xtol=1e-9,
        )
    )


def _base(success_rate: float, spread: float) -> float:
    from scipy.optimize import brentq

    reach = abs(math.log(success_rate / (1 - success_rate))) + 1.0 + 9.0 * spread
    return float(
        brentq(lambda base: _success_rate(base, spread) - success_rate, -reach, reach, xtol=1e-10)
    )


def _scores(base: float, spread: float, auroc: float, within: float | None) -> tuple[float, float]:
    """Separation and loading."""
    if auroc <= LEAST_AUROC:
        return 0.0, 0.0
    from scipy.optimize import brentq
    from scipy.special import ndtri

    separation = float(
        ndtri(min(max(auroc if within is None else within, LEAST_AUROC), auroc))
    ) / math.sqrt(2)
    if within is not None and (spread <= 0 or within >= auroc):
        # a judge that ranks the attempts of one task better than any others would need a negative
        # loading; it has none then
        return separation, 0.0
    if within is not None:
        loads = np.linspace(0.0, _WIDEST_LOADING, 41)
        enough = [
            place
            for place, load in enumerate(loads)
            if _auroc(base, spread, separation, load) >= auroc
        ]
        if enough:
            low, high = loads[enough[0] - 1], loads[enough[0]]
            return separation, float(
                brentq(
                    lambda load: _auroc(base, spread, separation, load) - auroc,
                    low,
                    high,
                    xtol=1e-9,
                )
            )
    scale = brentq(
        lambda scale: _auroc(base, spread, scale, _RATIO * scale) - auroc,
        0.0,
        _WIDEST_SCALE,
        xtol=1e-9,
    )
    return float(scale), _RATIO * float(scale)


def _success(base: float, spread: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weight = normal_nodes()
    return _logistic(base + spread * nodes), weight


def _logistic(values: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import expit

    return np.asarray(expit(values), dtype=np.float64)


def _success_rate(base: float, spread: float) -> float:
    success, weight = _success(base, spread)
    return float(weight @ success)


def _matched_icc(base: float, spread: float) -> float:
    success, weight = _success(base, spread)
    mean = float(weight @ success)
    return float(weight @ np.square(success - mean)) / (mean * (1 - mean))


def _auroc(base: float, spread: float, separation: float, loading: float) -> float:
    from scipy.special import ndtr

    success, weight = _success(base, spread)
    nodes, _ = normal_nodes()
    right, wrong = weight * success, weight * (1 - success)
    # the nodes are equally spaced, so the pairs of effects have as many differences as there are
    # places between them
    gap = np.correlate(right, wrong, mode="full")
    apart = (np.arange(gap.size) - (nodes.size - 1)) * (nodes[1] - nodes[0])
    return float(gap @ ndtr((2 * separation + loading * spread * apart) / math.sqrt(2)) / gap.sum())
