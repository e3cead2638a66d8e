"""``certify plan``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import numpy as np

from certify_assets.cli.options import OPEN_SHARE, PATH, SHARE, SIDE, setting_option, settings_help
from certify_assets.cli.output import NOTHING, answer, answers, say
from certify_assets.cli.reading import labelled, read_scores, reading_options
from certify_assets.tables.settings import ReadingOptions
from certify_assets.words import percent

if TYPE_CHECKING:
    from certify_assets.certificates import CorpusFacts, Settings

_DEFAULT_ATTEMPTS = 8
#: settings of a certificate that a plan takes by --set
PLANNED = ("delta", "guard", "grid", "seed", "planned_share")
_EFFORT = ("trials", "most_tasks")
_EFFORTS = (
    "sft_auroc= (AUROC of the fine-tuned judge, for the second gate), trials= (fresh draws that "
    "check the number of tasks; default 300), most_tasks= (default 10000). "
)
_REQUIRED = {"success_rate": "--success-rate", "auroc": "--auroc", "icc": "--icc"}


@click.command()
@click.argument("scores", type=PATH, required=False)
@setting_option("alpha")
@click.option("--success-rate", type=OPEN_SHARE, help="Share of successes π.")
@click.option("--auroc", type=SHARE, help="AUROC A0 of the judge.")
@click.option(
    "--icc",
    type=SHARE,
    help="Correlation of the outcomes of two attempts at one task.",
)
@click.option(
    "--tasks",
    type=click.IntRange(1, 10_000_000),
    help="Labelled tasks that are there. [default: those of SCORES]",
)
@click.option(
    "--attempts",
    type=click.IntRange(1, 1000),
    help="Attempts a task. [default: those of SCORES, else 8]",
)
@click.option("--side", type=SIDE, default="reject", help="Which decision to certify.")
@setting_option("procedure", more="; not betting, which needs a pilot")
@reading_options(*PLANNED, *_EFFORT, "sft_auroc", about=settings_help(PLANNED) + _EFFORTS)
@answers
def plan(
    scores: Path | None,
    reading: ReadingOptions,
    settings: Mapping[str, Any],
    alpha: float | None,
    side: str,
    procedure: str | None,
    **facts: Any,
) -> None:
    """How many tasks a certificate takes, what it would cover, and the three gates.

    The facts are those of SCORES, a table as for certify certificate (its rows with split=cal); an
    option takes the place of what the table says. Without SCORES, --success-rate, --auroc and --icc
    are required.

    Tables are drawn from a model matched to the facts: Gaussian task effects on the logit of
    success, Gaussian score noise. With the planned number of tasks, about 80 % of them certify
    something. In --json, coverage is that of the planned number, and predicted_coverage the limit
    with ever more tasks. Exit code 3 when no number of tasks does.

    Labels yet to be drawn are planned from unlabelled SCORES with --success-rate and --auroc, or
    by one_run and average also from labelled ones: what one run of every task decides, and what
    two, four and all of them do by the default procedure, with chance and labels to read.
    """
    from certify_assets.certificates import Settings, plan_sample_size
    from certify_assets.certificates.procedures import PROMISED, PROVED

    rare, effort = (
        {name: settings[name] for name in names if name in settings} for names in (PLANNED, _EFFORT)
    )
    chosen = {"alpha": alpha, "procedure": procedure}
    rare |= {name: value for name, value in chosen.items() if value is not None}
    asked = Settings(side=side, **rare)
    unlabelled = scores is not None and facts["icc"] is None and procedure is None
    if unlabelled and None not in (facts["success_rate"], facts["auroc"]):
        asked = asked.replace(procedure=PROMISED[PROVED])
    if asked.method.by_rows:
        _plan_rows(scores, reading, asked, facts)
    found = plan_sample_size(
        _facts(scores, reading, **facts, sft_auroc=settings.get("sft_auroc")),
        asked,
        **effort,
    )
    known = found.facts
    answer(
        found.to_dict(),
        found.answer,
        *found.notes,
        *(gate.sentence() for gate in found.gates),
        f"Planned for success rate {known.success_rate:.3f}, AUROC {known.auroc:.3f} and ICC "
        f"{known.icc:.3f}, at α = {asked.alpha:g} on the {side} side by {asked.procedure}.",
        code=0 if found.tasks_needed is not None else NOTHING,
    )


def _plan_rows(
    scores: Path | None, reading: ReadingOptions, asked: Settings, given: Mapping[str, Any]
) -> NoReturn:
    """Plan labelled runs of every task, from scores and a guess or from labelled ones."""
    from certify_assets.certificates import observe
    from certify_assets.certificates.gates import judge_gate, sample_gate, saturation_gate
    from certify_assets.certificates.row_planning import RowModel
    from certify_assets.cli.draw_plans import plan_draws

    if scores is None:
        raise click.UsageError(f"{asked.procedure} is planned from scores: give SCORES.")
    rate, area = given["success_rate"], given["auroc"]
    guessed = rate is not None and area is not None
    table = read_scores(scores, reading, outcomes=not guessed).choose_split("cal")
    if not guessed:
        if table.outcomes is None:
            raise click.UsageError(
                f"{scores} has no outcomes. Guess --success-rate and --auroc, or give a table with "
                "some labels."
            )
        known = labelled(table)
        pilot = observe(known.scores, known.labels, known.tasks)
        rate = rate or float(np.mean(known.labels))
        area = area or pilot.auroc or 0.5
    model = RowModel.of(table.scores, rate, area)
    found = plan_draws(model, table, asked, tasks=given["tasks"], attempts=given["attempts"])
    one, needed = found.one, model.tasks_needed(asked)
    gates = (
        judge_gate(area),
        saturation_gate(None, area),
        sample_gate(float(one.tasks), alpha=asked.alpha, delta=asked.delta, grid=1),
    )
    document = {
        "predicted_coverage": one.coverage,
        "uncertainty": found.missed,
        "chance": one.chance,
        "tasks": one.tasks,
        "labels": one.labels,
        "tasks_needed": needed,
        "labels_needed": None if needed is None else model.plan(needed, asked).labels,
        "draws": found.rows,
        "attempts_that_pay": found.pays,
        "gates": [gate.to_dict() for gate in gates],
    }
    if needed is not None:
        enough = f"With {needed:,} tasks the chance is 80 %."
    else:
        enough = "1,500 tasks give no chance of 80 %; a better judge or a larger α would."
    answer(
        document,
        f"One labelled run of each of {one.tasks:,} tasks is expected to decide "
        f"{percent(one.coverage)} of the runs, and certifies something with a chance of "
        f"{percent(one.chance)}.",
        f"Expect to read {one.labels:.0f} label{'s' * (round(one.labels) != 1)} in the order of the "
        "score.",
        enough,
        *found.blocks,
        *(gate.sentence() for gate in gates),
        f"Planned for success rate {rate:.3f} and AUROC {area:.3f}, at α = {asked.alpha:g} on the "
        f"{asked.side} side by {asked.procedure}.",
        code=0 if needed is not None else NOTHING,
    )


def _facts(
    scores: Path | None, reading: ReadingOptions, *, attempts: int | None, **given: Any
) -> CorpusFacts:
    from certify_assets.certificates import CorpusFacts, corpus_facts, observe

    if scores is not None:
        table = read_scores(scores, reading).choose_split("cal")
        if table.outcomes is None:
            say("Without any labels: guess --success-rate and --auroc.")
        table = labelled(table)
        return corpus_facts(
            observe(table.scores, table.labels, table.tasks),
            sizes=attempts and (attempts,),
            **given,
        )
    missing = [flag for name, flag in _REQUIRED.items() if given[name] is None]
    if missing:
        raise click.UsageError(
            f"without SCORES the facts are options: give {', '.join(missing)}, or a score table."
        )
    return CorpusFacts(sizes=(attempts or _DEFAULT_ATTEMPTS,), **given)
