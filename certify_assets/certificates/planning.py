"""Planning: the expected certificates of labelled runs, before any of them is labelled.

Runs succeed with probability E σ(a + β·x + u). Here x are the normal scores of the ranks of
unlabelled scores, and u is a standard normal effect of the task. a and β are solved for a success
rate and an AUROC: a guess, or those of a labelled table. Tables of labelled runs are drawn from the
scores and certified: one run a task by the limits of `one_run` and `average`, several by any
procedure without a pilot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats, Integers, Names
from certify_assets.certificates.diagnosis import fewest_tasks, smallest
from certify_assets.certificates.evaluation import evaluate
from certify_assets.certificates.gates import (
    auroc_lower_bound,
    judge_gate,
    sample_gate,
    saturation_gate,
)
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.one_run import CAP, fewest_rows, stop_limit
from certify_assets.certificates.path_limits import path_limits, planned_rows
from certify_assets.certificates.procedures import CONFIDENT, DEFAULT, PROMISED, PROVED
from certify_assets.certificates.settings import Settings
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError
from certify_assets.work import counted

#: share of drawn tables that certify something at the number of tasks that is called needed
TARGET = 0.8
#: largest number of tasks that is considered
MOST_TASKS = 1_500
#: attempts a task that are planned, next to one and to all
_ATTEMPTS = (2, 4)
_TRIALS, _MOST_SCORES, _PRECISION = 2_000, 2_000, 0.05
_STEEPEST = 40.0
_TABLES = 60
#: runs of the largest table that is drawn; of more, a part of the tasks is
_MOST_ROWS = 20_000


@dataclass(frozen=True)
class LabelPlan:
    """The expected result of labelling runs of some tasks.

    Attributes
    ----------
    tasks : int
    coverage : float
        Mean share of the runs that is decided; 0 where nothing is certified.
    chance : float
        Probability that anything is certified.
    labels : float
        Mean number of labels that are read.
    """

    tasks: int
    coverage: float
    chance: float
    labels: float


@dataclass(frozen=True, eq=False)
class RowModel:
    """Success probabilities of runs, in the order of their scores."""

    places: Integers  # rank of each score, equal where scores are
    right: Floats
    start: float  # a
    slope: float  # β

    @classmethod
    def of(cls, scores: Floats, success_rate: float, auroc: float) -> RowModel:
        """Match success probabilities to a success rate and an AUROC.

        Parameters
        ----------
        scores : float64 array
            NaN where there is none.
        success_rate, auroc : float
            An AUROC out of the model's reach is replaced by the nearest one.
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

    def means(self, scores: Floats) -> Floats:
        """Return a + β·x of each of some scores, ranked among themselves."""
        order = np.argsort(scores, kind="stable")
        found = np.empty(scores.size)
        found[order] = self.start + self.slope * _normal_scores(scores[order])[2]
        return found

    def plan(self, tasks: int, settings: Settings) -> LabelPlan:
        """Draw tables of one run of each of some tasks; certify them by `one_run` or `average`."""
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
        return LabelPlan(
            tasks,
            float(widest.mean()) / tasks,
            float((widest > 0).mean()),
            float(read.mean()),
        )


