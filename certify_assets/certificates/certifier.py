"""The certifier: every certificate is issued here.

The same evidence and settings give the same bytes, which is how a certificate is verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from certify_assets._version import __version__
from certify_assets.arrays import Names
from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.clustering import summarise_clusters
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.evaluation import Evaluation, evaluate
from certify_assets.certificates.evidence import Evidence
from certify_assets.certificates.findings import certificate_findings
from certify_assets.certificates.inputs import Observations
from certify_assets.certificates.one_run import CAP, fewest_rows, stop_limit, unlabelled_before_stop
from certify_assets.certificates.procedures import AVERAGE, PROVED, confidence_words, find_procedure
from certify_assets.certificates.sampling import RUNS, TASKS
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.sides import CertificateSet
from certify_assets.errors import (
    InputError,
    TooFewTasksError,
    UnfitTableError,
    UnlabelledRunError,
    quoted,
    unknown_setting,
)
from certify_assets.files import shortest, significant
from certify_assets.work import WorkStage, under_way

#: the end of the scores that a side decides, and what is wrong there
_DECIDES = {"reject": ("≤", "successes"), "release": ("≥", "failures")}
_DEFAULT_SELECTION = (
    "One of {} candidates compared on these outcomes; delta is divided by their number."
)


#: keywords that say something of a table; all others are settings
_OF_TABLE = (
    "pilot",
    "pool",
    "agents",
    "named",
    "alone",
    "again",
    "selection",
    "provenance",
    "sample",
    "left_out",
)


class Certifier(Evidence):
    """Evidence that issues its certificates."""

    def issue(self, settings: Settings) -> Certificate:
        """Issue one certificate."""
        observations, claim, selection = self.table, self.claim, self.selection
        if claim is not None:
            settings = settings.replace(delta=claim.delta)
        _require_draw(self, settings)
        _require_rows(observations, settings)
        evaluation = evaluate(observations, settings, self.pilot, self.pool)
        counts, place = evaluation.counts, evaluation.chosen
        found = None if place is None else counts.at(place)
        method = settings.method
        clusters = summarise_clusters(counts.sizes, counts.successes)
        if method.by_rows:
            # counts take a run without a label as wrong, and one without a score as a failure
            known = observations.labelled
            rate = known.task_successes.sum() / max(1, known.task_sizes.sum())
            clusters = replace(clusters, success_rate=float(rate))
        if selection is None and settings.candidates > 1:
            selection = _DEFAULT_SELECTION.format(settings.candidates)
        return Certificate(
            promise=method.promise,
            procedure=method.name,
            side=settings.side,
            alpha=settings.alpha,
            delta=settings.delta,
            certified=found is not None,
            threshold=evaluation.threshold,
            coverage=significant(evaluation.chosen_coverage),
            selective_error=None if found is None else significant(found.selective_error[0]),
            tail=None if place is None else significant(evaluation.tails[place]),
            level=significant(evaluation.test.level),
            covered_trajectories=0 if found is None else int(found.covered_trajectories[0]),
            covered_tasks=0 if found is None else int(found.covered_tasks[0]),
            errors=0 if found is None else int(found.error_totals[0]),
            effective_tasks=0.0 if found is None else significant(found.effective_tasks[0]),
            trajectories=clusters.trajectories,
            tasks=clusters.tasks,
            success_rate=significant(clusters.success_rate),
            icc=significant(clusters.icc),
            deff=significant(clusters.deff),
            n_eff=significant(clusters.n_eff),
            estimand=_estimand(self, settings),
            validity=method.validity,
            assumptions=tuple(_assumptions(self, evaluation, settings)),
            statement=_statement(self, evaluation, settings),
            findings=certificate_findings(self, evaluation, settings),
            candidates=settings.candidates,
            selection=selection,
            settings={
                "guard": settings.guard,
                "size_ratio": settings.size_ratio,
                "multiplicity": settings.multiplicity,
                "pilot": self.pilot.sha256 if self.pilot is not None and method.pilot else None,
                "grid": settings.applied_grid,
                "engine": settings.engine,
                "draws": settings.draws,
                "planned_share": settings.planned_share,
                "looks": settings.looks,
                "look": settings.look,
            },
            provenance=self.names,
            inputs=self.inputs,
            software={"version": __version__},
            seed=settings.seed,
            ledger=None if claim is None else claim.ledger,
            after=self.after,
        )

    def issue_set(
        self, every: Sequence[Settings], *, sides: Iterable[str] = SIDES, joint: bool = False
    ) -> CertificateSet:
        """Issue certificates of several sides, by one procedure or several.

        Parameters
        ----------
        every : sequence of Settings
            One for each procedure; `sides` replaces its side.
        sides : iterable of str
        joint : bool
            Each side has δ/2, so that both hold together at confidence 1 − δ. Otherwise each side
            has δ, and both hold together at 1 − 2δ.
        """
        found: list[Certificate] = []
        unfit = None
        with under_way(WorkStage("certifying", len(every))) as stage:
            for asked in every:
                taken = self if len(every) == 1 else self.read_by(asked.method)
                delta = asked.delta / 2 if joint else asked.delta
                # of several procedures only those that this table can pass are of use
                try:
                    found += [taken.issue(asked.replace(side=side, delta=delta)) for side in sides]
                except UnfitTableError as error:
                    unfit = error
                stage.done += 1
        if unfit is not None and not found:
            raise unfit
        return CertificateSet(tuple(found))


def certify(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    **keywords: Any,
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
        Unlabelled runs of other tasks, from which pseudo_task takes how unequal tasks are in size.
        Without them it uses only the table. No other procedure accepts it.
    selection : str, optional
        The rule by which this judge was chosen among candidates, for the reader.
    agents : sequence of hashables, optional
        Agent of each trajectory: rows of different agents do not repeat one another.
    provenance : mapping, optional
        Names and hashes of what produced the scores; carried as they are.
    sample : mapping, optional
        The draw that chose the runs, as :attr:`Draw.inputs` gives it. The outcome of a drawn run
        without a label, or with an unclear one, is −1.
    named : bool
        Whether every row is known to be a separate run, as in a table with trajectory_id. Otherwise
        a finding counts rows that repeat an earlier one.
    alone : bool
        Whether the task of every row is the id of its run; a finding reports it.
    again : array_like of float, optional
        Second scores of the same judge on the same trajectories, NaN without one. A finding counts
        those that would change a decision.
    left_out : int
        Runs left out because they have no label. Where there are any, one_run and average are
        refused.
    alpha, delta, side, procedure, seed, …
        The fields of :class:`Settings`.

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
    the guard passes. The widest one is taken.
    """
    about, settings = parted(keywords)
    asked = Settings(**settings)
    return Certifier.of(scores, outcomes, tasks, **about).issue(asked)


