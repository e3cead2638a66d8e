"""The page of a corpus: sections of figures and tables, which the command prints as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.config import corpus_file
from certify_assets.corpora.splits import SPLITS
from certify_assets.reports.charts import task_heatmap
from certify_assets.reports.page import (
    Banner,
    PageCell,
    PageTable,
    Panel,
    Section,
    home_of,
    markdown_table,
    render,
    store_page,
)
from certify_assets.reports.wording import DASH, count, counted, measured, rate, success

if TYPE_CHECKING:
    from certify_assets.corpora.leakage import LeakChecks
    from certify_assets.corpora.report import CorpusReport
    from certify_assets.storage.store import Store

_MOST_AGENTS = 60


def corpus_sections(report: CorpusReport) -> list[Section]:
    """Return everything that is known of a corpus; no outcome of TEST but in the profile's own."""
    return [_profile(report), _splits(report), _flips(report), _agents(report), *_rest(report)]


def _profile(report: CorpusReport) -> Section:
    profile = report.profile
    fewest, most = profile.attempts
    return Section(
        "Profile",
        "profile",
        facts=[
            ("labelled runs", count(profile.trajectories)),
            ("without a label", count(profile.unlabelled)),
            ("tasks", count(profile.tasks)),
            ("agents", count(len(profile.agents))),
            (
                "runs a task",
                count(fewest) if fewest == most else f"{count(fewest)} to {count(most)}",
            ),
            ("success rate π", success(profile.success_rate)),
            ("task ICC", rate(profile.icc)),
            ("design effect DEFF", f"{profile.deff:.2f}"),
            ("effective runs n_eff", f"{profile.n_eff:,.1f}"),
        ],
    )


def _splits(report: CorpusReport) -> Section:
    manifest, splits = report.manifest, report.profile.splits
    if not splits:
        return Section("Splits", "splits", "not split", notes=[f"Not split: {report.unsplit}"])
    columns = ("split", "tasks", "labelled runs", "π", "ICC", "n_eff")
    rows = [
        (
            name.upper(),
            count(part.tasks),
            count(part.trajectories),
            measured(part.success_rate if part.trajectories else None),
            rate(part.icc),
            f"{part.n_eff:,.1f}",
        )
        for name in SPLITS
        if (part := splits.get(name)) is not None
    ]
    gist = f"seed {manifest.seed}, profile {manifest.profile}" if manifest else ""
    return Section(
        "Splits", "splits", gist, tables=[PageTable("Splits", columns, rows, look="cards")]
    )


def _flips(report: CorpusReport) -> Section:
    flips = report.profile.flips
    facts = [(f"tasks that flip, of {count(flips.tasks)}", measured(flips.task_rate))]
    if flips.cells:
        pairs = f"pairs of task and agent that flip, of {count(flips.cells)}"
        facts.append((pairs, measured(flips.cell_rate)))
    note = (
        "A task, or a pair of task and agent, flips if some of its labelled attempts succeed and "
        "some fail. That is not a label error: the runs themselves differ. TEST is left out."
    )
    return Section("Flips", "flips", "tasks whose attempts differ", facts=facts, notes=[note])


def _agents(report: CorpusReport) -> Section:
    read = {item.agent: item for item in report.leak_checks.evidence.agents}
    rows = []
    # a stored profile has them by name
    for name, runs in Counter(report.profile.agents).most_common(_MOST_AGENTS):
        item = read.get(name)
        known = ("0", "0", DASH)
        if item is not None:
            known = count(item.trajectories), count(item.tasks), measured(item.success_rate)
        rows.append((name, count(runs), *known))
    columns = ("agent", "runs", "labelled, outside TEST", "their tasks", "success rate of those")
    return Section(
        "Outcomes by task and attempt",
        "map",
        "every run, and each agent",
        tables=[PageTable("Agents", columns, rows, look="cards")],
    )


def _rest(report: CorpusReport) -> Iterator[Section]:
    profile, imported, controls = report.profile, report.imported, report.leak_checks
    phrases = [
        (
            item.name,
            count(item.trajectories),
            measured(item.success_rate_with),
            measured(item.success_rate_without),
            f"{run}, {f'step {step}' if step else 'instruction'}",
            text,
        )
        for item in controls.evidence.phrases
        for run, step, text in item.examples
    ]
    tables = [control_table(controls)]
    if phrases:
        columns = ("phrase", "runs", "of these succeed", "of others", "example", "text")
        tables.append(PageTable("Verdict phrases", columns, phrases, look="cards"))
    accepted = f"Accepted, and on every certificate: {controls.accepted}"
    yield Section(
        "What predicts the outcome without reading the run",
        "leaks",
        f"over the threshold: {', '.join(controls.over) or 'none'}",
        tables=tables,
        notes=[accepted] if controls.accepted else [],
    )
    labels = [
        ("source of the outcomes", imported.label_source or "not recorded"),
        *(
            (name.replace("_", " "), f"{value:,.4g}" if value % 1 else count(value))
            for name, value in imported.label_facts.items()
        ),
        ("runs whose text has both outcomes", count(profile.flips.contradicted)),
    ]
    table = PageTable("Labels", ("figure", "value"), labels, look="cards")
    yield Section("Labels", "labels", "where outcomes come from", tables=[table])
    facts = [
        ("runs that read like an earlier one", count(profile.duplicates)),
        ("groups of tasks with one instruction", count(len(profile.same_instruction))),
    ]
    if (lengths := profile.lengths) is not None:
        facts += [
            ("characters, median", count(lengths.median)),
            ("longest", count(lengths.longest)),
            ("runs that judges of 6,000 characters cut", count(lengths.cut)),
        ]
    yield Section("Texts", "texts", "lengths, duplicates, shared instructions", facts=facts)
    dropped = [
        (reason, count(number), imported.examples.get(reason, ""))
        for reason, number in profile.dropped.items()
    ]
    counts = [(note, count(number)) for note, number in imported.notes.items()]
    tables = [
        PageTable("Left out", ("reason", "records", "the first"), dropped, look="cards"),
        PageTable("Notes", ("note", "count"), counts, look="cards"),
    ]
    gist = counted(sum(profile.dropped.values()), "record")
    if shown := [table for table in tables if table.rows]:
        yield Section("Left out by the import", "left-out", gist, tables=shown)


