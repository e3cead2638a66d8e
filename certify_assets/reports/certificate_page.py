"""The certificate page with its figures, and the index of pages: one HTML file each, no script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets._version import __version__
from certify_assets.evaluation.recalibration import TABLE_COLUMNS, RecalibrationReport
from certify_assets.reports.arms import arm_cells
from certify_assets.reports.certificate_source import (
    PageScores,
    PageSource,
    as_mapping,
    certificate_settings,
)
from certify_assets.reports.certificate_text import (
    AUDIT_WORDS,
    FindingRow,
    arithmetic,
    audit_rows,
    banner,
    control_bars,
    corpus_facts,
    decision_rows,
    explain,
    finding_rows,
    lineage_rows,
    procedure_table,
    procedure_words,
    promise_notes,
    promises,
    spent,
)
from certify_assets.reports.charts import task_heatmap
from certify_assets.reports.figures import (
    Panel,
    error_histogram,
    risk_coverage,
    score_distribution,
    tail_curve,
)
from certify_assets.reports.gates import gate_marks
from certify_assets.reports.wording import (
    count,
    counted,
    done,
    environment,
    log_odds,
    percent,
    rate,
    small,
)

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from certify_assets.certificates import Certificate, ThresholdCurve

_STALE = (
    "The stored table is of other scores than the ones of this page; run `certify judge "
    "recalibrate` again."
)


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
        Any number of sides, budgets and procedures, all of one score table. ``guarded_taskboot``
        leads where it is present.
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
        Corpus profile and leak checks; keys that end in ``_auroc`` become bars.
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
        cal=PageScores.from_frame(scores_frame),
        test=None if audit_frame is None else PageScores.from_frame(audit_frame),
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
        "about": (
            f"{_rows(source)}, {percent(main.success_rate)} successful, task ICC "
            f"{rate(main.icc, 2)}"
        ),
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
        "lamps": gate_marks(source),
        "evidence": source.evidence,
        "controls": control_bars(source),
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
    """Split findings into those of the deployed procedure and of the others."""
    groups = [(aside, [f for f in findings if f.deployed != aside]) for aside in (False, True)]
    return [(aside, group) for aside, group in groups if group]


def _document(certificate: Certificate) -> tuple[str, str]:
    name = (
        f"Certificate: {procedure_words(certificate.procedure)}, {certificate.side}, α = "
        f"{percent(certificate.alpha)}"
    )
    return name, json.dumps(certificate.to_dict(), indent=2, ensure_ascii=False)


def render_index(entries: Sequence[Mapping[str, Any]], *, title: str = "Certificates") -> str:
    """Render the list of certificate pages, corpora by judges.

    Parameters
    ----------
    entries : sequence of mappings
        Each with ``title`` and ``href`` (a relative link), and ``certificate`` (a Certificate) or
        the keys ``certified``, ``side``, ``alpha``, ``delta`` and ``coverage``; optionally
        ``audit`` (mapping or Audit) and ``note``.
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
            f"the link {href!r} of {entry['title']!r} is not relative; give the page's path "
            "below the index."
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
        "budget": (
            f"{facts['side']}, error at most {percent(facts['alpha'])} with "
            f"{percent(1 - facts['delta'])} confidence"
        ),
        "verdict": str(audit.get("verdict", "NONE")) if certified else "",
        "realized": percent(audit.get("realized_error"), 2) if audit else "",
    }


@dataclass(frozen=True)
class _Focus:
    """The threshold of the histograms: the certified one, or the one that came nearest."""

    threshold: float
    words: str


def curve_of(certificate: Certificate, table: PageScores) -> ThresholdCurve:
    """Recompute the grid behind a certificate from its score table."""
    from certify_assets.certificates import threshold_curve

    return threshold_curve(
        table.scores, table.outcomes, table.tasks, **certificate_settings(certificate)
    )


def covered_by(scores: NDArray[np.float64], threshold: float, side: str) -> NDArray[np.bool_]:
    """Return which scores a threshold decides; an unscored run is never decided."""
    return scores <= threshold if side == "reject" else scores >= threshold


