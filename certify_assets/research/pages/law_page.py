"""The page of the certifiability law: figure, forms next to the paper's, influence, findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.reports import svg
from certify_assets.reports.figures import canvas, legend
from certify_assets.reports.wording import DASH, count, rate, render, store_page
from certify_assets.research.law import ENOUGH_POINTS, prediction_band
from certify_assets.research.paper import law_facts, law_forms

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from certify_assets.research.certifiability import Certifiability, Measured
    from certify_assets.research.law import FormFit, Law, LawPoint
    from certify_assets.storage.store import Store

_SIZE = (640, 420)
_LABEL_CHARACTERS = 28
#: anchor → words, marker, colour: the shape alone tells them apart
_MARKS = {
    "": ("certified", "o", svg.SHARE),
    "few tasks": ("fewer than 20 tasks", "D", svg.HUMAN),
    "nothing certified": ("nothing certified", "^", svg.WRONG),
}
_Box = tuple[float, float, float, float]


def law_figure(points: Sequence[LawPoint], law: Law | None, paper: Law, *, name: str) -> str:
    """Draw the law."""
    reference = () if law else paper.points
    with svg.style_context():
        figure, axes = canvas(*_SIZE, 4)
        left, right = _limits([*points, *reference], lowest=0.0)
        grid = np.linspace(left, right, 120)
        if law is not None:
            _band(axes, law, grid)
        axes.plot(
            grid,
            grid,
            color=svg.INK,
            linewidth=1.2,
            linestyle=(0, (5, 3)),
            label="no parameters: coverage = index",
            zorder=3,
        )
        axes.plot(
            grid,
            paper.intercept + paper.slope * grid,
            color=svg.BUDGET,
            linewidth=1.2,
            linestyle=":",
            label=f"the paper's fit: {_formula(paper)}",
            zorder=3,
        )
        if reference:
            at, of = [point.x for point in reference], [point.coverage for point in reference]
            axes.plot(
                at,
                of,
                "s",
                markerfacecolor="none",
                color=svg.BUDGET,
                markersize=5,
                label="the paper's corpora",
                zorder=4,
            )
        _marks(axes, points)
        axes.set(xlim=(left, right), ylim=(-0.04, _top(points, reference)))
        axes.set(
            xlabel="index (1−π)(2A₀−1), known before training",
            ylabel="best certified reject coverage",
        )
        _labels(
            axes,
            points,
            [
                (grid, grid),
                *((grid, fit.intercept + fit.slope * grid) for fit in (paper, law) if fit),
            ],
        )
        legend(axes, 2)
        return svg.figure_svg(figure, name, _words(points, law))


def _limits(points: Sequence[LawPoint], *, lowest: float) -> tuple[float, float]:
    at = [point.x for point in points]
    return min(lowest, *at) - 0.03, max(0.5, *at) + 0.12


def _top(points: Sequence[LawPoint], reference: Sequence[LawPoint]) -> float:
    return min(1.04, max(0.4, *(point.coverage for point in [*points, *reference])) + 0.12)


def _formula(law: Law) -> str:
    return f"{law.slope:.3f} x {law.intercept:+.3f}".replace("-", "\N{MINUS SIGN}")


def _band(axes: Axes, law: Law, grid: np.ndarray) -> None:
    line, half = prediction_band(law, grid)
    axes.fill_between(
        grid,
        line - half,
        line + half,
        color=svg.SHARE,
        alpha=0.1,
        linewidth=0,
        label="95 % prediction interval",
        zorder=1,
    )
    axes.plot(grid, line, color=svg.SHARE, linewidth=2, label=f"fit: {_formula(law)}", zorder=3)


def _marks(axes: Axes, points: Sequence[LawPoint]) -> None:
    for anchor, (words, marker, colour) in _MARKS.items():
        chosen = [point for point in points if point.anchor == anchor]
        if chosen:
            at, of = [point.x for point in chosen], [point.coverage for point in chosen]
            axes.plot(
                at,
                of,
                marker,
                color=colour,
                markersize=8,
                markeredgecolor=svg.PAPER,
                markeredgewidth=1,
                label=words,
                zorder=6,
                clip_on=False,
            )


def _labels(
    axes: Axes, points: Sequence[LawPoint], lines: Sequence[tuple[np.ndarray, np.ndarray]]
) -> None:
    """Write each corpus's name next to its mark, where it runs into no other mark, name or line."""
    pixels = {
        point.corpus: tuple(axes.transData.transform((point.x, point.coverage))) for point in points
    }
    taken: list[_Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in pixels.values()]
    taken += [
        (x - 1, y - 1, x + 1, y + 1)
        for line in lines
        for x, y in axes.transData.transform(np.column_stack(line))
    ]
    frame = axes.get_window_extent().extents
    for point in sorted(points, key=lambda item: (item.x, item.corpus)):
        text = (
            point.corpus
            if len(point.corpus) <= _LABEL_CHARACTERS
            else f"{point.corpus[: _LABEL_CHARACTERS - 1]}…"
        )
        x, y = pixels[point.corpus]
        width, height = 5.6 * len(text), 12.0
        steps = [
            step
            for rise in (0, -12, 12, -24, 24, -36, 36)
            for step in ((10.0, float(rise)), (-10.0 - width, float(rise)))
        ]
        boxes = [
            (x + right, y + up - height / 2, x + right + width, y + up + height / 2)
            for right, up in steps
        ]
        free = [
            box
            for box in boxes
            if _inside(box, frame) and not any(_overlap(box, other) for other in taken)
        ]
        box = (free or boxes)[0]
        taken.append(box)
        axes.annotate(
            text,
            (box[0], box[1] + 2),
            xycoords="figure pixels",
            color=svg.INK,
            fontsize=9,
            annotation_clip=False,
            zorder=7,
        )


