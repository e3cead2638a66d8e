"""The study of a data root: its profiles, and its page with the tables next to it."""

from __future__ import annotations

from dataclasses import dataclass

from certify_assets.reports.comparison_page import table_csv
from certify_assets.reports.wording import home_of, render, store_page
from certify_assets.research.tables import study_tables
from certify_assets.storage.store import Store

STUDY_PAGE = "study/study.html"


@dataclass(frozen=True)
class Profile:
    """How much is run."""

    # calibration sets a design of the simulation
    trials: int
    # whether the language-model judges are trained: minutes each
    language: bool


#: what a larger one made is kept by a smaller one
PROFILES = {"quick": Profile(20, language=False), "full": Profile(300, language=True)}


@dataclass(frozen=True)
class Outcome:
    """What became of one asset; ``corpus`` is empty for one over all of them."""

    corpus: str
    asset: str
    # done, kept, skipped or failed; the last two have a reason
    status: str
    reason: str = ""


def table_key(name: str) -> str:
    """Return where a table is stored."""
    return f"study/tables/{name}.csv"


def write_study(store: Store) -> str:
    """Write the page, and every table as CSV; return where the page is."""
    tables = study_tables(store)
    for item in tables:
        store.write_bytes(table_key(item.table.name), table_csv(item.table).encode("utf-8"))
    page = render(
        "study.html",
        title="The paper's tables, with ours next to them",
        about="Rows called ours are of the corpora of this data root; rows called paper are the "
        "paper's own corpora, as it prints them.",
        home=home_of(STUDY_PAGE),
        tables=tables,
    )
    return store_page(store, STUDY_PAGE, page)
