"""Sample-size planning: the tasks that a certificate takes, its coverage, and the gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from certify_assets._version import __version__
from certify_assets.certificates.auroc import Ranking
from certify_assets.certificates.clustering import design_effect, n_min
from certify_assets.certificates.evaluation import evaluate
from certify_assets.certificates.findings import FEW_TASKS
from certify_assets.certificates.gates import (
    GateResult,
    auroc_lower_bound,
    judge_gate,
    sample_gate,
    saturation_gate,
)
from certify_assets.certificates.guard import FLOOR_SHARE
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.populations import (
    LARGEST_AUROC,
    LARGEST_ICC,
    LEAST_AUROC,
    Population,
    match_population,
)
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.sizing import Progress, Sizing, bracket_tasks, size_tasks
from certify_assets.errors import InputError, quoted
from certify_assets.files import rounded, significant

PLAN_SCHEMA = "certify_assets/prospect/1"
MOST_TASKS = 10_000
OTHER_ATTEMPTS = (1, 2, 4, 8, 16)
_NARROWEST = 0.02
_BOUND_DRAWS, _BOUND = 200, 0.05
_GATE_STREAM = 4
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
    observed : Observations, optional
        The table, where there is one.
    bootstrapped : bool
        Whether A₀ is the table's own, so that its tasks can be resampled for a bound.
    """

    success_rate: float
    auroc: float
    icc: float
    sizes: tuple[int, ...] = (8,)
    within_auroc: float | None = None
    tasks: int | None = None
    sft_auroc: float | None = None
    observed: Observations | None = None
    bootstrapped: bool = False

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
        ``success_rate``, ``auroc``, ``icc``, ``sizes``, ``within_auroc``, ``tasks``, ``sft_auroc``;
        None is not given.

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
    area = observations.auroc
    if area is None and not {"success_rate", "auroc"} <= set(given):
        raise InputError(
            "All scored outcomes are equal, so success rate and AUROC cannot be read off; give "
            "--success-rate and --auroc."
        )
    ordered = np.sort(observations.task_sizes)
    if ordered.size > _MOST_SIZES:
        places = (np.arange(_MOST_SIZES) + 0.5).astype(np.int64) * ordered.size // _MOST_SIZES
        ordered = ordered[places]
    sizes = tuple(ordered.tolist()) if ordered[0] < ordered[-1] else (int(ordered[0]),)
    read = {
        "success_rate": clusters.success_rate,
        "auroc": area,
        "icc": clusters.icc,
        "sizes": sizes,
        # a given AUROC is of another judge, whose ranking within tasks is unknown
        "within_auroc": None if "auroc" in given else within_task_auroc(observations),
        "tasks": clusters.tasks,
    }
    return CorpusFacts(
        **{**read, **given}, observed=observations, bootstrapped="auroc" not in given
    )


def within_task_auroc(observations: Observations) -> float | None:
    """AUROC within tasks; None with fewer than 50 pairs or 10 tasks that have both outcomes."""
    scored = observations.scored
    right, codes = observations.outcomes[:scored], observations.tasks[:scored]
    ranking = Ranking.of(observations.scores[:scored], right, codes.astype(np.int64))
    won, pairs = (float(value[0]) for value in ranking.pair_counts(np.ones((1, scored))))
    successes, failures = (np.bincount(codes[right == label], minlength=1) for label in (1, 0))
    size = min(successes.size, failures.size)
    mixed = int(np.count_nonzero(successes[:size] * failures[:size]))
    return won / pairs if pairs >= _FEWEST_PAIRS and mixed >= _FEWEST_MIXED else None


#: side and budget of the corpora that the paper's law was fitted to
_LAW_FITTED = ("reject", 0.1)


