"""The figures of a certificate page with their captions: which arrays go where, and what to read from each picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.reports.explain import spent
from certify_assets.reports.figures import (
    error_histogram,
    risk_coverage,
    score_distribution,
    tail_curve,
)
from certify_assets.reports.heatmap import task_heatmap
from certify_assets.reports.source import certificate_settings
from certify_assets.reports.wording import count, done, log_odds, percent, rate, small

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from certify_assets.certificates import Certificate, ThresholdCurve
    from certify_assets.reports.source import PageSource, ScoreTable

__all__ = ["Panel", "build_panels", "curve_of"]


@dataclass(frozen=True)
class Panel:
    """One figure: heading, picture, what it says, and how it stands: ``half`` a row, ``lead`` (caption at its side) or ``wide``."""

    name: str
    heading: str
    markup: str
    caption: str
    layout: str = "half"


@dataclass(frozen=True)
class _Focus:
    """The threshold that the histograms speak of: the certified one, or the one that came nearest."""

    threshold: float
    words: str


def curve_of(certificate: Certificate, table: ScoreTable) -> ThresholdCurve:
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
        f"The certified point is the farthest one at which the bound stays within {percent(certificate.alpha)} and the guard agrees."
        if point
        else f"No threshold of the grid keeps the bound within {percent(certificate.alpha)} and satisfies the guard."
    )
    return Panel(
        f"{name}risk",
        f"Error against share decided, {certificate.side} side",
        risk_coverage(
            curve, alpha=certificate.alpha, point=point, name=f"{name}risk", large=layout == "lead"
        ),
        f"Left to right, the judge decides more runs. The solid line is how often it was wrong on {where}; the dashed line is what the error could be once "
        "runs of one task are resampled together; the dotted line pretends that all runs are independent, and is there for comparison only. "
        + told,
        layout,
    )


def _tail_panel(certificate: Certificate, curve: ThresholdCurve, name: str) -> Panel:
    from certify_assets.certificates.guard import FLOOR_SHARE

    guarded = certificate.parameters["guard"] == "floor"
    guard_level = certificate.delta / certificate.candidates / FLOOR_SHARE if guarded else None
    guard = (
        f" The guard asks how likely it is to see no error at all if the true rate were α and errors came in whole tasks; it allows {small(guard_level)}."
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
        f"Share of task resamples in which the error exceeds the budget. A threshold passes at {small(certificate.level)}: δ = {rate(certificate.delta, 2)} "
        f"{spent(certificate)}.{guard}",
    )


def _score_panel(source: PageSource) -> Panel:
    thresholds = {c.side: c.threshold for c in source.sides if c.threshold is not None}
    told = "; ".join(
        f"{done(side)} {'at or below' if side == 'reject' else 'at or above'} {log_odds(value, source.score_scale)}"
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
            else "No threshold is certified, so every run goes to a person."
        ),
    )


def _histogram_panel(
    certificate: Certificate, table: ScoreTable, focus: _Focus, *, split: str, name: str
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
        f"Error at {focus.words} in {count(errors.size)} resamples of {split}'s tasks; {percent(above, 2)} lie above {percent(certificate.alpha)} "
        f"(with ever more resamples: a share of {small(limit.exceedance)}). {_weight(certificate, split)}"
    )
    return Panel(name, heading, markup, caption)


def _weight(certificate: Certificate, split: str) -> str:
    if not certificate.certified:
        return "It is not certified, so nothing is decided by it."
    if split != "TEST":
        return "The threshold was chosen on these very tasks, so this passes by construction: it shows the spread and is no independent evidence."
    return "These tasks had no part in choosing the threshold: this is the independent check."


def _observed(table: ScoreTable, threshold: float, side: str) -> float | None:
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
        f"A cross is a wrong decision: {count(drawn.wrong_tasks)} of {count(drawn.tasks)} tasks hold one."
        if source.headline.certified
        else ""
    )
    return Panel(
        "map",
        f"Every run of {source.evidence}, by task",
        drawn.markup,
        "One row is a task, the best success rate on top; one cell is a run, its lowest score left. Rows of one colour are why runs of a task "
        f"count together: they succeed and fail together. {wrong}{sample}",
        layout="wide",
    )
