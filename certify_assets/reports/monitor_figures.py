"""The figures of a monitor page: a detector's path against its alarm line, and the interval for the error around the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.reports import svg
from certify_assets.reports.wording import count, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["detector_path", "interval_band"]

_LOWEST = -3.0
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def detector_path(
    logs: list[float], *, threshold: float, first_alarm_at: int | None, words: str, name: str
) -> str:
    """Draw a detector after each task on a log scale.

    Parameters
    ----------
    logs : list of float
        Natural logarithms, one a task.
    threshold : float
        Where the alarm is raised.
    first_alarm_at : int or None
        After which task it was.
    words : str
        What the detector is called.
    name : str
        Prefix of ids.

    Returns
    -------
    str
        Inline SVG.
    """
    # far below one nothing is to be seen, and the alarm line is to stay in sight
    values = np.maximum(np.array(logs) / math.log(10), _LOWEST)
    tasks = np.arange(1, values.size + 1)
    line = math.log10(threshold)
    with svg.style_context():
        figure, axes = _canvas()
        axes.plot(tasks, values, color=svg.JUDGE, linewidth=1.7, label=words)
        axes.axhline(
            line,
            color=svg.ALPHA_INK,
            linewidth=1.4,
            linestyle=(0, (6, 3)),
            label=f"alarm line {count(threshold)}",
        )
        if first_alarm_at is not None:
            mark = (first_alarm_at, values[first_alarm_at - 1])
            axes.plot(
                *mark,
                "X",
                color=svg.REJECT,
                markersize=11,
                markeredgecolor="white",
                linestyle="none",
                label="first alarm",
            )
        # twice the line is as good as any evidence beyond it, which would only flatten what came before
        top = min(max(values.max(), line), 2 * line + 2) + 0.6
        axes.set(ylim=(min(values.min(), 0) - 0.3, top), ylabel="evidence (log scale)")
        axes.yaxis.set_major_locator(_whole())
        axes.yaxis.set_major_formatter(_power)
        _finish(axes, values.size)
        told = f"an alarm after {count(first_alarm_at)} tasks" if first_alarm_at else "no alarm"
        return svg.figure_svg(
            figure,
            name,
            f"{words} over {count(values.size)} tasks, alarm line at {count(threshold)}: {told}.",
        )


def interval_band(path: Mapping[str, Any], *, alpha: float, name: str) -> str:
    """Draw the interval for the error after each task, and the realised error, around the budget.

    Parameters
    ----------
    path : mapping
        ``at``, ``low``, ``high`` and ``error`` of a monitor's path.
    alpha : float
    name : str

    Returns
    -------
    str
        Inline SVG.
    """
    at, low, high = (np.array(path[key], dtype=np.float64) for key in ("at", "low", "high"))
    error = np.array([math.nan if value is None else value for value in path["error"]])
    top = min(
        1.0, max(3.0 * alpha, 1.15 * float(np.nanmax(error, initial=0.0)), 1.3 * float(high[-1]))
    )
    with svg.style_context():
        figure, axes = _canvas()
        axes.fill_between(
            at,
            low,
            high,
            color=svg.JUDGE,
            alpha=0.16,
            linewidth=0,
            label="interval, valid at every task",
        )
        axes.plot(at, low, color=svg.JUDGE, linewidth=0.9)
        axes.plot(at, high, color=svg.JUDGE, linewidth=0.9)
        axes.plot(
            at,
            error,
            color=svg.INK,
            linewidth=1.6,
            marker="o",
            markersize=3,
            label="realised error",
        )
        axes.axhline(
            alpha,
            color=svg.ALPHA_INK,
            linewidth=1.4,
            linestyle=(0, (6, 3)),
            label=f"budget α = {percent(alpha)}",
        )
        axes.set(ylim=(0, top), ylabel="error among decided runs")
        axes.yaxis.set_major_formatter(lambda value, _: percent(round(float(value), 6)))
        _finish(axes, int(at[-1]))
        label = f"Interval for the error: {percent(low[-1])} to {percent(high[-1])} after {count(at[-1])} tasks; budget {percent(alpha)}."
        return svg.figure_svg(figure, name, label)


def _canvas() -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    width, height = 460, 300
    figure = Figure(figsize=(width / 72, height / 72))
    figure.subplots_adjust(
        left=56 / width, right=1 - 14 / width, bottom=40 / height, top=1 - 40 / height
    )
    return figure, figure.add_subplot()


def _finish(axes: Axes, tasks: int) -> None:
    axes.set(xlim=(1, max(tasks, 2)), xlabel="labelled tasks, in order")
    axes.xaxis.set_major_locator(_whole())
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=2,
        borderaxespad=0.2,
        columnspacing=1.6,
        handletextpad=0.6,
    )


def _whole() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=7, integer=True)


def _power(value: float, _: float) -> str:
    exponent = round(value)
    return "1" if exponent == 0 else f"10{str(exponent).translate(_SUPERSCRIPT)}"
