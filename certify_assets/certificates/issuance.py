"""What a certificate says: its values, assumptions and promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from certify_assets._version import __version__
from certify_assets.certificates.certificate import Certificate, LedgerHead
from certify_assets.certificates.clustering import summarise_clusters
from certify_assets.certificates.evaluation import Evaluation, evaluate
from certify_assets.certificates.findings import certificate_findings, stated_findings
from certify_assets.certificates.inputs import Inputs, Observations, SampleInputs
from certify_assets.certificates.one_run import CAP, fewest_rows, stop_limit, unlabelled_before_stop
from certify_assets.certificates.pool import Pool
from certify_assets.certificates.procedures import AVERAGE, PROVED, RARE, find_procedure
from certify_assets.certificates.sampling import RUNS, TASKS
from certify_assets.certificates.settings import Settings
from certify_assets.errors import (
    InputError,
    TooFewTasksError,
    UnfitTableError,
    UnlabelledRunError,
    quoted,
)
from certify_assets.files import shortest, significant

#: the end of the scores that a side decides, and what is wrong there
_DECIDES = {"reject": ("≤", "successes"), "release": ("≥", "failures")}
_CONFIDENCE = {
    "asymptotic": "about {} confidence",
    "finite-sample": "{} confidence",
    "calibrated by simulation": "{} confidence by simulation",
    "none under clustering": "{} confidence for independent runs only",
    "finite-sample, proved": "{} confidence",
    "finite-sample, proved, on average": "{} confidence",
}
_DEFAULT_SELECTION = (
    "One of {} candidates compared on these outcomes; delta is divided by their number."
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
    left_out: int = 0,
    ledger: LedgerHead | None = None,
    sample: SampleInputs | None = None,
    after: str | None = None,
) -> Certificate:
    """Certify a table; only a `Certifier` calls this."""
    _require_draw(observations, settings, left_out, sample)
    _require_rows(observations, settings)
    _require_nothing_before(observations, settings, after)
    evaluation = evaluate(observations, settings, pilot, pool)
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
        selective_error=None if found is None else significant(float(found.selective_error[0])),
        tail=None if place is None else significant(float(evaluation.tails[place])),
        level=significant(evaluation.test.level),
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
        estimand=_estimand(settings, sample),
        validity=method.validity,
        assumptions=(
            *method.assumptions,
            *_level_assumptions(evaluation),
            *_guard_assumptions(settings),
            *_pseudo_task_assumptions(evaluation, pool),
        ),
        statement=_statement(evaluation, settings, len(observations.labels), sample, after),
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
                turned=(provenance or {}).get("lower_is_better") == "true",
                grouped=(provenance or {}).get("grouped", ""),
            ),
        ),
        candidates=settings.candidates,
        selection=selection,
        parameters={
            "guard": settings.applied_guard,
            "size_ratio": settings.size_ratio,
            "multiplicity": settings.multiplicity,
            "pilot": pilot.sha256 if pilot is not None and method.pilot else None,
            "grid": settings.applied_grid,
            "engine": settings.engine,
            "draws": settings.draws,
            "planned_share": settings.planned_share,
            "looks": settings.looks,
            "look": settings.look,
        },
        provenance=_checked_provenance(provenance),
        inputs=_inputs(observations, pool, sample),
        software={"version": __version__},
        seed=settings.seed,
        ledger=ledger,
        after=after,
    )


def _require_draw(
    observations: Observations, settings: Settings, left_out: int, sample: SampleInputs | None
) -> None:
    """Refuse labels of which nothing says that chance alone chose their runs, or that weigh runs
    unlike the draw.
    """
    name = settings.method.name
    if not settings.method.by_rows:
        sizes = np.bincount(observations.tasks)
        if sample is not None and sizes.min() < sizes.max():
            raise UnfitTableError(
                f"Drawn tasks have from {sizes.min()} to {sizes.max()} runs, and {name} would "
                "count some tasks more than others. Draw one run of each, or name one_run."
            )
        return
    if left_out:
        raise UnfitTableError(
            f"{name} needs labels of runs that chance chose, and {left_out:,} runs have none. Draw "
            "the runs to label with certify sample, and give its file with --sample."
        )
    if settings.method.promise == AVERAGE and len(observations.labels) < observations.rows:
        raise UnfitTableError(
            f"{name} is for one drawn run of each task, and some tasks have several. Draw one of "
            "each with certify sample, or name one_run."
        )


def _require_rows(observations: Observations, settings: Settings) -> None:
    """Refuse a table of so few tasks that one_run or average cannot certify anything."""
    method, tasks = settings.method, len(observations.labels)
    if not method.by_rows:
        return
    several = method.promise == PROVED and tasks < observations.rows
    level = settings.level(tasks)
    least = fewest_rows(method.name, settings.alpha, level, several=several)
    if tasks < least:
        raise TooFewTasksError(
            f"{method.name} needs at least {least} tasks at alpha {settings.alpha:g}, and the "
            f"table has {tasks}. Label a run of more tasks, or raise alpha."
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
            f"{method.name} needs more labels on the {settings.side} side, such as that of task "
            f"{quoted(task)}.",
            task,
            float(score),
        )


def _require_nothing_before(
    observations: Observations, settings: Settings, after: str | None
) -> None:
    """Refuse a second promise where the first one certifies; what a pool says is not known here."""
    if after is None or not find_procedure(after).by_rows:
        return
    if evaluate(observations, settings.replace(procedure=after)).chosen is not None:
        raise InputError(
            f"after is {after!r}, which certifies on these labels. A second promise is for labels "
            "on which the first certifies nothing."
        )


def _inputs(observations: Observations, pool: Pool | None, sample: SampleInputs | None) -> Inputs:
    found = observations.fingerprint
    if pool is not None:
        found = {**found, "pool": pool.fingerprint}
    if sample is None:
        return found
    return {**found, "sample": sample, "labels": observations.labels_read}


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


def _estimand(settings: Settings, sample: SampleInputs | None) -> str:
    """Return what counts alike: that of the procedure, or what the runs were drawn for."""
    if sample is None:
        return settings.method.estimand
    return "task" if sample["estimand"] == TASKS else "trajectory"


def _statement(
    evaluation: Evaluation,
    settings: Settings,
    tasks: int,
    sample: SampleInputs | None,
    after: str | None,
) -> str:
    place, counts = evaluation.chosen, evaluation.counts
    side = settings.side.capitalize()
    if place is None:
        return f"{side}: nothing certified."
    tried = ""
    if after is not None:
        tried = (
            f" {after} was tried before on these labels and certified nothing. On this side its "
            f"promise, or this cap, is broken with probability at most {200 * settings.delta:.4g} "
            "%."
        )
    sign, wrong = _DECIDES[settings.side]
    # of unequal numbers a task, drawn runs are neither a sample of runs nor of tasks
    drawn = "drawn " if sample is not None and counts.trajectories > counts.tasks else ""
    lead = (
        f"{side} at score {sign} {shortest(float(counts.thresholds[place]))}: "
        f"{100 * float(counts.coverage[place]):.1f} % of {drawn}runs"
    )
    if settings.method.by_rows:
        return f"{lead}. {_proved_statement(evaluation, settings, tasks, sample)}{tried}"
    over = ""
    if sample is not None and sample["estimand"] == RUNS:
        over = f", no task counting as more than {sample['most']} runs"
    elif _estimand(settings, sample) == "task":
        over = (
            ", every task weighing the same" if settings.method.pilot else ", averaged over tasks"
        )
    trust = confidence_words(1 - settings.delta, settings.method.validity)
    return f"{lead}, at most {100 * settings.alpha:g} % of them {wrong}{over} ({trust})."


def _proved_statement(
    evaluation: Evaluation, settings: Settings, tasks: int, sample: SampleInputs | None
) -> str:
    """Say what one_run or average promises, in the words of docs/few-labels.md."""
    alpha = 100 * settings.alpha
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
        "certified, nothing counts as wrong."
    )