def parted(
    keywords: Mapping[str, Any], *, more: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate keywords about the table from the settings of its certificates.

    Raises
    ------
    InputError
        If a keyword is neither. The message lists the settings, and `more` keywords of the caller.
    """
    about = {name: of for name, of in keywords.items() if name in _OF_TABLE}
    settings = {name: of for name, of in keywords.items() if name not in _OF_TABLE}
    if unknown := sorted(settings.keys() - Settings.model_fields.keys()):
        raise unknown_setting(unknown[0], [*Settings.model_fields, *more])
    return about, settings


def procedure_settings(procedures: Sequence[str], settings: Mapping[str, Any]) -> list[Settings]:
    """Return the settings of each procedure; of several, only those that the settings allow.

    With several procedures, one that has no engine is taken without that setting.
    """
    found, refusal = [], None
    for name in procedures:
        lacks = find_procedure(name).calibrated and len(procedures) > 1
        own = {key: of for key, of in settings.items() if not (lacks and key == "engine")}
        try:
            found.append(Settings(**{**own, "procedure": name}))
        except InputError as error:
            refusal = refusal or error
    if refusal is not None and not found:
        raise refusal
    return found


def _require_draw(given: Evidence, settings: Settings) -> None:
    """Refuse labels of a part of the runs that no draw chose, or a draw unfit for the procedure."""
    observations, name = given.table, settings.method.name
    if not settings.method.by_rows:
        sizes = np.bincount(observations.tasks)
        if given.sample is not None and sizes.min() < sizes.max():
            raise UnfitTableError(
                f"Drawn tasks have from {sizes.min()} to {sizes.max()} runs, and {name} would "
                "count some tasks more than others. Draw one run of each, or choose the promise "
                "proved."
            )
        return
    if given.left_out:
        raise UnfitTableError(
            f"The promise {settings.method.promise} needs labels of randomly drawn runs, and "
            f"{given.left_out:,} runs have none. Draw the runs to label with `certify sample`, and "
            "certify on its file."
        )
    if settings.method.promise == AVERAGE and len(observations.labels) < observations.rows:
        raise UnfitTableError(
            "The promise average needs one drawn run of each task, and some tasks have several. "
            "Draw one of each with `certify sample`, or choose the promise proved."
        )


def _require_rows(observations: Observations, settings: Settings) -> None:
    """Refuse a table with too few tasks for one_run or average to certify anything."""
    method, tasks = settings.method, len(observations.labels)
    if not method.by_rows:
        return
    several = method.promise == PROVED and tasks < observations.rows
    level = settings.level(tasks)
    least = fewest_rows(method.name, settings.alpha, level, several=several)
    if tasks < least:
        raise TooFewTasksError(
            f"The promise {method.promise} needs at least {least} tasks at alpha "
            f"{settings.alpha:g}, and the table has {tasks}. Label a run of more tasks, or raise "
            "alpha."
        )
    limit = stop_limit(
        method.name,
        observations.rows,
        alpha=settings.alpha,
        level=level,
        share=settings.planned_share,
    )
    if tasks < observations.rows:
        # the stop is that of one run a task
        limit = observations.rows
    place = unlabelled_before_stop(observations, settings.side, limit)
    if place is not None:
        task, score = observations.labels[observations.tasks[place]], observations.scores[place]
        raise UnlabelledRunError(
            f"The promise {method.promise} needs more labels on the {settings.side} side, such as "
            f"that of task {quoted(task)}.",
            task,
            float(score),
        )


def _assumptions(given: Evidence, evaluation: Evaluation, settings: Settings) -> Iterator[str]:
    """Say what the promise of a certificate rests on."""
    plan, pseudo, place = evaluation.plan, evaluation.test.pseudo, evaluation.chosen
    yield from settings.method.assumptions
    if plan is not None:
        yield (
            f"The pilot table ({plan.tasks} tasks, {plan.sha256[:12]}) fixed the thresholds, the "
            f"start {shortest(plan.thresholds[plan.start])} and the bet there, "
            f"{plan.bets[plan.start]:.3g} of the wealth (a fixed sequence)."
        )
    if settings.method.guarded:
        yield (
            "Guard: errors within a task are no more correlated than the 95 % upper bound from "
            f"the same table. Wrong tasks are at most {settings.size_ratio:g} times as large as "
            "others."
        )
    if pseudo is None:
        return
    widest, pool = pseudo.ratios.size - 1 if place is None else place, given.pool
    yield (
        f"Wrong tasks are at most {pseudo.ratios[widest]:.3g} times as large as the mean covered "
        "task."
    )
    if pool is not None:
        if pseudo.charged:
            yield (
                "Runs of tasks larger than the calibration tasks show count as wrong instead (the "
                "finding size_charge says how many)."
            )
        yield (
            f"The {len(pool.labels)} tasks of the pool ({pool.sha256[:12]}) are drawn like these, "
            "and were scored by a judge that did not train on them."
        )


def _estimand(given: Evidence, settings: Settings) -> str:
    """Return the estimand: that of the draw, or else of the procedure."""
    if given.sample is None:
        return settings.method.estimand
    return "task" if given.sample["estimand"] == TASKS else "trajectory"


def _statement(given: Evidence, evaluation: Evaluation, settings: Settings) -> str:
    place, counts, sample = evaluation.chosen, evaluation.counts, given.sample
    side = settings.side.capitalize()
    if place is None:
        return f"{side}: nothing certified."
    sign, wrong = _DECIDES[settings.side]
    # of unequal numbers a task, drawn runs are neither a sample of runs nor of tasks
    drawn = "drawn " if sample is not None and counts.trajectories > counts.tasks else ""
    lead = (
        f"{side} at score {sign} {shortest(counts.thresholds[place])}: "
        f"{100 * float(counts.coverage[place]):.1f} % of {drawn}runs"
    )
    if settings.method.by_rows:
        return f"{lead}. {_proved_statement(given, evaluation, settings)}"
    over = ""
    if sample is not None and sample["estimand"] == RUNS:
        over = f", no task counting as more than {sample['most']} runs"
    elif _estimand(given, settings) == "task":
        over = (
            ", every task weighing the same" if settings.method.pilot else ", averaged over tasks"
        )
    trust = confidence_words(1 - settings.delta, settings.method.validity)
    return f"{lead}, at most {100 * settings.alpha:g} % of them {wrong}{over} ({trust})."


def _proved_statement(given: Evidence, evaluation: Evaluation, settings: Settings) -> str:
    """Say what one_run or average promises, in the words of docs/few-labels.md."""
    tasks, sample, alpha = len(given.table.labels), given.sample, 100 * settings.alpha
    confidence = 100 * (1 - settings.delta)
    counted = "every task counts once"
    if sample is not None and sample["estimand"] == "runs":
        counted = f"every run counts once, but no task more than {sample['most']} of them"
    several = evaluation.counts.trajectories > evaluation.counts.tasks
    if sample is None:
        runs = f"all {evaluation.counts.trajectories:,} runs of {tasks:,} tasks are labelled"
    elif several:
        runs = f"random runs of each of {tasks} tasks were drawn for labels"
    else:
        runs = f"one random run of each of {tasks} tasks was drawn for labels"
    if settings.method.promise == PROVED:
        return (
            f"With {confidence:.4g} % confidence at most {alpha:g} % of the decided runs are wrong "
            f"({runs}; {counted})."
        )
    return (
        "On average over certificates made this way, wrong decisions are at most "
        f"{alpha:g} % of the share of runs that the certificate says it decides, and with "
        f"{confidence:.4g} % confidence this one is below {100 * CAP * settings.alpha:g} % "
        f"({runs}; {counted}). This one may itself be above {alpha:g} %; where nothing is "
        f"certified, nothing counts as wrong.{_tried(given.after, settings.delta)}"
    )


def _tried(after: str | None, delta: float) -> str:
    if after is None:
        return ""
    return (
        f" {after} was tried before on these labels and certified nothing. On this side its "
        f"promise, or this cap, is broken with probability at most {200 * delta:.4g} %."
    )
