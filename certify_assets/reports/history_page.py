"""The history of a corpus in operation: figures, page, and the verdict of its asset."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from certify_assets.operations.layout import history_key
from certify_assets.reports import svg
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
    from certify_assets.operations.history import HistoryStep, OperationHistory, SideHistory
    from certify_assets.storage.store import Store

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 250, 58, 16, 24, 40
_SPAN, _TALL = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_MOST_WORDS = 14
_BOX = f"0 0 {_WIDTH} {_HEIGHT}"
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


def coverage_history(steps: Sequence[HistoryStep]) -> str:
    """Draw certified coverage a side: filled where it was deployed, open where not."""
    top = _rounded(max([0.1, *(side.coverage for step in steps for side in step.sides)]))
    parts, said = _frame([step.number for step in steps], top), []
    for name in ("reject", "release"):
        line = []
        for place, step in enumerate(steps):
            side = _of(step, name)
            if side is None:
                continue
            x, y = _x(place, len(steps)), _y(side.coverage / top)
            line.append(f"{x:.1f} {y:.1f}")
            parts.append(_mark(name, x, y, filled=bool(step.deployed)))
            said.append(f"{_short(step.number)} {name} {percent(side.coverage)}")
        parts.insert(
            0,
            (
                f'<path d="M{" L".join(line)}" fill="none" stroke="{svg.side_colour(name)}" '
                'stroke-width="1.4"/>'
            )
            if len(line) > 1
            else "",
        )
    return svg.inline_svg(
        "".join(parts), _BOX, f"Certified coverage: {'; '.join(said) or 'none'}.", classes="plot"
    )


def error_history(steps: Sequence[HistoryStep]) -> str:
    """Draw the realised error of each set with interval and budget; a cross marks an alarm."""
    shown = [side for step in steps for side in step.sides if side.tasks]
    top = _rounded(
        max(
            [
                0.1,
                *(2.2 * side.alpha for side in shown),
                *(1.2 * (side.error or 0.0) for side in shown),
            ]
        )
    )
    parts, said = _frame([step.number for step in steps], top), []
    for place, step in enumerate(steps):
        for name, shift in (("reject", -9), ("release", 9)):
            side = _of(step, name)
            if side is None:
                continue
            x = _x(place, len(steps)) + shift
            y = _y(side.alpha / top)
            parts.append(
                f'<path d="M{x - 9:.1f} {y:.1f}h18" stroke="{svg.BUDGET}" '
                'stroke-width="1.8" stroke-dasharray="4 2"/>'
            )
            if side.tasks and side.error is not None:
                parts += _band(side, side.error, x, top, name)
                said.append(
                    f"{_short(step.number)} {name} {percent(side.error)} of {percent(side.alpha)}"
                )
            if side.alarm:
                parts.append(_cross(x, _TOP + 6))
                said.append(f"alarm after {side.alarm.at} tasks")
    return svg.inline_svg(
        "".join(parts),
        _BOX,
        f"Realised error and budget: {'; '.join(said) or 'no labels yet'}.",
        classes="plot",
    )


def _rounded(top: float) -> float:
    """Return the end of an axis whose quarters are round numbers."""
    return next(
        (
            4 * step
            for step in (0.01, 0.02, 0.025, 0.03, 0.04, 0.05, 0.1, 0.15, 0.2, 0.25)
            if 4 * step >= top
        ),
        1.0,
    )


def _frame(numbers: Sequence[int], top: float) -> list[str]:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(share)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{_SPAN}" stroke="{svg.GRID}"/>')
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" font-size="11" text-anchor="end" '
            f'fill="{svg.MUTED}">{escape(percent(share * top))}</text>'
        )
    # of many columns every so many has its name
    every = -(-len(numbers) // _MOST_WORDS) or 1
    for place, number in enumerate(numbers):
        if place % every == 0:
            x = _x(place, len(numbers))
            words = escape(_short(number))
            parts.append(
                f'<text x="{x:.1f}" y="{_HEIGHT - 16}" font-size="11" text-anchor="middle" '
                f'fill="{svg.INK}">{words}</text>'
            )
    return parts


def _short(number: int) -> str:
    return f"R{number}" if number else "first"


def _of(step: HistoryStep, name: str) -> SideHistory | None:
    return next((side for side in step.sides if side.side == name), None)


def _x(place: int, columns: int) -> float:
    return _LEFT + _SPAN * (place + 0.5) / max(1, columns)


def _y(share: float) -> float:
    return _TOP + _TALL * (1 - min(1.0, max(0.0, share)))


def _mark(side: str, x: float, y: float, *, filled: bool) -> str:
    """Return a circle on the reject side and a square on the release side: never colour alone."""
    colour = svg.side_colour(side)
    look = f'fill="{colour if filled else svg.PAPER}" stroke="{colour}" stroke-width="2"'
    if side == "reject":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {look}/>'
    return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" {look}/>'


def _band(side: SideHistory, error: float, x: float, top: float, name: str) -> list[str]:
    low, high = (_y(end / top) for end in side.interval)
    band = (
        f'<rect x="{x - 6:.1f}" y="{high:.1f}" width="12" height="{low - high:.1f}" '
        f'fill="{svg.SHARE}" fill-opacity="0.18"/>'
    )
    return [band, _mark(name, x, _y(error / top), filled=True)]


def _cross(x: float, y: float) -> str:
    return (
        f'<path d="M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12" stroke="{svg.WRONG}" '
        'stroke-width="3"/>'
    )


def render_history(history: OperationHistory, *, home: str = "") -> str:
    """Render the page; the same text for the same document."""
    state, heading, reason = _verdict(history)
    steps = history.steps
    panels = [
        {
            "heading": "Certified coverage",
            "markup": coverage_history(steps),
            "caption": (
                "Share of the runs that each set of certificates lets the judge decide: circles "
                "reject, squares release; filled where it was deployed."
            ),
        },
        {
            "heading": "Realised error",
            "markup": error_history(steps),
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
    rows = [_short_row(step, side) for step in history.steps for side in step.sides]
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


def _short_row(step: HistoryStep, side: SideHistory) -> list[str]:
    shares = [percent(side.coverage), percent(side.error)]
    return [_short(step.number), side.side, f"{side.alpha:g}", *shares, count(side.tasks)]


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
    about = [step.label, step.time[:10], deployed]
    if not step.sides:
        return [[*about, "nothing certified", *[DASH] * (len(COLUMNS) - 4)]]
    return [[*about, *_cells(side)] for side in step.sides]


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
