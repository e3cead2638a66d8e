"""Tables of the study that are about procedures: real scores, the naive audit, validity over split seeds, the simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from certify_assets.reports.comparison_tables import Table
from certify_assets.reports.wording import DASH, count
from certify_assets.research import paper_numbers, paper_tables
from certify_assets.research.pages.study_reader import (
    OURS,
    PAPER,
    Reader,
    StudyTable,
    number,
    numbers,
)
from certify_assets.research.pages.study_results import cell_of

__all__ = ["naive_audit_table", "procedures_table", "seeds_table", "simulation_table"]

_REAL = "real_scores/{}.json"
_PAPERS = ("naive", "deff", "one_per_task", "task_hoeffding", "taskboot")
_OURS = ("guarded_taskboot", "korn_graubard", "gaffke", "betting")


def procedures_table(reader: Reader) -> StudyTable:
    """The paper's five procedures and ours on the scores themselves."""
    columns = ("whose", "corpus", "judge", "scores", "G", "ρ", *_PAPERS, *_OURS)
    rows: list[tuple[str, ...]] = []
    for corpus, document in reader.of_corpora(_REAL, "real_scores"):
        for judge in document["judges"]:
            for split, key in (("TEST", "on_test"), ("CAL", "coverage")):
                size = document[split.lower()]
                cells = [cell_of(judge, "reject", 0.1, name) for name in (*_PAPERS, *_OURS)]
                values = numbers([None if cell is None else cell[key] for cell in cells])
                rows.append(
                    (
                        OURS,
                        corpus,
                        judge["judge"],
                        split,
                        count(size["tasks"]),
                        number(size["icc"], 2),
                        *values,
                    )
                )
    for corpus, name, shares in paper_tables.REAL_ROWS:
        place = (
            count(paper_numbers.CORPORA[corpus].tasks),
            number(paper_tables.CLUSTERING[corpus][0], 2),
        )
        rows.append((PAPER, corpus, name, "TEST", *place, *numbers(shares), *[DASH] * len(_OURS)))
    about = (
        "Certified reject coverage at α = .1. The paper's table runs the procedures on TEST's own scores, a threshold that nobody deploys; the rows of CAL are "
        "those that certificates come from. gaffke and betting promise the error by task."
    )
    return reader.table(
        Table("procedures", "Procedures on real scores", columns, tuple(rows)), about
    )


def naive_audit_table(reader: Reader) -> StudyTable:
    """How often the error of the naive certificate exceeds α when tasks are resampled."""
    columns = (
        "whose",
        "corpus",
        "judge",
        "exceeds at .1",
        "coverage at .1",
        "exceeds at .2",
        "coverage at .2",
    )
    rows: list[tuple[str, ...]] = []
    for corpus, document in reader.of_corpora(_REAL, "real_scores"):
        for judge in document["judges"]:
            found = [
                text
                for audit in judge["naive_audit"]
                for text in (_exceedance(audit), number(audit["coverage"]))
            ]
            rows.append((OURS, corpus, judge["judge"], *found))
    rows += [
        (PAPER, corpus, judge, tenth, DASH, fifth, DASH)
        for corpus, judge, tenth, fifth in paper_tables.NAIVE_AUDIT
    ]
    about = (
        "The naive certificate picks its threshold on TEST's scores; 3,000 resamples of tasks count how often the error there is above α. Up to δ = .05 agrees "
        "with its promise. The resamples are of the data that picked the threshold: evidence against it, none for it."
    )
    return reader.table(
        Table(
            "naive_audit", "Task-resampling audit of the naive certificate", columns, tuple(rows)
        ),
        about,
    )


def _exceedance(audit: Mapping[str, Any]) -> str:
    return "nothing certified" if audit["exceedance"] is None else number(audit["exceedance"])


def seeds_table(reader: Reader) -> StudyTable:
    """How often each certificate was issued and valid over split seeds."""
    columns = (
        "corpus",
        "side",
        "α",
        "procedure",
        "certified",
        "mean coverage",
        "sd",
        "valid on TEST",
        "issued, above α",
        "above α beyond chance",
        "mean error",
    )
    rows = []
    for corpus, document in reader.of_corpora("seeds/{}.json", "seeds"):
        for found in document["frequencies"]:
            shares = (number(found["coverage"]), number(found["coverage_sd"]))
            valid = f"{found['valid']} of {found['certified']}" if found["certified"] else DASH
            beyond = f"{found['beyond_chance']}" if found["certified"] else DASH
            place = (corpus, found["side"], f"{found['alpha']:g}", found["procedure"])
            above = f"{found['certified'] - found['valid']} of {found['seeds']}"
            rows.append(
                (
                    *place,
                    f"{found['certified']} of {found['seeds']}",
                    *shares,
                    valid,
                    above,
                    beyond,
                    number(found["error"]),
                )
            )
    about = (
        "The paper has one split seed. Here each seed splits, trains the lexical judge, certifies on CAL and reads TEST anew. Valid: the error on TEST "
        "is at most α; TEST is finite, so a certificate whose true error is just below α is above it on about half of the TEST splits. Beyond chance: the "
        "audit's task-level bound is above α. δ bounds what is issued and above α among all draws, not among those that were issued. Seeds share runs, so the "
        "counts are not independent trials."
    )
    return reader.table(Table("seeds", "Validity over split seeds", columns, tuple(rows)), about)


def simulation_table(reader: Reader) -> StudyTable:
    """Violation and coverage where the truth is known, beside the paper's."""
    columns = (
        "design",
        "G",
        "ρ",
        "procedure",
        "violation",
        "its upper bound",
        "coverage",
        "paper's violation",
        "paper's coverage",
    )
    rows: list[tuple[str, ...]] = []
    document = reader.document("study/simulation.json")
    if document is None:
        reader.lacks("all", "simulation")
    for cell in document["cells"] if document else ():
        for found in cell["procedures"]:
            printed = found["paper"] or {}
            papers = (printed.get("violation_conditional"), printed.get("coverage"))
            place = (
                cell["design"],
                str(cell["tasks"]),
                DASH if cell["rho"] is None else f"{cell['rho']:g}",
                found["procedure"],
            )
            rows.append(
                (
                    *place,
                    number(found["violation"]),
                    number(found["violation_upper"]),
                    number(found["coverage"]),
                    *numbers(papers),
                )
            )
    trials = f"{document['trials']} trials a design (the paper: 300)" if document else "no trial"
    about = (
        f"Violation: share of all trials whose true error is above α = .1, with its upper 95 % bound; {trials}. In the designs called fooled a few "
        "tasks are wrong in every run."
    )
    return reader.table(
        Table("simulation", "Simulation where the truth is known", columns, tuple(rows)), about
    )