def control_table(controls: LeakChecks) -> PageTable:
    """Return every leak control with its threshold."""
    rows = []
    for name, value in controls.measured.items():
        state = PageCell("under", tag="PASS")
        if name in controls.over:
            accepted = bool(controls.accepted)
            state = (
                PageCell("over, accepted", tag="WARN")
                if accepted
                else PageCell("over", tag="ERROR")
            )
        rows.append((name, rate(value), f"{controls.threshold(name):g}", state))
    return PageTable(
        "Leak checks",
        ("control", "AUROC", "threshold", "AUROC is"),
        rows,
        "AUROC of each control; for length, steps and phrases in the better direction. TEST is "
        "left out. A control over its threshold blocks the corpus until you accept it with a "
        "reason.",
        look="cards",
    )


def write_corpus_page(store: Store, report: CorpusReport) -> str:
    """Store a corpus's page; return where it is."""
    corpus = report.config.name
    key = page_key(corpus)
    return store_page(store, key, render_corpus(report, home=home_of(key, corpus)))


def render_corpus(report: CorpusReport, *, home: str = "") -> str:
    """Render the page."""
    profile, map_ = report.profile, _map(report)
    return render(
        "page.html",
        kind="Corpus",
        home=home,
        title=report.config.name,
        about=f"{counted(profile.trajectories, 'labelled run')} of "
        f"{counted(profile.tasks, 'task')}, success rate: "
        f"{success(profile.success_rate)}, task ICC {rate(profile.icc, 2)}. Format "
        f"{report.imported.format}, domain {report.domain}.",
        banner=standing(report),
        sections=[
            replace(section, panels=[map_]) if section.id == "map" else section
            for section in corpus_sections(report)
        ],
        unfolded=True,
        sources="the numbers are in profile.json, controls.json and import.json next to it",
    )


def standing(report: CorpusReport) -> Banner:
    """Say whether a judge can be certified here."""
    controls = report.leak_checks
    gates = [gate for gate in report.profile.gates if gate.split != "test"]
    sentences = [gate.reason for gate in gates]
    if report.unsplit:
        sentences.append(f"It cannot be split: {report.unsplit}")
    if controls.over:
        leak = (
            f"The outcome can be predicted without reading the run, by {', '.join(controls.over)}"
        )
        if controls.passed:
            said = f"{leak}. Accepted: {controls.accepted}"
            return Banner("warn", "Open, with an accepted leak", [said, *sentences])
        said = f"{leak}; it is not accepted."
        return Banner("failed", "Blocked by a structural leak", [said, *sentences])
    if report.unsplit or not any(gate.possible for gate in gates):
        return Banner("nothing", "No certificate is possible by arithmetic", sentences)
    return Banner("certified", "A certificate is possible", sentences)


def _map(report: CorpusReport) -> Panel:
    runs = report.runs
    if runs.empty:
        return Panel("runs", "", "", "No labelled run outside TEST.", "wide")
    order = list(zip(runs["agent"], runs["attempt"], strict=True))
    drawn = task_heatmap(
        runs["task_id"].tolist(),
        order,
        ["run"] * len(runs),
        runs["outcome"].to_numpy(dtype="int8"),
        label="Outcomes by task and attempt",
    )
    caption = (
        "One row is a task, the easiest on top. One cell is a run, by agent and attempt. In a row "
        "of one colour, all attempts ended alike."
    )
    if drawn.shown < drawn.tasks:
        caption += f" The figure shows {count(drawn.shown)} evenly spaced tasks."
    if report.manifest is not None:
        caption += (
            f" The {count(len(report.manifest.tasks['test']))} tasks of TEST are left out, to keep "
            "their outcomes unseen."
        )
    return Panel("runs", "", drawn.markup, caption, "wide")


def check_table(controls: LeakChecks) -> str:
    """Return the controls as a Markdown table for the metadata of their check."""
    table = control_table(controls)
    return "\n".join(markdown_table(table.columns, table.rows))


def page_key(corpus: str) -> str:
    """Return where a corpus's page is stored."""
    return corpus_file(corpus, "page.html")


def profile_markdown(gates: Sequence[Mapping[str, Any]]) -> str:
    """Return the gates of a corpus profile, which knows no judge, as a Markdown list."""
    lines = []
    for gate in gates:
        passed = gate["possible"] and gate["enough_samples"]
        look = "● passed" if passed else "○ not passed"
        lines.append(f"- {look}: α = {gate['alpha']:g}. {gate['reason']}")
    return "\n".join(lines)
