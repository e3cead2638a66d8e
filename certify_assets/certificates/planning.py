"""Planning: how many tasks a certificate takes, what it would cover, and which gates are open.

One population is matched to the facts, and tables of ever more tasks are drawn from it. The planned
number is the smallest at which four draws of five certify something.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from certify_assets._version import __version__
from certify_assets.certificates.auroc import Ranking
from certify_assets.certificates.clustering import design_effect, n_min
from certify_assets.certificates.diagnosis import approximate, fewest_tasks, smallest
from certify_assets.certificates.evaluation import evaluate
from certify_assets.certificates.gates import (
    GateResult,
    auroc_lower_bound,
    judge_gate,
    sample_gate,
    saturation_gate,
)
from certify_assets.certificates.guard import FLOOR_SHARE
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.populations import Population, match_population
from certify_assets.certificates.settings import Settings
from certify_assets.errors import InputError, quoted
from certify_assets.files import rounded
from certify_assets.work import counted

PLAN_SCHEMA = "certify_assets/plan/2"
#: share of draws that certify something at the planned number of tasks
TARGET: Final = 0.8
_FEWEST = 2
#: draws of one number of tasks, until their share is clearly off the target, in standard errors
_BATCHES, _CLEAR = (30, 60, 120, 240, 480), 3.0
_PRECISION = 0.02
_SEARCH, _CHECK = 1, 3
#: coverage at which the grid begins
_NARROWEST = 0.02
_FEWEST_PAIRS, _FEWEST_MIXED = 50, 10
_MOST_SIZES = 200


@dataclass(frozen=True, kw_only=True)
class CorpusFacts:
    """What is known of a corpus and its judge.

    Attributes
    ----------
    success_rate, auroc, icc : float
        π, A₀ and the label ICC.
    sizes : tuple of int
        Attempts a task: one number, or those of the observed tasks.
    within_auroc : float, optional
        AUROC among attempts at one task.
    tasks : int, optional
        Labelled tasks that are there.
    sft_auroc : float, optional
        AUROC of the fine-tuned judge.
    table : Observations, optional
        The table that A₀ is of, whose tasks are resampled for a bound.
    """

    success_rate: float
    auroc: float
    icc: float
    sizes: tuple[int, ...] = (8,)
    within_auroc: float | None = None
    tasks: int | None = None
    sft_auroc: float | None = None
    table: Observations | None = None

    @property
    def attempts(self) -> float:
        """Mean attempts a task."""
        return sum(self.sizes) / len(self.sizes)

    def n_eff(self, tasks: int) -> float:
        """Effective trajectories of so many tasks."""
        weighted = sum(size * size for size in self.sizes) / sum(self.sizes)
        return tasks * self.attempts / design_effect(weighted, self.icc)


def corpus_facts(observations: Observations, **known: Any) -> CorpusFacts:
    """Read the facts off a table; what is given by name takes the place of what the table says.

    Parameters
    ----------
    observations : Observations
    **known
        ``success_rate``, ``auroc``, ``icc``, ``sizes``, ``tasks``, ``sft_auroc``; None is not
        given. A given AUROC is that of another judge, so the table's scores are not looked at.

    Raises
    ------
    InputError
        If all outcomes are equal and the success rate or the AUROC is not given.
    """
    given = {name: value for name, value in known.items() if value is not None}
    if not observations.scored:
        raise InputError(
            "No row has a score; score the trajectories first, or plan from --success-rate, "
            "--auroc and --icc."
        )
    clusters = observations.clusters
    read: dict[str, Any] = {
        "success_rate": clusters.success_rate,
        "icc": clusters.icc,
        "tasks": clusters.tasks,
        "sizes": _quantiles(observations),
    }
    if "auroc" not in given:
        read |= {"auroc": observations.auroc, "table": observations}
        read["within_auroc"] = within_task_auroc(observations)
    if observations.auroc is None and not {"success_rate", "auroc"} <= set(given):
        raise InputError(
            "All scored outcomes are equal, so success rate and AUROC cannot be read off; give "
            "--success-rate and --auroc."
        )
    return CorpusFacts(**read | given)


def _quantiles(observations: Observations) -> tuple[int, ...]:
    """Return the sizes of the tasks, at most as many quantiles of them as draws tell apart."""
    sizes = np.sort(observations.task_sizes)
    if sizes[0] == sizes[-1]:
        return (int(sizes[0]),)
    number = min(sizes.size, _MOST_SIZES)
    places = (np.arange(number) + 0.5).astype(np.int64) * sizes.size // number
    return tuple(sizes[places].tolist())


def within_task_auroc(observations: Observations) -> float | None:
    """AUROC within tasks; None with fewer than 50 pairs or 10 tasks that have both outcomes."""
    scores, right, tasks = observations.scored_rows
    ranking = Ranking.of(scores, right, tasks.astype(np.int64))
    won, pairs = (float(value[0]) for value in ranking.pair_counts(np.ones((1, scores.size))))
    successes = observations.task_successes
    mixed = np.count_nonzero((successes > 0) & (successes < observations.task_sizes))
    return won / pairs if pairs >= _FEWEST_PAIRS and mixed >= _FEWEST_MIXED else None


@dataclass(frozen=True, kw_only=True)
class SamplePlan:
    """The answer of ``certify plan``.

    Attributes
    ----------
    facts, settings
        What was asked.
    gates : tuple of GateResult
    predicted_coverage : float
        Coverage at which the population's error is α: what ever more tasks lead to.
    tasks_needed : int or None
        Tasks with which four draws of five certify something, at least 20 where no proof allows
        fewer; None where no number does.
    success_probability, coverage : float or None
        Share of fresh draws of so many tasks that certify something, and their mean coverage.
    reason : str
        Why no number of tasks does; empty where one does.
    certified_now : bool or None
        Whether the table given certifies as it is.
    """

    facts: CorpusFacts
    settings: Settings
    gates: tuple[GateResult, GateResult, GateResult]
    predicted_coverage: float
    tasks_needed: int | None
    success_probability: float | None
    coverage: float | None
    reason: str
    certified_now: bool | None

    @property
    def labels_needed(self) -> int | None:
        """Trajectories of the tasks needed."""
        return self.tasks_needed and round(self.tasks_needed * self.facts.attempts)

    @property
    def more_tasks(self) -> int | None:
        """Tasks to add to those that are there; None where that is unknown or no number does."""
        if self.tasks_needed is None or self.facts.tasks is None:
            return None
        return max(0, self.tasks_needed - self.facts.tasks)

    @property
    def answer(self) -> str:
        """How many tasks are needed, or why no number is enough."""
        there, needed = self.facts.tasks, self.tasks_needed
        now = "You have enough tasks: this table certifies something as it is."
        if needed is None:
            return now if self.certified_now else f"No number of tasks is enough. {self.reason}"
        total, labels = approximate(needed), approximate(self.labels_needed or 0)
        tasks, chance = f"{total} tasks", f"for an {100 * TARGET:.0f} % chance"
        of = f"of {self.facts.attempts:.3g} attempts each ({labels} labels)"
        if self.certified_now:
            return f"{now} Another such table needs about {tasks} {of}."
        if there is None:
            return f"About {tasks} are needed {chance}, {of}."
        if self.more_tasks:
            more = approximate(self.more_tasks)
            return f"About {more} more tasks are needed {chance}: {total} in all, {of}."
        return f"You have enough tasks: {there:,}, and about {total} are needed {chance}."

    @property
    def notes(self) -> tuple[str, ...]:
        """What the tasks needed would cover."""
        needed, simulated = self.tasks_needed, (self.success_probability, self.coverage)
        if needed is None:
            return ()
        chance, coverage, limit = (
            f"{100 * (share or 0):.0f} %" for share in (*simulated, self.predicted_coverage)
        )
        return (
            f"With {needed:,} tasks, {chance} of simulated tables certify something, {coverage} of "
            f"the runs on average; with ever more tasks, {limit}.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        facts, settings = self.facts, self.settings
        document = {
            "schema": PLAN_SCHEMA,
            "answer": self.answer,
            "predicted_coverage": self.predicted_coverage,
            "gates": [gate.to_dict() for gate in self.gates],
            "tasks_needed": self.tasks_needed,
            "labels_needed": self.labels_needed,
            "more_tasks": self.more_tasks,
            "attempts_per_task": facts.attempts,
            "success_probability": self.success_probability,
            "coverage": self.coverage,
            "reason": self.reason or None,
            "notes": list(self.notes),
            "certified_now": self.certified_now,
            "software": {"version": __version__},
        }
        names = ("tasks", "success_rate", "auroc", "icc", "within_auroc")
        document |= {name: getattr(facts, name) for name in names}
        names = ("side", "alpha", "delta", "procedure", "seed")
        return dict(rounded(document | {name: getattr(settings, name) for name in names}))


def plan_sample_size(
    facts: CorpusFacts, settings: Settings, *, trials: int = 300, most_tasks: int = 10_000
) -> SamplePlan:
    """Say how many tasks a certificate takes, what it would cover, and which gates are open.

    Parameters
    ----------
    facts : CorpusFacts
    settings : Settings
        Of the certificate; its seed seeds every draw.
    trials : int
        Fresh draws that check the planned number.
    most_tasks : int
        Largest number of tasks considered.

    Returns
    -------
    SamplePlan

    Raises
    ------
    InputError
        If a fact is out of range, or the procedure needs a pilot.

    Notes
    -----
    Draws are from a :class:`~certify_assets.certificates.populations.Population` matched to the
    facts. The plan holds for corpora like it: Gaussian task effects, Gaussian score noise, attempts
    at one task exchangeable. The share of draws at the number found is known to about .02.
    """
    for name, value, least in (
        ("trials", trials, 1),
        ("most_tasks", most_tasks, _FEWEST),
        ("tasks", 1 if facts.tasks is None else facts.tasks, 1),
    ):
        if type(value) is not int or value < least:
            raise InputError(f"{name} is {quoted(value)}; give a whole number from {least}.")
    sft = facts.sft_auroc
    if sft is not None and not (isinstance(sft, int | float) and 0 <= sft <= 1):
        raise InputError(f"sft_auroc is {quoted(sft)}; give a number from 0 to 1.")
    if settings.method.pilot:
        raise InputError(
            f"{settings.procedure} needs a pilot table, which a plan cannot draw; give another "
            "procedure."
        )
    population = match_population(
        success_rate=facts.success_rate,
        auroc=facts.auroc,
        icc=facts.icc,
        sizes=facts.sizes,
        within_auroc=facts.within_auroc,
    )
    reason, needed, found = _unreachable(population, settings), None, None
    if not reason:
        needed = smallest(
            lambda tasks: _often_certified(population, settings, tasks),
            n_min(settings.alpha, settings.delta / FLOOR_SHARE),
            least=min(max(_FEWEST, fewest_tasks(settings)), most_tasks),
            most=most_tasks,
            precision=_PRECISION,
        )
        if needed is None:
            reason = (
                f"With {most_tasks:,} tasks, the largest number considered, fewer than "
                f"{100 * TARGET:.0f} % of simulated tables certify something."
            )
    if needed is not None:
        fresh = counted(f"checking {needed} tasks", range(trials))
        found = np.array([_coverage(population, settings, needed, _CHECK, n) for n in fresh])
    now = None
    if facts.table is not None:
        now = evaluate(facts.table, settings).chosen is not None
    return SamplePlan(
        facts=facts,
        settings=settings,
        gates=_gates(facts, settings, needed),
        predicted_coverage=population.coverage_at(settings.alpha, settings.side),
        tasks_needed=needed,
        success_probability=None if found is None else float((found > 0).mean()),
        coverage=None if found is None else float(found.mean()),
        reason=reason,
        certified_now=now,
    )


def _often_certified(population: Population, settings: Settings, tasks: int) -> bool:
    """Whether the share of draws that certify something reaches the target."""
    # common draws: under one key a smaller draw is the beginning of a larger one
    drawn = hits = 0
    share = 0.0
    for count in _BATCHES:
        for trial in counted(f"trying {tasks} tasks", range(drawn, count)):
            hits += _coverage(population, settings, tasks, _SEARCH, trial) > 0
        drawn, share = count, hits / count
        if abs(share - TARGET) > _CLEAR * math.sqrt(TARGET * (1 - TARGET) / count):
            break
    return share >= TARGET


def _coverage(
    population: Population, settings: Settings, tasks: int, stream: int, trial: int
) -> float:
    """Return the certified coverage in one draw; 0 where nothing is certified."""
    drawn = observe(*population.draw(tasks, (settings.seed, stream, trial)))
    # a draw of one trajectory a task must differ between trials
    return evaluate(drawn, settings.replace(seed=trial)).chosen_coverage


def _unreachable(population: Population, settings: Settings) -> str:
    """Say why no number of tasks suffices, where the true error over trajectories says so."""
    if settings.method.estimand != "trajectory":
        return ""
    coverage, error = population.errors_by_coverage(settings.side)
    lowest = float(error[coverage >= _NARROWEST].min(initial=1.0))
    if lowest < settings.alpha:
        return ""
    return (
        f"The judge is the limit: on this side its lowest error is {lowest:.3f}, not below "
        f"α = {settings.alpha:g}. A better judge or a larger α will help."
    )


def _gates(
    facts: CorpusFacts, settings: Settings, planned: int | None
) -> tuple[GateResult, GateResult, GateResult]:
    tasks = planned if facts.tasks is None else facts.tasks
    bound = None
    if facts.table is not None:
        bound = auroc_lower_bound(facts.table, seed=settings.seed)
    return (
        judge_gate(facts.auroc, bound),
        saturation_gate(facts.sft_auroc, facts.auroc),
        sample_gate(
            None if tasks is None else facts.n_eff(tasks),
            alpha=settings.alpha,
            delta=settings.delta,
            grid=settings.delta / settings.level(tasks or 0),
        ),
    )
