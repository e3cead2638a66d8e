"""The picture of where TaskBoot is fooled: violations against the number of tasks."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from certify_assets.reports import svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["violation_figure"]

_MARKS = (("o", svg.REJECT), ("s", svg.HUMAN), ("^", svg.JUDGE))
_WIDTH, _HEIGHT = 10.0, 4.2


def violation_figure(
    rates: Mapping[float, Mapping[str, Sequence[tuple[int, float, float]]]],
    *,
    delta: float,
    trials: int,
    alpha: float = 0.1,
) -> str:
    """Draw how often procedures certify a threshold whose true error exceeds the budget.

    Parameters
    ----------
    rates : mapping
        True error → procedure → (tasks, violation, standard error); one panel a true error, procedures told apart by marks.
    delta : float
        What was promised.
    trials : int
        Tables a point.
    alpha : float

    Returns
    -------
    str
        A whole SVG file; equal inputs give equal bytes.
    """
    from matplotlib.figure import Figure

    with svg.style_context():
        figure = Figure(figsize=(_WIDTH, _HEIGHT))
        panels = figure.subplots(1, len(rates), sharey=True, squeeze=False)[0]
        for axes, (share, procedures) in zip(panels, rates.items(), strict=True):
            _panel(axes, share, procedures, delta)
        panels[0].set_ylabel("share of tables certified above the budget")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", ncols=len(labels))
        title = f"Tasks wrong throughout or not at all, α = {alpha:g}; {trials:,} tables a point, bars of two standard errors"
        figure.text(0.5, 0.02, title, ha="center", fontsize=9, color=svg.MUTED)
        figure.subplots_adjust(left=0.07, right=0.985, top=0.83, bottom=0.2, wspace=0.06)
        stream = io.StringIO()
        figure.savefig(
            stream, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white"
        )
    return stream.getvalue()


def _panel(
    axes: Axes,
    share: float,
    procedures: Mapping[str, Sequence[tuple[int, float, float]]],
    delta: float,
) -> None:
    for (name, points), (mark, colour) in zip(procedures.items(), _MARKS, strict=False):
        tasks, values, errors = (list(column) for column in zip(*points, strict=True))
        spread = [
            [min(2 * error, value) for value, error in zip(values, errors, strict=True)],
            [2 * error for error in errors],
        ]
        axes.errorbar(
            tasks,
            values,
            yerr=spread,
            marker=mark,
            color=colour,
            markersize=7,
            linewidth=1.5,
            capsize=3,
            label=name,
        )
    axes.axhline(
        delta,
        color=svg.ALPHA_INK,
        linestyle=(0, (6, 3)),
        linewidth=1.4,
        label=f"promised: δ = {delta:g}",
    )
    ticks = [point[0] for point in next(iter(procedures.values()))]
    axes.set_xscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set(
        ylim=(-0.02, 0.8), xlabel="tasks in the calibration set", title=f"true error {share:g}"
    )
