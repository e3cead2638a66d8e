"""Why nothing is certified, and how many tasks like those observed would change that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.evaluation import Evaluation, evaluate
from certify_assets.certificates.guard import factor_needed
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.pool import GivenPool, as_pool
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.taskboot import draws_needed

_MOST_TASKS = 1_000_000
_NOISE = 2
_AT_ONCE = 32
_GOLDEN = (math.sqrt(5) - 1) / 2
LACKS_PILOT = (
    "betting fixes thresholds, start and bets on a pilot table of other tasks and had none, so "
    "nothing was tested; give one (--pilot)."
)
#: success rate, AUROC, lowest error, its coverage
_Facts = tuple[float, float | None, float, float]


@dataclass(frozen=True)
class Diagnosis:
    """What stood between a table and a certificate.

    Attributes
    ----------
    certified : bool
    stopped_by : {None, "no_scores", "base_rate", "judge", "tasks", "guard", "draws", "input"}
        None when something was certified. "judge": the error exceeds α at every threshold.
        "base_rate": so it does, and there are too few trajectories of the class that this side
        decides for any judge. "tasks": the error is below α, the tasks are too few to show it.
        "guard": the bootstrap passes and the guard does not. "draws": so few resamples are drawn
        that none could pass. "input": the procedure lacks a pilot table.
    tasks : int
        Tasks observed.
    tasks_needed : int or None
        Order of magnitude of the tasks like these that would certify something; None when no number
        would (or a million would not). From the size given about every second sample passes.
    success_rate, auroc : float or None
    cause : str
        A sentence on what stopped it.
    coverage_then : float or None
        Coverage that ``tasks_needed`` would buy: that of the threshold which passes first, so the
        smallest in reach.
    corpus_tasks : int or None
        Tasks of the corpus of which these certify; None for a table of its own.
    """

    certified: bool
    stopped_by: str | None
    tasks: int
    tasks_needed: int | None
    success_rate: float | None
    auroc: float | None
    cause: str
    coverage_then: float | None = None
    corpus_tasks: int | None = None

    @property
    def more_tasks(self) -> int | None:
        """Tasks to add to the corpus, or to the table, for an even chance of a certificate."""
        if self.tasks_needed is None:
            return None
        share = 1.0 if self.corpus_tasks is None else self.tasks / self.corpus_tasks
        return math.ceil(max(1, self.tasks_needed - self.tasks) / share)

    @property
    def lift(self) -> str:
        """What would give an even chance, without an end mark; empty where tasks would not."""
        if self.tasks_needed is None:
            return ""
        more = max(1, self.tasks_needed - self.tasks)
        if self.corpus_tasks is None:
            return f"about {more} more {'task' if more == 1 else 'tasks'} like these"
        return f"about {self.more_tasks} more tasks in the corpus ({more} of them certify)"

    @property
    def sentence(self) -> str:
        """Say what stopped it and what would lift it."""
        if self.stopped_by not in ("tasks", "guard"):
            return self.cause
        if self.tasks_needed is None or self.coverage_then is None:
            return f"{self.cause} Fewer than a million tasks will not help."
        near = ""
        if self.tasks_needed < _NOISE * self.tasks:
            near = f" That is within noise of the {self.tasks} here."
        return (
            f"{self.cause} {self.lift[0].upper()}{self.lift[1:]} would give an even chance, at a "
            f"coverage of about {100 * self.coverage_then:.2g} %.{near}"
        )


def diagnose(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    pilot: tuple[ArrayLike, ArrayLike, Sequence[Any] | NDArray[Any]] | None = None,
    pool: GivenPool | None = None,
    **keywords: Any,
) -> Diagnosis:
    """Say why a table certifies nothing, and how many tasks like these would certify something.

    Parameters
    ----------
    scores, outcomes, tasks
        As for :func:`certify_assets.certificates.certify`.
    pilot, pool
        Likewise.
    **keywords
        The settings of :func:`certify_assets.certificates.certify`.

    Returns
    -------
    Diagnosis

    Notes
    -----
    Tasks needed: the observed distribution of (n_g, k_g) over tasks is resampled at G′ instead of G
    tasks, and the smallest G′ is taken at which a threshold passes. At that size about every second
    sample passes, and the figure moves by a factor of two between samples of the same size; it is
    an order of magnitude, not a promise. Below twice the tasks observed it is within that noise of
    the present size, and the sentence says so.
    """
    observations, settings = observe(scores, outcomes, tasks), Settings(**keywords)
    others = None if pilot is None else observe(*pilot)
    unlabelled = as_pool(pool)
    evaluation = evaluate(observations, settings, others, unlabelled)
    return diagnose_evaluation(observations, evaluation, settings)


def diagnose_evaluation(
    observations: Observations, evaluation: Evaluation, settings: Settings
) -> Diagnosis:
    """Diagnose an evaluation that is there already; see :func:`diagnose`."""
    counts = evaluation.counts
    if not counts.thresholds.size:
        cause = "No row has a score; score the trajectories first."
        return Diagnosis(False, "no_scores", 0, None, None, None, cause)
    errors = counts.selective_error
    best = int(np.flatnonzero(errors == errors.min())[-1])
    rate = int(counts.successes.sum()) / counts.trajectories
    stopped = _stopped_by(evaluation, settings)
    needed = then = None
    if stopped in ("tasks", "guard"):
        needed, then = _tasks_needed(evaluation, settings)
    area = observations.auroc
    lowest, at = float(errors[best]), float(counts.coverage[best])
    cause = _cause(stopped, evaluation, settings, (rate, area, lowest, at))
    return Diagnosis(stopped is None, stopped, counts.tasks, needed, rate, area, cause, then)


def _stopped_by(evaluation: Evaluation, settings: Settings) -> str | None:
    if evaluation.chosen is not None:
        return None
    if evaluation.lacks_pilot:
        return "input"
    if evaluation.passed_test.any():
        return "guard"
    if settings.coarse_draws:
        return "draws"
    counts = evaluation.counts
    if float(evaluation.tested.selective_error.min()) < settings.alpha:
        return "tasks"
    successes = int(counts.successes.sum())
    decided = counts.trajectories - successes if settings.side == "reject" else successes
    return "base_rate" if decided < n_min(settings.alpha, settings.delta) else "judge"


def _tasks_needed(evaluation: Evaluation, settings: Settings) -> tuple[int | None, float | None]:
    """The fewest tasks like these at which a threshold passes, and its coverage."""
    counts = evaluation.counts
    errors = evaluation.tested.selective_error
    # a sequence passes nothing before its start
    places = (
        np.unique(counts.covered_trajectories, return_index=True)[1].tolist()
        if evaluation.plan is None
        else [evaluation.plan.start]
    )
    guards = {
        place: guard
        for place in places
        if errors[place] < settings.alpha
        and (guard := _guard_tasks(evaluation, settings, place)) is not None
    }
    fewest, narrowest = None, None
    # neighbours need about as many: in scattered order few of them are fewer than all before
    left = sorted(guards, key=lambda place: place * _GOLDEN % 1)
    while True:
        most = _MOST_TASKS if fewest is None else fewest - 1
        left = [place for place in left if guards[place] <= most]
        place = _first_passing(evaluation, settings, left, most)
        if place is None:
            break
        left = left[left.index(place) + 1 :]
        fewest, narrowest = (
            _least(_passes(evaluation, settings, place), guards[place], most),
            place,
        )
    if fewest is None or narrowest is None:
        return None, None
    before = [place for place, guard in guards.items() if place < narrowest and guard <= fewest]
    narrower = _first_passing(evaluation, settings, before, fewest)
    return fewest, float(counts.coverage[narrowest if narrower is None else narrower])


def _guard_tasks(evaluation: Evaluation, settings: Settings, place: int) -> int | None:
    """Tasks at which the guard passes: the floor falls with each of them."""
    if settings.applied_guard == "none":
        return 1
    tasks, limit = evaluation.counts.tasks, evaluation.guard.limit
    factor = factor_needed(
        evaluation.counts, place, settings.alpha, settings.delta / settings.candidates
    )
    spread = math.ceil(tasks * factor) if factor > 1.0 else 1
    log_floor = math.log(max(float(evaluation.guard.floor_probability[place]), 1e-300))
    return max(spread, math.ceil(tasks * math.log(limit) / log_floor)) if log_floor < 0 else None


def _first_passing(
    evaluation: Evaluation, settings: Settings, places: Sequence[int], tasks: int
) -> int | None:
    """Return the first of some thresholds that would pass with so many tasks like these."""
    # saddlepoints of many thresholds take as long as one; other tails are computed one by one
    width = _AT_ONCE if settings.method.calibrated else 1
    for start in range(0, len(places), width):
        part = np.array(places[start : start + width])
        tails = settings.method.tails(
            evaluation.tested.part(part), evaluation.test.part(part), tasks
        )
        found = np.flatnonzero(tails <= settings.level)
        if found.size:
            return int(part[found[0]])
    return None


def _least(passes: Callable[[int], bool], low: int, most: int) -> int:
    """Smallest size from ``low`` on that passes, as ``most`` does: by doubling, then by halves."""
    failing, size = low - 1, low
    while size < most and not passes(size):
        failing, size = size, min(2 * size, most)
    while size - failing > 1:
        middle = (failing + size) // 2
        failing, size = (failing, middle) if passes(middle) else (middle, size)
    return size


def _passes(evaluation: Evaluation, settings: Settings, place: int) -> Callable[[int], bool]:
    """Return whether a threshold would pass with so many tasks like these."""
    # once for all sizes: what the counts of a threshold sum to is kept with them
    test, tested = evaluation.test.part(slice(place, place + 1)), evaluation.tested.at(place)
    return lambda tasks: bool(settings.method.tails(tested, test, tasks)[0] <= settings.level)


def _cause(stopped: str | None, evaluation: Evaluation, settings: Settings, facts: _Facts) -> str:
    rate, area, lowest, at = facts
    tasks, alpha = evaluation.counts.tasks, f"α = {settings.alpha:g}"
    seen = f"success rate {rate:.3f}, AUROC {'undefined' if area is None else format(area, '.3f')}"
    best = f"the lowest error seen is {lowest:.3f} at coverage {at:.3f}"
    if stopped is None:
        return "A threshold is certified."
    if stopped == "judge":
        return (
            f"The judge is the limit: its lowest error is {lowest:.3f}, not below {alpha} ({seen})."
            " More tasks will not help; a better judge or a larger α will."
        )
    if stopped == "base_rate":
        return (
            f"The base rate is the limit: there is almost nothing to {settings.side} ({seen}). "
            f"The lowest error is {lowest:.3f}, not below {alpha}; more tasks will not help."
        )
    if stopped == "input":
        return LACKS_PILOT
    if stopped == "draws":
        return (
            f"The number of draws is the limit: with {settings.draws} resamples no threshold can "
            f"pass at level {settings.level:.3g}. Give at "
            f"least {draws_needed(settings.level)}, or the engine without draws."
        )
    if stopped == "guard":
        held = f"{tasks} tasks are too few to exclude tasks that are wrong throughout"
        if bool(evaluation.guard.concentrated[evaluation.passed_test].all()):
            held = f"a few of the {tasks} tasks hold most of what is covered"
        return f"The guard ({settings.applied_guard}) is the limit: {held}; {best} ({seen})."
    return (
        f"The number of tasks is the limit: {tasks} tasks cannot show an error below {alpha} at "
        f"level {settings.level:.3g}; {best} ({seen})."
    )
