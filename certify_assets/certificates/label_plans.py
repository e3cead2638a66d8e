"""What labels of a table would decide, with the three gates and the draws: ``certify plan``."""

from __future__ import annotations

from typing import Any, Final

from certify_assets.arrays import Floats, Names
from certify_assets.certificates.gates import (
    auroc_lower_bound,
    judge_gate,
    sample_gate,
    saturation_gate,
)
from certify_assets.certificates.inputs import Observations
from certify_assets.certificates.planning import Planner
from certify_assets.certificates.procedures import CONFIDENT, DEFAULT, PROMISED
from certify_assets.certificates.settings import Settings
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError

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
    """Plan what labels of some tasks would decide.

    Parameters
    ----------
    scores : float64 array, shape (n,)
    tasks : sequence of hashables, shape (n,)
    asked : Settings
        Of a procedure without a pilot.
    known : Observations, optional
        The labelled table, for what is not guessed.
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
        If nothing tells the success rate or the AUROC.
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
