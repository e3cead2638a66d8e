"""``certify research``: study, law, simulation, harvests and the generator of the embedded runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from certify_assets.cli.figures import show_figures
from certify_assets.cli.law import law
from certify_assets.cli.options import OPEN_SHARE, PATH, SIDE, corpus_option, store_option
from certify_assets.cli.output import (
    NOTHING,
    console,
    emit_json,
    json_option,
    say,
    show_line,
    show_table,
)
from certify_assets.cli.simulate import simulate
from certify_assets.corpora.corpus import Corpus

if TYPE_CHECKING:
    from certify_assets.judges.harvest.rows import HarvestDocument
    from certify_assets.research.study import Outcome
    from certify_assets.storage.store import Store


@click.group()
def research() -> None:
    """Run the study, the certifiability law, the simulation and harvests."""


research.add_command(law)
research.add_command(simulate)

_FAILED = 1
_STUDY_TABLES = ("main", "self_training", "transfer")


@research.command()
@click.argument("corpora", nargs=-1)
@click.option(
    "--profile",
    type=click.Choice(("quick", "full")),
    default="quick",
    help="Minutes without language models, or hours with.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=2,
    help="Processes, a corpus each; results do not depend on it.",
)
@store_option
@json_option
@click.pass_context
def study(
    ctx: click.Context,
    corpora: tuple[str, ...],
    profile: str,
    workers: int,
    store: Store,
    as_json: bool,
) -> None:
    """Every table of the paper with ours next to it, from runs to a site.

    Runs every stage on CORPORA, or on every corpus of the data root: splits, judges, split seeds,
    harvests, transfer, procedures on real scores, comparison, the law, the simulation. What is up
    to date is kept, so that a killed study resumes and a second one takes seconds. The full
    profile adds language models (on the named corpora, else on the embedded ones),
    more seeds and trials. Exit 1 where a stage failed; the others are run all the same.
    """
    from certify_assets.cli.launching import run_study
    from certify_assets.research.study import SITE

    started = time.monotonic()
    outcomes = run_study(store, corpora, profile, workers)
    counts = Counter(outcome.status for outcome in outcomes)
    done = _Study(
        profile=profile,
        root=store.root,
        site=store.locate(f"{SITE}/index.html"),
        seconds=round(time.monotonic() - started, 1),
        counts=dict(sorted(counts.items())),
        stages=outcomes,
    )
    if as_json:
        emit_json(asdict(done))
    else:
        _show_study(store, done)
    ctx.exit(_FAILED if counts["failed"] else 0)


@dataclass(frozen=True)
class _Study:
    """A run of the study; ``--json`` prints it."""

    profile: str
    root: str
    site: str
    seconds: float
    counts: dict[str, int]
    stages: list[Outcome]


def _show_study(store: Store, done: _Study) -> None:
    from certify_assets.research.pages.result_tables import OURS
    from certify_assets.research.pages.study_site import study_facts, study_tables

    tables = study_tables(store)
    for blocks in tables.values():
        for block in blocks:
            if block.table.name in _STUDY_TABLES:
                rows = [row[1:] for row in block.table.rows if row[0] == OURS]
                show_table(block.table.title, block.table.columns[1:], rows)
    for sentence in study_facts(store, tables):
        show_line(sentence)
    why: dict[str, list[str]] = {}
    for item in done.stages:
        if item.status in ("skipped", "failed"):
            why.setdefault(f"{item.stage} {item.status}: {item.reason}", []).append(item.corpus)
    for sentence, corpora in why.items():
        show_line(f"{', '.join(corpora)}: {sentence}")
    counted = ", ".join(f"{number} {status}" for status, number in done.counts.items())
    show_line(f"Stages: {counted}; {done.seconds:g} s. Open {done.site}")


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
    help="Procedure that certifies half A.  [default: pseudo_task, taskboot, betting]",
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
@json_option
@click.pass_context
def harvest(
    ctx: click.Context,
    corpus: Corpus,
    learner: str,
    alphas: tuple[float, ...],
    gates: tuple[str, ...],
    sides: tuple[str, ...],
    profiles: tuple[str, ...],
    rounds: int,
    as_json: bool,
) -> None:
    """Self-train on what the certificate lets through, with the controls next to it.

    CORPUS must be imported and split. Half A of its CAL tasks sets the threshold, runs of the pool
    below it become failures (above it, on the release side, successes), the judge is trained again
    from its base, half B certifies it and TEST audits it. Labels of the pool are withheld: they
    only say how many pseudo-labels were wrong. Exit 3 when every gate stayed closed.
    """
    from certify_assets.reports.harvest_table import control_rows, loop_rows
    from certify_assets.research.harvest_study import HarvestPlan, learner_maker, run_harvests
    from certify_assets.storage.progress import ProgressLines

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
        corpus.writing("research harvest"),
        learner_maker(corpus, learner, report=ProgressLines(say)) as make,
    ):
        document = run_harvests(corpus, plan, learner=make, say=say)
    if as_json:
        emit_json(document)
    else:
        _show_harvests(document, loop_rows(document), control_rows(document))
    ctx.exit(0 if document["harvests"] else NOTHING)


def _show_harvests(
    document: HarvestDocument, rounds: list[dict[str, str]], controls: list[dict[str, str]]
) -> None:
    """Print one table a profile, side and budget: rounds, then the controls."""
    for place in dict.fromkeys(tuple(row[name] for name in _PLACE) for row in rounds):
        mine = [row for row in rounds if tuple(row[name] for name in _PLACE) == place]
        plain = [row for row in controls if tuple(row[name] for name in _PLACE) == place]
        lines = [
            [
                f"{row['gate'].removesuffix('_taskboot')} {row['round']}",
                *(row[name] for name in _FIGURES),
            ]
            for row in mine
        ]
        lines += [[row["control"], *(row[name] for name in _FIGURES)] for row in plain]
        profile, side, alpha = place
        show_table(
            f"{document['corpus']}, {profile} split, {side} at {alpha}",
            ["gate and round", *_FIGURES],
            lines,
        )
    say(
        f"{document['harvests']} harvests: {document['within_budget']} within budget, "
        f"{document['beyond_chance']} above it beyond chance; "
        f"{document['gates_closed']} gates closed. The promise is on the population below the "
        "threshold, not on the finite pool."
    )


def _list_tasks(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        from certify_assets.research.miniwob import list_tasks

        click.echo("\n".join(list_tasks()))
        ctx.exit()


@research.command("generate-miniwob")
@click.option(
    "--out",
    type=PATH,
    required=True,
    help="Folder for the runs; an interrupted generation in it resumes.",
)
@click.option(
    "--attempts", type=click.IntRange(1, 1000), default=4, help="Attempts a task and agent."
)
@click.option("--seed", type=int, default=42, help="Seed of instances and faults.")
@click.option("--workers", type=click.IntRange(1, 64), default=2, help="Browser processes.")
@click.option("--corpus", "corpora", multiple=True, help="Only this corpus; repeat for more.")
@click.option("--task", "tasks", multiple=True, help="Only this task; repeat for more.")
@click.option("--agent", "agents", multiple=True, help="Only this agent, or model; repeatable.")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_tasks,
    help="List the tasks instead.",
)
@click.option(
    "--compare",
    type=PATH,
    metavar="FOLDER",
    help="Name the tasks whose runs differ between FOLDER and --out instead.",
)
@json_option
def generate(
    out: Path,
    attempts: int,
    seed: int,
    workers: int,
    corpora: tuple[str, ...],
    tasks: tuple[str, ...],
    agents: tuple[str, ...],
    compare: Path | None,
    as_json: bool,
) -> None:
    """Generate the embedded MiniWoB++ corpora again, in a real Chromium.

    Resumable: kill it and call it again. Needs Chromium and the extra 'miniwob'.
    """
    from certify_assets.research.miniwob import CORPORA, differing_tasks
    from certify_assets.research.miniwob import generate as run

    if compare is not None:
        differing = differing_tasks(compare, out)
        if as_json:
            emit_json({"differing": differing})
        else:
            show_line("\n".join(differing) or "no task differs")
        return
    with _bar(quiet=as_json) as progress:
        made = run(
            out,
            attempts=attempts,
            seed=seed,
            workers=workers,
            corpora=corpora or CORPORA,
            tasks=list(tasks) or None,
            agents=list(agents) or None,
            progress=progress,
        )
    tables = {name: str(path) for name, path in made.tables.items()}
    document = {
        "episodes": made.episodes,
        "kept": made.kept,
        "retries": made.retries,
        "failed": made.failed,
        "tables": tables,
    }
    if as_json:
        emit_json(document)
    else:
        show_figures(f"Generated in {out}", {"": document})


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, a line every hundred episodes elsewhere."""
    from rich.progress import Progress

    out = console(stderr=True)
    if quiet or not out.is_terminal:
        yield (
            lambda done, total: None if quiet or done % 100 else say(f"{done} of {total} episodes")
        )
        return
    with Progress(console=out, transient=True) as bar:
        task = bar.add_task("episodes", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
