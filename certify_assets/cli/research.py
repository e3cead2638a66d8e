"""``certify research``: study, law, simulation, harvests, and runs of a model on MiniWoB++."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from certify_assets.cli.law import law
from certify_assets.cli.options import OPEN_SHARE, PATH, SIDE, corpus_option, store_option
from certify_assets.cli.output import NOTHING, TextTable, answer, answers, say
from certify_assets.cli.simulate import simulate
from certify_assets.corpora.corpus import Corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from certify_assets.storage.store import Store


@click.group()
def research() -> None:
    """Run the study, the certifiability law, the simulation and harvests."""


research.add_command(law)
research.add_command(simulate)

_FAILED = 1
_SHOWN_TABLES = ("main", "audits")


@research.command()
@click.argument("corpora", nargs=-1)
@click.option(
    "--profile",
    type=click.Choice(("quick", "full")),
    default="quick",
    help="Minutes without language models, or hours with.",
)
@store_option
@answers
def study(corpora: tuple[str, ...], profile: str, store: Store) -> None:
    """Tables of the paper with ours next to them, from runs to one page and CSV files.

    Runs on CORPORA, or on every corpus of the data root: splits, judges, transfer, procedures on
    real scores, comparison, the law, the simulation. What is up to date is kept, so that a killed
    study resumes and a second one takes seconds. The full profile adds language models (on the
    named corpora, else on the embedded ones) and more trials. Exit 1 where a step failed; the
    others are run all the same.
    """
    from certify_assets.cli.launching import run_study
    from certify_assets.research.tables import OURS, STUDY_PAGE, study_tables, table_key

    outcomes = run_study(store, corpora, profile)
    counts = dict(sorted(Counter(outcome.status for outcome in outcomes).items()))
    page, tables = store.locate(STUDY_PAGE), [item.table for item in study_tables(store)]
    document = {
        "profile": profile,
        "root": store.root,
        "page": page,
        "tables": [store.locate(table_key(table.name)) for table in tables],
        "counts": counts,
        "assets": [asdict(outcome) for outcome in outcomes],
    }
    shown = [
        TextTable(item.title, item.columns[1:], [row[1:] for row in item.rows if row[0] == OURS])
        for item in tables
        if item.name in _SHOWN_TABLES
    ]
    counted = ", ".join(f"{number} {status}" for status, number in counts.items())
    code = _FAILED if "failed" in counts else 0
    answer(document, *shown, f"Assets: {counted}. Open {page}", code=code)


_LEARNERS = tuple(
    f"{name}{start}"
    for start in ("", "_transfer")
    for name in ("lexical", "combined", "sft", "smollm2")
)
_PLACE = ("profile", "side", "alpha")
_FIGURES = ("harvest", "wrong", "half B", "TEST own", "TEST deployed", "TEST error")


@research.command()
@click.argument("corpus")
@click.option(
    "--learner",
    type=click.Choice(_LEARNERS),
    default="lexical",
    help="Who learns: lexical and combined in seconds, language models in minutes a training; "
    "with _transfer from the runs of other corpora, none of CORPUS.",
)
@click.option(
    "--alpha",
    "alphas",
    type=OPEN_SHARE,
    multiple=True,
    help="Budget of wrong pseudo-labels; several are several loops.  [default: 0.1 and 0.2]",
)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    help="Procedure that certifies half A.  [default: pseudo_task, taskboot]",
)
@click.option("--side", "sides", type=SIDE, multiple=True, help="[default: both]")
@click.option(
    "--profile", "profiles", multiple=True, help="Split profile.  [default: certify and paper]"
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 5),
    default=2,
    help="Rounds, fixed beforehand: no rule decides when to stop.",
)
@corpus_option
@answers
def harvest(
    corpus: Corpus,
    learner: str,
    alphas: tuple[float, ...],
    gates: tuple[str, ...],
    sides: tuple[str, ...],
    profiles: tuple[str, ...],
    rounds: int,
) -> None:
    """Self-train on what the certificate lets through, with the controls next to it.

    CORPUS must be imported and split. Half A of its CAL tasks sets the threshold. Runs of the pool
    below it become failures; on the release side, runs above it become successes. The judge is
    trained again from its base, half B certifies it, and TEST audits it. Labels of the pool are
    withheld: they only say how many pseudo-labels were wrong. Exit 3 when every gate stayed closed.
    """
    from certify_assets.research.harvest_learners import learner_maker
    from certify_assets.research.harvest_study import HarvestPlan, harvest_rows, run_harvests
    from certify_assets.work import ProgressLines

    plan = HarvestPlan(
        learner=learner,
        rounds=rounds,
        alphas=alphas or HarvestPlan.alphas,
        gates=gates or HarvestPlan.gates,
        sides=sides or HarvestPlan.sides,
        # runs of other corpora are kept apart from the tasks of the corpus's own split
        profiles=profiles or (("",) if learner.endswith("_transfer") else HarvestPlan.profiles),
    )
    with (
        corpus.writing(),
        learner_maker(corpus, learner, report=ProgressLines(say)) as make,
    ):
        document = run_harvests(corpus, plan, make, say=say)
    said = (
        f"{document['harvests']} harvests: {document['within_budget']} within budget, "
        f"{document['beyond_chance']} above it beyond chance; "
        f"{document['gates_closed']} gates closed. The promise is on the population below the "
        "threshold, not on the finite pool."
    )
    tables = _harvests(corpus.name, harvest_rows(document))
    answer(document, *tables, said, code=0 if document["harvests"] else NOTHING)


def _harvests(corpus: str, rows: list[dict[str, str]]) -> Iterator[TextTable]:
    """Return one table a profile, side and budget: rounds and controls."""
    for place in dict.fromkeys(tuple(row[name] for name in _PLACE) for row in rows):
        shown = [
            [row[name] for name in ("name", *_FIGURES)]
            for row in rows
            if tuple(row[name] for name in _PLACE) == place
        ]
        profile, side, alpha = place
        title = f"{corpus}, {profile} split, {side} at {alpha}"
        yield TextTable(title, ["gate and round", *_FIGURES], shown)


@research.command("generate-miniwob")
@click.option("--out", type=PATH, required=True, help="JSON Lines; what it lacks is added.")
@click.option("--task", "tasks", multiple=True, help="Only this task; repeatable.")
@click.option("--attempts", type=click.IntRange(1, 1000), default=4, help="Attempts a task.")
@click.option("--seed", type=int, default=42, help="Seed of the tasks' instances.")
@answers
def generate(out: Path, tasks: tuple[str, ...], attempts: int, seed: int) -> None:
    """Let a model act on MiniWoB++ pages, in a real Chromium.

    CERTIFY_MODEL_URL (an OpenAI-compatible base URL) and CERTIFY_MODEL_NAME name the model,
    CERTIFY_MODEL_KEY holds its key. A killed generation continues when it is called again, and
    `certify corpus import` reads the file. Needs Chromium and the extra 'miniwob'.
    """
    from certify_assets.research.miniwob import ModelAgent
    from certify_assets.research.miniwob import generate as run

    agent = ModelAgent.from_environment()
    added = run(out, agent, tasks=tasks, attempts=attempts, seed=seed, say=say)
    answer({"added": added, "file": str(out)}, f"{added} runs added to {out}")
