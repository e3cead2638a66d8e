"""The paper's statements about itself, measured again: statement, what the paper says, what comes
out, how.

    python benchmarks/paper_facts.py [--quick] [--trials 1000] [--json] [--figure
    docs/taskboot_fooled.svg]

Facts that follow from printed numbers take no time; those from trials with known truth about a
minute at 1,000 trials. ``--figure`` draws how often TaskBoot and both guards certify too much where
a few tasks are wrong throughout.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets.files import write_atomic
from certify_assets.reports import svg
from certify_assets.research.paper_facts import (
    FOOLED_TASKS,
    PaperFact,
    arithmetic_facts,
    comparison_facts,
    fooled_facts,
    isotonic_fact,
    other_fact,
    selection_fact,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = (("o", svg.REJECT), ("s", svg.HUMAN), ("^", svg.JUDGE))
_FOOLED_WIDTH, _FOOLED_HEIGHT = 10.0, 4.2


def violation_figure(
    rates: Mapping[float, Mapping[str, Sequence[tuple[int, float, float]]]],
    *,
    delta: float,
    trials: int,
    alpha: float = 0.1,
) -> str:
    """Draw how often procedures certify a threshold whose true error exceeds the budget."""
    from matplotlib.figure import Figure

    with svg.style_context():
        figure = Figure(figsize=(_FOOLED_WIDTH, _FOOLED_HEIGHT))
        panels = figure.subplots(1, len(rates), sharey=True, squeeze=False)[0]
        for axes, (share, procedures) in zip(panels, rates.items(), strict=True):
            _panel(axes, share, procedures, delta)
        panels[0].set_ylabel("share of tables certified above the budget")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", ncols=len(labels))
        title = (
            f"Tasks wrong throughout or not at all, α = {alpha:g}; {trials:,} tables a point, "
            f"bars of two standard errors"
        )
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


def rates(
    facts: Sequence[PaperFact],
) -> Mapping[float, Mapping[str, list[tuple[int, float, float]]]]:
    """True error → procedure → (tasks, violation, standard error)."""
    found: dict[float, dict[str, list[tuple[int, float, float]]]] = {}
    values = {fact.key: fact.values for fact in facts}
    for share in (0.11, 0.15):
        for tasks in FOOLED_TASKS:
            cell = values[f"fooled_{share:g}_{tasks}"]
            for name in (name for name in cell if f"{name}_se" in cell):
                found.setdefault(share, {}).setdefault(name, []).append(
                    (tasks, cell[name], cell[f"{name}_se"])
                )
    return found


def show(facts: Sequence[PaperFact]) -> None:
    for fact in facts:
        print(f"\n{fact.key}: {fact.verdict}\n  {fact.statement}")
        for name in ("paper", "measured", "how"):
            print(f"  {name + ':':<10}{getattr(fact, name)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the trials")
    options = parser.parse_args()
    options.trials = options.trials // 50 if options.quick else options.trials
    fooled = fooled_facts(options.trials)
    facts = [
        *arithmetic_facts(),
        *comparison_facts(20 if options.quick else 300),
        isotonic_fact(5 if options.quick else 50),
        selection_fact(options.trials),
        *fooled,
        other_fact(options.trials),
    ]
    if options.figure is not None:
        write_atomic(
            options.figure,
            violation_figure(rates(fooled), delta=0.05, trials=options.trials).encode("utf-8"),
        )
    if options.json:
        print(json.dumps([asdict(fact) for fact in facts], indent=2, ensure_ascii=False))
    else:
        show(facts)


if __name__ == "__main__":
    main()
