"""The figure of the certifiability law: corpora, the fitted line with its prediction band, the line without parameters, the paper's as reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.reports import svg
from certify_assets.reports.figures import canvas, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from certify_assets.research.law import Law
    from certify_assets.research.law_points import LawPoint

__all__ = ["law_figure"]

_SIZE = (640, 420)
_LABEL_CHARACTERS = 28
#: anchor → words, marker, colour: the shape alone tells them apart
_MARKS = {
    "": ("certified", "o", svg.JUDGE),
    "few tasks": ("fewer than 20 tasks", "D", svg.HUMAN),
    "nothing certified": ("nothing certified", "^", svg.REJECT),
}
_Box = tuple[float, float, float, float]


def law_figure(points: Sequence[LawPoint], law: Law | None, paper: Law, *, name: str) -> str:
    """Draw the law.

    Parameters
    ----------
    points : sequence of LawPoint
        The corpora.
    law : Law or None
        Their fit; None leaves line and band out, and then the paper's points stand beside its line.
    paper : Law
        The fit to the paper's points.
    name : str
        Prefix of ids.

    Returns
    -------
    str
        Inline SVG.
    """
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
            color=svg.ALPHA_INK,
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
                color=svg.ALPHA_INK,
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
    from certify_assets.research.law_prediction import prediction_band

    line, half = prediction_band(law, grid)
    axes.fill_between(
        grid,
        line - half,
        line + half,
        color=svg.JUDGE,
        alpha=0.1,
        linewidth=0,
        label="95 % prediction interval",
        zorder=1,
    )
    axes.plot(grid, line, color=svg.JUDGE, linewidth=2, label=f"fit: {_formula(law)}", zorder=3)


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
                markeredgecolor="white",
                markeredgewidth=1,
                label=words,
                zorder=6,
                clip_on=False,
            )


def _labels(
    axes: Axes, points: Sequence[LawPoint], lines: Sequence[tuple[np.ndarray, np.ndarray]]
) -> None:
    """Write each corpus's name beside its mark, where it runs into no other mark, name or line."""
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
        else "No line is fitted; the paper's stands for reference."
    )
    return f"Certified reject coverage against the index (1−π)(2A₀−1): {shown}. {fit}"