@dataclass(frozen=True, eq=False)
class Planner:
    """The scored runs of a table, task by task, and the model of their outcomes."""

    model: RowModel
    scores: Floats  # the runs of a task follow each other
    means: Floats  # a + β·x of each
    sizes: Integers  # runs of each task

    @classmethod
    def of(
        cls,
        scores: Floats,
        tasks: Sequence[Any] | NDArray[Any],
        *,
        success_rate: float,
        auroc: float,
    ) -> Planner:
        """Match the model to the scores of a table, NaN where there is none."""
        model, scored = RowModel.of(scores, success_rate, auroc), np.isfinite(scores)
        _, code = np.unique(np.asarray(tasks)[scored], return_inverse=True)
        values = scores[scored][np.argsort(code, kind="stable")]
        return cls(model, values, model.means(values), np.bincount(code))

    @property
    def designs(self) -> tuple[int, ...]:
        """Numbers of attempts a task that can be planned, from two on; the last is all attempts.

        A draw has the same number of runs of every task.
        """
        least, most = int(self.sizes.min()), int(self.sizes.max())
        drawn = [attempts for attempts in _ATTEMPTS if attempts <= least and attempts < most]
        return (*drawn, *([most] if most > 1 else []))

    def plan(
        self, settings: Settings, *, tasks: int | None = None, attempts: int | None = None
    ) -> LabelPlan:
        """Return the expected result of labelling runs of some tasks.

        Parameters
        ----------
        settings : Settings
        tasks : int, optional
            By default those of the table; more than these are drawn with replacement.
        attempts : int, optional
            Runs of a task that are labelled, at most; by default all. `one_run` and `average` are
            planned for one.
        """
        number = self.sizes.size if tasks is None else tasks
        if settings.method.by_rows:
            return self.model.plan(number, settings)
        labelled = np.minimum(self.sizes, attempts or self.sizes.max())
        drawn = min(number, max(1, int(_MOST_ROWS / labelled.mean())))
        trials = counted(f"planning {number} tasks", range(_TABLES))
        shares = np.array([self._coverage(settings, drawn, labelled, trial) for trial in trials])
        labels = number * float(labelled.mean())
        return LabelPlan(number, float(shares.mean()), float((shares > 0).mean()), labels)

    def _coverage(self, settings: Settings, drawn: int, labelled: Integers, trial: int) -> float:
        """Return the share of the runs that one drawn table decides."""
        from scipy.special import expit

        rng = np.random.default_rng([settings.seed, trial])
        chosen = rng.choice(self.sizes.size, size=drawn, replace=drawn > self.sizes.size)
        sizes, starts = self.sizes[chosen], (np.cumsum(self.sizes) - self.sizes)[chosen]
        owner = np.repeat(np.arange(drawn), sizes)
        place = np.arange(owner.size) - (np.cumsum(sizes) - sizes)[owner]
        # the labelled runs of a task are the first in a random order
        shuffled = np.lexsort((rng.random(owner.size), owner))[place < labelled[chosen][owner]]
        rows, of = (starts[owner] + place)[shuffled], owner[shuffled]
        right = rng.random(rows.size) < expit(self.means[rows] + rng.standard_normal(drawn)[of])
        table = observe(self.scores[rows], right.astype(np.int64), of)
        # a procedure that draws one run a task must draw another one in each table
        threshold = evaluate(table, settings.replace(seed=trial)).threshold
        if threshold is None:
            return 0.0
        below = settings.side == "reject"
        return float(np.mean(self.scores <= threshold if below else self.scores >= threshold))

    def tasks_needed(self, settings: Settings, *, attempts: int | None = None) -> int | None:
        """Return the number of tasks at which four tables of five certify something; None beyond
        1,500.
        """
        least = max(2, fewest_tasks(settings))
        if settings.method.by_rows:
            least = fewest_rows(settings.procedure, settings.alpha, settings.level(0))
        return smallest(
            lambda tasks: self.plan(settings, tasks=tasks, attempts=attempts).chance >= TARGET,
            least=least,
            most=MOST_TASKS,
            precision=_PRECISION,
        )


def _most_errors(tasks: int, level: float, settings: Settings) -> Integers:
    """Return the most errors with which each number of covered rows is certified."""
    covered, alpha = np.arange(1, tasks + 1), settings.alpha
    if settings.method.promise == PROVED:
        planned = planned_rows(tasks, alpha, level, settings.planned_share)
        return np.asarray(path_limits(planned, alpha, level).most[np.minimum(covered, planned)])
    most = np.floor(alpha * covered + 1e-9).astype(np.int64) - 1
    planned = planned_rows(tasks, CAP * alpha, level, 1.0)
    capped = path_limits(planned, CAP * alpha, level).most[np.minimum(covered, planned)]
    return np.asarray(np.minimum(most, capped))


def _normal_scores(values: Floats) -> tuple[Integers, Integers, Floats]:
    """Return how many of some sorted values are below each, and below or equal, and its x."""
    from scipy.special import ndtri

    places = np.searchsorted(values, values, side="left")
    ends = np.searchsorted(values, values, side="right")
    return places, ends, np.asarray(ndtri((places + ends) / (2 * values.size)))


def _rates(means: Floats) -> Floats:
    """E σ(mean + u), u standard normal, by Gauss–Hermite quadrature."""
    from scipy.special import expit

    nodes, weights = np.polynomial.hermite_e.hermegauss(21)
    found = expit(means[:, None] + nodes[None, :]) @ weights
    return np.asarray(found / weights.sum())


