"""The site of the study: every table of the paper with our numbers beside it, as pages that open
from disk, and as Markdown, LaTeX and CSV.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets._version import __version__
from certify_assets.reports.comparison_page import write_table
from certify_assets.reports.wording import environment
from certify_assets.research.pages import result_tables, training_tables
from certify_assets.research.pages.result_tables import OURS, Reader, StudyTable

if TYPE_CHECKING:
    from certify_assets.storage.store import Store


SITE = "study/site"
_SUFFIXES = {"csv": "csv", "markdown": "md", "latex": "tex"}


@dataclass(frozen=True)
class StudyPage:
    """A page and its tables, in order."""

    href: str
    short: str
    title: str
    about: str
    builders: tuple[Callable[[Reader], StudyTable], ...]


PAGES = (
    StudyPage(
        "corpora.html", "Corpora", "Corpora and gates", "What was judged, how clustered it is, "
                                                        "and what could be expected of training "
                                                        "before any.",
        (result_tables.corpora_table, result_tables.gates_table),
    ),
    StudyPage(
        "results.html", "Results", "Judges under the certificate", "Main result, the larger "
                                                                   "budget, the release side, "
                                                                   "reward arms, endpoint judges.",
        (result_tables.main_table, result_tables.alpha_20_table, result_tables.release_table, training_tables.arms_table, training_tables.frontier_table),
    ),
    StudyPage(
        "procedures.html", "Procedures", "Procedures and audits", "Every procedure on real "
                                                                  "scores, and what TEST says of "
                                                                  "what they certify.",
        (result_tables.procedures_table, result_tables.naive_audit_table, result_tables.audit_table),
    ),
    StudyPage(
        "seeds.html", "Seeds", "Validity over split seeds", "How often a certificate was issued, "
                                                            "and how often it was true on tasks "
                                                            "that it had not seen.",
        (result_tables.seeds_table,),
    ),
    StudyPage(
        "harvest.html", "Harvests", "The certificate as a filter of "
                                    "self-training", "CertHarvest: rounds, contamination, "
                                                     "controls, skew, ranking of rounds.",
        (
            training_tables.self_training_table, training_tables.harvests_table, training_tables.controls_table, training_tables.skew_table,
            training_tables.ranking_table, training_tables.closed_gates_table,
        ),
    ),
    StudyPage(
        "law.html", "Law", "Coverage before training", "The certifiability law: points, fit and "
                                                       "validation.",
        (training_tables.law_points_table, training_tables.law_forms_table),
    ),
    StudyPage(
        "transfer.html", "Transfer and cost", "Transfer, unseen agents and cost", "Judges on "
                                                                                  "corpora that "
                                                                                  "they were not "
                                                                                  "trained on, "
                                                                                  "and what a "
                                                                                  "decision costs.",
        (training_tables.transfer_table, training_tables.agents_table, training_tables.cost_table),
    ),
    StudyPage(
        "simulation.html", "Simulation", "Validity where the truth is known", "Designs of the "
                                                                              "paper and those in "
                                                                              "which the score "
                                                                              "cannot see the "
                                                                              "errors.",
        (result_tables.simulation_table,),
    ),
    StudyPage("run.html", "What was run", "What was run", "Every stage, whether it stands, and "
                                                          "why not where it does not.", (training_tables.stages_table,)),
)  # fmt: skip

LIMITS = (
    (
        "An average over decided runs.",
        " On a single task the judge may be wrong more often, even always.",
    ),
    (
        "Asymptotic in tasks.",
        " The bootstrap is supported by simulation from about 20 tasks; more attempts at the same "
        "tasks add little.",
    ),
    (
        "Tasks that fool the judge throughout.",
        " Resampling cannot show errors that were not seen; the guard asks for enough tasks to "
        "make that unlikely.",
    ),
    (
        "Runs like those of CAL.",
        " Another agent, prompt, judge or kind of task ends the promise until new labelled tasks "
        "confirm it.",
    ),
    (
        "One judge, fixed beforehand.",
        " Picking the best of several certificates afterwards is a choice that no level here pays "
        "for; the tables show all.",
    ),
    ("Outcomes are taken as true.", " A wrong label counts as the judge's error, or hides one."),
    (
        "A harvest's bound is on wrong labels.",
        " It says nothing of how skewed the harvest is, and holds for the population below the "
        "threshold, not for a finite pool.",
    ),
    (
        "Split seeds share runs.",
        " Frequencies over seeds describe one corpus split again and again; they are no "
        "independent trials.",
    ),
)


def study_tables(store: Store) -> dict[str, list[StudyTable]]:
    """Build every table from the stored documents, by page."""
    reader = Reader.of(store)
    return {page.href: [build(reader.fresh()) for build in page.builders] for page in PAGES}


def write_study_site(store: Store) -> str:
    """Write the pages and the tables; return where the first page is.

    Notes
    -----
    The same documents give the same bytes. A table whose documents are not there holds the paper's
    rows and says which command fills ours.
    """
    tables = study_tables(store)
    flat = [block for blocks in tables.values() for block in blocks]
    for page in PAGES:
        view = {
            "title": page.title,
            "about": page.about,
            "blocks": [_block(block) for block in tables[page.href]],
            "facts": (),
            "limits": (),
        }
        store.write_bytes(f"{SITE}/{page.href}", _render(page.href, view).encode("utf-8"))
    for block in flat:
        for kind, suffix in _SUFFIXES.items():
            store.write_bytes(
                f"{SITE}/tables/{block.table.name}.{suffix}",
                write_table(block.table, kind).encode("utf-8"),
            )
    view = {
        "title": "The paper's tables, with ours beside them",
        "about": "Rows called ours are of the corpora of this data root; rows called paper are "
        "the paper's own corpora, as it prints them.",
        "blocks": [],
        "facts": study_facts(store, tables),
        "limits": LIMITS,
    }
    store.write_bytes(f"{SITE}/index.html", _render("index.html", view).encode("utf-8"))
    store.write_bytes(f"{SITE}/tables.md", study_markdown(flat).encode("utf-8"))
    store.write_bytes(
        f"{SITE}/tables.tex",
        "\n".join(write_table(block.table, "latex") for block in flat).encode("utf-8"),
    )
    return store.locate(f"{SITE}/index.html")


def study_markdown(blocks: Sequence[StudyTable]) -> str:
    """Return every table as one Markdown document, with what is missing and where the numbers come
    from.
    """
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
        for corpus, document in reader.of_corpora("seeds/{}.json", "seeds")
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


def seeds_metrics(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a seed study that Dagster and MLflow plot: of the deciding procedure,
    how often it certified and was true on TEST.
    """
    metrics: dict[str, float] = {}
    for found in document["frequencies"]:
        if found["procedure"] == "guarded_taskboot":
            place = f"{found['side']}_at_{found['alpha']:g}"
            metrics |= {
                f"certified_{place}": float(found["certified"]),
                f"valid_{place}": float(found["valid"]),
            }
            metrics[f"coverage_{place}"] = float(found["coverage"])
    return metrics


