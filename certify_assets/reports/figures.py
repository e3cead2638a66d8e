"""Figures drawn by matplotlib: risk and coverage, scores, the interval of a monitor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.reports import svg
from certify_assets.reports.wording import count, done, percent
from certify_assets.words import WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from certify_assets.certificates import ThresholdCurve

    FloatArray = NDArray[np.float64]

_SCALES = {"log-odds": " (log-odds of success)", "probability": " (probability of success)"}


def canvas(width: int, height: int, legend_rows: int = 2, *, left: int = 52) -> tuple[Figure, Axes]:
    """Return a figure with fixed margins, and a line above for each row of the legend."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72))
    top = 1 - (8 + 16 * legend_rows) / height
    figure.subplots_adjust(left=left / width, right=1 - 14 / width, bottom=40 / height, top=top)
    return figure, figure.add_subplot()


def _percent_axis(axis: Axis) -> None:
    """Write the numbers of an axis as percentages."""
    axis.set_major_formatter(lambda value, _: percent(round(abs(float(value)), 6)))


def legend(axes: Axes, columns: int) -> None:
    """Put the legend above the axes, in the room that `canvas` keeps for it."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=columns,
        borderaxespad=0.2,
        columnspacing=1.6,
        handletextpad=0.6,
    )


def _level_line(axes: Axes, at: float, label: str) -> None:
    axes.axhline(at, color=svg.BUDGET, lw=1.4, ls=(0, (6, 3)), label=label)


def risk_coverage(
    curve: ThresholdCurve,
    *,
    alpha: float,
    point: tuple[float, float] | None,
    name: str,
    label: str,
    large: bool = True,
    bounded: bool = True,
) -> str:
    """Draw the error among decided trajectories against the share decided, and its bound."""
    side, colour = curve.side, svg.side_colour(curve.side)
    order = np.argsort(curve.coverage, kind="stable")
    share, error = curve.coverage[order], curve.selective_error[order]
    upper = curve.bootstrap_upper[order]
    with svg.style_context():
        figure, axes = canvas(*((590, 370) if large else (460, 330)), 2 if point is None else 3)
        _level_line(axes, alpha, f"budget α = {percent(alpha)}")
        if bounded:
            axes.plot(
                share,
                upper,
                color=svg.SHARE,
                lw=1.7,
                ls=(0, (4, 1.6)),
                label="upper bound q(θ)",
                zorder=4,
            )
        axes.plot(
            share, error, color=svg.INK, lw=2, marker="o", ms=3, label="observed error", zorder=5
        )
        if point is not None:
            reached = f"certified: {percent(point[0])} decided, {percent(point[1], 2)} wrong"
            axes.axvspan(0, point[0], color=colour, alpha=0.07, lw=0)
            axes.axvline(point[0], color=colour, lw=1, zorder=2)
            axes.plot(
                *point,
                "D",
                ms=10,
                color=colour,
                mec=svg.PAPER,
                mew=1.5,
                ls="none",
                label=reached,
                zorder=7,
            )
        axes.set(xlim=(0, _ceiling(share)), ylim=(0, _error_ceiling(error, alpha)))
        axes.set(xlabel=f"share of runs {done(side)}", ylabel=f"error among {done(side)} runs")
        _percent_axis(axes.xaxis)
        _percent_axis(axes.yaxis)
        legend(axes, 2)
        return svg.figure_svg(figure, name, label)


def _ceiling(values: FloatArray) -> float:
    return float(min(1.0, np.max(values, initial=0.05) * 1.03))


def _error_ceiling(error: FloatArray, alpha: float) -> float:
    finite = error[np.isfinite(error)]
    return float(min(1.0, max(2.6 * alpha, np.max(finite, initial=0.0) * 1.15)))


def score_distribution(
    scores: FloatArray,
    outcomes: NDArray[np.int8],
    *,
    thresholds: dict[str, float],
    scale: str,
    name: str,
    label: str,
) -> str:
    """Draw scores by outcome with the certified thresholds."""
    known = np.isfinite(scores)
    values, truth = scores[known], outcomes[known] == 1
    edges = _score_edges(values)
    # a handful of saturated scores belongs to the outermost bars, or it squeezes everybody else
    # into one
    shown = np.clip(values, edges[0], edges[-1])
    success, failure = np.histogram(shown[truth], edges)[0], np.histogram(shown[~truth], edges)[0]
    with svg.style_context():
        figure, axes = canvas(460, 330)
        _by_outcome(axes, success, failure, edges)
        for side, threshold in sorted(thresholds.items()):
            _shade(axes, side, threshold, edges)
        axes.set(
            xlim=(edges[0], edges[-1]),
            ylabel="runs",
            xlabel="judge's score" + _SCALES.get(scale, ""),
        )
        axes.yaxis.set_major_formatter(lambda value, _: count(abs(value)))
        legend(axes, 2)
        return svg.figure_svg(figure, name, label)


def _by_outcome(axes: Axes, successes: FloatArray, failures: FloatArray, edges: FloatArray) -> None:
    """Draw successes up and failures down, hatched."""
    axes.grid(visible=False, axis="x")
    up: dict[str, Any] = {"facecolor": svg.SHARE_SOFT, "edgecolor": svg.SHARE}
    down: dict[str, Any] = {"facecolor": svg.HUMAN_SOFT, "edgecolor": svg.HUMAN, "hatch": "////"}
    axes.stairs(successes, edges, fill=True, lw=0.9, label="success", **up)
    axes.stairs(-failures, edges, fill=True, lw=0.9, label="failure", **down)
    axes.axhline(0, color=svg.INK, lw=0.8)


def _score_edges(values: FloatArray) -> FloatArray:
    if values.size == 0:
        return np.linspace(-1, 1, 3)
    low, high = np.quantile(values, [0.002, 0.998])
    return np.linspace(*((low - 0.5, high + 0.5) if high <= low else (low, high)), 37)


def _shade(axes: Axes, side: str, threshold: float, edges: FloatArray) -> None:
    colour = svg.side_colour(side)
    span = (edges[0], threshold) if side == "reject" else (threshold, edges[-1])
    axes.axvspan(*span, color=colour, alpha=0.07, lw=0)
    axes.axvline(
        threshold,
        color=colour,
        lw=1.8,
        ls="-" if side == "reject" else (0, (5, 2)),
        label=f"{WORDS[side]} threshold",
    )


def interval_band(path: Mapping[str, Any], *, alpha: float, name: str, label: str) -> str:
    """Draw the interval for the error after each task, and the realised error."""
    at, low, high = (np.array(path[key], dtype=np.float64) for key in ("at", "low", "high"))
    error = np.array([math.nan if value is None else value for value in path["error"]])
    top = min(
        1.0, max(3.0 * alpha, 1.15 * float(np.nanmax(error, initial=0.0)), 1.3 * float(high[-1]))
    )
    with svg.style_context():
        figure, axes = canvas(460, 300, left=56)
        axes.fill_between(
            at, low, high, color=svg.SHARE, alpha=0.16, lw=0, label="interval, valid at every task"
        )
        axes.plot(at, low, color=svg.SHARE, lw=0.9)
        axes.plot(at, high, color=svg.SHARE, lw=0.9)
        axes.plot(at, error, color=svg.INK, lw=1.6, marker="o", ms=3, label="realised error")
        _level_line(axes, alpha, f"budget α = {percent(alpha)}")
        axes.set(ylim=(0, top), ylabel="error among decided runs")
        _percent_axis(axes.yaxis)
        axes.set(xlim=(1, max(at[-1], 2)), xlabel="labelled tasks, in order")
        axes.locator_params("x", nbins=7, integer=True)
        legend(axes, 2)
        return svg.figure_svg(figure, name, label)
