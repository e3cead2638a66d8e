"""``certify plan``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from certify_assets.cli.output import NOTHING, TextTable, answer, answers
from certify_assets.cli.reading import labelled, read_scores, reading_options
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError
from certify_assets.tables.settings import ReadingOptions
from certify_assets.words import number_of, percent

if TYPE_CHECKING:
    from certify_assets.certificates import Settings

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
    from certify_assets.certificates.label_plans import plan_labels
    from certify_assets.certificates.procedures import DEFAULT, PROMISED, PROVED

    guessed = success_rate is not None and auroc is not None
    chosen = {"alpha": alpha, "procedure": procedure or (PROMISED[PROVED] if guessed else DEFAULT)}
    asked = Settings(
        side=side, **settings, **{name: of for name, of in chosen.items() if of is not None}
    )
    if asked.method.pilot:
        raise InputError(f"{asked.procedure} cannot be planned. Name another --procedure.")
    table = read_scores(scores, reading, outcomes=not guessed, judge=judge, truth=truth)
    table, known = table.choose_split("cal"), None
    if not guessed:
        if table.outcomes is None:
            raise InputError(
                f"{scores} has no outcomes. Guess --success-rate and --auroc, or label some runs."
            )
        table = labelled(table)
        if np.isnan(table.scores).all():
            raise InputError(f"No run of {scores} has a score. Score the runs first.")
        known = observe(table.scores, table.labels, table.tasks)
    guess = {"success_rate": success_rate, "auroc": auroc}
    found = plan_labels(
        table.scores, table.tasks, asked, known=known, count=tasks, attempts=attempts, **guess
    )
    answer(found, *_said(found, asked), code=NOTHING if found["tasks_needed"] is None else 0)


def _said(found: JsonObject, asked: Settings) -> Iterator[str | TextTable]:
    """Say what the labels decide, what would be enough, and what the plan assumes."""
    from certify_assets.certificates.gates import GateResult
    from certify_assets.certificates.label_plans import missed
    from certify_assets.certificates.planning import MOST_TASKS, TARGET

    tasks = number_of(found["tasks"], "task")
    if found["chance"]:
        yield (
            f"{found['labels']:,.0f} labels of {tasks} are expected to decide "
            f"{percent(found['predicted_coverage'])} of the runs, and certify something with a "
            f"chance of {percent(found['chance'])}."
        )
    else:
        yield f"{tasks} can certify nothing at α = {asked.alpha:g}."
    if found["tasks_needed"] is None:
        yield f"{MOST_TASKS:,} tasks are not enough. A better judge or a larger α will help."
    else:
        yield (
            f"With {number_of(found['tasks_needed'], 'task')} ({found['labels_needed']:,.0f} "
            f"labels) the chance is {100 * TARGET:.0f} %."
        )
    if "draws" in found:
        yield draws_table(found["draws"])
    error, spread = missed(asked.procedure)
    yield (
        f"In a trial on six corpora such predictions missed the coverage by {error:.2f} "
        f"± {spread:.2f} on average."
    )
    yield from (GateResult(**gate).sentence() for gate in found["gates"])
    yield (
        f"Planned for success rate {found['success_rate']:.3f} and AUROC {found['auroc']:.3f}, at "
        f"α = {asked.alpha:g} on the {asked.side} side by {asked.procedure}."
    )


def draws_table(rows: Sequence[JsonObject], title: str = "") -> TextTable:
    """Return the table of what draws of one run a task, and of several, are expected to give."""
    return TextTable(
        title or "What a draw is expected to give",
        ("labelled runs a task", "labels read", "decided", "chance", "promise"),
        [_draw_cells(row) for row in rows],
    )


def _draw_cells(row: JsonObject) -> list[str]:
    share = f"{percent(row['predicted_coverage'])} ± {100 * row['uncertainty']:.0f}"
    return [
        f"{row['attempts']}",
        f"{row['labels']:,.0f}",
        share if row["chance"] else "nothing",
        percent(row["chance"]),
        row["promise"],
    ]
