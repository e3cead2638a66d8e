"""What ``certify corpus show`` prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets.cli.output import console, show_table

if TYPE_CHECKING:
    from certify_assets.corpora.report import CorpusReport

__all__ = ["show_report"]


def show_report(report: CorpusReport, page: Path | None) -> None:
    """Print the tables of a corpus's page.

    Parameters
    ----------
    report : CorpusReport
    page : Path or None
        Where the page was drawn.
    """
    from certify_assets.reports import corpus_tables
    from certify_assets.reports.corpus_page import standing

    name, profile = report.config.name, report.profile
    _, heading, sentences = standing(report)
    facts = [
        ("domain", str(report.domain)),
        *corpus_tables.profile_facts(profile),
        *corpus_tables.flip_facts(profile["flips"]),
        *corpus_tables.label_rows(report.imported, profile["flips"]),
        *corpus_tables.length_facts(profile["lengths"]),
        ("runs that read like an earlier one", str(profile["duplicates"])),
        ("groups of tasks with one instruction", str(len(profile["same_instruction"]))),
    ]
    show_table(f"Corpus {name}", ["figure", "value"], facts)
    if profile["splits"]:
        show_table(
            "Splits",
            ["split", "tasks", "runs", "π", "ICC", "DEFF", "n_eff"],
            corpus_tables.split_rows(profile),
        )
    agents = [
        [row.name, row.runs, row.read, row.success_rate]
        for row in corpus_tables.agent_rows(profile, report.controls)
    ]
    show_table(
        "Agents", ["agent", "runs", "labelled, outside TEST", "success rate of those"], agents
    )
    rows = [
        [row.name, row.auroc, row.interval, row.threshold, "over" if row.over else ""]
        for row in corpus_tables.control_rows(report.controls)
    ]
    show_table(
        "Leak controls, outside TEST",
        ["control", "AUROC", "95 % over tasks", "threshold", ""],
        rows,
    )
    if profile["dropped"]:
        dropped = [
            [reason, str(number), report.imported["examples"].get(reason, "")]
            for reason, number in profile["dropped"].items()
        ]
        show_table("Left out", ["reason", "records", "the first"], dropped)
    if report.imported["notes"]:
        notes = [[note, str(number)] for note, number in report.imported["notes"].items()]
        show_table("Left out of records that were kept", ["what", "times"], notes)
    for sentence in (f"{heading}.", *sentences, *([f"Page: {page}"] if page else [])):
        console().print(sentence, markup=False)