def build_panels(source: PageSource) -> list[Panel]:
    """Draw every figure of the page, in reading order."""
    panels: list[Panel] = []
    for number, certificate in enumerate(source.sides):
        panels += _side_panels(source, certificate, f"f{number}")
    return [*panels, _heatmap_panel(source)]


def _side_panels(source: PageSource, certificate: Certificate, name: str) -> list[Panel]:
    curve = curve_of(certificate, source.cal)
    focus = _focus(certificate, curve)
    first = certificate is source.headline
    panels = [
        _risk_panel(
            certificate, curve, name, where=source.evidence, layout="lead" if first else "half"
        ),
        _tail_panel(certificate, curve, name),
    ]
    if first:
        panels.append(_score_panel(source))
    if focus is None:
        return panels
    spread = _histogram_panel(
        certificate, source.cal, focus, split=source.evidence, name=f"{name}cal"
    )
    if source.test is None or not np.isfinite(source.test.scores).any():
        return [*panels, replace(spread, layout="lead")]
    return [
        *panels,
        spread,
        _histogram_panel(certificate, source.test, focus, split="TEST", name=f"{name}test"),
    ]


def _focus(certificate: Certificate, curve: ThresholdCurve) -> _Focus | None:
    if certificate.threshold is not None:
        return _Focus(certificate.threshold, "the certified threshold")
    usable = np.flatnonzero(curve.coverage > 0)
    if usable.size == 0:
        return None
    # the widest of those that came equally near
    nearest = int(usable[curve.tail[usable] == curve.tail[usable].min()][-1])
    return _Focus(
        float(curve.thresholds[nearest]), "the threshold that came nearest to a certificate"
    )


def _risk_panel(
    certificate: Certificate, curve: ThresholdCurve, name: str, *, where: str, layout: str
) -> Panel:
    point = None
    if certificate.certified and certificate.selective_error is not None:
        point = (certificate.coverage, certificate.selective_error)
    told = (
        (
            "The certified point is the farthest one at which the bound stays within "
            f"{percent(certificate.alpha)} and the guard agrees."
        )
        if point
        else (
            f"No threshold of the grid keeps the bound within {percent(certificate.alpha)} and "
            "satisfies the guard."
        )
    )
    return Panel(
        f"{name}risk",
        f"Error against share decided, {certificate.side} side",
        risk_coverage(
            curve, alpha=certificate.alpha, point=point, name=f"{name}risk", large=layout == "lead"
        ),
        "Left to right, the judge decides more runs. The solid line is how often it was "
        f"wrong on {where}; the dashed line is what the error could be once "
        "runs of one task are resampled together; the dotted line pretends that all runs are "
        "independent, and is there for comparison only. " + told,
        layout,
    )


def _tail_panel(certificate: Certificate, curve: ThresholdCurve, name: str) -> Panel:
    from certify_assets.certificates.guard import FLOOR_SHARE

    guarded = certificate.parameters["guard"] == "floor"
    guard_level = certificate.delta / certificate.candidates / FLOOR_SHARE if guarded else None
    guard = (
        (
            " The guard asks how likely it is to see no error at all if the true rate were α and "
            f"errors came in whole tasks; it allows {small(guard_level)}."
        )
        if guarded
        else ""
    )
    grid = int(certificate.parameters["grid"])
    return Panel(
        f"{name}tail",
        f"The test of all {grid} thresholds, {certificate.side} side",
        tail_curve(
            curve,
            level=certificate.level,
            guard_level=guard_level,
            point=certificate.coverage if certificate.certified else None,
            name=f"{name}tail",
        ),
        "Share of task resamples in which the error exceeds the budget. A threshold passes "
        f"at {small(certificate.level)}: δ = {rate(certificate.delta, 2)} "
        f"{spent(certificate)}.{guard}",
    )


def _score_panel(source: PageSource) -> Panel:
    thresholds = {c.side: c.threshold for c in source.sides if c.threshold is not None}
    told = "; ".join(
        (
            f"{done(side)} {'at or below' if side == 'reject' else 'at or above'} "
            f"{log_odds(value, source.score_scale)}"
        )
        for side, value in sorted(thresholds.items())
    )
    return Panel(
        "scores",
        "Scores by outcome",
        score_distribution(
            source.cal.scores,
            source.cal.outcomes,
            thresholds=thresholds,
            scale=source.score_scale,
            name="scores",
        ),
        "Successes stand up, failures hang down (hatched). A judge that knows keeps the two apart. "
        + (
            f"Runs are {told}."
            if told
            else "No threshold is certified, so every run goes to human review."
        ),
    )


