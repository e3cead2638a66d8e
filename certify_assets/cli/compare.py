"""``certify judge compare``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import PATH, store_option
from certify_assets.cli.output import (
    NOTHING,
    TextTable,
    answer,
    answers,
    refuse_overwrite,
    write_text,
)

if TYPE_CHECKING:
    from certify_assets.storage.store import Store


@click.command()
@click.argument("corpora", nargs=-1)
@click.option("--html", type=PATH, help="Write the page here.")
@click.option(
    "--csv",
    type=PATH,
    help="Write the first table as CSV to FILE, the others next to it under their names.",
)
@store_option
@answers
def compare(corpora: tuple[str, ...], html: Path | None, csv: Path | None, store: Store) -> None:
    """Compare the judges of corpora: ranking, certified coverage, audit, cost.

    CORPORA are names; without them every corpus of the data root that a judge has scored. Says
    which judge is best at what, and what does not help. TEST figures are those of the audits:
    nothing here reads TEST. Exit 3 where no corpus has scores.
    """
    from certify_assets.corpora.config import load_config
    from certify_assets.operations.comparison import compare_corpora
    from certify_assets.reports.comparison_page import comparison_tables, render_comparison

    refuse_overwrite({"--html": html, "--csv": csv}, {})
    for name in corpora:
        load_config(store, name)
    document = compare_corpora(store, corpora or None)
    if html is not None:
        write_text(html, render_comparison(document["corpora"], document["left_out"]))
    if csv is not None:
        # one table a file: two headers in one are no CSV
        for number, table in enumerate(comparison_tables(document["corpora"])):
            place = csv.with_stem(f"{csv.stem}_{table.name}") if number else csv
            write_text(place, table.csv())
    answer(document, *_blocks(document), code=0 if document["corpora"] else NOTHING)


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
        yield from (f"{name}: {item['message']}" for item in corpus["findings"])
        unscored = []
        for item in corpus["missing"]:
            if item["reason"] == NOT_SCORED:
                unscored.append(item["judge"])
            else:
                yield f"{name}, missing {item['what']} of {item['judge']}: {item['reason']}"
        if unscored:
            yield f"Not scored: {', '.join(unscored)}; `certify run {name} --judge NAME`"
    for item in document["left_out"]:
        yield f"Left out: {item['corpus']}: {item['reason']}"
