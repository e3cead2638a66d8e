"""The page of a corpus: what it is worth before any judge has read it, and what else than the run speaks of its outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from certify_assets._version import __version__
from certify_assets.reports.corpus_tables import (
    agent_rows,
    control_rows,
    flip_facts,
    gate_rows,
    label_rows,
    length_facts,
    phrase_rows,
    profile_facts,
    split_rows,
)
from certify_assets.reports.data_docs import data_docs_key
from certify_assets.reports.heatmap import outcome_heatmap
from certify_assets.reports.histogram import outcome_histogram
from certify_assets.reports.templating import environment
from certify_assets.reports.wording import count, counted, percent, rate

if TYPE_CHECKING:
    from certify_assets.corpora.report import CorpusReport
    from certify_assets.storage.store import Store

__all__ = ["check_table", "corpus_markdown", "render_corpus", "standing", "write_corpus_page"]

_INLINE = 1000
_MOST = 20


def write_corpus_page(store: Store, report: CorpusReport) -> str:
    """Store a corpus's page, with a link to its Data Docs where there are any; return where it is."""
    corpus = report.config.name
    docs = "data_docs/index.html" if store.exists(data_docs_key(corpus)) else None
    store.write_bytes(
        f"corpora/{corpus}/page.html", render_corpus(report, data_docs=docs).encode("utf-8")
    )
    return store.locate(f"corpora/{corpus}/page.html")


def render_corpus(report: CorpusReport, *, data_docs: str | None = None) -> str:
    """Render the page.

    Parameters
    ----------
    report : CorpusReport
    data_docs : str, optional
        Relative link to the corpus's Data Docs.

    Returns
    -------
    str
        HTML; the same text for the same report.
    """
    profile, controls = report.profile, report.controls
    state, heading, sentences = standing(report)
    view = {
        "version": __version__,
        "title": report.config.name,
        "about": f"{counted(profile['trajectories'], 'labelled run')} of {counted(profile['tasks'], 'task')}, {percent(profile['success_rate'])} "
        f"successful, task ICC {rate(profile['icc'], 2)}; read from the format {report.imported['format']}",
        "state": state,
        "heading": heading,
        "sentences": sentences,
        "data_docs": data_docs,
        "facts": [("domain", str(report.domain)), *profile_facts(profile)],
        "gates": gate_rows(profile),
        "splits": split_rows(profile),
        "unsplit": report.unsplit,
        "manifest": report.manifest,
        "controls": control_rows(controls),
        "accepted": controls["accepted"],
        "agents": agent_rows(profile, controls),
        "phrases": phrase_rows(controls),
        "figures": _figures(controls),
        "flips": flip_facts(profile["flips"]),
        "labels": label_rows(report.imported, profile["flips"]),
        "lengths": length_facts(profile["lengths"]),
        "dropped": [
            (reason, count(number), report.imported["examples"].get(reason, ""))
            for reason, number in profile["dropped"].items()
        ],
        "notes": [(note, count(number)) for note, number in report.imported["notes"].items()],
        "duplicates": f"{counted(profile['duplicates'], 'run')} ({percent(profile['duplicate_share'])})",
        "same": profile["same_instruction"][:_MOST],
        "same_more": max(0, len(profile["same_instruction"]) - _MOST),
        "files": sorted(report.imported["files"].items())[:_MOST],
        "files_more": max(0, len(report.imported["files"]) - _MOST),
        **_map(report),
    }
    return environment().get_template("corpus.html").render(**view)


def standing(report: CorpusReport) -> tuple[str, str, list[str]]:
    """Return look, heading and sentences of the banner: whether a judge may be certified on this corpus."""
    controls = report.controls
    gates = [gate for gate in report.profile["gates"] if gate["split"] != "test"]
    possible = [gate for gate in gates if gate["possible"]]
    sentences = [f"α = {gate['alpha']:g}: {gate['reason']}" for gate in gates]
    if report.unsplit:
        sentences.append(f"It cannot be split: {report.unsplit}")
    if controls["over"]:
        names = ", ".join(controls["over"])
        leak = f"The outcome can be told without reading the run, by {names}"
        if not controls["passed"]:
            return (
                "failed",
                "Blocked by a structural leak",
                [f"{leak}; nobody accepted that.", *sentences],
            )
        return (
            "warn",
            "Open, with an accepted leak",
            [f"{leak}. Accepted: {controls['accepted']}", *sentences],
        )
    if report.unsplit or not possible:
        return "nothing", "No certificate is possible by arithmetic", sentences
    return "certified", "A certificate is possible", sentences


