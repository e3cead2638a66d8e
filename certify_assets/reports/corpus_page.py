"""The page of a corpus: its figures and leak controls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.config import corpus_file
from certify_assets.corpora.splits import SPLITS
from certify_assets.reports.charts import outcome_heatmap
from certify_assets.reports.wording import (
    DASH,
    count,
    counted,
    home_of,
    inline_block,
    markdown_table,
    measured,
    percent,
    rate,
    render,
    store_page,
    success,
)

if TYPE_CHECKING:
    from certify_assets.corpora.corpus import ImportSummary
    from certify_assets.corpora.leakage import LeakChecks
    from certify_assets.corpora.profile import CorpusProfile, FlipRates, TextLengths
    from certify_assets.corpora.report import CorpusReport
    from certify_assets.storage.store import Store

_MOST_AGENTS = 60
Fact = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ControlRow:
    """One control as shown; `width` is that of its bar in percent."""

    name: str
    auroc: str
    interval: str
    threshold: str
    bar: str
    over: bool


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent: its runs, those with an outcome outside TEST, their tasks and success rate."""

    name: str
    runs: str
    read: str
    tasks: str
    success_rate: str
    bar: str


def profile_facts(profile: CorpusProfile) -> list[Fact]:
    """Return size and clustering of the corpus, each as what it is and its value."""
    fewest, most = profile.attempts
    return [
        ("labelled runs", count(profile.trajectories)),
        ("without a label", count(profile.unlabelled)),
        ("tasks", count(profile.tasks)),
        ("agents", count(len(profile.agents))),
        ("runs a task", count(fewest) if fewest == most else f"{count(fewest)} to {count(most)}"),
        ("success rate π", success(profile.success_rate)),
        ("task ICC", rate(profile.icc)),
        ("design effect DEFF", f"{profile.deff:.2f}"),
        ("effective runs n_eff", f"{profile.n_eff:,.1f}"),
    ]


def split_rows(profile: CorpusProfile) -> list[tuple[str, ...]]:
    """Return the figures of every split."""
    return [
        (
            name.upper(),
            count(part.tasks),
            count(part.trajectories),
            measured(part.success_rate if part.trajectories else None),
            rate(part.icc),
            f"{part.deff:.2f}",
            f"{part.n_eff:,.1f}",
        )
        for name in SPLITS
        if (part := profile.splits.get(name)) is not None
    ]


def control_rows(controls: LeakChecks) -> list[ControlRow]:
    """Return every control with its interval and threshold."""
    rows = []
    for name, value in controls.measured.items():
        bound = controls.intervals.get(name)
        limit = controls.threshold(name)
        interval = DASH if bound is None else f"{rate(bound[0])} to {rate(bound[1])}"
        rows.append(
            ControlRow(
                name,
                rate(value),
                interval,
                f"{limit:g}",
                f"{100 * (value or 0):.1f}",
                name in controls.over,
            )
        )
    return rows


def agent_rows(profile: CorpusProfile, controls: LeakChecks) -> list[AgentRow]:
    """Return every agent (at most 60); success rates are of the runs outside TEST."""
    read = {item.agent: item for item in controls.evidence.agents}
    rows = []
    # a stored profile has them by name
    for name, runs in Counter(profile.agents).most_common(_MOST_AGENTS):
        item = read.get(name)
        if item is None:
            rows.append(AgentRow(name, count(runs), "0", "0", DASH, "0"))
            continue
        share = item.success_rate
        rows.append(
            AgentRow(
                name,
                count(runs),
                count(item.trajectories),
                count(item.tasks),
                measured(share),
                f"{100 * share:.1f}",
            )
        )
    return rows


def flip_facts(flips: FlipRates) -> list[Fact]:
    """Return the flip rates, of agents' attempts and of tasks, and what they leave to a judge."""
    return [
        (f"pairs of task and agent that flip, of {count(flips.cells)}", measured(flips.cell_rate)),
        (f"tasks that flip, of {count(flips.tasks)}", measured(flips.task_rate)),
        (
            "accuracy at most, knowing task and agent without reading",
            measured(flips.unread_ceiling),
        ),
        ("accuracy at most, if equal texts get equal verdicts", percent(flips.label_ceiling, 2)),
    ]


def label_rows(imported: ImportSummary, flips: FlipRates) -> list[Fact]:
    """Return where outcomes come from and what speaks of their disagreement."""
    facts = [
        (name.replace("_", " "), f"{value:,.4g}" if value % 1 else count(value))
        for name, value in imported.label_facts.items()
    ]
    contradicted = counted(flips.contradicted, "run")
    return [
        ("source of the outcomes", imported.label_source or "not recorded"),
        *facts,
        ("runs whose text has both outcomes", contradicted),
    ]


def length_facts(lengths: TextLengths | None) -> list[Fact]:
    """Return the lengths of the uncut texts and what the default budget takes from them."""
    if lengths is None:
        return []
    return [
        ("characters, median", count(lengths.median)),
        ("95th percentile", count(lengths.p95)),
        ("shortest", count(lengths.shortest)),
        ("longest", count(lengths.longest)),
        ("runs that judges of 6,000 characters cut", count(lengths.cut)),
        ("of all characters cut", measured(lengths.cut_share)),
    ]


