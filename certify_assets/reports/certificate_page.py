"""The certificate page: one HTML file, no script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from certify_assets.certificates.findings import RELABELLED
from certify_assets.certificates.gates import sample_gate
from certify_assets.certificates.procedures import SIMULATED
from certify_assets.certificates.sides import OUTCOME_WORDS, confusion
from certify_assets.reports.certificate_figures import build_panels
from certify_assets.reports.certificate_source import PageSource, deployed
from certify_assets.reports.page import Banner, PageCell, PageTable, Remark, Section, render
from certify_assets.reports.wording import (
    AUDIT_WORDS,
    compact,
    count,
    counted,
    done,
    log_odds,
    narrow_percents,
    percent,
    rate,
)
from certify_assets.storage.urls import is_web_address
from certify_assets.words import WORDS

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate, Diagnosis

_HOLDS = {
    "asymptotic": (
        "The confidence is approximate: it holds as the number of tasks grows. With few tasks it "
        "fails in some designs."
    ),
    "finite-sample": "The confidence holds at any number of tasks.",
    "finite-sample, proved": "The confidence is proved under the six assumptions below.",
    "finite-sample, proved, on average": (
        "The budget holds on average over certificates. This is proved under the six assumptions "
        "below. The confidence is that the error stays below twice the budget."
    ),
    "calibrated by simulation": (
        "The confidence is calibrated by simulation, not proved. More certificates are wrong where "
        "tasks come in groups that are not named, or where wrong tasks are larger than others."
    ),
    "none under clustering": (
        "The confidence needs independent runs, but runs of one task are not independent. Do not "
        "rely on it."
    ),
}
#: findings that the provenance of a certificate holds
_PROVENANCE: dict[str, str] = {
    "accepted_structural_leak": "The outcome can be predicted without reading the run: {}",
    "pseudo_labels": "The judge is certified on half B of CAL, and trained partly on "
    "pseudo-labels: {}.",
}
_CONTROLS: dict[str, str] = {
    "length_auroc": "text length alone",
    "agent_auroc": "the agent's average alone",
    "step_auroc": "number of steps alone",
}
#: findings under which the figures may not be what they seem, as the verdict says them
_DOUBTS = {
    RELABELLED: "after labels or runs were changed",
    "one_run_a_task": "but attempts may count as tasks",
    "copies_across_tasks": "but tasks may be copies of others",
    "scores_are_outcomes": "but the scores may be the outcomes",
}
_HEADINGS = {
    "certified": "Certified",
    "warn": "Certified, but the audit on held-out tasks is inconclusive",
    "failed": "Do not deploy: the audit contradicts the certificate",
    "nothing": "Nothing certified",
}
_SCALES = {
    "log-odds": "log-odds of success, P its probability",
    "probability": "probability of success",
}
_LIMITS = (
    "The budget is for decided runs as a whole. On a single task the judge can be wrong more "
    "often, even always.",
    "New kinds of tasks, other agents, another prompt or judge end the promise until new labelled "
    "tasks confirm it.",
    "More attempts at the same tasks add little evidence. More tasks do.",
    "The confidence does not cover choosing the best of several certificates afterwards.",
    "A wrong label counts as an error of the judge, or hides one.",
)
_MOST_DISAGREEMENTS = 10
_HASH = re.compile(r"[0-9a-f]{40,64}")
_Reasons = Sequence[tuple["Certificate", "Diagnosis"]]


def page_title(name: str, certificates: Sequence[Certificate]) -> str:
    """Return the title of a page that was given none: the table, and what is certified."""
    budgets: dict[str, list[str]] = {}
    for item in deployed(certificates):
        if item.certified:
            budgets.setdefault(WORDS[item.side], []).append(
                f"{percent(item.alpha)}{_average(item)}"
            )
    limits = [f"{side} ≤ {' and '.join(found)}" for side, found in budgets.items()]
    return f"{name}, {', '.join(limits) or 'nothing certified'}"


def render_page(
    certificates: Sequence[Certificate],
    scores_frame: pd.DataFrame,
    *,
    title: str,
    home: str = "",
    **about: Any,
) -> str:
    """Render the page on which a release is decided: any certificates of one score table.

    The default procedure leads where it is present. `about` are further fields of `PageSource`.
    """
    source = PageSource(certificates=list(certificates), scores=scores_frame, **about)
    main, reasons = source.headline, _reasons(source)
    where = "" if source.evidence == "CAL" else f" in {source.evidence}"
    known = len(source.cal)
    of = f"of the {counted(known, 'labelled run')} " if known < len(source.issued_on) else ""
    runs = "drawn run" if source.drawn else "run"
    facts = (
        f"{counted(main.trajectories, runs)} of {counted(main.tasks, 'task')}{where}, "
        f"{percent(main.success_rate)} {of}successful, task ICC {rate(main.icc, 2)}"
    )
    return render(
        "certificate.html",
        kind="Certificate of selective automation",
        hashed=f"certificate {main.sha256}",
        sources=f"certificate {main.sha256}",
        date=source.date,
        home=home,
        title=title,
        about=facts if main.trajectories else "No run has a score.",
        banner=_banner(source, reasons),
        sections=list(_sections(source, reasons)),
        unfolded=False,
        promises=[item.statement for item in source.sides if item.certified],
        controls=_controls(source),
        canaries=source.canaries,
    )


def _average(item: Certificate) -> str:
    return " on average" if item.promise == "average" else ""


def _claim(item: Certificate) -> str:
    return f"{WORDS[item.side]} ≤ {percent(item.alpha)}{_average(item)}"


def _reasons(source: PageSource) -> list[tuple[Certificate, Diagnosis]]:
    """Return a reason for every budget and side that certifies nothing."""
    from certify_assets.certificates import diagnose

    tasks = None if source.profile is None else source.profile.tasks
    found = []
    for certificate in source.deployed:
        if not certificate.certified:
            columns, settings = source.recomputing(certificate)
            found.append((certificate, replace(diagnose(*columns, **settings), corpus_tasks=tasks)))
    return found


def _banner(source: PageSource, reasons: _Reasons) -> Banner:
    """Say what a reader needs who decides whether to deploy."""
    main = source.headline
    if main.certified:
        verdicts = {source.verdict(item) for item in source.sides}
        state = "failed" if "ERROR" in verdicts else "warn" if "WARN" in verdicts else "certified"
        sentence, facts = _sentence(source), [_audit_fact(source)]
    else:
        state, sentence, facts = "nothing", "Every run goes to review.", []
        if reasons:
            item, why = reasons[0]
            sentence += f" {WORDS[item.side].capitalize()} at {percent(item.alpha)}: {why.sentence}"
    heading = _HEADINGS[state]
    doubts = [item for item in main.findings if item["code"] in _DOUBTS]
    if doubts:
        sentence = " ".join([sentence, *(item["message"] for item in doubts)])
        if state in ("certified", "warn"):
            state, heading = "warn", f"Certified, {_DOUBTS[doubts[0]['code']]}"
    if main.promise == "average" and state in ("certified", "warn"):
        state, heading = "warn", heading.replace("Certified", "Certified on average")
    promise = f"{main.validity}; for new tasks like these, of these agents"
    facts.append(("kind of promise", "corpus certificate", promise))
    # both sides of one run are counted as the review that they lead to
    counts = {side: counted(source.counts[side], "run") for side in WORDS}
    return Banner(state, heading, [sentence], facts, source.both.shares, counts)


def _sentence(source: PageSource) -> str:
    from certify_assets.certificates import confidence_words

    main, sides = source.headline, source.sides
    if main.promise == "average":
        # the words of a confidence would say too much
        return " ".join(item.statement for item in sides)
    trust = narrow_percents(confidence_words(source.confidence, main.validity))
    both = " for both at once" if len(sides) > 1 else ""
    if len({item.alpha for item in sides}) == 1:
        among = " and among the ".join(done(item.side) for item in sides)
        limits = f"among the {among} runs: at most {percent(main.alpha)}"
    else:
        limits = " and ".join(
            f"at most {percent(item.alpha)} among the {done(item.side)} runs" for item in sides
        )
    overlap = ""
    if round(source.both.overlap, 4) > 0:
        share = percent(source.both.overlap)
        overlap = f" {share} of runs fall under both thresholds and go to review."
    return f"Wrong decisions {limits}, with {trust}{both}.{overlap}"


def _audit_fact(source: PageSource) -> tuple[str, str, str]:
    worst = max(source.sides, key=lambda c: list(AUDIT_WORDS).index(source.verdict(c)))
    audit, wrong = source.audit_of(worst), ""
    if audit is not None and audit.realized_error is not None:
        wrong = (
            f"{percent(audit.realized_error, 2)} wrong among {done(worst.side)} runs of "
            f"{counted(audit.covered_tasks, 'task')}"
        )
    words = AUDIT_WORDS[source.verdict(worst)].removesuffix(" on held-out tasks")
    return "held-out check (audit)", words, wrong


def _sections(source: PageSource, reasons: _Reasons) -> Iterator[Section]:
    main = source.headline
    decided = f"{percent(source.both.decided)} of runs decided"
    yield Section(
        "What is certified",
        "certified",
        decided if main.certified else "nothing certified",
        tables=[_certified(source)],
        notes=_together(source),
    )
    yield Section("The promise", "promise", texts=list(_promise_notes(source)))
    yield from _audits(source)
    if main.certified:
        yield _disagreements(source)
    if reasons:
        found = [Remark(why.sentence, about=_claim(item)) for item, why in reasons]
        gist = counted(len(found), "claim")
        yield Section("What is not certified, and why", "reasons", gist, findings=found)
    shares = main.delta / main.level
    gate = sample_gate(main.n_eff, alpha=main.alpha, delta=main.delta, grid=shares)
    yield Section(
        "Corpus and judge",
        "corpus",
        "evidence, ranking, leak checks",
        facts=_evidence(source),
        notes=[gate.reason],
    )
    panels = build_panels(source)
    yield Section("Figures", "figures", counted(len(panels), "figure"), panels=panels)
    if source.arms:
        yield _arms(source)
    findings = _findings(source)
    yield Section(
        "Findings",
        "findings",
        counted(len(findings), "finding") if findings else "none",
        texts=[] if findings else ["Nothing stands out."],
        findings=findings,
        notes=[f"Selection. {main.selection}"] if main.candidates > 1 else [],
    )
    yield _lineage(source)
    yield Section(
        "What it assumes, and where it ends",
        "limits",
        # the text of the document names a page that a reader of a mailed file does not have
        findings=[
            Remark(_HOLDS["calibrated by simulation"] if text == SIMULATED else text)
            for text in (*main.assumptions, *_LIMITS)
        ],
    )


def _certified(source: PageSource) -> PageTable:
    main, on, scale = source.headline, source.evidence, source.score_scale
    average = main.promise == "average"
    shared = f"{percent(1 - main.delta)} confidence a row"
    if average:
        shared += " that the error of this certificate is below twice the budget"
    rows, marked = [], []
    for place, item in enumerate(source.deployed):
        row = [f"≤ {percent(item.alpha)}", PageCell(WORDS[item.side], look=f"side-{item.side}")]
        if item.certified:
            verdict = source.verdict(item)
            words = AUDIT_WORDS[verdict]
            said = words if verdict == "NONE" else f"{verdict}, {words}"
            sign = "≤" if item.side == "reject" else "≥"
            row += [
                PageCell(percent(item.coverage), look="num big"),
                f"{sign} {log_odds(item.threshold, scale)}",
                percent(item.selective_error, 2),
                f"{count(item.covered_tasks)} of {count(item.tasks)}",
                PageCell(said, tag=verdict, look="audit"),
            ]
        else:
            row.append(PageCell("nothing certified", tag="no", look="off"))
        rows.append(row)
        marked += [place] if item.certified and item in source.sides else []
    columns = (
        "wrong on average, of the share decided" if average else "error at most",
        "decision",
        "share decided",
        "where the score is",
        f"wrong on {on}",
        f"{on} tasks",
        "audit on TEST",
    )
    caption = f"Procedure {main.procedure}, {shared}."
    if scale in _SCALES:
        caption += f" The score is the judge's {_SCALES[scale]}."
    return PageTable("Certified shares", columns, rows, caption, look="cards", marked=marked)


def _together(source: PageSource) -> list[str]:
    """Say how several rows hold at once."""
    shown = sum(item.certified for item in source.deployed)
    if shown < 2:
        return []
    two = "the caps of two rows" if source.headline.promise == "average" else "two rows"
    return [
        "Each row is a promise of its own. Relying on several at once adds up their risks: "
        f"{two} together hold with {percent(1 - 2 * source.headline.delta)} confidence."
    ]


def _promise_notes(source: PageSource) -> Iterator[str]:
    """Say what the promise rests on and how it holds."""
    main = source.headline
    if main.certified:
        once = "run" if main.estimand == "trajectory" else "task"
        yield (
            f"{counted(main.covered_trajectories, 'run')} of "
            f"{counted(main.covered_tasks, 'task')} in {source.evidence} are {done(main.side)}, "
            f"{count(main.errors)} of them wrongly. Every {once} counts once."
        )
        together = ""
        if len(source.sides) > 1:
            what = "caps" if main.promise == "average" else "sides"
            together = f" Both {what} hold together with {percent(source.confidence)} confidence."
            if round(source.both.overlap, 4) > 0:
                together += (
                    f" Each side is certified before the {percent(source.both.overlap)} of runs "
                    "under both thresholds go to review."
                )
        yield _HOLDS.get(main.validity, "") + together
    else:
        yield "No promise is made: every run is reviewed."
    if rung := source.next_promise:
        yield f"The next promise: {rung}"
    if source.delta_spent:
        yield f"δ spent on this corpus with this judge: {source.delta_spent}."
    if source.pool is not None:
        yield source.pool.sentence


def _audits(source: PageSource) -> Iterator[Section]:
    """Yield the audits; those of uncertified sides only where TEST has no score."""
    rows = []
    for item in source.deployed:
        audit = source.audit_of(item)
        if audit is None or not (item.certified or (audit.unscored and not audit.trajectories)):
            continue
        said = f"{audit.verdict}, {AUDIT_WORDS[audit.verdict]}"
        rows.append(
            [
                PageCell(_claim(item), look="num"),
                PageCell(said, tag=audit.verdict, look="audit", note=audit.reason),
                *(percent(error, 2) for error in (audit.realized_error, audit.lower_bound)),
                *(percent(share) for share in (audit.coverage, audit.own_coverage)),
                count(audit.covered_tasks),
            ]
        )
    if not rows:
        return
    columns = (
        *("claim", "verdict", "wrong", "lower bound", "share decided"),
        *("certifiable on TEST itself", "tasks decided"),
    )
    limit = "twice the budget" if source.headline.promise == "average" else "the budget"
    yield Section(
        "Audit on TEST",
        "audit",
        f"{counted(len(rows), 'claim')}, read once on held-out tasks",
        texts=["Each certified threshold, read once on tasks that had no part in choosing it."],
        tables=[PageTable("Audits", columns, rows, look="cards")],
        notes=[
            f"ERROR: even the lower bound exceeds {limit}. WARN: only the observed rate does, or "
            "too few tasks are decided to tell."
        ],
    )


def _disagreements(source: PageSource) -> Section:
    """Return how decisions and labels agree, and the runs where they do not, the worst first."""
    counts = confusion(np.array(source.decisions), source.cal["outcome"])
    found = source.disagreements
    shown = found.head(_MOST_DISAGREEMENTS)
    columns_of = (
        shown[name] for name in ("run", "link", "task_id", "decision", "score", "outcome")
    )
    counted_rows = [[WORDS[name], *map(count, of.values())] for name, of in counts.items()]
    tables = [PageTable("Decisions and labels", ("decision", "failure", "success"), counted_rows)]
    rows = [
        [
            PageCell(run, href=link, note="" if is_web_address(link) else str(link), look="long"),
            task,
            PageCell(WORDS[decision], look=f"side-{decision}"),
            log_odds(score, source.score_scale),
            OUTCOME_WORDS[outcome],
        ]
        for run, link, task, decision, score, outcome in zip(*columns_of, strict=True)
    ]
    columns = ("run", "task", "decision", "score", "label")
    tables += [PageTable("Decided runs whose label disagrees", columns, rows, look="cards")]
    more = len(found) - len(rows)
    return Section(
        "Decisions that labels contradict",
        "disagreements",
        counted(len(found), "decided run"),
        texts=[f"Decisions against labels in {source.evidence}, the surest wrong decision first."],
        tables=tables if rows else tables[:1],
        notes=[f"{count(more)} more are not shown."] if more else [],
    )


def _arms(source: PageSource) -> Section:
    arms = source.arms
    chosen = [place for place, arm in enumerate(arms) if arm["name"] == source.chosen_arm]
    rows = [
        [
            PageCell(arm["name"], note="chosen" if place in chosen else ""),
            percent(arm["coverage"]),
        ]
        for place, arm in enumerate(arms)
    ]
    budget = f"certified on CAL, error at most {percent(arms[0]['alpha'])}"
    columns = ("candidate", budget)
    about = (
        "The judge was chosen on CAL among these candidates: stages of GRPO training and the judge "
        "that it starts from. Each is certified at δ divided by their number."
    )
    table = PageTable("Candidates of the choice on CAL", columns, rows, marked=chosen)
    return Section("Candidates", "arms", texts=[about], tables=[table])


def _findings(source: PageSource) -> list[Remark]:
    """Return every finding of the deployed procedure once; why nothing passes has its own part."""
    places: dict[tuple[str, str], list[Certificate]] = {}
    for item in source.deployed:
        for finding in item.findings:
            if finding["code"] != "nothing_passes":
                places.setdefault((finding["message"], finding["code"]), []).append(item)
        for code, text in _PROVENANCE.items():
            if given := item.provenance.get(code):
                message = text.format(given)
                message = f"{message[0].upper()}{message[1:]}"
                places.setdefault((message, code), []).append(item)
    every = len(source.deployed)
    return [
        Remark(*said, "every certificate" if len(on) == every else ", ".join(map(_claim, on)))
        for said, on in places.items()
    ]


def _evidence(source: PageSource) -> list[tuple[str, str]]:
    """Return words and value of size and clustering, and what they leave."""
    main, cal = source.headline, source.cal
    sizes = cal["task_id"].value_counts().to_numpy(float)
    weighted = float(np.square(sizes).sum() / sizes.sum()) if sizes.size else None
    n_eff = Markup("<i>n<sub>eff</sub></i> {}").format(compact(round(main.n_eff, 1)))
    facts: list[tuple[str, str]] = [
        (f"scored runs in {source.evidence}", _symbol("n", count(main.trajectories))),
        ("tasks they belong to", _symbol("G", count(main.tasks))),
        ("runs a task (size-weighted)", _symbol("m̃", compact(weighted))),
        (
            f"of {'labelled ' if source.drawn else ''}runs succeed",
            _symbol("π", percent(main.success_rate)),
        ),
        ("likeness of runs of one task", _symbol("ICC", rate(main.icc))),
        ("design effect 1 + (m̃ − 1)·ICC", _symbol("DEFF", compact(main.deff))),
        ("effective runs, n / DEFF", n_eff),
    ]
    if left := len(source.scores) - len(cal):
        words = "rows without an outcome, left out"
        if source.drawn:
            words = "drawn runs without a clear label, which count as wrong"
        facts.append((words, count(left)))
    return facts


def _symbol(symbol: str, value: str) -> Markup:
    return Markup("<i>{}</i> {}").format(symbol, value)


def _controls(source: PageSource) -> list[tuple[str, float, bool]]:
    """Return what ranks outcomes with its AUROC: the judge (True), then every control."""
    from certify_assets.certificates.auroc import auroc

    own = float(auroc(source.cal["score"].to_numpy(), source.cal["outcome"].to_numpy()))
    rows = [("the judge", own, True)]
    for key, value in source.controls.items():
        if key.endswith("_auroc") and value is not None:
            words = key.removesuffix("_auroc").replace("_", " ") + " alone"
            rows.append((_CONTROLS.get(key, words), value, False))
    return [row for row in rows if np.isfinite(row[1])]


def _lineage(source: PageSource) -> Section:
    """Return all that the headline rests on, and the command that recomputes it."""
    main = source.headline
    given = {**main.provenance, **{key: str(value) for key, value in source.lineage.items()}}
    rows = [
        *((_lineage_words(key), given[key]) for key in sorted(given)),
        ("certified rows (content hash)", str(main.inputs["sha256"])),
        ("rows", count(main.inputs["rows"])),
        *((f"certificate: {_claim(item)}", item.sha256) for item in source.deployed),
        *((f"software: {name}", str(value)) for name, value in sorted(main.software.items())),
        ("seed", str(main.seed)),
    ]
    looks = ["hash" if _HASH.fullmatch(value) else "long" for _, value in rows]
    cells = [
        (name, PageCell(value, look=look)) for (name, value), look in zip(rows, looks, strict=True)
    ]
    labels = f" --labels {source.labels_file}" if source.labels_file else ""
    command = f"certify verify {source.certificate_file} {source.scores_file}{labels}"
    also = ", with the labels," if labels else ""
    said = Markup("The certificate and the score table{} recompute it: <code>{}</code>")
    return Section(
        "Lineage",
        "lineage",
        "hashes and the command that recomputes them",
        texts=[said.format(also, command), "Hashes are SHA-256 over the exact bytes."],
        tables=[PageTable("Lineage", (), cells, look="lineage")],
    )


def _lineage_words(key: str) -> str:
    """Return the name of a source in words; a judge without a language model has no adapter."""
    return key.replace("adapter_sha256", "model_sha256").replace("_", " ")
