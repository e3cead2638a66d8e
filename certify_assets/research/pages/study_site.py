"""The site of the study: every table of the paper with ours next to it, as pages and as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from certify_assets.reports.comparison_page import write_table
from certify_assets.reports.wording import home_of, render
from certify_assets.research.pages import result_tables, training_tables
from certify_assets.research.pages.result_tables import OURS, Reader, StudyTable, site_words
from certify_assets.research.seed_study import SeedFrequency, SeedStudy, seeds_key
from certify_assets.research.study import SITE

if TYPE_CHECKING:
    from certify_assets.storage.store import Store


_SUFFIXES = {"csv": "csv", "markdown": "md", "latex": "tex"}


PAGES = site_words().pages


def study_tables(store: Store) -> dict[str, list[StudyTable]]:
    """Build every table from the stored documents, by page."""
    reader = Reader.of(store)
    return {page.href: [_build(name, reader.fresh()) for name in page.tables] for page in PAGES}


def _build(name: str, reader: Reader) -> StudyTable:
    # a table is built by the function of its name
    module = result_tables if hasattr(result_tables, f"{name}_table") else training_tables
    table: StudyTable = getattr(module, f"{name}_table")(reader)
    return table


def write_study_site(store: Store) -> str:
    """Write the pages and the tables; return where the first page is."""
    tables = study_tables(store)
    # the site opens where there is no start page, too
    home = home_of(f"{SITE}/index.html") if store.exists("index.html") else ""
    flat = [block for blocks in tables.values() for block in blocks]
    for page in PAGES:
        view = {
            "title": page.title,
            "about": page.about,
            "blocks": tables[page.href],
            "facts": (),
            "limits": (),
        }
        store.write_bytes(f"{SITE}/{page.href}", _render(page.href, view, home).encode("utf-8"))
    for block in flat:
        for kind, suffix in _SUFFIXES.items():
            store.write_bytes(
                f"{SITE}/tables/{block.table.name}.{suffix}",
                write_table(block.table, kind).encode("utf-8"),
            )
    view = {
        "title": "The paper's tables, with ours next to them",
        "about": "Rows called ours are of the corpora of this data root; rows called paper are "
        "the paper's own corpora, as it prints them.",
        "blocks": [],
        "facts": study_facts(store, tables),
        "limits": site_words().limits,
    }
    store.write_bytes(f"{SITE}/index.html", _render("index.html", view, home).encode("utf-8"))
    store.write_bytes(f"{SITE}/tables.md", study_markdown(flat).encode("utf-8"))
    store.write_bytes(
        f"{SITE}/tables.tex",
        "\n".join(write_table(block.table, "latex") for block in flat).encode("utf-8"),
    )
    return store.locate(f"{SITE}/index.html")


def study_markdown(blocks: Sequence[StudyTable]) -> str:
    """Return every table as one Markdown document, with what is missing and the sources."""
    parts = []
    for block in blocks:
        missing = "".join(f"- {item}\n" for item in block.missing)
        sources = "".join(f"- `{key}` {digest}\n" for key, digest in block.sources)
        parts.append(
            f"## {block.table.title}\n\n{block.about}\n\n{write_table(block.table, 'markdown')}"
        )
        parts += [f"Not run:\n\n{missing}"] * bool(missing) + [
            f"Sources (SHA-256):\n\n{sources}"
        ] * bool(sources)
    return "\n".join(parts)


def study_facts(store: Store, tables: Mapping[str, Sequence[StudyTable]]) -> list[str]:
    """Say in a few sentences what the tables show; each number is counted from stored documents."""
    reader = Reader.of(store)
    facts = [
        _seed_fact(corpus, document)
        for corpus, document in reader.of_corpora(seeds_key, "seeds", SeedStudy.from_dict)
    ]
    harvests = next(block for block in tables["harvest.html"] if block.table.name == "harvests")
    facts += (
        [harvests.about.split(". Harvests of")[0] + "."]
        if any(row[0] == OURS for row in harvests.table.rows)
        else []
    )
    law = next(block for block in tables["law.html"] if block.table.name == "law_points")
    facts.append(f"Law: {law.about}")
    missing = sum(len(block.missing) for blocks in tables.values() for block in blocks)
    return [
        *facts,
        f"{missing} entries below tables say what was not run, and which command runs it."
        if missing
        else "Every table is full.",
    ]


def seeds_metrics(study: SeedStudy) -> dict[str, float]:
    """Return the plotted numbers of a seed study: how often it certified and was valid on TEST."""
    metrics: dict[str, float] = {}
    for found in study.deciding:
        place = f"{found.side}_at_{found.alpha:g}"
        metrics |= {
            f"certified_{place}": float(found.certified),
            f"valid_{place}": float(found.valid),
            f"coverage_{place}": found.coverage,
        }
    return metrics


def _seed_fact(corpus: str, study: SeedStudy) -> str:
    mine = [item for item in study.deciding if item.side == "reject"]
    said = [f"{item.certified} times at α = {item.alpha:g}{_validity(item)}" for item in mine]
    name = mine[0].procedure if mine else "nothing"
    return (
        f"{corpus}: over {len(study.plan.seeds)} split seeds {name} certified (reject side) "
        f"{'; '.join(said)}."
    )


def _validity(item: SeedFrequency) -> str:
    if not item.certified:
        return ""
    return (
        f", {item.valid} of these with an error of at most α on TEST, "
        f"{item.beyond_chance} above it beyond chance"
    )


def _render(href: str, view: Mapping[str, object], home: str) -> str:
    pages = [
        {"href": "index.html", "short": "Study"},
        *({"href": page.href, "short": page.short} for page in PAGES),
    ]
    contents = [{"href": page.href, "title": page.title, "about": page.about} for page in PAGES]
    given = {
        "href": href,
        "home": home,
        "pages": pages,
        "contents": contents,
        "suffixes": list(_SUFFIXES.values()),
        **view,
    }
    return render("study.html", **given)