def write_corpus_page(store: Store, report: CorpusReport) -> str:
    """Store a corpus's page; return where it is."""
    corpus = report.config.name
    key = page_key(corpus)
    return store_page(store, key, render_corpus(report, home=home_of(key, corpus)))


def render_corpus(report: CorpusReport, *, home: str = "") -> str:
    """Render the page."""
    profile, controls = report.profile, report.leak_checks
    state, heading, sentences = standing(report)
    drawn, caption = _map(report)
    return render(
        "corpus.html",
        home=home,
        title=report.config.name,
        about=f"{counted(profile.trajectories, 'labelled run')} of "
        f"{counted(profile.tasks, 'task')}, success rate: "
        f"{success(profile.success_rate)}, task ICC {rate(profile.icc, 2)}; read from the format "
        f"{report.imported.format}; domain {report.domain}",
        state=state,
        heading=heading,
        sentences=sentences,
        facts=profile_facts(profile),
        profile=profile,
        splits=split_rows(profile),
        unsplit=report.unsplit,
        manifest=report.manifest,
        controls=control_rows(controls),
        accepted=controls.accepted,
        phrases=controls.evidence.phrases,
        agents=agent_rows(profile, controls),
        directions=directions(controls),
        flips=flip_facts(profile.flips),
        labels=label_rows(report.imported, profile.flips),
        lengths=length_facts(profile.lengths),
        imported=report.imported,
        map=drawn,
        map_caption=caption,
    )


def standing(report: CorpusReport) -> tuple[str, str, list[str]]:
    """Return state, heading and sentences of the banner: can a judge be certified here."""
    controls = report.leak_checks
    gates = [gate for gate in report.profile.gates if gate.split != "test"]
    possible = [gate for gate in gates if gate.possible]
    sentences = [gate.reason for gate in gates]
    if report.unsplit:
        sentences.append(f"It cannot be split: {report.unsplit}")
    if controls.over:
        names = ", ".join(controls.over)
        leak = f"The outcome can be predicted without reading the run, by {names}"
        if not controls.passed:
            return (
                "failed",
                "Blocked by a structural leak",
                [f"{leak}; it is not accepted.", *sentences],
            )
        return (
            "warn",
            "Open, with an accepted leak",
            [f"{leak}. Accepted: {controls.accepted}", *sentences],
        )
    if report.unsplit or not possible:
        return "nothing", "No certificate is possible by arithmetic", sentences
    return "certified", "A certificate is possible", sentences


def corpus_markdown(report: CorpusReport) -> str:
    """Return the asset's block: under 1,000 characters, no text of the corpus."""
    profile, flips = report.profile, report.profile.flips
    figures = (
        count(profile.trajectories),
        count(profile.tasks),
        rate(profile.success_rate),
        rate(profile.icc),
        count(profile.n_eff),
        f"{measured(flips.cell_rate)} / {measured(flips.task_rate)}",
    )
    shown = sorted(control_rows(report.leak_checks), key=lambda row: not row.over)[:6]
    controls = [(row.name, row.auroc, row.interval, row.threshold) for row in shown]
    lines = [
        f"**{standing(report)[1]}**",
        "",
        *markdown_table(("runs", "tasks", "π", "ICC", "n_eff", "flips: cells / tasks"), [figures]),
        "",
        *markdown_table(("control", "AUROC", "95 %", "threshold"), controls),
    ]
    return inline_block(lines, "block of the corpus")


def directions(controls: LeakChecks) -> list[str]:
    """Say how much text length and number of steps tell of the outcome, and which way."""
    longer = "longer" if controls.longer_succeeds else "shorter"
    more = "with more steps" if controls.more_steps_succeed else "with fewer steps"
    measured = controls.measured
    return [
        _direction("length", measured["length"], longer),
        _direction("steps", measured["steps"], more),
    ]


def _direction(name: str, auroc: float | None, words: str) -> str:
    if auroc is None:
        return f"Nothing to measure {name} by: all outcomes are equal."
    return (
        f"Where a success and a failure are drawn, the one {words} is the success in "
        f"{percent(auroc)} of pairs. TEST is left out."
    )


def _map(report: CorpusReport) -> tuple[str, str]:
    runs = report.runs
    if runs.empty:
        return "", "No labelled run outside TEST."
    drawn = outcome_heatmap(
        runs["task_id"].tolist(),
        runs["agent"].tolist(),
        runs["attempt"].tolist(),
        runs["outcome"].to_numpy(dtype="int8"),
    )
    caption = (
        "One row a task, the easiest on top; one cell a run, by agent and attempt. Rows of one "
        "colour are tasks that always end alike."
    )
    if drawn.shown < drawn.tasks:
        caption += f" An even sample of {count(drawn.shown)} tasks is drawn."
    if report.manifest is not None:
        caption += (
            f" The {len(report.manifest.tasks['test'])} tasks of TEST are left out: their outcomes "
            "are not looked at."
        )
    return drawn.markup, caption


def check_table(controls: LeakChecks) -> str:
    """Return the controls as a Markdown table for the metadata of their check."""
    rows = [
        (row.name, row.auroc, row.interval, row.threshold, "at or over" if row.over else "")
        for row in control_rows(controls)
    ]
    return "\n".join(markdown_table(("control", "AUROC", "95 % over tasks", "threshold", ""), rows))


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
