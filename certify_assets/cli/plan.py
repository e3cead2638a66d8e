"""``certify plan``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from certify_assets.cli.options import (
    COUNT,
    OPEN_SHARE,
    SHARE,
    SIDE,
    judge_option,
    scores_argument,
    setting_option,
    settings_help,
    truth_option,
)
from certify_assets.cli.output import NOTHING, answer, answers
from certify_assets.cli.reading import labelled, read_scores, reading_options
from certify_assets.errors import InputError
from certify_assets.tables.settings import ReadingOptions
from certify_assets.words import percent

#: settings of a certificate that a plan takes by --set
PLANNED = ("delta", "guard", "grid", "seed", "planned_share")


@click.command()
@scores_argument
@judge_option
@truth_option
@setting_option("alpha")
@click.option(
    "--success-rate", type=OPEN_SHARE, help="A guess. [default: that of the labels in SCORES]"
)
@click.option(
    "--auroc",
    type=SHARE,
    help="A guess of the judge's AUROC. [default: that of the labels in SCORES]",
)
@click.option("--tasks", type=COUNT, help="Tasks to label. [default: those of SCORES]")
@click.option("--attempts", type=COUNT, help="Labelled runs a task. [default: all, and fewer]")
@click.option("--side", type=SIDE, default="reject", help="Which decision to certify.")
@setting_option("procedure", more="; not betting, which needs a pilot")
@reading_options(*PLANNED, about=settings_help(PLANNED))
@answers
def plan(
    scores: Path,
    judge: str | None,
    truth: str | None,
    reading: ReadingOptions,
    settings: Mapping[str, Any],
    alpha: float | None,
    success_rate: float | None,
    auroc: float | None,
    tasks: int | None,
    attempts: int | None,
    side: str,
    procedure: str | None,
) -> None:
    """What labels would decide, how many tasks a certificate takes, and the three gates.

    SCORES is a table as for certify certificate (its rows with split=cal). Where both
    --success-rate and --auroc are guessed, its outcomes are not read, and the plan is of labels yet
    to be drawn: one run of every task, and two, four and all of them by the default procedure.

    Tables of labels are drawn from the scores and a model of the outcomes. tasks_needed is the
    number of tasks with which 80 % of them certify something; exit code 3 where 1,500 do not.
    """
    from certify_assets.certificates import Settings, observe
    from certify_assets.certificates.gates import (
        auroc_lower_bound,
        judge_gate,
        sample_gate,
        saturation_gate,
    )
    from certify_assets.certificates.planning import MOST_TASKS, TARGET, Planner
    from certify_assets.certificates.procedures import DEFAULT, PROMISED, PROVED
    from certify_assets.cli.draw_plans import draws_table, missed, plan_draws

    guessed = success_rate is not None and auroc is not None
    chosen = {"alpha": alpha, "procedure": procedure or (PROMISED[PROVED] if guessed else DEFAULT)}
    asked = Settings(
        side=side, **settings, **{name: of for name, of in chosen.items() if of is not None}
    )
    if asked.method.pilot:
        raise InputError(f"{asked.procedure} cannot be planned. Name another --procedure.")
    table = read_scores(scores, reading, outcomes=not guessed, judge=judge, truth=truth)
    table = table.choose_split("cal")
    bound = n_eff = None
    if not guessed:
        if table.outcomes is None:
            raise InputError(
                f"{scores} has no outcomes. Guess --success-rate and --auroc, or label some runs."
            )
        table = labelled(table)
        if np.isnan(table.scores).all():
            raise InputError(f"No run of {scores} has a score. Score the runs first.")
        known = observe(table.scores, table.labels, table.tasks)
        n_eff = known.clusters.n_eff
        success_rate = success_rate or float(np.mean(table.labels))
        if auroc is None:
            auroc, bound = known.auroc, auroc_lower_bound(known)
        if auroc is None or not 0 < success_rate < 1:
            raise InputError(
                f"All outcomes of {scores} are equal. Guess --success-rate and --auroc."
            )
    assert success_rate is not None and auroc is not None
    planner = Planner.of(table.scores, table.tasks, success_rate=success_rate, auroc=auroc)
    found = planner.plan(asked, tasks=tasks, attempts=attempts)
    needed = planner.tasks_needed(asked, attempts=attempts)
    if asked.method.by_rows:
        n_eff = float(found.tasks)
    gates = (
        judge_gate(auroc, bound),
        saturation_gate(None, auroc),
        sample_gate(
            n_eff,
            alpha=asked.alpha,
            delta=asked.delta,
            grid=1 if asked.method.by_rows else asked.delta / asked.level(found.tasks),
        ),
    )
    error, spread = missed(asked.procedure)
    document: dict[str, Any] = {
        "predicted_coverage": found.coverage,
        "uncertainty": error,
        "chance": found.chance,
        "tasks": found.tasks,
        "labels": found.labels,
        "tasks_needed": needed,
        "labels_needed": None
        if needed is None
        else planner.plan(asked, tasks=needed, attempts=attempts).labels,
        "gates": [gate.to_dict() for gate in gates],
        "success_rate": success_rate,
        "auroc": auroc,
    }
    blocks: list[Any] = []
    if asked.method.by_rows:
        document["draws"] = plan_draws(planner, asked, tasks=tasks, attempts=attempts)
        blocks.append(draws_table(document["draws"]))
    plural = "s" * (found.tasks != 1)
    expected = f"{found.tasks:,} task{plural} can certify nothing at α = {asked.alpha:g}."
    if found.chance:
        expected = (
            f"{found.labels:,.0f} labels of {found.tasks:,} tasks are expected to decide "
            f"{percent(found.coverage)} of the runs, and certify something with a chance of "
            f"{percent(found.chance)}."
        )
    enough = f"{MOST_TASKS:,} tasks are not enough. A better judge or a larger α will help."
    if needed is not None:
        enough = (
            f"With {needed:,} tasks ({document['labels_needed']:,.0f} labels) the chance is "
            f"{100 * TARGET:.0f} %."
        )
    answer(
        document,
        expected,
        enough,
        *blocks,
        f"In a trial on six corpora such predictions missed the coverage by {error:.2f} "
        f"± {spread:.2f} on average.",
        *(gate.sentence() for gate in gates),
        f"Planned for success rate {success_rate:.3f} and AUROC {auroc:.3f}, at "
        f"α = {asked.alpha:g} on the {side} side by {asked.procedure}.",
        code=0 if needed is not None else NOTHING,
    )