@dataclass(frozen=True, kw_only=True)
class SamplePlan:
    """The answer of ``certify plan``.

    Attributes
    ----------
    facts, settings, population
        What was asked.
    gates : tuple of GateResult
    sizing : Sizing
    population_coverage : float
        Coverage at which the true error is α: what ever more tasks lead to.
    alternatives : tuple of (int, int or None)
        Attempts a task, and tasks that are then needed, to within about a tenth.
    reason : str or None
        Why no number of tasks does.
    certified_now : bool or None
        Whether the table given certifies as it is.
    trials : int
    """

    facts: CorpusFacts
    settings: Settings
    population: Population
    gates: tuple[GateResult, GateResult, GateResult]
    sizing: Sizing
    population_coverage: float
    alternatives: tuple[tuple[int, int | None], ...]
    reason: str | None
    certified_now: bool | None
    trials: int

    @property
    def more_tasks(self) -> int | None:
        """Tasks to add to those that are there; None where that is unknown or no number does."""
        if self.sizing.tasks is None or self.facts.tasks is None:
            return None
        return max(0, self.sizing.tasks - self.facts.tasks)

    @property
    def notes(self) -> tuple[str, ...]:
        """What qualifies the numbers."""
        sizing, notes = self.sizing, []
        if self.settings.method.resamples and self.settings.applied_guard == "none":
            notes.append(
                "Nothing guards against tasks that are wrong throughout: TaskBoot alone certifies "
                "error-free data of any size, so the plan says when "
                "it certifies, not when that can be relied on."
            )
        if sizing.at_lower_bound:
            notes.append("Two tasks, the fewest considered, do already.")
        if (
            sizing.tasks is not None
            and sizing.tasks < FEW_TASKS
            and self.settings.method.validity in ("asymptotic", "calibrated by simulation")
        ):
            notes.append(
                f"Below {FEW_TASKS} tasks {self.settings.procedure} has not been validated: label "
                f"at least {FEW_TASKS}, although {sizing.tasks} often lead to a certificate."
            )
        if sizing.fewer is not None:
            notes.append(
                f"The success probability steps over 80 ± 5 %: {100 * sizing.best:.0f} % with "
                f"{sizing.tasks} tasks, {100 * sizing.fewer.share:.0f} % with "
                f"{sizing.fewer.tasks}."
            )
        if not LEAST_AUROC <= self.facts.auroc <= LARGEST_AUROC or self.facts.icc > LARGEST_ICC:
            notes.append(
                f"Draws are of an AUROC from {LEAST_AUROC:g} to {LARGEST_AUROC:g} and an ICC up to "
                f"{LARGEST_ICC:g}, the nearest to those given."
            )
        return tuple(notes)

    @property
    def law(self) -> float | None:
        """Coverage by the paper's law (1 − π)(2A₀ − 1); None but for what it was fitted to."""
        if (self.settings.side, self.settings.alpha) != _LAW_FITTED:
            return None
        return (1 - self.facts.success_rate) * max(0.0, 2 * self.facts.auroc - 1)

    @property
    def enough(self) -> bool | None:
        """Whether there are enough tasks; None where it is not known how many there are."""
        if self.certified_now:
            return True
        if self.sizing.tasks is None:
            return False
        return None if self.more_tasks is None else self.more_tasks == 0

    @property
    def answer(self) -> str:
        """Whether there are enough tasks, in one sentence."""
        needed, there = self.sizing.tasks, self.facts.tasks
        if needed is None:
            if self.enough:
                return f"You have enough tasks ({there}): the table certifies something as it is."
            return "No number of tasks like these is enough."
        if there is None:
            return f"About {needed} tasks are needed."
        if self.enough and needed > there:
            return (
                f"You have enough tasks ({there}): the table certifies something as it is. Another "
                f"like it would need about {needed} to do so in 80 % of draws."
            )
        if self.enough:
            return f"You have enough tasks ({there}; about {needed} would do)."
        return f"You do not have enough tasks ({there}; about {needed} are needed)."

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if self.sizing.tasks is None or not self.sizing.checks:
            return f"No number of tasks like these leads to a certificate. {self.reason}"
        check = self.sizing.checks[-1]
        attempts = f"{self.facts.attempts:.3g} attempt{'' if self.facts.attempts == 1 else 's'}"
        chance = (
            f"{100 * check.share:.0f} % of {check.trials} simulated draws certify something, "
            f"{100 * check.coverage:.0f} % of the trajectories on average"
        )
        if self.more_tasks is None:
            return f"With about {check.tasks} tasks of {attempts} each, {chance}."
        if self.more_tasks == 0:
            return (
                f"The {self.facts.tasks} tasks are as many as a certificate takes: with "
                f"{check.tasks} of {attempts} each, {chance}."
            )
        return (
            f"With about {self.more_tasks} more tasks of {attempts} each ({check.tasks} in all), "
            f"{chance}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        check = self.sizing.checks[-1] if self.sizing.checks else None
        tasks, attempts = self.sizing.tasks, self.facts.attempts
        return {
            "schema": PLAN_SCHEMA,
            "predicted_coverage": significant(self.population_coverage),
            "gates": [rounded(gate.to_dict()) for gate in self.gates],
            "tasks_needed": tasks,
            "attempts_per_task": round(attempts),
            "success_probability": None if check is None else significant(check.share),
            "more_tasks": self.more_tasks,
            "trajectories_needed": None if tasks is None else round(tasks * attempts),
            "reason": self.reason,
            "enough": self.enough,
            "answer": self.answer,
            "sentence": self.sentence,
            "notes": list(self.notes),
            "coverage": {
                "population": significant(self.population_coverage),
                "at_planned_size": None if check is None else significant(check.coverage),
                "law": None if self.law is None else significant(self.law),
            },
            "checks": [rounded(asdict(item)) for item in self.sizing.checks],
            "alternatives": [_alternative(*pair) for pair in self.alternatives],
            "fewest_trajectories": self._fewest_trajectories(),
            "certified_now": self.certified_now,
            "tasks": self.facts.tasks,
            "model": _model(self.facts, self.population),
            **{
                name: getattr(self.settings, name)
                for name in ("side", "alpha", "delta", "procedure", "seed")
            },
            "guard": self.settings.applied_guard,
            "grid": self.settings.applied_grid,
            "trials": self.trials,
            "software": {"version": __version__},
        }

    def _fewest_trajectories(self) -> dict[str, int | None] | None:
        known = [
            (attempts * tasks, attempts, tasks) for attempts, tasks in self.alternatives if tasks
        ]
        return _alternative(*min(known)[1:]) if known else None


def plan_sample_size(
    facts: CorpusFacts,
    settings: Settings,
    *,
    trials: int = 300,
    most_tasks: int = MOST_TASKS,
    other_attempts: Sequence[int] = OTHER_ATTEMPTS,
    progress: Progress | None = None,
) -> SamplePlan:
    """Say how many tasks a certificate takes, what it would cover, and which gates are open.

    Parameters
    ----------
    facts : CorpusFacts
    settings : Settings
        Of the certificate; its seed seeds every draw.
    trials : int
        Fresh draws that check the planned size.
    most_tasks : int
        Largest number of tasks considered.
    other_attempts : sequence of int
        Attempts a task at which tasks needed are compared.
    progress : callable, optional
        Called with a sentence at every step.

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
    at one task exchangeable.
    """
    for name, value, least in (
        ("trials", trials, 1),
        ("most_tasks", most_tasks, 2),
        ("tasks", facts.tasks, 1),
    ):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (whole and value >= least):
            raise InputError(f"{name} is {quoted(value)}; give a whole number from {least}.")
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
    reason = _unreachable(population, settings)
    sizing = Sizing(None)
    if reason is None:
        sizing = size_tasks(
            population,
            settings,
            guess=n_min(settings.alpha, settings.delta / FLOOR_SHARE),
            most=most_tasks,
            trials=trials,
            progress=progress,
        )
        if sizing.tasks is None:
            reason = (
                f"With {most_tasks} tasks, the largest number considered, only "
                f"{100 * sizing.best:.0f} % of the draws certify something."
            )
    plan = SamplePlan(
        facts=facts,
        settings=settings,
        population=population,
        gates=_gates(facts, settings, population, sizing.tasks),
        sizing=sizing,
        population_coverage=population.coverage_at(settings.alpha, settings.side),
        alternatives=(),
        reason=reason,
        certified_now=None
        if facts.observed is None
        else evaluate(facts.observed, settings).chosen is not None,
        trials=trials,
    )
    return compare_attempts(plan, other_attempts, most_tasks=most_tasks, progress=progress)


def compare_attempts(
    plan: SamplePlan,
    others: Sequence[int],
    *,
    most_tasks: int = MOST_TASKS,
    progress: Progress | None = None,
) -> SamplePlan:
    """Add to a plan the tasks needed at other numbers of attempts, which takes as long again."""
    found = _alternatives(
        plan.population, plan.settings, plan.sizing.tasks, (most_tasks, others), progress
    )
    return replace(plan, alternatives=found)


def _unreachable(population: Population, settings: Settings) -> str | None:
    """Why no number of tasks suffices, where the true error over trajectories says so."""
    if settings.method.estimand != "trajectory":
        return None
    coverage, error = population.errors_by_coverage(settings.side)
    usable = error[coverage >= _NARROWEST]
    lowest = float(usable.min()) if usable.size else 1.0
    if lowest < settings.alpha:
        return None
    return (
        "The judge ranks too weakly for this side and budget: at every coverage from "
        f"{_NARROWEST:.0%} on, which is where the grid begins, the true error is "
        f"at least {lowest:.3f}, not below alpha {settings.alpha:g}; a judge that ranks better or "
        "a larger alpha would help."
    )


def _gates(
    facts: CorpusFacts,
    settings: Settings,
    population: Population,
    planned: int | None,
) -> tuple[GateResult, GateResult, GateResult]:
    tasks = planned if facts.tasks is None else facts.tasks
    whose = f" of {tasks} planned tasks" if facts.tasks is None else ""
    shares = round(settings.delta / settings.level)
    if facts.observed is not None and facts.bootstrapped:
        bound, how = auroc_lower_bound(facts.observed, seed=settings.seed), "task bootstrap"
    elif tasks is not None and tasks > 1:
        bound = _expected_bound(population, tasks, settings.seed)
        how = f"expected with {tasks} tasks, simulated"
    else:
        bound, how = None, ""
    return (
        judge_gate(facts.auroc, bound, how=how),
        saturation_gate(facts.sft_auroc, facts.auroc),
        sample_gate(
            None if tasks is None else facts.n_eff(tasks),
            alpha=settings.alpha,
            delta=settings.delta,
            grid=shares,
            where=whose,
        ),
    )


def _expected_bound(population: Population, tasks: int, seed: int) -> float | None:
    """The 5 % quantile of the AUROC over draws: what a task bootstrap's bound is on average."""
    areas = [
        observe(*population.draw(tasks, (seed, _GATE_STREAM, trial))).auroc
        for trial in range(_BOUND_DRAWS)
    ]
    known = [area for area in areas if area is not None]
    return float(np.quantile(known, _BOUND)) if known else None


def _alternatives(
    population: Population,
    settings: Settings,
    tasks: int | None,
    limits: tuple[int, Sequence[int]],
    progress: Progress | None,
) -> tuple[tuple[int, int | None], ...]:
    """Tasks needed at other numbers of attempts, coarsely; all else stays the same."""
    if tasks is None:
        return ()
    own = population.sizes[0] if len(population.sizes) == 1 else None
    found: list[tuple[int, int | None]] = []
    most, others = limits
    for attempts in sorted({*others} | ({own} if own is not None else set())):
        if attempts == own:
            found.append((attempts, tasks))
            continue
        needed, _ = bracket_tasks(
            replace(population, sizes=(attempts,)), settings, guess=tasks, most=most, precision=0.08
        )
        found.append((attempts, needed))
        if progress is not None:
            words = "no number of tasks" if needed is None else f"about {needed} tasks"
            of = "1 attempt" if attempts == 1 else f"{attempts} attempts"
            progress(f"{of} a task: {words}")
    return tuple(found)


def _alternative(attempts: int, tasks: int | None) -> dict[str, int | None]:
    total = None if tasks is None else attempts * tasks
    return {"attempts_per_task": attempts, "tasks": tasks, "trajectories": total}


def _model(facts: CorpusFacts, population: Population) -> object:
    return rounded(
        {
            "description": (
                "Gaussian task effect on the logit of success, Gaussian score noise of standard "
                "deviation 1"
            ),
            "success_rate": facts.success_rate,
            "auroc": facts.auroc,
            "icc": facts.icc,
            "within_auroc": population.within_auroc,
            "base": population.base,
            "spread": population.spread,
            "separation": population.separation,
            "loading": population.loading,
            "attempts": {
                "mean": facts.attempts,
                "fewest": min(facts.sizes),
                "most": max(facts.sizes),
            },
        }
    )