def _histogram_panel(
    certificate: Certificate, table: PageScores, focus: _Focus, *, split: str, name: str
) -> Panel:
    from certify_assets.certificates import bootstrap_errors, resample_audit

    errors = bootstrap_errors(
        table.scores,
        table.outcomes,
        table.tasks,
        threshold=focus.threshold,
        side=certificate.side,
        draws=certificate.parameters["draws"],
        seed=certificate.seed,
    )
    limit = resample_audit(
        table.scores,
        table.outcomes,
        table.tasks,
        threshold=focus.threshold,
        side=certificate.side,
        alpha=certificate.alpha,
        delta=certificate.delta,
        draws="exact",
    )
    observed = _observed(table, focus.threshold, certificate.side)
    above = float(np.mean(errors > certificate.alpha))
    markup = error_histogram(
        errors,
        alpha=certificate.alpha,
        side=certificate.side,
        observed=observed,
        where=split,
        name=name,
    )
    heading = f"{split[0].upper()}{split[1:]} resampled by task, {certificate.side} side"
    caption = (
        f"Error at {focus.words} in {count(errors.size)} resamples of {split}'s tasks; "
        f"{percent(above, 2)} lie above {percent(certificate.alpha)} "
        f"(with ever more resamples: a share of {small(limit.exceedance)}). "
        f"{_weight(certificate, split)}"
    )
    return Panel(name, heading, markup, caption)


def _weight(certificate: Certificate, split: str) -> str:
    if not certificate.certified:
        return "It is not certified, so nothing is decided by it."
    if split != "TEST":
        return (
            "The threshold was chosen on these very tasks, so this passes by construction: it "
            "shows the spread and is no independent evidence."
        )
    return "These tasks had no part in choosing the threshold: this is the independent check."


def _observed(table: PageScores, threshold: float, side: str) -> float | None:
    covered = covered_by(table.scores, threshold, side)
    if not covered.any():
        return None
    success = float(table.outcomes[covered].mean())
    return success if side == "reject" else 1 - success


def _heatmap_panel(source: PageSource) -> Panel:
    table = source.cal
    drawn = task_heatmap(table.tasks, table.scores, table.outcomes, source.decisions, name="map")
    sample = (
        f" {count(drawn.shown)} of {count(drawn.tasks)} tasks are drawn, evenly spaced."
        if drawn.shown < drawn.tasks
        else ""
    )
    wrong = (
        (
            f"A cross is a wrong decision: {count(drawn.wrong_tasks)} of {count(drawn.tasks)} "
            "tasks hold one."
        )
        if source.headline.certified
        else ""
    )
    return Panel(
        "map",
        f"Every run of {source.evidence}, by task",
        drawn.markup,
        "One row is a task, the best success rate on top; one cell is a run, its lowest score "
        "left. Rows of one colour are why runs of a task "
        f"count together: they succeed and fail together. {wrong}{sample}",
        layout="wide",
    )


@dataclass(frozen=True)
class RecalibrationTable:
    """A table with its sentences; ``stale`` replaces both where the scores have changed since."""

    caption: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()
    verdict: str = ""
    stale: str = ""


def recalibration_table(
    report: RecalibrationReport, hashes: Mapping[str, str]
) -> RecalibrationTable:
    """Return the table of a stored recalibration, or that it is stale."""
    caption = f"Fitted on {report.rows} runs of {report.fitted_on.upper()}, never on CAL or TEST."
    if any(report.hashes.get(name) != value for name, value in hashes.items()):
        return RecalibrationTable(caption, stale=_STALE)
    rows = tuple(tuple(row) for row in report.table_rows())
    return RecalibrationTable(
        caption, tuple(TABLE_COLUMNS), rows, tuple(report.sentences()), report.verdict
    )
