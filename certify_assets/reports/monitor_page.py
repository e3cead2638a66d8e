"""The monitor as a page and as the verdict of its asset."""

from __future__ import annotations

from dataclasses import asdict

from certify_assets.certificates.monitor import DetectorState
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.monitor_record import MonitorEntry, MonitorRecord, SampleFile
from certify_assets.operations.monitoring import load_monitor
from certify_assets.reports.figures import interval_band
from certify_assets.reports.page import (
    Banner,
    PageCell,
    PageTable,
    Panel,
    Remark,
    Section,
    home_of,
    inline_block,
    render,
    store_page,
)
from certify_assets.reports.wording import compact, count, counted, done, percent

_HEADINGS = {
    "alarm": ("failed", "Alarm: labelled tasks speak for an error above the budget"),
    "too_few": ("warn", "No alarm, on too few tasks to say much"),
    "nothing": ("nothing", "Nothing was monitored"),
    "quiet": ("certified", "No alarm"),
}


def render_monitor_page(document: MonitorRecord, *, title: str, home: str = "") -> str:
    """Render the page of a monitor."""
    sections = [_monitor(entry, f"m{place}") for place, entry in enumerate(document.monitors)]
    sections.append(_labels(document))
    if findings := _findings(document):
        sections.append(Section("Findings", findings=findings))
    return render(
        "page.html",
        kind="Monitor of a certified threshold",
        home=home,
        title=title,
        banner=Banner(*_HEADINGS[document.status], [document.reason]),
        sections=sections,
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
    table = ["", *PageTable("", columns, rows).markdown(tight=True)] if rows else []
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


def _monitor(entry: MonitorEntry, name: str) -> Section:
    """Return one certificate's monitor as shown."""
    whose = ", labels of operation" if entry.source == "operation" else ""
    state = PageCell("no alarm", tag="PASS")
    if entry.result.alarm:
        state = PageCell("alarm: issue a new certificate", tag="ERROR")
    low, high = entry.result.interval
    caption = (
        f"Now {percent(low)} to {percent(high)}, every task weighing by the share of its runs that "
        f"is decided. It holds at every task at once with {percent(1 - entry.delta)} confidence, "
        "as long as the error does not change."
    )
    drawn = interval_band(asdict(entry.path), alpha=entry.alpha, name=f"{name}band")
    return Section(
        f"{done(entry.side).capitalize()} runs, budget {percent(entry.alpha)}{whose}",
        texts=[state],
        facts=_facts(entry),
        panels=[Panel(f"{name}band", "Interval for the error", drawn, caption, "lead")],
        notes=[f"The certificate: {entry.promise} {entry.certificate_sha256}"],
    )


def _labels(document: MonitorRecord) -> Section:
    """Return the files that were read, and the labels of operation where the judge is deployed."""
    files = list(document.files)
    if document.operation is not None:
        streams = document.operation.streams.values()
        rows = max((item.rows for item in streams), default=0)
        tasks = max((item.audit_tasks for item in streams), default=0)
        labels = document.operation.labels
        files.append(
            SampleFile(f"labels up to event {labels.sequence}", labels.sha256, rows, tasks)
        )
    read = [
        (file.name, count(file.rows), count(file.tasks), PageCell(file.sha256, look="hash"))
        for file in files
    ]
    columns = ("file", "runs", "tasks", "SHA-256")
    return Section(
        "Labels that were read",
        texts=[] if read else ["None yet."],
        tables=[PageTable("Table of files", columns, read, look="lineage")] if read else [],
        notes=[
            "Only tasks drawn at random before scoring, with every attempt labelled, in the order "
            "in which they came. Labels of what the judge could not decide are refused. The "
            "platform also refuses tasks of the splits."
        ],
    )


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


def _findings(document: MonitorRecord) -> list[Remark]:
    """Findings of the document and of its monitors, each sentence once."""
    found = [*document.findings, *(one for m in document.monitors for one in m.result.findings)]
    return list(dict.fromkeys(Remark(item["message"], item["code"]) for item in found))
