"""The monitor as a page and as the verdict of its asset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from certify_assets.certificates.monitor import DetectorState
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.monitor_record import MonitorEntry, MonitorRecord, SampleFile
from certify_assets.operations.monitoring import load_monitor
from certify_assets.reports.figures import Panel, interval_band
from certify_assets.reports.wording import (
    compact,
    count,
    counted,
    done,
    home_of,
    inline_block,
    markdown_table,
    percent,
    render,
    store_page,
)

_HEADINGS = {
    "alarm": ("failed", "Alarm: labelled tasks speak for an error above the budget"),
    "too_few": ("warn", "No alarm, on too few tasks to say much"),
    "nothing": ("nothing", "Nothing was monitored"),
    "quiet": ("certified", "No alarm"),
}


def render_monitor_page(document: MonitorRecord, *, title: str, home: str = "") -> str:
    """Render the page of a monitor."""
    state, heading = _HEADINGS[document.status]
    return render(
        "monitor.html",
        home=home,
        title=title,
        state=state,
        heading=heading,
        reason=document.reason,
        files=_sources(document),
        count=count,
        monitors=[_monitor(entry, f"m{place}") for place, entry in enumerate(document.monitors)],
        findings=_distinct(document),
    )


def write_monitor_page(judge: JudgedCorpus) -> str:
    """Draw the stored monitor of a judge; return where the page is."""
    home = home_of(judge.key("monitor.html"), judge.corpus.name)
    page = render_monitor_page(
        load_monitor(judge), title=f"{judge.corpus}, {judge} judge", home=home
    )
    return store_page(judge.store, judge.key("monitor.html"), page)


def monitor_markdown(document: MonitorRecord) -> str:
    """Return the verdict block of the asset: under 1,000 characters, no text of the data."""
    _, heading = _HEADINGS[document.status]
    rows = [
        (
            entry.side,
            f"{entry.alpha:g}",
            compact(entry.result.e_value),
            compact(entry.result.e_process.threshold),
            percent(entry.result.realized_error),
            " to ".join(percent(end) for end in entry.result.interval),
            f"{entry.result.covered_tasks}/{entry.result.tasks}",
        )
        for entry in document.monitors
    ]
    columns = ("side", "α", "e-value", "alarm from", "error", "interval", "tasks")
    table = ["", *markdown_table(columns, rows, tight=True)] if rows else []
    return inline_block([f"**{heading}**", *table])


def monitor_metrics(document: MonitorRecord) -> dict[str, float]:
    """Return e-value, realised error and interval of every monitor as numbers with a name."""
    metrics: dict[str, float] = {}
    for entry in document.monitors:
        result, fed = entry.result, entry.source == "operation"
        where = f"{entry.side}_at_{entry.alpha:g}{'_operation' if fed else ''}"
        metrics[f"e_value_{where}"] = result.e_value
        # two sides on two streams: Dagster plots twelve numbers
        if not (fed and document.files):
            metrics[f"error_low_{where}"], metrics[f"error_high_{where}"] = result.interval
        if result.realized_error is not None:
            metrics[f"error_{where}"] = result.realized_error
    return metrics


def _monitor(entry: MonitorEntry, name: str) -> dict[str, Any]:
    """Return one certificate's monitor as shown."""
    whose = ", labels of operation" if entry.source == "operation" else ""
    return {
        "heading": f"{done(entry.side).capitalize()} runs, budget {percent(entry.alpha)}{whose}",
        "alarm": entry.result.alarm,
        "promise": entry.promise,
        "facts": _facts(entry),
        "panel": _interval(entry, name),
        "sha256": entry.certificate_sha256,
    }


def _sources(document: MonitorRecord) -> list[SampleFile]:
    """Return the files that were read, and the labels of operation where the judge is deployed."""
    if document.operation is None:
        return list(document.files)
    streams = document.operation.streams.values()
    rows = max((item.rows for item in streams), default=0)
    tasks = max((item.audit_tasks + item.spot_tasks for item in streams), default=0)
    labels = document.operation.labels
    read = SampleFile(f"labels up to event {labels.sequence}", labels.sha256, rows, tasks)
    return [*document.files, read]


def _facts(entry: MonitorEntry) -> list[tuple[str, str]]:
    result = entry.result

    def after(tasks: int | None, never: str) -> str:
        return never if tasks is None else f"after {counted(tasks, 'task')}"

    return [
        ("labelled tasks", count(result.tasks)),
        ("with a decided run", count(result.covered_tasks)),
        ("decided runs, wrong", f"{count(result.covered_trajectories)}, {count(result.errors)}"),
        ("realised error", percent(result.realized_error)),
        (f"evidence of more than {percent(entry.alpha)}", _evidence(result.e_process)),
        ("evidence of a change (Shiryaev–Roberts)", _evidence(result.shiryaev_roberts)),
        ("first alarm", after(result.first_alarm_at, "none")),
        ("certified by these alone", after(result.certified_at, "not yet")),
    ]


def _evidence(state: DetectorState) -> str:
    return f"{compact(state.value)}, alarm from {count(state.threshold)}"


def _interval(entry: MonitorEntry, name: str) -> Panel:
    low, high = entry.result.interval
    weight = "every task weighing by the share of its runs that is decided"
    return Panel(
        f"{name}band",
        "Interval for the error",
        interval_band(asdict(entry.path), alpha=entry.alpha, name=f"{name}band"),
        f"Now {percent(low)} to {percent(high)}, {weight}. It holds at every task at once with "
        f"{percent(1 - entry.delta)} confidence, as long as the error does not change.",
        "lead",
    )


def _distinct(document: MonitorRecord) -> list[dict[str, str]]:
    """Findings of the document and of its monitors, each sentence once."""
    found: Sequence[Mapping[str, str]] = [
        *document.findings,
        *(one for entry in document.monitors for one in entry.result.findings),
    ]
    return [dict(pair) for pair in dict.fromkeys(tuple(finding.items()) for finding in found)]
