"""The history of a corpus in operation: its page, and the verdict of its asset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certify_assets.operations.history import history_key
from certify_assets.reports.page import (
    Banner,
    PageTable,
    Remark,
    Section,
    home_of,
    inline_block,
    markdown_table,
    render,
    store_page,
)
from certify_assets.reports.wording import DASH, compact, count, counted, percent
from certify_assets.words import WORDS

if TYPE_CHECKING:
    from certify_assets.operations.history import HistoryStep, OperationHistory, SideHistory
    from certify_assets.storage.store import Store

_COLUMNS = (
    *("certificates", "made", "deployed", "side", "budget", "δ", "certified"),
    *("realised error", "interval", "tasks", "alarm"),
)
_SHOWN = ("certificates", "side", "budget", "certified", "realised error", "tasks")


def render_history(history: OperationHistory, *, home: str = "") -> str:
    """Render the page; the same text for the same document."""
    nothing = [] if history.steps else ["Nothing was deployed or recertified yet."]
    used = Section("Certificates", tables=[history_table(history)], notes=nothing)
    schedule = history.schedule or (
        "No schedule is declared yet: the next certificate declares one."
    )
    alarms = [
        Remark(
            f"{item.time[:16].replace('T', ' ')}: {item.judge}, {WORDS[item.side]} at "
            f"{percent(item.alpha)}, after {counted(item.at, 'labelled task')}"
        )
        for item in history.alarms
    ]
    return render(
        "page.html",
        kind="Operation: history of the certificates",
        home=home,
        title=history.corpus,
        banner=_verdict(history),
        sections=[
            used,
            *([Section("Alarms", findings=alarms)] if alarms else []),
            Section("What is promised together", texts=[history.joint], notes=[schedule]),
        ],
    )


def history_table(history: OperationHistory) -> PageTable:
    """Return every set of certificates, a row a side."""
    rows = [row for step in history.steps for row in _rows(step)]
    return PageTable(f"Certificates of {history.corpus}", _COLUMNS, rows)


def write_history_page(store: Store, history: OperationHistory) -> str:
    """Draw a history; return where the page is."""
    key = history_key(history.corpus, "history.html")
    return store_page(store, key, render_history(history, home=home_of(key, history.corpus)))


def history_markdown(history: OperationHistory) -> str:
    """Return the verdict block of the asset: under 1,000 characters, no text of the data."""
    table = history_table(history)
    kept = [table.columns.index(name) for name in _SHOWN]
    rows = [[row[place] for place in kept] for row in table.rows[-6:]]
    lines = markdown_table(_SHOWN, rows, tight=True)
    return inline_block([f"**{_verdict(history).heading}**", "", *lines])


def _verdict(history: OperationHistory) -> Banner:
    spent, declared = history.first_delta + history.spent, history.first_delta + history.promised
    facts = [
        ("alarms so far", count(len(history.alarms)), ""),
        ("δ spent, of at most", f"{compact(spent)} of {compact(declared)}", ""),
    ]
    deployed = [step for step in history.steps if step.deployed]
    if deployed:
        last = max(deployed, key=lambda step: max(step.deployed))
        use = f"{last.label}, deployment {max(last.deployed)}, made {last.time[:10]}."
        state, heading = "certified", "The certificates in use raised no alarm"
        if any(side.alarm for side in last.sides):
            state, heading = "failed", "The certificates in use raised an alarm"
            use = f"{use} Nothing is decided until new ones are deployed."
    elif history.steps:
        state, heading = "nothing", "Recertified, and never deployed"
        use = "Its certificates decide nothing."
    else:
        state, heading = "nothing", "Nothing is in operation yet"
        use = "No judge was deployed on this corpus."
    return Banner(state, heading, [use], facts)


def _rows(step: HistoryStep) -> list[list[str]]:
    deployed = ", ".join(map(str, step.deployed)) or "never"
    nothing = [["nothing certified", *[DASH] * (len(_COLUMNS) - 4)]]
    cells = [_cells(side) for side in step.sides] or nothing
    return [[step.label, step.time[:10], deployed, *row] for row in cells]


def _cells(side: SideHistory) -> list[str]:
    low, high = side.interval
    alarm = f"after {counted(side.alarm, 'task')}" if side.alarm else "none"
    figures = (
        [percent(side.error), f"{percent(low)} to {percent(high)}"] if side.tasks else [DASH, DASH]
    )
    return [
        WORDS[side.side],
        percent(side.alpha),
        compact(side.delta),
        percent(side.coverage),
        *figures,
        count(side.tasks),
        alarm,
    ]
