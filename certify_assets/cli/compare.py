"""``certify judge compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from certify_assets.cli.options import PATH, store_option
from certify_assets.cli.output import (
    NOTHING,
    answer,
    answers,
    refuse_overwrite,
    section_blocks,
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
    from certify_assets.reports.comparison_page import (
        comparison_sections,
        comparison_tables,
        render_comparison,
    )

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
    sections = comparison_sections(document["corpora"], document["left_out"])
    code = 0 if document["corpora"] else NOTHING
    answer(document, *section_blocks(sections), code=code)