def _seed_fact(corpus: str, document: Mapping[str, Any]) -> str:
    found = [
        item
        for item in document["frequencies"]
        if (item["side"], item["procedure"]) == ("reject", "guarded_taskboot")
    ]
    said = [
        f"{item['certified']} times at α = {item['alpha']:g}{_validity(item)}" for item in found
    ]
    return (
        f"{corpus}: over {len(document['plan']['seeds'])} split seeds guarded TaskBoot "
        f"certified (reject side) {'; '.join(said)}."
    )


def _validity(item: Mapping[str, Any]) -> str:
    if not item["certified"]:
        return ""
    return (
        f", {item['valid']} of these with an error of at most α on TEST, "
        f"{item['beyond_chance']} above it beyond chance"
    )


def _block(block: StudyTable) -> dict[str, Any]:
    # names and words come first; numbers do not break
    words = next(
        (place for place, name in enumerate(block.table.columns) if name in _FIRST_NUMBERS),
        len(block.table.columns),
    )
    names = ("table", "about", "figure", "missing", "sources")
    return {**{name: getattr(block, name) for name in names}, "names": words}


_FIRST_NUMBERS = {
    "n", "AUROC lexical", "on CAL", "error at .1", "G", "exceeds at .1", "certified", "half B", "harvest", "taken", "agents", "half "
                                                                                                                              "B "
                                                                                                                              "by "
                                                                                                                              "round", "π",
    "ours: R²", "AUROC on TEST", "CAL runs", "coverage",
}  # fmt: skip


def _render(href: str, view: Mapping[str, Any]) -> str:
    pages = [
        {"href": "index.html", "short": "Study"},
        *({"href": page.href, "short": page.short} for page in PAGES),
    ]
    contents = [{"href": page.href, "title": page.title, "about": page.about} for page in PAGES]
    given = {
        "version": __version__,
        "href": href,
        "pages": pages,
        "contents": contents,
        "suffixes": list(_SUFFIXES.values()),
        **view,
    }
    return environment().get_template("study.html").render(**given)
