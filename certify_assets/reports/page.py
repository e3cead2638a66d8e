"""The certificate page and the index of pages: one HTML file each, nothing loaded, nothing run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from certify_assets._version import __version__
from certify_assets.reports.arms import arm_cells
from certify_assets.reports.explain import arithmetic, explain, promise_notes, promises
from certify_assets.reports.lamps import gate_lamps
from certify_assets.reports.panels import build_panels
from certify_assets.reports.source import PageSource, ScoreTable, as_mapping
from certify_assets.reports.tables import (
    FindingRow,
    control_rows,
    corpus_facts,
    finding_rows,
    lineage_rows,
    procedure_table,
)
from certify_assets.reports.templating import environment
from certify_assets.reports.verdict import (
    AUDIT_WORDS,
    audit_rows,
    banner,
    decision_rows,
    procedure_words,
)
from certify_assets.reports.wording import count, counted, percent, rate

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate
    from certify_assets.reports.recalibration import RecalibrationTable

__all__ = ["render_index", "render_page"]


def render_page(
    certificates: Sequence[Certificate],
    scores_frame: pd.DataFrame,
    *,
    title: str,
    audits: Sequence[Any] | None = None,
    audit_frame: pd.DataFrame | None = None,
    lineage: Mapping[str, Any] | None = None,
    profile: Any = None,
    controls: Any = None,
    minutes_per_review: float = 6.0,
    score_scale: str = "log-odds",
    certificate_file: str = "CERTIFICATE.json",
    scores_file: str = "SCORES",
    arms: Mapping[str, Any] | None = None,
    recalibration: RecalibrationTable | None = None,
) -> str:
    """Render the page on which a release is decided.

    Parameters
    ----------
    certificates : sequence of Certificate
        Any number of sides, budgets and procedures, all of one score table. ``guarded_taskboot`` leads where it is present.
    scores_frame : DataFrame
        The CAL scores: task_id, score, outcome, and optionally trajectory_id and agent.
    title : str
        Corpus and judge, as text.
    audits : sequence of Audit or dict, optional
        Audits on TEST, matched to certificates by ``certificate_sha256``.
    audit_frame : DataFrame, optional
        The TEST scores, for the resampling figure.
    lineage : mapping, optional
        Further names and hashes, beside the certificate's own provenance.
    profile, controls : mapping or dataclass, optional
        Corpus profile and leak controls; keys that end in ``_auroc`` become bars.
    minutes_per_review : float
        What a review costs a person, in minutes.
    score_scale : str
        ``log-odds``, or another word when scores are on a scale of their own.
    certificate_file, scores_file : str
        Names in the command that verifies the page.
    arms : mapping, optional
        The audit of the arms that the judge was chosen among (`evaluation.arms_audit`).
    recalibration : RecalibrationTable, optional
        What recalibration does to the certificates.

    Returns
    -------
    str
        HTML; the same text for the same inputs.

    Raises
    ------
    InputError
        If there is no certificate or the score table lacks a column.
    """
    source = PageSource(
        title=title,
        certificates=list(certificates),
        cal=ScoreTable.from_frame(scores_frame),
        test=None if audit_frame is None else ScoreTable.from_frame(audit_frame),
        audits=[as_mapping(audit) for audit in audits or ()],
        lineage=as_mapping(lineage),
        profile=as_mapping(profile),
        controls=as_mapping(controls),
        minutes_per_review=minutes_per_review,
        score_scale=score_scale,
        arms=as_mapping(arms),
    )
    given = {
        "certificate_file": certificate_file,
        "scores_file": scores_file,
        "recalibration": recalibration,
    }
    return environment().get_template("certificate.html").render(**_view(source), **given)


def _view(source: PageSource) -> dict[str, Any]:
    main = source.headline
    reasons = explain(source)
    return {
        "version": __version__,
        "title": source.title,
        "about": f"{_rows(source)}, {percent(main.success_rate)} successful, task ICC {rate(main.icc, 2)}",
        "banner": banner(source, reasons),
        "procedure": procedure_words(main.procedure),
        "trust": percent(1 - main.delta),
        "two_rows": percent(1 - 2 * main.delta),
        "log_odds": source.score_scale == "log-odds",
        "rows": decision_rows(source),
        "audits": audit_rows(source),
        "promises": promises(source),
        "promise_notes": promise_notes(source),
        "reasons": reasons,
        "facts": corpus_facts(source),
        "gate": arithmetic(source),
        "lamps": gate_lamps(source),
        "evidence": source.evidence,
        "controls": control_rows(source),
        "panels": build_panels(source),
        "procedures": procedure_table(source),
        "findings": _grouped(finding_rows(source)),
        "selection": main.selection if main.candidates > 1 else None,
        "lineage": lineage_rows(source),
        "documents": [_document(c) for c in source.deployed],
        "tasks": count(main.tasks),
        "candidates": main.candidates,
        "assumptions": main.assumptions,
        "headline_sha256": main.sha256,
        "arms": arm_cells(source.arms) if source.arms else [],
    }


def _rows(source: PageSource) -> str:
    main = source.headline
    where = "" if source.evidence == "CAL" else f" in {source.evidence}"
    return f"{counted(main.trajectories, 'run')} of {counted(main.tasks, 'task')}{where}"


def _grouped(findings: list[FindingRow]) -> list[tuple[bool, list[FindingRow]]]:
    """Split findings into those of the deployed procedure (first) and those of the others, leaving out an empty group."""
    groups = [(aside, [f for f in findings if f.deployed != aside]) for aside in (False, True)]
    return [(aside, group) for aside, group in groups if group]


def _document(certificate: Certificate) -> tuple[str, str]:
    name = f"Certificate: {procedure_words(certificate.procedure)}, {certificate.side}, α = {percent(certificate.alpha)}"
    return name, json.dumps(certificate.to_dict(), indent=2, ensure_ascii=False)


def render_index(entries: Sequence[Mapping[str, Any]], *, title: str = "Certificates") -> str:
    """Render the list of certificate pages, corpora by judges.

    Parameters
    ----------
    entries : sequence of mappings
        Each with ``title`` and ``href`` (a relative link), and ``certificate`` (a Certificate) or the keys ``certified``, ``side``,
        ``alpha``, ``delta`` and ``coverage``; optionally ``audit`` (mapping or Audit) and ``note``.
    title : str
        Heading of the index.

    Returns
    -------
    str
        HTML; the same text for the same inputs.

    Raises
    ------
    InputError
        If an entry's link leads outside the folder of the index.
    """
    return (
        environment()
        .get_template("index.html")
        .render(
            title=title,
            version=__version__,
            entries=[_entry(dict(e)) for e in entries],
            audit_words=AUDIT_WORDS,
        )
    )


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    from certify_assets.errors import InputError

    href = str(entry["href"])
    if ":" in href or href.startswith(("/", "\\")):
        raise InputError(
            f"the link {href!r} of {entry['title']!r} is not relative; give the page's path below the index."
        )
    facts = {
        **as_mapping(entry.get("certificate")),
        **{k: v for k, v in entry.items() if k != "certificate"},
    }
    audit = as_mapping(entry.get("audit"))
    certified = bool(facts["certified"])
    return {
        "title": str(entry["title"]),
        "href": href,
        "note": str(entry.get("note") or ""),
        "certified": certified,
        "side": facts["side"],
        "share": percent(facts["coverage"]) if certified else "nothing",
        "budget": f"{facts['side']}, error at most {percent(facts['alpha'])} with {percent(1 - facts['delta'])} confidence",
        "verdict": str(audit.get("verdict", "NONE")) if certified else "",
        "realized": percent(audit.get("realized_error"), 2) if audit else "",
    }
