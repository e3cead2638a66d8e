"""The monitor as a page and as the verdict of its asset."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.deployment import load_deployment
from certify_assets.operations.monitoring import (
    MonitorEntry,
    MonitorRecord,
    load_monitor,
    stored_monitor,
)
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
    markdown_table,
    render,
    store_page,
)
from certify_assets.reports.wording import compact, count, counted, done, percent
from certify_assets.words import WORDS

_HEADINGS = {
    "alarm": ("failed", "Alarm: labelled tasks show an error above the budget"),
    "too_few": ("warn", "No alarm, but too few tasks to say much"),
    "nothing": ("nothing", "Nothing to monitor yet"),
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
    return _write(judge, load_monitor(judge))


def draw_deployed(corpus: Corpus) -> None:
    """Draw the last monitor of the deployed judge again, if it has read labels."""
    deployed = load_deployment(corpus)
    if deployed is None:
        return
    judge = deployed.judge_on(corpus)
    # `load_monitor` would refuse it: a batch was decided since
    record = stored_monitor(judge)
    if record is not None and record.monitors:
        _write(judge, record)


def _write(judge: JudgedCorpus, record: MonitorRecord) -> str:
    key = judge.key("monitor.html")
    home = home_of(key, judge.corpus.name)
    page = render_monitor_page(record, title=f"{judge.corpus}, {judge} judge", home=home)
    return store_page(judge.store, key, page)


def monitor_markdown(document: MonitorRecord) -> str:
    """Return the verdict block of the asset: under 1,000 characters, no text of the data."""
    _, heading = _HEADINGS[document.status]
    rows = [
        (
            WORDS[entry.side],
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
        result, where = entry.result, f"{entry.side}_at_{entry.alpha:g}"
        metrics[f"e_value_{where}"] = result.e_value
        metrics[f"error_low_{where}"], metrics[f"error_high_{where}"] = result.interval
        if result.realized_error is not None:
            metrics[f"error_{where}"] = result.realized_error
    return metrics


def _monitor(entry: MonitorEntry, name: str) -> Section:
    """Return one certificate's monitor as shown."""
    state = PageCell("no alarm", tag="PASS")
    if entry.result.alarm:
        state = PageCell("alarm: issue a new certificate", tag="ERROR")
    low, high = entry.result.interval
    caption = (
        f"Now {percent(low)} to {percent(high)}. A task weighs by the share of its runs that is "
        f"decided. With {percent(1 - entry.delta)} confidence, the interval is right after every "
        "task, as long as the error does not change."
    )
    heading = "Interval for the error"
    drawn = interval_band(asdict(entry.path), alpha=entry.alpha, name=f"{name}band", label=heading)
    return Section(
        f"{done(entry.side).capitalize()} runs, budget {percent(entry.alpha)}",
        texts=[state],
        facts=_facts(entry),
        panels=[Panel(f"{name}band", heading, drawn, caption, "lead")],
        notes=[f"The certificate: {entry.promise} {entry.certificate_sha256}"],
    )


def _labels(document: MonitorRecord) -> Section:
    """Return how many labels were read, and why drawn tasks were left out."""
    texts, tables = ["None yet."], []
    if document.operation is not None:
        labels, streams = document.operation.labels, document.operation.streams
        texts = [f"Labels and outcomes up to event {labels.sequence} ({labels.sha256})."]
        reasons = Counter[str]()
        for stream in streams.values():
            # sides differ in nothing but the labels that their certificates rest on
            reasons |= Counter(stream.left_out)
        rows = [(name.replace("_", " "), count(number)) for name, number in reasons.items()]
        tables = [PageTable("Tasks left out", ("left out", "tasks"), rows)] if rows else []
    return Section(
        "Labels that were read",
        texts=texts,
        tables=tables,
        notes=[
            "Only tasks that were drawn at random before scoring and whose drawn runs are all "
            "labelled, in the order of their arrival."
        ],
    )


def _facts(entry: MonitorEntry) -> list[tuple[str, str]]:
    result, state = entry.result, entry.result.e_process

    def after(tasks: int | None, never: str) -> str:
        return never if tasks is None else f"after {counted(tasks, 'task')}"

    return [
        ("labelled tasks", count(result.tasks)),
        ("with a decided run", count(result.covered_tasks)),
        ("decided runs, wrong", f"{count(result.covered_trajectories)}, {count(result.errors)}"),
        ("realised error", percent(result.realized_error)),
        (
            f"evidence of more than {percent(entry.alpha)}",
            f"{compact(state.value)}, alarm from {count(state.threshold)}",
        ),
        ("first alarm", after(result.first_alarm_at, "none")),
        ("certified by these alone", after(result.certified_at, "not yet")),
    ]


def _findings(document: MonitorRecord) -> list[Remark]:
    """Findings of the document and of its monitors, each sentence once."""
    found = [*document.findings, *(one for m in document.monitors for one in m.result.findings)]
    return list(dict.fromkeys(Remark(item["message"], item["code"]) for item in found))
