"""The history of a corpus in operation: its page, and the verdict of its asset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certify_assets.operations.history import history_key
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


def _short(step: HistoryStep) -> str:
    return f"R{step.number}" if step.number else "first"


def render_history(history: OperationHistory, *, home: str = "") -> str:
    """Render the page; the same text for the same document."""
    state, heading, reason = _verdict(history)
    steps = history.steps
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
    alarm = f"after {counted(side.alarm, 'task')}" if side.alarm else "none"
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
