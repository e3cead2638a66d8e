"""The history of a corpus in operation: figures, page, and the verdict of its asset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from certify_assets.operations.history import history_key
from certify_assets.reports import svg
from certify_assets.reports.figures import canvas, percent_axes
from certify_assets.reports.wording import (
    DASH,
    compact,
    count,
    counted,
    home_of,
    inline_block,
    markdown_table,
    percent,
    render,
    store_page,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from certify_assets.operations.history import HistoryStep, OperationHistory, SideHistory
    from certify_assets.storage.store import Store

# of many sets every so many has its name
_MOST_WORDS = 14
# never colour alone
_MARKS = {"reject": "o", "release": "s"}
COLUMNS = (
    "certificates",
    "made",
    "deployed",
    "side",
    "budget",
    "δ",
    "certified",
    "realised error",
    "interval",
    "tasks",
    "alarm",
)
BATCH_COLUMNS = ("batch", "state", "runs", "decided without a label", "labels", "δ", "draw")
_SHOWN = 6


def _coverage_picture(steps: Sequence[HistoryStep]) -> str:
    """Draw certified coverage a side: filled where it was deployed, open where not."""
    said = []
    with svg.style_context():
        figure, axes = canvas(720, 250, 0)
        for name, mark in _MARKS.items():
            colour, found = svg.side_colour(name), _of(steps, name)
            axes.plot([*found], [side.coverage for side in found.values()], color=colour)
            for place, side in found.items():
                fill = colour if steps[place].deployed else svg.PAPER
                axes.plot(place, side.coverage, mark, color=colour, mfc=fill, ms=9, mew=2)
                said.append(f"{_short(steps[place])} {name} {percent(side.coverage)}")
        label = f"Certified coverage: {'; '.join(said) or 'none'}."
        return _finished(figure, axes, steps, "coverage", label)


def _error_picture(steps: Sequence[HistoryStep]) -> str:
    """Draw the realised error of each set with interval and budget; a cross marks an alarm."""
    said, top = [], 0.1
    with svg.style_context():
        figure, axes = canvas(720, 250, 0)
        for name, shift in (("reject", -0.1), ("release", 0.1)):
            for place, side in _of(steps, name).items():
                x, colour = place + shift, svg.side_colour(name)
                axes.plot([x - 0.08, x + 0.08], [side.alpha] * 2, color=svg.BUDGET, ls="--")
                if side.error is not None:
                    top = max(top, 2.2 * side.alpha, 1.2 * side.error)
                    axes.plot(
                        [x, x],
                        side.interval,
                        color=svg.SHARE,
                        lw=9,
                        alpha=0.18,
                        solid_capstyle="butt",
                    )
                    axes.plot(x, side.error, _MARKS[name], color=colour, ms=9)
                    shares = f"{percent(side.error)} of {percent(side.alpha)}"
                    said.append(f"{_short(steps[place])} {name} {shares}")
                if side.alarm:
                    height = axes.get_xaxis_transform()
                    axes.plot(x, 0.95, "x", color=svg.WRONG, ms=11, mew=3, transform=height)
                    said.append(f"alarm after {side.alarm.at} tasks")
        axes.set_ylim(0, min(top, 1.0))
        label = f"Realised error and budget: {'; '.join(said) or 'no labels yet'}."
        return _finished(figure, axes, steps, "error", label)


def _of(steps: Sequence[HistoryStep], name: str) -> dict[int, SideHistory]:
    """Return the certificates of a side, by the place of their set."""
    return {
        place: side for place, step in enumerate(steps) for side in step.sides if side.side == name
    }


def _finished(
    figure: Figure, axes: Axes, steps: Sequence[HistoryStep], name: str, label: str
) -> str:
    places = range(0, len(steps), -(-len(steps) // _MOST_WORDS) or 1)
    axes.set_xticks(places, [_short(steps[place]) for place in places])
    axes.set_xlim(-0.5, max(1, len(steps)) - 0.5)
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")
    percent_axes(axes, y=True)
    return svg.figure_svg(figure, name, label)


def _short(step: HistoryStep) -> str:
    return f"R{step.number}" if step.number else "first"


def render_history(history: OperationHistory, *, home: str = "") -> str:
    """Render the page; the same text for the same document."""
    state, heading, reason = _verdict(history)
    steps = history.steps
    panels = [
        {
            "heading": "Certified coverage",
            "markup": _coverage_picture(steps),
            "caption": (
                "Share of the runs that each set of certificates lets the judge decide: circles "
                "reject, squares release; filled where it was deployed."
            ),
        },
        {
            "heading": "Realised error",
            "markup": _error_picture(steps),
            "caption": "Error of what each set decided, over labelled tasks of the draw, with its "
            "confidence sequence (band); dashed the budget; a cross "
            "where the monitor raised an alarm.",
        },
    ]
    return render(
        "history.html",
        home=home,
        title=history.corpus,
        state=state,
        heading=heading,
        reason=reason,
        facts=[
            ("sets of certificates", count(len(steps))),
            ("later certificates and recertifications", count(len(history.claims))),
            ("alarms", count(len(history.alarms))),
            ("δ spent by them", compact(history.spent)),
            (
                "δ spent in all, of what is declared",
                f"{compact(history.first_delta + history.spent)} of "
                f"{compact(history.first_delta + history.promised)}",
            ),
        ],
        panels=panels,
        columns=COLUMNS,
        rows=history_rows(history),
        alarms=[
            f"{item.time[:19]}: {item.judge}, {item.side} at {percent(item.alpha)}, after "
            f"{counted(item.at, 'labelled task')}"
            for item in history.alarms
        ],
        batch_columns=BATCH_COLUMNS,
        batches=[
            [
                ", ".join(item.batches),
                item.state.replace("_", " "),
                count(item.runs),
                count(item.decided),
                count(item.labels_used),
                compact(item.delta),
                count(item.draws),
            ]
            for item in history.batches
        ],
        joint=history.joint,
        schedule=history.schedule
        or "No schedule is declared yet: the first later certificate declares one.",
    )


def history_rows(history: OperationHistory) -> list[list[str]]:
    """Return the cells of the table of certificates, under `COLUMNS`."""
    return [row for step in history.steps for row in _rows(step)]


def write_history_page(store: Store, history: OperationHistory) -> str:
    """Draw a history; return where the page is."""
    key = history_key(history.corpus, "history.html")
    return store_page(store, key, render_history(history, home=home_of(key, history.corpus)))


def history_markdown(history: OperationHistory) -> str:
    """Return the verdict block of the asset: under 1,000 characters, no text of the data."""
    _, heading, _ = _verdict(history)
    rows = [
        [
            _short(step),
            side.side,
            f"{side.alpha:g}",
            percent(side.coverage),
            percent(side.error),
            count(side.tasks),
        ]
        for step in history.steps
        for side in step.sides
    ]
    columns = ("set", "side", "α", "certified", "error", "tasks")
    table = markdown_table(columns, rows[-_SHOWN:], tight=True)
    return inline_block([f"**{heading}**", "", *table])


def history_metrics(history: OperationHistory) -> dict[str, float]:
    """Return the figures of the last set as numbers with a name."""
    metrics = {
        "delta_spent": float(history.spent),
        "delta_promised": float(history.promised),
        "delta_total": float(history.first_delta + history.spent),
        "alarms": float(len(history.alarms)),
        "batches_certified": float(sum(item.state == "certified" for item in history.batches)),
    }
    for side in history.steps[-1].sides if history.steps else []:
        metrics[f"coverage_{side.side}"] = float(side.coverage)
        if side.error is not None:
            metrics[f"error_{side.side}"] = float(side.error)
    return metrics


def _verdict(history: OperationHistory) -> tuple[str, str, str]:
    steps = history.steps
    if not steps:
        return "nothing", "Nothing is in operation yet", "No judge was deployed on this corpus."
    deployed = [step for step in steps if step.deployed]
    last = max(deployed, key=lambda step: max(step.deployed)) if deployed else None
    if last is None:
        return "nothing", "Recertified, and never deployed", "Its certificates decide nothing."
    use = f"{last.label}, deployment {max(last.deployed)}, made {last.time[:10]}."
    if any(side.alarm for side in last.sides):
        return (
            "failed",
            "The certificates in use raised an alarm",
            f"{use} Nothing is decided until new ones are deployed.",
        )
    return "certified", "The certificates in use raised no alarm", use


def _rows(step: HistoryStep) -> list[list[str]]:
    deployed = ", ".join(map(str, step.deployed)) or "never"
    nothing = [["nothing certified", *[DASH] * (len(COLUMNS) - 4)]]
    cells = [_cells(side) for side in step.sides] or nothing
    return [[step.label, step.time[:10], deployed, *row] for row in cells]


def _cells(side: SideHistory) -> list[str]:
    low, high = side.interval
    alarm = f"after {counted(side.alarm.at, 'task')}" if side.alarm else "none"
    figures = (
        [percent(side.error), f"{percent(low)} to {percent(high)}"] if side.tasks else [DASH, DASH]
    )
    return [
        side.side,
        percent(side.alpha),
        compact(side.delta),
        percent(side.coverage),
        *figures,
        count(side.tasks),
        alarm,
    ]