def _inside(box: _Box, frame: _Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _words(points: Sequence[LawPoint], law: Law | None) -> str:
    shown = (
        "; ".join(
            f"{point.corpus} at index {point.x:.3f}: {point.coverage:.3f}" for point in points
        )
        or "no corpus yet"
    )
    fit = (
        f"The fitted line is {_formula(law)}."
        if law
        else "No line is fitted; the paper's is the reference."
    )
    return f"Certified reject coverage against the index (1−π)(2A₀−1): {shown}. {fit}"


LAW_PAGE = "study/certifiability.html"
_INLINE = 1000
_FORMS = ("law", "auroc_only", "parameter_free")


def write_law_page(store: Store, page: str) -> str:
    """Store the page next to the document; return where it is."""
    return store_page(store, LAW_PAGE, page)


def render_law(found: Certifiability, *, home: str = "") -> str:
    """Render the page."""
    points = [item.point for item in found.measured]
    view = {
        "home": home,
        "title": "Coverage before training",
        "corpora": _corpora(len(points)),
        "state": _state(found)[0],
        "heading": _state(found)[1],
        "sentence": _sentence(found),
        "figure": law_figure(points, found.law, found.paper, name="law"),
        "caption": _caption(found.law),
        "forms": _form_rows(found.law, found.paper),
        "fitted": found.law is not None,
        "rows": [_row(item, found.law) for item in found.measured],
        "findings": [message for _, message in found.findings],
        "left_out": found.left_out,
        "paper_points": found.paper.points,
        "paper_rows": [_influence_cells(found.paper, point.corpus) for point in found.paper.points],
        "facts": law_facts(),
        "rate": rate,
    }
    return render("law.html", **view)


def law_metrics(found: Certifiability) -> dict[str, float]:
    """Return the numbers that Dagster and MLflow plot: the fit and the forms next to it."""
    if found.law is None:
        return {}
    metrics = {"slope": found.law.slope, "intercept": found.law.intercept}
    for name in _FORMS:
        fit = found.law.form(name)
        metrics |= {
            f"{name}_{key}": value
            for key, value in (("loocv_r2", fit.loocv_r2), ("mae", fit.mae))
            if value is not None
        }
    return metrics


def law_markdown(found: Certifiability) -> str:
    """Return the asset's block, short enough to be shown in line, with no text of a corpus."""
    fits = [("corpora here", found.law), ("the paper's", found.paper)]
    # a reason may name a corpus, so it stays off this block
    status = (
        _sentence(found)
        if found.law
        else f"No line is fitted to {_corpora(len(found.measured))}; the page says why."
    )
    lines = [f"**{status}**", ""]
    lines += [
        "| fit | n | a | b | R² | LOOCV R² | MAE | no parameters: R² / MAE |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for words, law in fits:
        if law is not None:
            fit, free = law.form("law"), law.form("parameter_free")
            cells = [
                rate(value) for value in (fit.slope, fit.intercept, fit.r2, fit.loocv_r2, fit.mae)
            ]
            lines.append(
                f"| {words} | {len(law.points)} | {' | '.join(cells)} | {rate(free.r2)} / "
                f"{rate(free.mae)} |"
            )
    block = "\n".join(lines) + "\n"
    if len(block) >= _INLINE:
        raise RuntimeError(
            f"the block of the law has {len(block)} characters; it must stay under {_INLINE} to "
            f"be shown inline"
        )
    return block


def _state(found: Certifiability) -> tuple[str, str]:
    """Return the banner's look and heading."""
    codes = {code for code, _ in found.findings}
    if found.law is None:
        return "nothing", "No fit yet"
    if "no_prediction" in codes:
        return "warn", "A line that does not predict"
    if len(found.measured) < ENOUGH_POINTS or "carries_the_fit" in codes:
        return "warn", "A line, with its limits"
    return "certified", "A line that no single corpus carries"


def _sentence(found: Certifiability) -> str:
    if found.law is None:
        return (
            f"The law cannot be fitted here: "
            f"{found.reason.removeprefix('the law cannot be fitted to ')}"
        )
    fit = found.law.form("law")
    return (
        f"Certified coverage = {rate(fit.slope)} (1−π)(2A₀−1) "
        f"{'+' if found.law.intercept >= 0 else '−'} {rate(abs(found.law.intercept))} over "
        f"{len(found.law.points)} corpora; leave-one-corpus-out R² {rate(fit.loocv_r2)}, mean "
        f"absolute error {rate(fit.mae)}."
    )


def _caption(law: Law | None) -> str:
    if law is None:
        return (
            "The corpora of this data root, with no line of their own. The squares and the "
            "dotted line are the paper's, for reference."
        )
    return (
        "One mark a corpus. The band is where one further corpus is expected with 95 % confidence "
        "if residuals are normal; the dotted line is the "
        "paper's fit to its own seven corpora, for reference."
    )


@dataclass(frozen=True)
class _FormRow:
    """A form fitted here, fitted to the paper's points again, and as published."""

    words: str
    here: list[str]
    reason: str
    again: list[str]
    published: list[str]
    main: bool


def _form_rows(law: Law | None, paper: Law) -> list[_FormRow]:
    rows = []
    for fit in paper.forms:
        here = law.form(fit.form) if law else None
        published = [rate(value) for value in law_forms().get(fit.form, ())] or [DASH] * 3
        reason, main = here.reason if here else "", fit.form == "law"
        rows.append(_FormRow(fit.words, _cells(here), reason, _cells(fit), published, main))
    return rows


def _cells(fit: FormFit | None) -> list[str]:
    if fit is None or fit.reason:
        return [DASH] * 3
    return [rate(value) for value in (fit.r2, fit.loocv_r2, fit.mae)]


@dataclass(frozen=True)
class _PointRow:
    """A corpus with its influence on the law."""

    point: LawPoint
    n_eff: str
    plain: str
    source: str
    cells: list[str]


def _row(item: Measured, law: Law | None) -> _PointRow:
    point, plain = item.point, rate(item.plain_coverage)
    cells = _influence_cells(law, point.corpus) if law else [DASH] * 4
    return _PointRow(point, count(point.n_eff), plain, item.source, cells)


def _influence_cells(law: Law, corpus: str) -> list[str]:
    item = next(item for item in law.influence if item.corpus == corpus)
    return [
        rate(item.coverage - item.fitted),
        rate(item.left_out),
        rate(item.leverage),
        rate(item.loocv_r2_without),
    ]


def _corpora(number: int) -> str:
    return "1 corpus" if number == 1 else f"{count(number)} corpora"
