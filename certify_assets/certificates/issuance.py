"""From a table to a certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike, NDArray

from certify_assets._version import __version__
from certify_assets.certificates.certificate import Certificate, Parameters
from certify_assets.certificates.clustering import summarise_clusters
from certify_assets.certificates.evaluation import Evaluation, evaluate
from certify_assets.certificates.findings import certificate_findings, stated_findings
from certify_assets.certificates.inputs import Inputs, Observations, observe, repeated_rows
from certify_assets.certificates.pool import GivenPool, Pool, as_pool
from certify_assets.certificates.procedures import RARE
from certify_assets.certificates.settings import Settings
from certify_assets.errors import InputError
from certify_assets.files import shortest, significant

#: the end of the scores that a side decides, and what is wrong there
_DECIDES = {"reject": ("≤", "successes"), "release": ("≥", "failures")}
_CONFIDENCE = {
    "asymptotic": "about {} confidence",
    "finite-sample": "{} confidence",
    "calibrated by simulation": "{} confidence by simulation",
    "none under clustering": "{} confidence for independent runs only",
}
_DEFAULT_SELECTION = (
    "One of {} candidates compared on these outcomes; delta is divided by their number."
)


def certify(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    pilot: tuple[ArrayLike, ArrayLike, Sequence[Any] | NDArray[Any]] | None = None,
    pool: GivenPool | None = None,
    selection: str | None = None,
    agents: Sequence[Any] | NDArray[Any] | None = None,
    provenance: Mapping[str, str] | None = None,
    named: bool = False,
    alone: bool = False,
    **settings: Any,
) -> Certificate:
    """Certify the largest share of the trajectories that a judge may decide alone at an error
    budget.

    Parameters
    ----------
    scores : array_like of float
        Judge scores, higher = more likely a success; NaN = unscored, left out and counted in the
        findings.
    outcomes : array_like
        1 success, 0 failure.
    tasks : sequence of hashables
        Task of each trajectory; attempts at one task stay together.
    pilot : tuple of scores, outcomes and tasks, optional
        Other tasks, from which betting takes thresholds, start and bets; without them it certifies
        nothing. No other procedure reads it.
    pool : Pool, or tuple of scores and tasks, optional
        Unlabelled runs of other tasks, from which pseudo_task takes how unequal tasks are in size;
        without them it takes that from the table alone. No other procedure accepts it.
    selection : str, optional
        The rule of that choice, for the reader.
    agents : sequence of hashables, optional
        Agent of each trajectory: rows of different agents do not repeat one another.
    provenance : mapping, optional
        Names and hashes of what produced the scores; carried as they are.
    named : bool
        Whether every row is known to be a run of its own, as in a table with trajectory_id; else
        rows that repeat an earlier one are counted in a finding.
    alone : bool
        Whether the task of every row is the id of its run, which a finding says.
    **settings
        Fields of :class:`Settings`: alpha, delta, side, procedure, seed and the rest.

    Returns
    -------
    Certificate

    Raises
    ------
    InputError
        If a value cannot be used.

    Notes
    -----
    A threshold is certified when its tail is at most its level, δ/(|Θ|·candidates) by default, and
    the guard passes; the widest one is taken.
    """
    asked, observations = Settings(**settings), observe(scores, outcomes, tasks)
    return issue(
        observations,
        asked,
        pilot=None if pilot is None else observe(*pilot),
        pool=as_pool(pool),
        provenance=provenance,
        selection=selection,
        repeats=0 if named else repeated_rows(observations, scores, outcomes, tasks, agents),
        alone=alone,
    )


def issue(
    observations: Observations,
    settings: Settings,
    *,
    pilot: Observations | None = None,
    pool: Pool | None = None,
    provenance: Mapping[str, str] | None = None,
    selection: str | None = None,
    repeats: int = 0,
    alone: bool = False,
) -> Certificate:
    """Certify a table that is observed already; see :func:`certify`."""
    evaluation = evaluate(observations, settings, pilot, pool)
    counts, place = evaluation.counts, evaluation.chosen
    found = None if place is None else counts.at(place)
    clusters = summarise_clusters(counts.sizes, counts.successes)
    method = settings.method
    if selection is None and settings.candidates > 1:
        selection = _DEFAULT_SELECTION.format(settings.candidates)
    return Certificate(
        procedure=method.name,
        side=settings.side,
        alpha=float(settings.alpha),
        delta=float(settings.delta),
        certified=found is not None,
        threshold=evaluation.threshold,
        coverage=significant(evaluation.chosen_coverage),
        selective_error=None if found is None else significant(float(found.selective_error[0])),
        tail=None if place is None else significant(float(evaluation.tails[place])),
        level=significant(settings.level),
        covered_trajectories=0 if found is None else int(found.covered_trajectories[0]),
        covered_tasks=0 if found is None else int(found.covered_tasks[0]),
        errors=0 if found is None else int(found.error_totals[0]),
        effective_tasks=0.0 if found is None else significant(float(found.effective_tasks[0])),
        trajectories=clusters.trajectories,
        tasks=clusters.tasks,
        success_rate=significant(clusters.success_rate),
        icc=significant(clusters.icc),
        deff=significant(clusters.deff),
        n_eff=significant(clusters.n_eff),
        estimand=method.estimand,
        validity=method.validity,
        assumptions=(
            *method.assumptions,
            *_level_assumptions(evaluation),
            *_guard_assumptions(settings),
            *_pseudo_task_assumptions(evaluation, pool),
        ),
        promise=_promise(evaluation, settings),
        findings=(
            *stated_findings(provenance),
            *certificate_findings(
                observations,
                evaluation,
                settings,
                pool,
                pilot=pilot,
                repeats=repeats,
                alone=alone,
            ),
        ),
        candidates=int(settings.candidates),
        selection=selection,
        parameters=_parameters(settings, pilot),
        provenance=_checked_provenance(provenance),
        inputs=_inputs(observations, pool),
        software={"version": __version__},
        seed=int(settings.seed),
    )


def _inputs(observations: Observations, pool: Pool | None) -> Inputs:
    found = observations.fingerprint
    return found if pool is None else {**found, "pool": pool.fingerprint}


def _parameters(settings: Settings, pilot: Observations | None) -> Parameters:
    return {
        "guard": settings.applied_guard,
        "size_ratio": float(settings.size_ratio),
        "multiplicity": settings.multiplicity,
        "pilot": pilot.sha256 if pilot is not None and settings.method.pilot else None,
        "grid": int(settings.applied_grid),
        "engine": settings.engine,
        "draws": int(settings.draws),
    }


def _checked_provenance(provenance: Mapping[str, str] | None) -> dict[str, str]:
    named = dict(provenance or {})
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in named.items()):
        raise InputError("provenance maps names to text; give every value as text.")
    return named


def _level_assumptions(evaluation: Evaluation) -> tuple[str, ...]:
    """How the grid is paid for where a pilot says so."""
    plan = evaluation.plan
    if plan is None:
        return ()
    return (
        f"Multiplicity: fixed sequence. The pilot table ({plan.tasks} tasks, "
        f"{plan.sha256[:12]}) fixed the thresholds, the start "
        f"{shortest(float(plan.thresholds[plan.start]))} and the bet there, "
        f"{plan.bets[plan.start]:.3g} of the wealth; from there thresholds are "
        "tested one after the other, each at the whole level, until one fails.",
    )


def _guard_assumptions(settings: Settings) -> tuple[str, ...]:
    if settings.applied_guard == "floor":
        return (
            "Guard: errors within a task are no more correlated than the 95 % upper bound from "
            "the same table says (beta-binomial); error-free data at error alpha then have "
            f"probability at most delta/8. {_size_assumption(settings)}",
        )
    # what is given up where no guard stands, whatever the data are
    return (RARE,) if settings.method.guarded else ()


_CHARGED = (
    "That ratio is of tasks that are wrong throughout. For errors that cluster as those seen do, "
    "trajectories of tasks so large that the calibration tasks say too little of them count as "
    "wrong instead (the finding size_charge says how many)."
)


def _pseudo_task_assumptions(evaluation: Evaluation, pool: Pool | None) -> tuple[str, ...]:
    """What pseudo_task supposes of the sizes of wrong tasks, and of a pool."""
    pseudo, place = evaluation.test.pseudo, evaluation.chosen
    if pseudo is None:
        return ()
    widest = pseudo.ratios.size - 1 if place is None else place
    where = "this table" if pool is None else "this table and the pool"
    sizes = (
        f"Wrong tasks are at most {pseudo.ratios[widest]:.3g} times as large as the mean covered "
        "task: the largest of what is declared, of what tasks with errors show at the widest "
        f"threshold, and of the size beyond which tasks of {where} hold alpha/2 of the covered "
        "trajectories."
    )
    if pool is None:
        return (sizes,)
    charged = (_CHARGED,) if pseudo.charged else ()
    return (
        sizes,
        *charged,
        f"The {len(pool.labels)} tasks of the pool ({pool.sha256[:12]}) are drawn like these, and "
        "their scores are from a judge that did not train on them; no outcome of theirs is read.",
    )


def _size_assumption(settings: Settings) -> str:
    if settings.size_ratio == 1.0:
        return (
            "Wrong tasks are no larger than others: no guard covers larger ones, unless the "
            "attempts a task are capped or size_ratio is declared."
        )
    return f"Wrong tasks are at most {settings.size_ratio:g} times as large as others."


def confidence_words(level: float, validity: str) -> str:
    """Write a confidence with the words that its validity allows."""
    return _CONFIDENCE[validity].format(f"{100 * level:.4g} %")


def _promise(evaluation: Evaluation, settings: Settings) -> str:
    place, counts = evaluation.chosen, evaluation.counts
    side = settings.side.capitalize()
    if place is None:
        return f"{side}: nothing certified."
    sign, wrong = _DECIDES[settings.side]
    over = ""
    if settings.method.estimand == "task":
        over = (
            ", every task weighing the same" if settings.method.pilot else ", averaged over tasks"
        )
    trust = confidence_words(1 - settings.delta, settings.method.validity)
    return (
        f"{side} at score {sign} {shortest(float(counts.thresholds[place]))}: "
        f"{100 * float(counts.coverage[place]):.1f} % of runs, at most {100 * settings.alpha:g} % "
        f"of them {wrong}{over} ({trust})."
    )
