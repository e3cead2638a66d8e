"""Planning `one_run` and `average`: what one labelled run a task would decide, before any label.

Runs succeed with probability E σ(a + β·x + u), where x are the normal scores of the ranks of
unlabelled scores and u is standard normal. a and β are solved for a guess of success rate and
AUROC. Tables of one run a task are then drawn from the scores, and the limits applied to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.diagnosis import smallest
from certify_assets.certificates.one_run import CAP, fewest_rows, stop_limit
from certify_assets.certificates.path_limits import path_limits, planned_rows
from certify_assets.certificates.procedures import PROVED
from certify_assets.certificates.settings import Settings
from certify_assets.errors import InputError

_Floats = NDArray[np.float64]

#: mean error of a predicted coverage and its standard error: docs/evidence/few_labels.md
MISSED: Final = {"one_run": (0.07, 0.02), "average": (0.04, 0.02), "pseudo_task": (0.09, 0.03)}
#: share of drawn tables that certify something at the number of tasks that is called needed
_TARGET: Final = 0.8
_TRIALS, _MOST_SCORES, _MOST_TASKS, _PRECISION = 2_000, 2_000, 1_500, 0.05
_STEEPEST: Final = 40.0


@dataclass(frozen=True)
class RowPlan:
    """What labelling one run of each of some tasks is expected to give.

    Attributes
    ----------
    tasks : int
        Tasks of which one run is drawn.
    coverage : float
        Mean share of the runs that is decided; 0 where nothing is certified.
    chance : float
        Probability that anything is certified.
    labels : float
        Mean number of labels that are read until the stop.
    """

    tasks: int
    coverage: float
    chance: float
    labels: float


@dataclass(frozen=True, eq=False)
class RowModel:
    """Success probabilities of runs, in the order of their scores."""

    places: NDArray[np.int64]  # rank of each score, equal where scores are
    right: _Floats
    start: float  # a
    slope: float  # β

    @classmethod
    def of(cls, scores: _Floats, success_rate: float, auroc: float) -> RowModel:
        """Match success probabilities to a guess.

        Parameters
        ----------
        scores : float64 array
            Unlabelled scores, NaN where there is none.
        success_rate, auroc : float
            The guess. An AUROC that no such model reaches is taken as the nearest one.
        """
        from scipy.optimize import brentq

        values = np.sort(scores[np.isfinite(scores)])
        if not values.size:
            raise InputError("No run has a score. Score the runs first.")
        values = values[:: -(-values.size // _MOST_SCORES)]
        places, ends, x = _normal_scores(values)

        def start_of(slope: float) -> float:
            reach = 20 + slope * float(np.abs(x).max())
            return float(
                brentq(lambda a: _rates(a + slope * x).mean() - success_rate, -reach, reach)
            )

        def missed(slope: float) -> float:
            return _area(_rates(start_of(slope) + slope * x), places, ends) - auroc

        slope = 0.0 if missed(0.0) >= 0 else _STEEPEST
        if slope and missed(_STEEPEST) > 0:
            slope = float(brentq(missed, 0.0, _STEEPEST, xtol=1e-4))
        start = start_of(slope)
        return cls(places, _rates(start + slope * x), start, slope)

    def means(self, scores: _Floats) -> _Floats:
        """Return a + β·x of each of some scores, ranked among themselves."""
        order = np.argsort(scores, kind="stable")
        found = np.empty(scores.size)
        found[order] = self.start + self.slope * _normal_scores(scores[order])[2]
        return found

    def plan(self, tasks: int, settings: Settings) -> RowPlan:
        """Draw tables of one run of each of some tasks, and certify them."""
        rng, procedure = np.random.default_rng(settings.seed), settings.procedure
        level = settings.level(tasks)
        drawn = np.sort(rng.integers(self.right.size, size=(_TRIALS, tasks)), axis=1)
        wrong = self.right
        if settings.side == "release":
            drawn, wrong = drawn[:, ::-1], 1 - self.right
        errors = np.cumsum(rng.random(drawn.shape) < wrong[drawn], axis=1)
        ranks = self.places[drawn]
        ends = np.append(ranks[:, 1:] != ranks[:, :-1], np.ones((_TRIALS, 1), dtype=bool), axis=1)
        covered = np.arange(1, tasks + 1)
        passed = ends & (errors <= _most_errors(tasks, level, settings))
        widest = np.where(passed.any(axis=1), tasks - np.argmax(passed[:, ::-1], axis=1), 0)
        limit = stop_limit(
            procedure, tasks, alpha=settings.alpha, level=level, share=settings.planned_share
        )
        beyond = errors > limit
        read = np.where(beyond.any(axis=1), covered[np.argmax(beyond, axis=1)], tasks)
        return RowPlan(
            tasks,
            float(widest.mean()) / tasks,
            float((widest > 0).mean()),
            float(read.mean()),
        )

    def tasks_needed(self, settings: Settings) -> int | None:
        """Return the tasks at which four exercises of five certify something; None beyond 1,500."""
        least = fewest_rows(settings.procedure, settings.alpha, settings.level(0))
        return smallest(
            lambda tasks: self.plan(tasks, settings).chance >= _TARGET,
            least,
            least=least,
            most=_MOST_TASKS,
            precision=_PRECISION,
        )


def _most_errors(tasks: int, level: float, settings: Settings) -> NDArray[np.int64]:
    """Return the most errors with which each number of covered rows is certified."""
    covered, alpha = np.arange(1, tasks + 1), settings.alpha
    if settings.method.promise == PROVED:
        planned = planned_rows(tasks, alpha, level, settings.planned_share)
        return np.asarray(path_limits(planned, alpha, level).most[np.minimum(covered, planned)])
    most = np.floor(alpha * covered + 1e-9).astype(np.int64) - 1
    if CAP * alpha >= 1:
        return np.asarray(most)
    planned = planned_rows(tasks, CAP * alpha, level, 1.0)
    capped = path_limits(planned, CAP * alpha, level).most[np.minimum(covered, planned)]
    return np.asarray(np.minimum(most, capped))


def _normal_scores(
    values: _Floats,
) -> tuple[NDArray[np.int64], NDArray[np.int64], _Floats]:
    """Return how many of some sorted values are below each, and below or equal, and its x."""
    from scipy.special import ndtri

    places = np.searchsorted(values, values, side="left")
    ends = np.searchsorted(values, values, side="right")
    return places, ends, np.asarray(ndtri((places + ends) / (2 * values.size)))


def _rates(means: _Floats) -> _Floats:
    """E σ(mean + u), u standard normal, by Gauss–Hermite quadrature."""
    from scipy.special import expit

    nodes, weights = np.polynomial.hermite_e.hermegauss(21)
    found = expit(means[:, None] + nodes[None, :]) @ weights
    return np.asarray(found / weights.sum())


def _area(right: _Floats, places: NDArray[np.int64], ends: NDArray[np.int64]) -> float:
    """AUROC of runs that succeed with these probabilities, in the order of their scores."""
    below = np.append(0.0, np.cumsum(1 - right))
    return float(right @ (below[places] + below[ends]) / (2 * right.sum() * (1 - right).sum()))
