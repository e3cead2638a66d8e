"""``certify judge compare``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import NATURAL, PATH, store_option
from certify_assets.cli.output import (
    NOTHING,
    TextTable,
    answer,
    answers,
    refuse_overwrite,
    say,
    write_text,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import JUDGES
from certify_assets.judges.stored import judge_file

if TYPE_CHECKING:
    from certify_assets.storage.store import Store


@click.command()
@click.argument("corpora", nargs=-1)
@click.option(
    "--agent-disjoint",
    is_flag=True,
    help="Train without some agents first, and read the judges on those.",
)
@click.option(
    "--judge",
    "judges",
    multiple=True,
    type=click.Choice(tuple(JUDGES)),
    help=(
        "Judge of --agent-disjoint; repeat for more. sft trains once a fold, minutes each. "
        "[default: lexical]"
    ),
)
@click.option(
    "--folds", type=click.IntRange(2, 4), default=4, help="Groups of agents of --agent-disjoint."
)
@click.option("--seed", type=NATURAL, default=42, help="Of those groups.")
@click.option("--html", type=PATH, help="Write the page here.")
@click.option(
    "--csv",
    type=PATH,
    help="Write the first table as CSV to FILE, the others next to it under their names.",
)
@store_option
@answers
def compare(
    corpora: tuple[str, ...],
    agent_disjoint: bool,
    judges: tuple[str, ...],
    folds: int,
    seed: int,
    html: Path | None,
    csv: Path | None,
    store: Store,
) -> None:
    """Compare the judges of corpora: ranking, certified coverage, audit, cost.

    CORPORA are names; without them every corpus of the data root that a judge has scored. Says
    which judge is best at what, and what does not help. TEST figures are those of the audits:
    nothing here reads TEST. Exit 3 where no corpus has scores.
    """
    from certify_assets.corpora.config import load_config
    from certify_assets.operations.comparison import compare_corpora

    refuse_overwrite({"--html": html, "--csv": csv}, {})
    for name in corpora:
        load_config(store, name)
    if agent_disjoint or judges:
        _evaluate(store, corpora, judges or ("lexical",), folds=folds, seed=seed)
    document = compare_corpora(store, corpora or None)
    _write(document, html, csv)
    answer(document, *_blocks(document), code=0 if document["corpora"] else NOTHING)


def _evaluate(
    store: Store, corpora: Sequence[str], judges: Sequence[str], *, folds: int, seed: int
) -> None:
    from certify_assets.cli.launching import report_stored
    from certify_assets.corpora.config import registered_corpora
    from certify_assets.operations.agent_folds import evaluate_agent_folds

    for corpus in corpora or registered_corpora(store):
        for judge in judges:
            if corpora or store.exists(judge_file(judge, corpus, "scores.json")):
                say(f"{judge} on {corpus}: trained without some agents, {folds} times")
                opened = Corpus(store, corpus)
                with opened.writing():
                    evaluate_agent_folds(JudgedCorpus(opened, judge), folds=folds, seed=seed)
                    report_stored(opened, "judge compare", "corpora/agent_disjoint")


def _write(document: Mapping[str, Any], html: Path | None, csv: Path | None) -> None:
    from certify_assets.reports.comparison_page import comparison_tables, render_comparison

    if html is not None:
        write_text(html, render_comparison(document["corpora"], document["left_out"]))
    if csv is not None:
        # one table a file: two headers in one are no CSV
        for number, table in enumerate(comparison_tables(document["corpora"])):
            place = csv.with_stem(f"{csv.stem}_{table.name}") if number else csv
            write_text(place, table.csv())


def _blocks(document: Mapping[str, Any]) -> Iterator[Any]:
    """Return the tables of each corpus, who is best at what, and what is not there."""
    from certify_assets.operations.comparison import NOT_SCORED
    from certify_assets.reports.comparison_page import comparison_tables

    for corpus in document["corpora"]:
        name = corpus["corpus"]
        for found in comparison_tables([corpus]):
            rows = [row[1:] for row in found.rows]
            yield TextTable(f"{name}: {found.title}", found.columns[1:], rows)
        for item in corpus["best"]:
            if item["judge"]:
                yield f"{name}, {item['what']}: {item['judge']} ({item['value']:.4g})."
        for item in corpus["findings"]:
            yield f"{name}: {item['message']}"
        unscored = [item for item in corpus["missing"] if item["reason"] == NOT_SCORED]
        if unscored:
            names = ", ".join(item["judge"] for item in unscored)
            yield f"Not scored: {names}; `certify run {name} --judge NAME`"
        for item in corpus["missing"]:
            if item in unscored:
                continue
            yield f"{name}, missing {item['what']} of {item['judge']}: {item['reason']}"
    for item in document["left_out"]:
        yield f"Left out: {item['corpus']}: {item['reason']}"
