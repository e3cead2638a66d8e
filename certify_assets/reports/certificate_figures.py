"""The figures of a certificate page, with their captions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from certify_assets.certificates.settings import CALIBRATED, PATH
from certify_assets.reports.charts import task_heatmap
from certify_assets.reports.figures import risk_coverage, score_distribution
from certify_assets.reports.page import Panel
from certify_assets.reports.wording import count, done, log_odds, percent
from certify_assets.words import WORDS

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate
    from certify_assets.reports.certificate_source import PageSource


def build_panels(source: PageSource) -> list[Panel]:
    """Draw every figure of the page, in reading order."""
    first, *others = source.sides
    # a single side has its scores next to it
    panels = [_risk_panel(source, first, "f0", "lead" if others else "half"), _score_panel(source)]
    panels += [_risk_panel(source, other, f"f{n}", "half") for n, other in enumerate(others, 1)]
    return [*panels, _heatmap_panel(source)]


def _risk_panel(source: PageSource, certificate: Certificate, name: str, layout: str) -> Panel:
    from certify_assets.certificates import threshold_curve

    columns, settings = source.recomputing(certificate)
    curve = threshold_curve(*columns, **settings)
    point = None
    if certificate.certified and certificate.selective_error is not None:
        point = (certificate.coverage, certificate.selective_error)
    multiplicity, budget = certificate.settings["multiplicity"], percent(certificate.alpha)
    if multiplicity == PATH:
        # the proof has limits of errors, and no bound of the error at a threshold
        lines = f"on {source.evidence}; a run without a clear label counts as wrong. "
        ending = "The procedure passes no threshold."
        if point:
            ending = "The certified point is the farthest one that the procedure passes."
    else:
        worst = ", with one more task that is wrong in every run" * (multiplicity == CALIBRATED)
        lines = (
            f"on {source.evidence}. The dashed line is what the error could be once runs of one "
            f"task are resampled together{worst}. "
        )
        guard = " and satisfies the guard" * (certificate.settings["guard"] != "none")
        ending = f"No threshold of the grid keeps the bound within {budget}{guard}."
        if point:
            ending = (
                f"The certified point is the farthest whose bound stays within {budget}{guard}."
            )
    heading = f"Error against share decided, {WORDS[certificate.side]}"
    drawn = risk_coverage(
        curve,
        alpha=certificate.alpha,
        point=point,
        name=f"{name}risk",
        label=heading,
        large=layout == "lead",
        bounded=multiplicity != PATH,
    )
    caption = f"The solid line is how often the judge was wrong {lines}{ending}"
    return Panel(f"{name}risk", heading, drawn, caption, layout)


def _score_panel(source: PageSource) -> Panel:
    thresholds = {c.side: c.threshold for c in source.sides if c.threshold is not None}
    where = {"reject": "at or below", "release": "at or above"}
    regions = "; ".join(
        f"{done(side)} {where[side]} {log_odds(value, source.score_scale)}"
        for side, value in sorted(thresholds.items())
    )
    drawn = score_distribution(
        source.cal["score"].to_numpy(),
        source.cal["outcome"].to_numpy(),
        thresholds=thresholds,
        scale=source.score_scale,
        name="scores",
        label="Scores by outcome",
    )
    ending = f"Runs are {regions}." if regions else "No threshold is certified."
    caption = (
        "Successes stand up, failures hang down (hatched). A judge that knows keeps them apart."
    )
    return Panel("scores", "Scores by outcome", drawn, f"{caption} {ending}")


def _heatmap_panel(source: PageSource) -> Panel:
    cal = source.cal
    heading = f"Every run of {source.evidence}, by task"
    # the lowest score first; unscored runs, which go to review, are at the end
    order = cal["score"].fillna(math.inf).tolist()
    drawn = task_heatmap(
        cal["task_id"].tolist(), order, source.decisions, cal["outcome"].to_numpy(), label=heading
    )
    said = [
        "One row is a task, the best success rate on top. One cell is a run, its lowest score left."
    ]
    if drawn.tasks < len(cal):
        said.append("Runs of a task count together, because they succeed and fail together.")
    if source.headline.certified:
        said.append(
            f"A cross is a wrong decision: {count(drawn.wrong_tasks)} of {count(drawn.tasks)} "
            "tasks hold one."
        )
    if len(source.sides) > 1:
        said.append("Runs under both thresholds go to review.")
    if drawn.shown < drawn.tasks:
        said.append(f"{count(drawn.shown)} of {count(drawn.tasks)} tasks are drawn, evenly spaced.")
    return Panel("map", heading, drawn.markup, " ".join(said), "wide")
