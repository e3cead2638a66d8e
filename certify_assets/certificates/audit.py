"""Audits and curves: what a threshold does on other tasks, on resamples, over the grid."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from certify_assets.arrays import Booleans, Floats, Integers, Names
from certify_assets.certificates.bootstrap import bootstrap_tails, error_lattice, saddlepoint_tails
from certify_assets.certificates.certificate import Certificate, Finding
from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.counts import TaskCounts, count_at
from certify_assets.certificates.evaluation import Evaluation, evaluate
from certify_assets.certificates.evidence import GivenPool, as_pool
from certify_assets.certificates.findings import SENTENCES, flickers
from certify_assets.certificates.inputs import Observations, checked_scores, known_tasks, observe
from certify_assets.certificates.pseudo_task import joined_tails, pseudo_task_tails
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.taskboot import draws_needed, exceedances
from certify_assets.certificates.verification import settings_of
from certify_assets.errors import InputError, quoted

#: thresholds of the error are searched on this grid, or on the decimals of α
_STEPS = 1000
_BY_CONSTRUCTION = (
    "A threshold chosen by the task bootstrap on these very rows passes by construction. That is "
    "not independent evidence."
)
_OTHER_ESTIMAND = (
    "The certificate promises an error in which every task weighs the same. The error measured "
    "here is over trajectories, and differs where larger tasks are wrong more often."
)


@dataclass(frozen=True, eq=False)
class ThresholdCurve:
    """The grid from its narrowest threshold to its widest; every array has shape (thresholds,).

    Attributes
    ----------
    side : str
    level : float
    thresholds, coverage, selective_error : float64
    tail : float64
        P*(resampled error > α); for pseudo_task its own tail, with one more task that is all wrong.
    bootstrap_upper : float64
        q(θ): the 1 − level quantile of the resampled error for infinitely many resamples. It is
        rounded up to a thousandth (or to the decimals of α), and q(θ) ≤ α exactly where tail ≤
        level. For pseudo_task, the smallest budget at which its own tail is at most the level.
    """

    side: str
    level: float
    thresholds: Floats
    coverage: Floats
    selective_error: Floats
    tail: Floats
    bootstrap_upper: Floats


def threshold_curve(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    *,
    pool: GivenPool | None = None,
    **keywords: Any,
) -> ThresholdCurve:
    """Evaluate a procedure at every threshold of the grid.

    Parameters
    ----------
    scores, outcomes, tasks, pool
        As for :func:`certify_assets.certificates.certify`.
    **keywords
        The settings of :func:`certify_assets.certificates.certify` (side, alpha, delta, grid,
        engine, draws, seed, candidates, …).

    Returns
    -------
    ThresholdCurve
    """
    settings = Settings(**keywords)
    observations = observe(scores, outcomes, tasks, partly=settings.method.by_rows)
    evaluation = evaluate(observations, settings, pool=as_pool(pool))
    counts = evaluation.counts
    return ThresholdCurve(
        side=settings.side,
        level=evaluation.test.level,
        thresholds=counts.thresholds,
        coverage=counts.coverage,
        selective_error=counts.selective_error,
        tail=evaluation.tails,
        bootstrap_upper=_upper_bounds(evaluation, settings),
    )


def _upper_bounds(evaluation: Evaluation, settings: Settings) -> Floats:
    """Smallest rate r on a decimal grid with P*(resampled error > r) ≤ level, by threshold."""
    pseudo, counts = evaluation.test.pseudo, evaluation.counts
    # whether a threshold passed says on which side of α its rate is
    steps = math.lcm(_STEPS, settings.budget.denominator)
    at_alpha = int(settings.budget * steps)
    passed = evaluation.tails <= evaluation.test.level

    def inside(rates: Integers) -> Booleans:
        if pseudo is None:
            tails = saddlepoint_tails(error_lattice(counts, rates, steps), counts.tasks)
        else:
            tails = joined_tails(*pseudo_task_tails(counts, rates, steps, pseudo))
        return tails <= evaluation.test.level

    low, high = np.where(passed, -1, at_alpha), np.where(passed, at_alpha, steps)
    return _smallest(inside, low, high) / steps


def _smallest(inside: Callable[[Integers], Booleans], low: Integers, high: Integers) -> Integers:
    """Return the smallest whole number in (low, high] that is inside, for each threshold."""
    while (unsettled := high - low > 1).any():
        middle = (low + high) // 2
        found = inside(middle)
        low = np.where(unsettled & ~found, middle, low)
        high = np.where(unsettled & found, middle, high)
    return high


@dataclass(frozen=True)
class MeasuredThreshold:
    """A threshold on other data: the part of an `Audit` that needs no certificate.

    Attributes
    ----------
    verdict : {"PASS", "WARN", "ERROR"}
        ERROR when the lower bound of the realised error exceeds α. WARN when only the realised
        error does, when the data are too few, or when tasks are those of the certificate. PASS
        otherwise. A certificate that keeps α on average is measured by its cap, 2α.
    reason : str
    realized_error : float or None
        Errors over covered trajectories; None when nothing is covered.
    lower_bound : float
        Task-level lower 1 − δ bound of the realised error.
    coverage : float
        Share of the audited trajectories that the certified threshold covers: what is deployed.
    covered_tasks : int
    """

    verdict: str
    reason: str
    realized_error: float | None = None
    lower_bound: float = 0.0
    coverage: float = 0.0
    covered_tasks: int = 0


@dataclass(frozen=True, kw_only=True)
class Audit(MeasuredThreshold):
    """A certified threshold on other data.

    Attributes
    ----------
    trajectories, tasks : int
        Scored trajectories and their tasks.
    known_tasks : int
        Tasks of the table that the certificate was issued on.
    unscored : int
        Rows without a score, left out.
    certificate_sha256 : str
    own_coverage : float or None
        Coverage that the same procedure would certify on the audited data themselves, without a
        pool; None for betting, which needs a pilot.
    paper_rule_pass : bool
        Whether the realised error is at most α (or the cap), the point rule of the paper.
    findings : tuple of dict
        Each {"code", "message"}: how often the judge contradicts itself, where a table shows it.
    """

    trajectories: int
    tasks: int
    known_tasks: int
    unscored: int
    certificate_sha256: str
    own_coverage: float | None
    paper_rule_pass: bool
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as JSON values; findings where there are any."""
        found = asdict(self)
        if not found.pop("findings"):
            return found
        return {**found, "findings": [dict(item) for item in self.findings]}


