"""``certify study``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import root_option
from certify_assets.cli.output import console, emit_json, json_option, say, show_table

if TYPE_CHECKING:
    from certify_assets.research.full_study import Outcome
    from certify_assets.storage.store import Store

__all__ = ["study"]

_FAILED = 1
_SHOWN = ("main", "self_training", "transfer")


@click.command()
@click.argument("corpora", nargs=-1)
@click.option(
    "--profile",
    type=click.Choice(("quick", "full")),
    default="quick",
    show_default=True,
    help="Minutes without language models, or hours with.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Processes, a corpus each; results do not depend on it.",
)
@root_option
@json_option
@click.pass_context
def study(
    ctx: click.Context,
    corpora: tuple[str, ...],
    profile: str,
    workers: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Every table of the paper with ours beside it, from runs to a site.

    Runs every stage on CORPORA, or on every corpus of the data root: splits, judges, split seeds, harvests, transfer, procedures on real scores, comparison,
    the law, the simulation. What stands is kept, so that a killed study goes on and a second one takes seconds. The full profile adds language models (on
    the named corpora, else on the embedded ones), reward arms, more seeds and trials. Exit 1 where a stage failed; the others are run all the same.
    """
    from certify_assets.cli.launching import open_store
    from certify_assets.research.full_study import run_full_study
    from certify_assets.research.pages.study_site import write_study_site

    store, started = open_store(root), time.monotonic()
    outcomes = run_full_study(store, corpora, profile=profile, workers=workers, say=say)
    site = write_study_site(store)
    document = _document(store, outcomes, site, profile, time.monotonic() - started)
    if as_json:
        emit_json(document)
    else:
        _show(store, document)
    ctx.exit(_FAILED if document["counts"].get("failed") else 0)


def _document(
    store: Store, outcomes: Sequence[Outcome], site: str, profile: str, seconds: float
) -> dict[str, Any]:
    from dataclasses import asdict

    counts = Counter(outcome.status for outcome in outcomes)
    return {
        "profile": profile,
        "root": store.root,
        "site": site,
        "seconds": round(seconds, 1),
        "counts": dict(sorted(counts.items())),
        "stages": [asdict(outcome) for outcome in outcomes],
    }


def _show(store: Store, document: dict[str, Any]) -> None:
    from certify_assets.research.pages.result_tables import OURS
    from certify_assets.research.pages.study_site import study_facts, study_tables

    tables = study_tables(store)
    for blocks in tables.values():
        for block in blocks:
            if block.table.name in _SHOWN:
                rows = [row[1:] for row in block.table.rows if row[0] == OURS]
                show_table(block.table.title, block.table.columns[1:], rows)
    out = console()
    for sentence in study_facts(store, tables):
        out.print(sentence, markup=False)
    why: dict[str, list[str]] = {}
    for item in document["stages"]:
        if item["status"] in ("skipped", "failed"):
            why.setdefault(f"{item['stage']} {item['status']}: {item['reason']}", []).append(
                item["corpus"]
            )
    for sentence, corpora in why.items():
        out.print(f"{', '.join(corpora)}: {sentence}", markup=False)
    counted = ", ".join(f"{number} {status}" for status, number in document["counts"].items())
    out.print(
        f"Stages: {counted}; {document['seconds']:g} s. Open {document['site']}", markup=False
    )
