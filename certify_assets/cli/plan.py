"""``certify plan``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
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
    out_option,
)
from certify_assets.cli.output import (
    NOTHING,
    emit_json,
    json_option,
    percent,
    refuse_overwrite,
    say,
    show_line,
    show_table,
    write_document,
)
from certify_assets.cli.reading import ReadingOptions, labelled, read_scores, reading_options

if TYPE_CHECKING:
    from certify_assets.certificates import CorpusFacts, SamplePlan

_DEFAULT_ATTEMPTS = 8
_SETTINGS = ("delta", "guard", "grid", "seed")
_FACTS = ("within_auroc", "sft_auroc")
_EFFORT = ("trials", "most_tasks", "alternatives")
_ABOUT_SETTINGS = (
    "Rare settings: delta, guard, grid and seed as for certificate; within_auroc= (AUROC among "
    "attempts at one task), sft_auroc= (of the fine-tuned judge, for the second gate), trials=300 "
    "(fresh draws that check the size), most_tasks=10000, alternatives=false (no other numbers of "
    "attempts). "
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
@out_option
@reading_options(*_SETTINGS, *_FACTS, *_EFFORT, about=_ABOUT_SETTINGS)
@json_option
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    scores: Path | None,
    out: Path | None,
    as_json: bool,
    reading: ReadingOptions,
    settings: Mapping[str, Any],
    alpha: float,
    side: str,
    procedure: str,
    **facts: Any,
) -> None:
    """How many more tasks until a certificate, what it would cover, and the three gates.

    The facts are those of SCORES, a table as for certify certificate (its rows with split=cal); an
    option takes the place of what the table says. Without SCORES, --success-rate, --auroc and --icc
    are required.

    Draws are from a model matched to the facts: Gaussian task effects on the logit of success,
    Gaussian score noise. The planned size is where 80 % of the draws certify something, checked on
    fresh draws. Exit code 3 when no number of tasks does. Progress is on stderr.
    """
    from certify_assets.certificates import Settings, plan_sample_size
    from certify_assets.certificates.sample_size import OTHER_ATTEMPTS, compare_attempts

    refuse_overwrite({"--out": out}, {"SCORES": scores})
    asked = Settings(alpha=alpha, side=side, procedure=procedure, **_of(_SETTINGS, settings))
    effort = {"trials": 300, "most_tasks": 10_000, "alternatives": True, **_of(_EFFORT, settings)}
    most = effort["most_tasks"]
    found = plan_sample_size(
        _facts(scores, reading, **facts, **_of(_FACTS, settings)),
        asked,
        trials=effort["trials"],
        most_tasks=most,
        other_attempts=(),
        progress=say,
    )
    # the answer first: other numbers of attempts take as long again
    if not as_json:
        _show(found)
    if effort["alternatives"]:
        found = compare_attempts(found, OTHER_ATTEMPTS, most_tasks=most, progress=say)
    if out is not None:
        write_document(out, found.to_dict())
    if as_json:
        emit_json(found.to_dict())
    else:
        _show_alternatives(found)
    ctx.exit(0 if found.sizing.tasks is not None else NOTHING)


def _of(names: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


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


def _show(found: SamplePlan) -> None:
    from certify_assets.reports.gates import gate_sentence

    show_line(found.answer)
    for gate in found.gates:
        show_line(gate_sentence(gate))
    facts, needed = found.facts, found.sizing.tasks
    check = found.sizing.checks[-1] if found.sizing.checks else None
    figures = {
        "success rate, AUROC, ICC": (
            f"{facts.success_rate:.3f}, {facts.auroc:.3f}, {facts.icc:.3f}"
        ),
        "error budget": (
            f"{100 * found.settings.alpha:g} % on the {found.settings.side} side, confidence "
            f"{100 * (1 - found.settings.delta):g} %, {found.settings.procedure}"
        ),
        "tasks there": "not given" if facts.tasks is None else str(facts.tasks),
        "tasks needed": "no number does"
        if needed is None
        else f"{needed} of {facts.attempts:.3g} attempts",
        "success probability": "–" if check is None else percent(check.share),
        "coverage at that size": "–" if check is None else percent(check.coverage),
        "coverage with ever more tasks": percent(found.population_coverage),
    }
    if found.law is not None:
        figures["coverage by the paper's law"] = percent(found.law)
    show_table("Plan", ["", ""], [[name, value] for name, value in figures.items()])
    for sentence in (*found.notes, found.sentence):
        show_line(sentence)
    # a pipe would have it at the end
    sys.stdout.flush()


def _show_alternatives(found: SamplePlan) -> None:
    if len(found.alternatives) > 1:
        rows = [
            [str(attempts), *(("–", "–") if tasks is None else (str(tasks), str(attempts * tasks)))]
            for attempts, tasks in found.alternatives
        ]
        show_table(
            "Other numbers of attempts (to about a tenth)",
            ["attempts a task", "tasks", "trajectories"],
            rows,
        )
