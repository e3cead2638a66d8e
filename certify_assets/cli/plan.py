"""``certify plan``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import (
    DEFAULT_PROCEDURE,
    OPEN_SHARE,
    PATH,
    SHARE,
    SIDE,
    alpha_option,
)
from certify_assets.cli.output import NOTHING, emit_json, json_option, show_line
from certify_assets.cli.reading import labelled, read_scores, reading_options
from certify_assets.tables.score_reading import ReadingOptions

if TYPE_CHECKING:
    from certify_assets.certificates import CorpusFacts

_DEFAULT_ATTEMPTS = 8
_SETTINGS = ("delta", "guard", "grid", "seed")
_EFFORT = ("trials", "most_tasks")
_ABOUT_SETTINGS = (
    "Rare settings: delta, guard, grid and seed as for certificate; sft_auroc= (of the fine-tuned "
    "judge, for the second gate), trials=300 (fresh draws that check the number of tasks), "
    "most_tasks=10000. "
)
_REQUIRED = {"success_rate": "--success-rate", "auroc": "--auroc", "icc": "--icc"}


@click.command()
@click.argument("scores", type=PATH, required=False)
@alpha_option
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
@click.option(
    "--procedure",
    default=DEFAULT_PROCEDURE,
    show_default=True,
    help="As for certificate; one that needs no --pilot.",
)
@reading_options(*_SETTINGS, *_EFFORT, "sft_auroc", about=_ABOUT_SETTINGS)
@json_option
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    scores: Path | None,
    as_json: bool,
    reading: ReadingOptions,
    settings: Mapping[str, Any],
    alpha: float,
    side: str,
    procedure: str,
    **facts: Any,
) -> None:
    """How many tasks a certificate takes, what it would cover, and the three gates.

    The facts are those of SCORES, a table as for certify certificate (its rows with split=cal); an
    option takes the place of what the table says. Without SCORES, --success-rate, --auroc and --icc
    are required.

    Tables are drawn from a model matched to the facts: Gaussian task effects on the logit of
    success, Gaussian score noise. With the planned number of tasks, about 80 % of them certify
    something. Exit code 3 when no number of tasks does.
    """
    from certify_assets.certificates import Settings, plan_sample_size
    from certify_assets.reports.gates import gate_sentence

    rare, effort = (
        {name: settings[name] for name in names if name in settings}
        for names in (_SETTINGS, _EFFORT)
    )
    found = plan_sample_size(
        _facts(scores, reading, **facts, sft_auroc=settings.get("sft_auroc")),
        Settings(alpha=alpha, side=side, procedure=procedure, **rare),
        **effort,
    )
    if as_json:
        emit_json(found.to_dict())
    else:
        for line in (found.answer, *found.notes, *map(gate_sentence, found.gates)):
            show_line(line)
        known = found.facts
        show_line(
            f"Planned for success rate {known.success_rate:.3f}, AUROC {known.auroc:.3f} and ICC "
            f"{known.icc:.3f}, at α = {alpha:g} on the {side} side by {procedure}."
        )
    ctx.exit(0 if found.tasks_needed is not None else NOTHING)


def _facts(
    scores: Path | None, reading: ReadingOptions, *, attempts: int | None, **given: Any
) -> CorpusFacts:
    from certify_assets.certificates import CorpusFacts, corpus_facts, observe

    if scores is not None:
        table = labelled(read_scores(scores, reading).choose_split("cal"))
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
