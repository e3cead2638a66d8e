"""``certify harvest``."""

from __future__ import annotations

from typing import Any

import click

from certify_assets.cli.options import root_option
from certify_assets.cli.output import NOTHING, emit_json, json_option, say, show_table
from certify_assets.corpora.corpus import Corpus

__all__ = ["harvest"]

_LEARNERS = ("lexical", "sft")
_PLACE = ("profile", "side", "alpha")
_FIGURES = ("harvest", "wrong", "half B", "TEST own", "TEST deployed", "TEST error")


@click.command()
@click.argument("corpus")
@click.option(
    "--learner",
    type=click.Choice(_LEARNERS),
    default="lexical",
    show_default=True,
    help="Who learns: seconds, or minutes a training.",
)
@click.option(
    "--alpha",
    "alphas",
    type=float,
    multiple=True,
    help="Budget of wrong pseudo-labels; several are several loops.  [default: 0.1 and 0.2]",
)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    help="Procedure that certifies half A.  [default: guarded_taskboot, taskboot, betting]",
)
@click.option(
    "--side",
    "sides",
    type=click.Choice(("reject", "release")),
    multiple=True,
    help="[default: both]",
)
@click.option(
    "--profile", "profiles", multiple=True, help="Split profile.  [default: certify and paper]"
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 5),
    default=2,
    show_default=True,
    help="Rounds, fixed beforehand: no rule decides when to stop.",
)
@root_option
@json_option
@click.pass_context
def harvest(
    ctx: click.Context,
    corpus: str,
    learner: str,
    alphas: tuple[float, ...],
    gates: tuple[str, ...],
    sides: tuple[str, ...],
    profiles: tuple[str, ...],
    rounds: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Self-train on what the certificate lets through, with the controls beside it.

    CORPUS must be imported and split. Half A of its CAL tasks sets the threshold, runs of the pool below it become failures (above it, on the release
    side, successes), the judge is trained again from its base, half B certifies it and TEST audits it. Labels of the pool are withheld: they only
    say how many pseudo-labels were wrong. Exit 3 when every gate stayed closed.
    """
    from certify_assets.cli.launching import open_corpus_store
    from certify_assets.reports.harvest_table import control_rows, loop_rows
    from certify_assets.research.harvest_study import HarvestPlan, learner_maker, run_harvests
    from certify_assets.storage.progress import ProgressLines

    given: dict[str, Any] = {"alphas": alphas, "gates": gates, "sides": sides, "profiles": profiles}
    chosen = {name: value for name, value in given.items() if value}
    plan = HarvestPlan(learner=learner, rounds=rounds, **chosen)
    store = open_corpus_store(root, corpus)
    with learner_maker(Corpus(store, corpus), learner, report=ProgressLines(say)) as make:
        document = run_harvests(Corpus(store, corpus), plan, learner=make, say=say)
    if as_json:
        emit_json(document)
    else:
        _show(document, loop_rows(document), control_rows(document))
    ctx.exit(0 if document["harvests"] else NOTHING)


def _show(
    document: dict[str, Any], rounds: list[dict[str, str]], controls: list[dict[str, str]]
) -> None:
    """One table a profile, side and budget: rounds of every gate, then what came without a certificate."""
    for place in dict.fromkeys(tuple(row[name] for name in _PLACE) for row in rounds):
        mine = [row for row in rounds if tuple(row[name] for name in _PLACE) == place]
        beside = [row for row in controls if tuple(row[name] for name in _PLACE) == place]
        lines = [
            [
                f"{row['gate'].removesuffix('_taskboot')} {row['round']}",
                *(row[name] for name in _FIGURES),
            ]
            for row in mine
        ]
        lines += [[row["control"], *(row[name] for name in _FIGURES)] for row in beside]
        profile, side, alpha = place
        show_table(
            f"{document['corpus']}, {profile} split, {side} at {alpha}",
            ["gate and round", *_FIGURES],
            lines,
        )
    say(
        f"{document['harvests']} harvests: {document['within_budget']} within budget, {document['beyond_chance']} above it beyond chance; "
        f"{document['gates_closed']} gates closed. The promise is on the population below the threshold, not on the finite pool."
    )