def _area(right: Floats, places: Integers, ends: Integers) -> float:
    """AUROC of runs that succeed with these probabilities, in the order of their scores."""
    below = np.append(0.0, np.cumsum(1 - right))
    return float(right @ (below[places] + below[ends]) / (2 * right.sum() * (1 - right).sum()))


#: mean error of a predicted coverage and its standard error: docs/evidence/few_labels.md
_MISSED: Final = {"one_run": (0.07, 0.02), "average": (0.04, 0.02), DEFAULT: (0.09, 0.03)}


def missed(procedure: str) -> tuple[float, float]:
    """Return the mean error of predicted coverages in the trial, and its standard error."""
    return _MISSED.get(procedure, _MISSED[DEFAULT])


def plan_labels(
    scores: Floats,
    tasks: Names,
    asked: Settings,
    *,
    known: Observations | None = None,
    success_rate: float | None = None,
    auroc: float | None = None,
    count: int | None = None,
    attempts: int | None = None,
) -> JsonObject:
    """Plan the coverage that labels of some tasks would certify.

    Parameters
    ----------
    scores : float64 array, shape (n,)
    tasks : sequence of hashables, shape (n,)
    asked : Settings
        With a procedure that needs no pilot.
    known : Observations, optional
        The labelled table, for figures that are not guessed.
    success_rate, auroc : float, optional
        Guesses, needed without labels.
    count, attempts : int, optional
        Tasks to label, and labelled runs of each. By default those of the table.

    Returns
    -------
    dict
        predicted_coverage, uncertainty, chance, tasks, labels, tasks_needed, labels_needed, gates,
        success_rate, auroc, and draws for procedures of one run a task.

    Raises
    ------
    InputError
        If the success rate or the AUROC is neither guessed nor known from labels.
    """
    bound = n_eff = None
    if known is not None:
        n_eff = known.clusters.n_eff
        success_rate = success_rate or float(known.outcomes.mean())
        if auroc is None:
            auroc, bound = known.auroc, auroc_lower_bound(known)
    if auroc is None or success_rate is None or not 0 < success_rate < 1:
        raise InputError("All outcomes are equal. Guess --success-rate and --auroc.")
    planner = Planner.of(scores, tasks, success_rate=success_rate, auroc=auroc)
    found = planner.plan(asked, tasks=count, attempts=attempts)
    needed = planner.tasks_needed(asked, attempts=attempts)
    by_rows, labels = asked.method.by_rows, None
    if needed is not None:
        labels = planner.plan(asked, tasks=needed, attempts=attempts).labels
    gates = (
        judge_gate(auroc, bound),
        saturation_gate(None, auroc),
        sample_gate(
            float(found.tasks) if by_rows else n_eff,
            alpha=asked.alpha,
            delta=asked.delta,
            grid=1 if by_rows else asked.delta / asked.level(found.tasks),
        ),
    )
    document: dict[str, Any] = {
        "predicted_coverage": found.coverage,
        "uncertainty": missed(asked.procedure)[0],
        "chance": found.chance,
        "tasks": found.tasks,
        "labels": found.labels,
        "tasks_needed": needed,
        "labels_needed": labels,
        "gates": [gate.to_dict() for gate in gates],
        "success_rate": success_rate,
        "auroc": auroc,
    }
    if by_rows:
        document["draws"] = _draws(planner, asked, count, attempts)
    return document


def _draws(
    planner: Planner, asked: Settings, tasks: int | None, attempts: int | None
) -> list[JsonObject]:
    """Plan one labelled run of every task by a procedure, and several by the default one.

    Several are two, four and all, unless `attempts` names a number.
    """
    several = asked.replace(procedure=PROMISED[CONFIDENT], looks=1, look=1)
    numbers = planner.designs if attempts is None else (attempts,) * (attempts > 1)
    rows = []
    for settings, number in ((asked, 1), *((several, number) for number in numbers)):
        plan = planner.plan(settings, tasks=tasks, attempts=number)
        rows.append(
            {
                "attempts": number,
                "promise": settings.method.promise,
                "labels": plan.labels,
                "predicted_coverage": plan.coverage,
                "uncertainty": missed(settings.procedure)[0],
                "chance": plan.chance,
            }
        )
    return rows
