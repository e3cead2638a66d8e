"""From a table to a certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from numpy.typing import ArrayLike, NDArray

from certify_assets._version import __version__
from certify_assets.certificates.certificate import Certificate, significant
from certify_assets.certificates.clustering import kish_effective_tasks, summarise_clusters
from certify_assets.certificates.evaluation import Evaluation, Settings, evaluate
from certify_assets.certificates.findings import find
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.procedures import NOT_BUILT, find_procedure
from certify_assets.errors import InputError, IntegrityError

__all__ = ["CONFIDENCE", "certify", "issue"]

_DECIDES = {
    "reject": ("rejects at a score of at most", "discarded successes"),
    "release": ("releases at a score of at least", "shipped failures"),
}
CONFIDENCE = {
    "asymptotic": "approximate confidence",
    "finite-sample": "confidence",
    "none under clustering": "confidence, for independent trajectories only, of",
}
_PARAMETERS = ("guard", "error_icc_cap", "size_ratio", "max_task_size", "multiplicity", "grid", "engine", "draws")


def certify(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    alpha: float = 0.1,
    delta: float = 0.05,
    side: str = "reject",
    procedure: str = "guarded_taskboot",
    guard: str = "floor",
    error_icc_cap: float | None = None,
    size_ratio: float = 1.0,
    max_task_size: int | None = None,
    estimand: str | None = None,
    multiplicity: str = "bonferroni",
    grid: int = 40,
    engine: str = "auto",
    draws: int = 2000,
    seed: int = 42,
    candidates: int = 1,
    selection: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    provenance: Mapping[str, str] | None = None,
) -> Certificate:
    """Certify the largest share of the trajectories that a judge may decide alone at an error budget.

    Parameters
    ----------
    scores : array_like of float
        Judge scores, higher = more likely a success; NaN = unscored, left out and counted in the findings.
    outcomes : array_like
        1 success, 0 failure.
    tasks : sequence of hashables
        Task of each trajectory; attempts at one task stay together.
    alpha : float
        Error budget, at most four decimals.
    delta : float
        One minus the confidence.
    side : {"reject", "release"}
    procedure : str
        A name of ``PROCEDURES``.
    guard : {"floor", "kish", "none"}
        On guarded_taskboot: what must hold beside the bootstrap.
    error_icc_cap : float, optional
        Declared upper limit of the intra-task correlation of errors.
    size_ratio : float
        Declared limit of how much larger wrong tasks are than others, at least 1.
    max_task_size : int, optional
        Declared limit of scored trajectories a task, here and in use: a larger task is refused, and the guard supposes wrong tasks that
        are as large.
    estimand : {"trajectory", "task"}, optional
        By default, and at most, the one that the procedure certifies: trajectories, or for one_per_task and task_hoeffding tasks.
    multiplicity : {"bonferroni"}
    grid : int
        Number of thresholds |Θ|.
    engine : {"auto", "exact", "saddlepoint", "montecarlo"}
    draws, seed : int
        Of the Monte-Carlo engine.
    candidates : int
        Number of judges, arms or settings among which this one was chosen on the same table; δ is divided by it.
    selection : str, optional
        The rule of that choice, for the reader.
    inputs : mapping, optional
        Expected {"sha256", "rows"} of the table; another table is refused.
    provenance : mapping, optional
        Names and hashes of what produced the scores; carried as they are.

    Returns
    -------
    Certificate

    Raises
    ------
    InputError
        If a value cannot be used.
    IntegrityError
        If the table is not the one expected.

    Notes
    -----
    A threshold is certified when its tail is at most δ/(|Θ|·candidates) and the guard passes; the widest one is taken.
    """
    find_procedure(procedure)
    settings = Settings(
        alpha=alpha,
        delta=delta,
        side=side,
        procedure=procedure,
        guard=guard,
        error_icc_cap=error_icc_cap,
        size_ratio=size_ratio,
        max_task_size=max_task_size,
        estimand=estimand,
        multiplicity=multiplicity,
        grid=grid,
        engine=engine,
        draws=draws,
        seed=seed,
        candidates=candidates,
    )
    observations = observe(scores, outcomes, tasks)
    if inputs is not None and dict(inputs) != observations.fingerprint:
        raise IntegrityError(f"The table is {observations.fingerprint}, not the {dict(inputs)} expected; give the table registered.")
    return issue(observations, settings, provenance=provenance, selection=selection)


def issue(
    observations: Observations, settings: Settings, *, provenance: Mapping[str, str] | None = None, selection: str | None = None
) -> Certificate:
    """Certify a table that is observed already; see :func:`certify`.

    A procedure that is only listed (``NOT_BUILT``) gives a document that certifies nothing and says so.
    """
    evaluation = evaluate(observations, settings)
    counts = evaluation.counts
    clusters = summarise_clusters(counts.sizes, counts.successes)
    method = settings.method
    return Certificate(
        procedure=method.name,
        side=settings.side,
        alpha=float(settings.alpha),
        delta=float(settings.delta),
        level=significant(settings.level),
        **_outcome(evaluation),
        trajectories=clusters.trajectories,
        tasks=clusters.tasks,
        success_rate=significant(clusters.success_rate),
        icc=significant(clusters.icc),
        deff=significant(clusters.deff),
        n_eff=significant(clusters.n_eff),
        estimand=settings.applied_estimand,
        validity=method.validity,
        assumptions=(*method.assumptions, *_guard_assumptions(settings)),
        promise=_promise(evaluation, settings),
        findings=find(observations, evaluation, settings),
        candidates=int(settings.candidates),
        selection=selection if selection is not None or settings.candidates == 1 else _DEFAULT_SELECTION.format(settings.candidates),
        parameters=_parameters(settings),
        provenance=_checked_provenance(provenance),
        inputs=observations.fingerprint,
        software={"version": __version__},
        seed=int(settings.seed),
    )


def _outcome(evaluation: Evaluation) -> dict[str, Any]:
    """The part of a certificate that depends on the threshold."""
    counts, place = evaluation.counts, evaluation.chosen
    if place is None:
        nothing = {"certified": False, "threshold": None, "coverage": 0.0, "selective_error": None, "tail": None}
        return nothing | {"covered_trajectories": 0, "covered_tasks": 0, "errors": 0, "effective_tasks": 0.0}
    return {
        "certified": True,
        "threshold": float(counts.thresholds[place]),
        "coverage": significant(float(counts.coverage[place])),
        "selective_error": significant(float(counts.selective_error[place])),
        "tail": significant(float(evaluation.tails[place])),
        "covered_trajectories": int(counts.covered_trajectories[place]),
        "covered_tasks": int(counts.covered_tasks[place]),
        "errors": int(counts.error_totals[place]),
        "effective_tasks": significant(kish_effective_tasks(counts.covered[place])),
    }


_DEFAULT_SELECTION = "One of {} candidates compared on these outcomes; delta is divided by their number."


def _parameters(settings: Settings) -> dict[str, Any]:
    values = {name: value for name, value in asdict(settings).items() if name in _PARAMETERS}
    cap, most = settings.error_icc_cap, settings.max_task_size
    return values | {
        "guard": settings.applied_guard,
        "error_icc_cap": None if cap is None else float(cap),
        "size_ratio": float(settings.size_ratio),
        "max_task_size": None if most is None else int(most),
        "grid": int(settings.grid),
        "draws": int(settings.draws),
    }


def _checked_provenance(provenance: Mapping[str, str] | None) -> dict[str, str]:
    named = dict(provenance or {})
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in named.items()):
        raise InputError("provenance maps names to text; give every value as text.")
    return named


def _guard_assumptions(settings: Settings) -> tuple[str, ...]:
    if settings.applied_guard == "floor":
        return (
            "Guard: errors within a task are no more correlated than the 95 % upper bound from the same table says (beta-binomial); "
            f"error-free data at error alpha then have probability at most delta/8. {_size_assumption(settings)}",
        )
    if settings.applied_guard == "kish":
        return (f"Guard: enough effective tasks are covered to see errors that fill whole tasks. {_size_assumption(settings)}",)
    return ()


def _size_assumption(settings: Settings) -> str:
    cap = "" if settings.max_task_size is None else f" No task has more than {settings.max_task_size} trajectories."
    return cap.strip() or f"Wrong tasks are at most {settings.size_ratio:g} times as large as others."


def _promise(evaluation: Evaluation, settings: Settings) -> str:
    place, counts = evaluation.chosen, evaluation.counts
    if place is None:
        by = f" by {settings.method.name}, which comes with a later version" if settings.method.name in NOT_BUILT else ""
        return f"Nothing is certified on the {settings.side} side{by}: every trajectory goes to a person."
    verb, wrong = _DECIDES[settings.side]
    what = f"{settings.alpha * 100:g} %"
    subject = f"of the trajectories that the judge {verb} {float(counts.thresholds[place])!r}"
    over = "" if settings.applied_estimand == "trajectory" else "on average over tasks "
    share = f"{100 * float(counts.coverage[place]):.1f} %"
    return (
        f"With {CONFIDENCE[settings.method.validity]} {100 * (1 - settings.delta):g} %, {subject}, {over}at most {what} are {wrong}; "
        f"this decides {share} of trajectories like the {counts.trajectories} from {counts.tasks} tasks seen here."
    )