@dataclass(frozen=True)
class ResampleAudit:
    """How often the error of resampled tasks exceeds the budget at one threshold.

    Attributes
    ----------
    exceedance : float
        Share of the resamples whose error exceeds α; a resample that covers nothing has error 0.
    draws : int or "exact"
    passed : bool or None
        Whether the tail is at most δ: the exceedance itself when exact, (k + 1)/(draws + 1) when k
        draws exceed. None where the threshold covers nothing, or the draws are too few for any to
        pass.
    coverage : float
    note : str
        What the figure is evidence of.
    """

    exceedance: float
    draws: int | str
    passed: bool | None
    coverage: float
    note: str

    def to_dict(self) -> dict[str, float | int | str | bool | None]:
        """Return the audit as JSON values."""
        return asdict(self)


def audit_certificate(
    certificate: Certificate,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    *,
    delta: float | None = None,
    again: ArrayLike | None = None,
) -> Audit:
    """Measure a certified threshold once on other data.

    Parameters
    ----------
    certificate : Certificate
    scores, outcomes, tasks
        The audited table; its tasks should not be those of the certificate.
    delta : float, optional
        Error probability of the bound where it is not the certificate's: an audit of runs that
        were audited before spends a share of it.

    again : array_like of float, optional
        Second scores of the same judge on the same rows, whose flips a finding counts.

    Returns
    -------
    Audit
        Deterministic: the bound inverts the bootstrap tail of infinitely many resamples.

    Raises
    ------
    InputError
        If the table or the certificate's settings cannot be used.
    """
    observations, settings = observe(scores, outcomes, tasks), settings_of(certificate)
    known = known_tasks(certificate.inputs, observations.labels)
    found = measure_threshold(
        observations,
        settings,
        certificate.threshold,
        delta=delta,
        estimand=certificate.estimand,
    )
    if known.number:
        verdict = "WARN" if found.verdict == "PASS" else found.verdict
        found = replace(found, verdict=verdict, reason=f"{found.reason} {known.sentence}")
    own = None
    if observations.scored:
        evaluation = evaluate(observations, settings)
        own = None if evaluation.lacks_pilot else evaluation.chosen_coverage
    return Audit(
        **asdict(found),
        trajectories=observations.scored,
        tasks=observations.task_sizes.size,
        known_tasks=known.number,
        unscored=observations.unscored,
        certificate_sha256=certificate.sha256,
        own_coverage=own,
        paper_rule_pass=(
            found.realized_error is None or found.realized_error <= settings.error_limit
        ),
        findings=_flickers(certificate, scores, again),
    )


def _flickers(
    certificate: Certificate, scores: ArrayLike, again: ArrayLike | None
) -> tuple[Finding, ...]:
    if again is None or certificate.threshold is None:
        return ()
    pair = checked_scores(scores), checked_scores(again)
    found = flickers(certificate.side, certificate.threshold, *pair)
    return tuple({"code": code, "message": SENTENCES[code].format(**of)} for code, of in found)


#: the measured result of a threshold, in words
REASONS = {
    "unscored": "No row of the audit has a score, so there is nothing to measure.",
    "nothing": "Nothing was certified, so there is nothing to audit.",
    "uncovered": "The certified threshold covers no trajectory here, so there is nothing to "
    "measure.",
    "above": "The lower {confidence:g} bound {lower:.3f} of the realised error {error:.3f} exceeds "
    "{limit}.",
    "point": "The realised error {error:.3f} exceeds {limit}; its lower bound {lower:.3f} "
    "does not.",
    "few": (
        "Too few covered tasks ({seen}, needed {needed}) to detect an error of {alpha:g} made up "
        "of wholly wrong tasks."
    ),
    "within": "The realised error {error:.3f} is at most {limit} over {seen} covered tasks.",
}


