"""Why nothing is certified, and how many tasks like those observed would change that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from certify_assets.arrays import Names
from certify_assets.certificates.evaluation import Evaluation, evaluate
from certify_assets.certificates.evidence import GivenPool, as_pool
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.taskboot import draws_needed

#: below this many tasks neither the paper's simulation nor ours covers the bootstrap
FEW_TASKS = 20
_MOST_TASKS = 1_000_000
#: what stopped a certificate, in words
CAUSES = {
    "unread": "{labelled} of {runs} runs have a clear label, and nothing passes where the others "
    "count as wrong (success rate {rate:.3f} of the {labelled} labelled runs). Labels of a part of "
    "the runs do not show what the limit is.",
    "no_scores": "No row has a score; score the trajectories first.",
    "input": "betting fixes thresholds, start and bets on a pilot table of other tasks and had "
    "none, so nothing was tested; give one (--set pilot=FILE).",
    "draws": "The number of draws is the limit: with {draws} resamples no threshold can pass at "
    "level {level:.3g}; at least {draws_needed} are needed, or the engine without draws (auto).",
    "judge": "The judge is the limit: its lowest error is {lowest:.3f}, not below α = {alpha:g} "
    "({seen}). More tasks will not help; a better judge or a larger α will.",
    "few": "Too few tasks: on {tasks} tasks the lowest error is {lowest:.3f}, not below α = "
    "{alpha:g} ({seen}). Label at least {few_tasks} to see whether the judge is the limit.",
    "guard": "The guard is the limit: the {tasks} tasks are too few to exclude tasks that "
    "are wrong throughout, or a few of them hold most runs. Label more tasks, or cap the attempts.",
    "tasks": "The number of tasks is the limit: {tasks} tasks cannot show an error below "
    "α = {alpha:g} at level {level:.3g}; the lowest error seen is {lowest:.3f} at coverage "
    "{coverage:.3f} ({seen}).",
}


@dataclass(frozen=True)
class Diagnosis:
    """Why a table has no certificate, and how many tasks would change that.

    Attributes
    ----------
    stopped_by : None or a key of `CAUSES`
        None when something was certified. "unread": reading stopped early, or labels are unclear,
        so that nothing more can be said. "judge": the error exceeds α at every threshold.
        "tasks": the error is below α, the tasks are too few to show it. "guard": the bootstrap
        passes and the guard does not. "few": as "judge", on fewer than `FEW_TASKS` tasks.
        "draws": so few resamples are drawn that none could pass.
        "input": the procedure lacks a pilot table.
    tasks : int
        Tasks observed.
    cause : str
        A sentence on what stopped it.
    tasks_needed : int or None
        Order of magnitude of the tasks like these that would certify something; None where a
        million would not. At that size about every second sample passes. At least `fewest_tasks`.
    success_rate, auroc : float or None
    corpus_tasks : int or None
        Tasks of the corpus that these come from; None for a table without a corpus.
    """

    stopped_by: str | None
    tasks: int
    cause: str
    tasks_needed: int | None = None
    success_rate: float | None = None
    auroc: float | None = None
    corpus_tasks: int | None = None

    @property
    def more_tasks(self) -> int | None:
        """Tasks to add to the corpus, or to the table, for an even chance of a certificate."""
        if self.tasks_needed is None:
            return None
        share = 1.0 if self.corpus_tasks is None else self.tasks / self.corpus_tasks
        return math.ceil((self.tasks_needed - self.tasks) / share)

    @property
    def lift(self) -> str:
        """The tasks that would give an even chance, without a full stop; empty where none would."""
        if self.tasks_needed is None:
            return ""
        number = self.tasks_needed - self.tasks
        more = approximate(number)
        if self.corpus_tasks is None:
            return f"about {more} more {'task' if number == 1 else 'tasks'} like these"
        in_corpus = approximate(self.more_tasks or 0)
        return f"about {in_corpus} more tasks in the corpus ({more} of them certify)"

    @property
    def sentence(self) -> str:
        """Say what stopped the certificate and how many tasks would change that."""
        if self.stopped_by != "tasks":
            return self.cause
        if self.tasks_needed is None:
            return f"{self.cause} Fewer than a million tasks will not help."
        return f"{self.cause} {self.lift[0].upper()}{self.lift[1:]} would give an even chance."


def diagnose(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    *,
    pilot: tuple[ArrayLike, ArrayLike, Names] | None = None,
    pool: GivenPool | None = None,
    **keywords: Any,
) -> Diagnosis:
    """Say why a table certifies nothing, and how many tasks like these would certify something.

    Parameters
    ----------
    scores, outcomes, tasks, pilot, pool
        As for :func:`certify_assets.certificates.certify`.
    **keywords
        The settings of :func:`certify_assets.certificates.certify`.

    Returns
    -------
    Diagnosis

    Notes
    -----
    Tasks needed: the observed distribution of (n_g, k_g) over tasks is resampled at G′ instead of G
    tasks. The answer is the smallest G′ at which a threshold passes. At that size about every
    second sample passes. The figure is an order of magnitude: it moves by a factor of two between
    samples of the same size. `Planner.tasks_needed` gives the tasks at which four samples of five
    pass.
    """
    settings = Settings(**keywords)
    observations = observe(scores, outcomes, tasks, partly=settings.method.by_rows)
    others = None if pilot is None else observe(*pilot)
    evaluation = evaluate(observations, settings, others, as_pool(pool))
    return diagnose_evaluation(observations.labelled, evaluation, settings)


def diagnose_evaluation(
    observations: Observations, evaluation: Evaluation, settings: Settings
) -> Diagnosis:
    """Diagnose an existing evaluation by its labelled rows; see :func:`diagnose`."""
    counts = evaluation.counts
    if not counts.thresholds.size:
        return Diagnosis("no_scores", 0, CAUSES["no_scores"])
    labelled = observations.scored
    if evaluation.chosen is None and evaluation.unread:
        # counts take a run without a label as wrong
        known = int(observations.outcomes[:labelled].sum()) / max(1, labelled)
        cause = CAUSES["unread"].format(labelled=labelled, runs=evaluation.scored, rate=known)
        return Diagnosis("unread", counts.tasks, cause, success_rate=known)
    errors, stopped = counts.selective_error, _stopped_by(evaluation, settings)
    best = int(np.flatnonzero(errors == errors.min())[-1])
    rate, area = int(counts.successes.sum()) / evaluation.scored, observations.auroc
    ranking = "undefined" if area is None else f"{area:.3f}"
    cause = CAUSES.get(stopped or "", "A threshold is certified.").format(
        alpha=settings.alpha,
        level=evaluation.test.level,
        draws=settings.draws,
        draws_needed=draws_needed(evaluation.test.level),
        tasks=counts.tasks,
        few_tasks=FEW_TASKS,
        lowest=errors[best],
        coverage=counts.coverage[best],
        seen=f"success rate {rate:.3f}, AUROC {ranking}",
    )
    needed = _tasks_needed(evaluation, settings) if stopped == "tasks" else None
    return Diagnosis(stopped, counts.tasks, cause, needed, rate, area)


def _stopped_by(evaluation: Evaluation, settings: Settings) -> str | None:
    if evaluation.chosen is not None:
        return None
    if evaluation.lacks_pilot:
        return "input"
    if evaluation.passed_test.any():
        return "guard"
    if settings.coarse_draws:
        return "draws"
    lowest = float(evaluation.tested.selective_error.min())
    if lowest < settings.alpha:
        return "tasks"
    # a few tasks do not show how well the judge ranks
    return "few" if evaluation.counts.tasks < FEW_TASKS else "judge"


def approximate(number: int) -> str:
    """Write an estimated number with two digits and separators: 15118 is 15,000."""
    return f"{rounded(number):,}"


def rounded(number: int) -> int:
    """Return a number to two digits."""
    return int(float(f"{number:.2g}"))


def fewest_tasks(settings: Settings) -> int:
    """Return the number of tasks below which a procedure is neither proved nor validated."""
    return 1 if settings.method.validity.startswith("finite-sample") else FEW_TASKS


def _tasks_needed(evaluation: Evaluation, settings: Settings) -> int | None:
    """Return the fewest tasks like these at which a threshold passes."""
    places = np.flatnonzero(evaluation.tested.selective_error < settings.alpha)
    if evaluation.plan is not None:
        # a sequence passes nothing before its start
        places = np.intersect1d(places, evaluation.plan.start)
    tested, test = evaluation.tested.part(places), evaluation.test.part(places)

    def passing(number: int) -> bool:
        level = settings.level(number)
        tails = settings.method.tails(tested, replace(test, level=level), number)
        return bool((tails <= level).any())

    least = max(evaluation.counts.tasks + 1, fewest_tasks(settings))
    return smallest(passing, least=least, most=_MOST_TASKS)


def smallest(
    enough: Callable[[int], bool], *, least: int, most: int, precision: float = 0.0
) -> int | None:
    """Return the smallest number that is enough, by doubling and bisection, to a relative
    `precision`.

    None where `most` is not enough.
    """
    low, high = least - 1, min(least, most)
    while not enough(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > max(1, precision * high):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