def corpus_markdown(report: CorpusReport) -> str:
    """Return the asset's block: under 1,000 characters of Markdown, so that it is shown in line. No text of the corpus enters it."""
    profile, flips = report.profile, report.profile["flips"]
    lines = [f"**{standing(report)[1]}**", ""]
    lines += [
        "| runs | tasks | π | ICC | n_eff | flips: cells / tasks |",
        "|---|---|---|---|---|---|",
    ]
    numbers = [
        count(profile["trajectories"]),
        count(profile["tasks"]),
        rate(profile["success_rate"]),
        rate(profile["icc"]),
    ]
    lines.append(
        f"| {' | '.join([*numbers, count(profile['n_eff'])])} | {percent(flips['cell_rate'])} / {percent(flips['task_rate'])} |"
    )
    lines += ["", "| control | AUROC | 95 % | threshold |", "|---|---|---|---|"]
    shown = sorted(control_rows(report.controls), key=lambda row: not row.over)[:6]
    lines += [f"| {row.name} | {row.auroc} | {row.interval} | {row.threshold} |" for row in shown]
    block = "\n".join(lines) + "\n"
    if len(block) >= _INLINE:
        raise RuntimeError(
            f"the block of the corpus has {len(block)} characters; it must stay under {_INLINE} to be shown inline"
        )
    return block


def _figures(controls: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    evidence = controls["evidence"]
    return [
        (
            "Text length by outcome",
            outcome_histogram(evidence["length"], "characters of the uncut text", name="length"),
            _direction(
                "length",
                controls["length_auroc"],
                "longer" if controls["longer_succeeds"] else "shorter",
            ),
        ),
        (
            "Number of steps by outcome",
            outcome_histogram(evidence["steps"], "steps", name="steps"),
            _direction(
                "steps",
                controls["step_auroc"],
                "with more steps" if controls["more_steps_succeed"] else "with fewer steps",
            ),
        ),
    ]


def _direction(name: str, auroc: float | None, words: str) -> str:
    if auroc is None:
        return f"Nothing to measure {name} by: all outcomes are equal."
    return f"Where a success and a failure are drawn, the one {words} is the success in {percent(auroc)} of pairs. TEST is left out."


def _map(report: CorpusReport) -> dict[str, Any]:
    runs = report.runs
    if runs.empty:
        return {"map": "", "map_caption": "No labelled run outside TEST."}
    drawn = outcome_heatmap(
        runs["task_id"].tolist(),
        runs["agent"].tolist(),
        runs["attempt"].tolist(),
        runs["outcome"].to_numpy(dtype="int8"),
        name="map",
    )
    part = (
        ""
        if drawn.shown == drawn.tasks
        else f" An even sample of {count(drawn.shown)} tasks is drawn."
    )
    left = (
        ""
        if report.manifest is None
        else f" The {len(report.manifest.tasks['test'])} tasks of TEST are left out: their outcomes are not looked at."
    )
    return {
        "map": drawn.markup,
        "map_caption": f"One row a task, the easiest on top; one cell a run, by agent and attempt. Rows of one colour are tasks that always end alike."
        f"{part}{left}",
    }


def check_table(controls: Mapping[str, Any]) -> str:
    """Return the controls as a Markdown table for the metadata of their check."""
    lines = ["| control | AUROC | 95 % over tasks | threshold | |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.name} | {row.auroc} | {row.interval} | {row.threshold} | {'at or over' if row.over else ''} |"
        for row in control_rows(controls)
    ]
    return "\n".join(lines)