def measure_threshold(
    observations: Observations,
    settings: Settings,
    threshold: float | None,
    *,
    delta: float | None = None,
    estimand: str | None = None,
) -> MeasuredThreshold:
    """Measure a threshold on a table, as an audit does; by default of the procedure's estimand."""
    if not observations.scored or threshold is None:
        nothing = REASONS["nothing" if observations.scored else "unscored"]
        return MeasuredThreshold("WARN", nothing)
    alpha = float(settings.error_limit)
    needed = n_min(alpha, settings.delta)
    counts = count_at(observations, settings.side, np.array([threshold]))
    covered, seen = int(counts.covered_trajectories[0]), int(counts.covered_tasks[0])
    error = int(counts.error_totals[0]) / covered if covered else None
    spent = settings.delta if delta is None else delta
    lower = lower_error_bound(counts, spent, settings.error_limit) if covered else 0.0
    found, verdict = "within", "WARN"
    if error is None:
        found = "uncovered"
    elif lower > alpha:
        found, verdict = "above", "ERROR"
    elif error > alpha:
        found = "point"
    elif seen < needed:
        found = "few"
    else:
        verdict = "PASS"
    reason = REASONS[found].format(
        confidence=1 - settings.delta,
        lower=lower,
        error=error,
        alpha=alpha,
        limit=f"alpha {alpha:g}" if alpha == settings.alpha else f"the cap {alpha:g} (twice alpha)",
        seen=seen,
        needed=needed,
    )
    if (estimand or settings.method.estimand) == "task":
        reason = f"{reason} {_OTHER_ESTIMAND}"
    return MeasuredThreshold(verdict, reason, error, lower, covered / counts.trajectories, seen)


def lower_error_bound(counts: TaskCounts, delta: float, budget: Fraction) -> float:
    """Task-level lower 1 − δ bound of the error at the first threshold, rounded up."""
    # the δ quantile of the resampled error on a grid that holds α, so that it exceeds α exactly
    # when P*(resampled error ≤ α) ≤ δ
    steps = math.lcm(_STEPS, budget.denominator)
    counts = counts.at(0)

    def inside(rates: Integers) -> Booleans:
        lattice = error_lattice(counts, rates, steps)
        return bootstrap_tails(lattice, 1 - delta, counts.tasks) < 1 - delta

    return int(_smallest(inside, np.array([-1]), np.array([steps]))[0]) / steps


def resample_audit(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    *,
    threshold: float,
    side: str = "reject",
    alpha: float = 0.1,
    delta: float = 0.05,
    draws: int | str = 3000,
    seed: int = 42,
) -> ResampleAudit:
    """Resample tasks and count how often the selective error at a threshold exceeds α.

    Parameters
    ----------
    scores, outcomes, tasks
        As for :func:`certify_assets.certificates.certify`.
    threshold : float
        Chosen by any procedure.
    side : {"reject", "release"}
    alpha, delta : float
    draws : int or "exact"
        ``"exact"`` gives the limit of infinitely many draws.
    seed : int

    Returns
    -------
    ResampleAudit
    """
    # another word than "exact" is refused by the settings, like any draws that are no number
    number: Any = 1 if draws == "exact" else draws
    settings = Settings(side=side, alpha=alpha, delta=delta, seed=seed, draws=number)
    known = isinstance(threshold, float | int) and not isinstance(threshold, bool)
    if not (known and -sys.float_info.max <= threshold <= sys.float_info.max):
        raise InputError(f"threshold is {quoted(threshold)}; give a finite score.")
    counts = count_at(observe(scores, outcomes, tasks), side, np.array([float(threshold)]))
    exceedance, passed, note = 0.0, None, _BY_CONSTRUCTION
    coverage = float(counts.coverage[0])
    needed = draws_needed(delta)
    if not counts.trajectories:
        note = "No row has a score, so there is no error to measure."
    elif not coverage:
        note = "The threshold covers nothing here, so there is no error to measure."
    elif draws == "exact":
        lattice = error_lattice(counts, *settings.budget.as_integer_ratio())
        exceedance = float(bootstrap_tails(lattice, settings.delta, counts.tasks)[0])
        passed = exceedance <= delta
    else:
        exceeding = int(exceedances(counts, settings.budget, settings.draws, settings.seed)[0])
        exceedance = exceeding / settings.draws
        passed = (exceeding + 1) / (settings.draws + 1) <= delta
        if settings.draws < needed:
            passed = None
            note = f"{draws} draws cannot resolve delta {delta:g}; give at least {needed}."
    return ResampleAudit(exceedance, draws, passed, coverage, note)
