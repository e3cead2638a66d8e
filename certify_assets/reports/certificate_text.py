"""Sentences and tables of a certificate page: verdict, promises, reasons, procedures, findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup

from certify_assets.certificates.findings import RELABELLED
from certify_assets.reports.certificate_source import deployed
from certify_assets.reports.wording import (
    DASH,
    compact,
    count,
    counted,
    done,
    log_odds,
    percent,
    rate,
)
from certify_assets.words import WORDS

if TYPE_CHECKING:
    from certify_assets.certificates import Audit, Certificate, Diagnosis
    from certify_assets.reports.certificate_source import PageSource

#: what an audit's verdict says about a release, the most reassuring first
AUDIT_WORDS: dict[str, str] = {
    "PASS": "passed on held-out tasks",
    "NONE": "not audited yet",
    "WARN": "inconclusive on held-out tasks",
    "ERROR": "failed on held-out tasks",
}
_PROCEDURES: dict[str, str] = {
    "guarded_taskboot": "Guarded TaskBoot",
    "taskboot": "TaskBoot",
    "naive": "Naive Clopper–Pearson",
    "deff": "Design-effect Clopper–Pearson",
    "one_per_task": "One run per task",
    "task_hoeffding": "Task-level Hoeffding",
    "betting": "Betting",
    "pseudo_task": "Pseudo-task",
}
_HOLDS = {
    "asymptotic": (
        "The confidence is approximate: it holds as the number of tasks grows. With few tasks it "
        "fails in some designs, which the documentation names."
    ),
    "finite-sample": "The confidence holds at any number of tasks.",
    "finite-sample, proved": "The confidence is proved under the six assumptions below.",
    "finite-sample, proved, on average": (
        "The promise is one on average over certificates. It is proved under the six assumptions "
        "below, and the confidence is that of twice the budget."
    ),
    "calibrated by simulation": (
        "The confidence is calibrated by simulation, not proved. The documentation says in which "
        "designs it holds and where it fails."
    ),
    "none under clustering": (
        "The confidence would need independent runs, and runs of one task are not: do not rely on "
        "it."
    ),
}
_LINEAGE: dict[str, str] = {
    "corpus": "corpus",
    "corpus_sha256": "corpus table",
    "manifest_sha256": "split manifest",
    "judge": "judge",
    "adapter_sha256": "judge artifact",
    "renderer_sha256": "renderer",
    "prompt_sha256": "prompt",
    "scores_sha256": "score table",
}
#: findings that the provenance of a certificate holds
_PROVENANCE: dict[str, str] = {
    "accepted_structural_leak": "The outcome can be predicted without reading the run: {}",
    "training_limits": "{}.",
    "pseudo_labels": "It is certified on half B of CAL alone, and not all of its training is "
    "labelled by reviewers: {}.",
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
_HASH = re.compile(r"[0-9a-f]{40,64}")


def procedure_words(name: str) -> str:
    """Return a procedure's name for readers."""
    return _PROCEDURES.get(name, name.replace("_", " "))


def page_title(name: str, certificates: Sequence[Certificate]) -> str:
    """Return the title of a page that was given none: the table, and what is certified."""
    budgets: dict[str, list[str]] = {}
    for item in deployed(certificates):
        if item.certified:
            on_average = " on average" if item.promise == "average" else ""
            budgets.setdefault(WORDS[item.side], []).append(f"{percent(item.alpha)}{on_average}")
    limits = [f"{side} ≤ {' and '.join(found)}" for side, found in budgets.items()]
    return f"{name}, {', '.join(limits) or 'nothing certified'}"


class BannerFact(NamedTuple):
    """One figure of the banner, and what it rests on."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Banner:
    """The verdict: what a reader needs who decides whether to deploy."""

    state: str
    heading: str
    sentence: str
    #: runs behind the share of each decision
    counts: dict[str, str]
    facts: tuple[BannerFact, ...]


def banner(source: PageSource, reasons: Sequence[NothingCertified]) -> Banner:
    """Say the verdict of a page."""
    verdicts = {source.verdict(c) for c in source.sides}
    state = "failed" if "ERROR" in verdicts else "warn" if "WARN" in verdicts else "certified"
    state = state if source.headline.certified else "nothing"
    heading = {
        "certified": "Certified",
        "warn": "Certified, but the audit on held-out tasks is inconclusive",
        "failed": "Do not deploy: the audit contradicts the certificate",
        "nothing": "Nothing certified",
    }[state]
    if state == "nothing":
        sentence, facts = "Every run goes to review.", _standing(source)
        if reasons:
            certificate, why = reasons[0]
            where = f"{certificate.side.capitalize()} at {percent(certificate.alpha)}"
            sentence = f"{sentence} {where}: {why.sentence}"
    else:
        sentence, facts = _sentence(source), _facts(source)
    doubts = [item for item in source.headline.findings if item["code"] in _DOUBTS]
    if doubts:
        sentence = " ".join([sentence, *(item["message"] for item in doubts)])
        if state in ("certified", "warn"):
            state, heading = "warn", f"Certified, {_DOUBTS[doubts[0]['code']]}"
    # both sides of one run are counted as the review that they lead to
    found = Counter(source.decisions)
    counts = {side: f"{counted(found[side], 'run')} {word}" for side, word in WORDS.items()}
    return Banner(state, heading, sentence, counts, facts)


def _sentence(source: PageSource) -> str:
    from certify_assets.certificates import confidence_words

    main = source.headline
    if main.promise == "average":
        # the words of a confidence would say too much
        return " ".join(promises(source))
    trust = confidence_words(source.confidence(source.sides), main.validity)
    trust = trust.replace(" %", "\u202f%")
    both = " for both at once" if len(source.sides) > 1 else ""
    if len({c.alpha for c in source.sides}) == 1:
        among = " and among the ".join(done(c.side) for c in source.sides)
        limits = f"among the {among} runs: at most {percent(main.alpha)}"
    else:
        limits = " and ".join(
            f"at most {percent(c.alpha)} among the {done(c.side)} runs" for c in source.sides
        )
    sentence = f"Wrong decisions {limits}, with {trust}{both}."
    if round(source.both.overlap, 4) > 0:
        share = percent(source.both.overlap)
        sentence += f" {share} of runs fall under both thresholds and go to review."
    return sentence


def _facts(source: PageSource) -> tuple[BannerFact, ...]:
    worst = max(source.sides, key=lambda c: list(AUDIT_WORDS).index(source.verdict(c)))
    audit = source.audit_of(worst)
    wrong = ""
    if audit is not None and audit.realized_error is not None:
        wrong = (
            f"{percent(audit.realized_error, 2)} wrong among {done(worst.side)} runs of "
            f"{counted(audit.covered_tasks, 'task')}"
        )
    return (
        BannerFact(
            "held-out check (audit)",
            AUDIT_WORDS["NONE" if audit is None else audit.verdict].removesuffix(
                " on held-out tasks"
            ),
            wrong,
        ),
        *_standing(source),
    )


def _standing(source: PageSource) -> tuple[BannerFact, ...]:
    """Which promise it is, and when it was made."""
    validity = source.headline.validity
    return (
        BannerFact(
            "kind of promise",
            "corpus certificate",
            f"{validity}; for new tasks like these, of these agents",
        ),
        BannerFact("date", source.date or "not given", "" if source.date else "--date sets it"),
    )


def threshold_words(certificate: Certificate, scale: str) -> str:
    """Return where a score must be for a certificate to decide the run."""
    if certificate.threshold is None:
        return DASH
    sign = "≤" if certificate.side == "reject" else "≥"
    return f"{sign} {log_odds(certificate.threshold, scale)}"


def audited(source: PageSource) -> list[tuple[Certificate, Audit]]:
    """Return deployed certificates with audits; uncertified only if TEST has no score."""
    pairs = [(c, source.audit_of(c)) for c in source.deployed]
    return [
        (c, audit)
        for c, audit in pairs
        if audit is not None and (c.certified or (audit.unscored and not audit.trajectories))
    ]


class NothingCertified(NamedTuple):
    """Why one budget and side certify nothing."""

    certificate: Certificate
    diagnosis: Diagnosis


def promises(source: PageSource) -> list[str]:
    """Return the promise of each certified side of the headline."""
    return [certificate.statement for certificate in source.sides if certificate.certified]


def promise_notes(source: PageSource) -> list[str]:
    """Return the lines under the promise: what it rests on and how it holds."""
    main = source.headline
    spent_line: list[str] = []
    if source.delta_spent:
        spent_line = [f"δ spent on this corpus with this judge: {source.delta_spent}."]
    if source.pool is not None:
        spent_line.append(source.pool.sentence)
    if not main.certified:
        return ["No promise is made: every run is reviewed.", *spent_line]
    together = ""
    if len(source.sides) > 1:
        together = (
            f" Both {'caps' if main.promise == 'average' else 'sides'} hold together with "
            f"{percent(source.confidence(source.sides))} confidence."
        )
        if round(source.both.overlap, 4) > 0:
            both = percent(source.both.overlap)
            together += (
                f" Each side is certified as it is, before the {both} of runs under both "
                "thresholds go to review."
            )
    return [
        _rests(main, source.evidence),
        _HOLDS.get(main.validity, "") + together,
        *spent_line,
    ]


def _rests(main: Certificate, evidence: str) -> str:
    weighed = "every run counts once" if main.estimand == "trajectory" else "every task counts once"
    return (
        f"It rests on {counted(main.trajectories, 'scored run')} of "
        f"{counted(main.tasks, 'task')} in {evidence}; "
        f"{counted(main.covered_trajectories, 'run')} of "
        f"{counted(main.covered_tasks, 'task')} are {done(main.side)}, "
        f"{count(main.errors)} of them wrongly ({percent(main.selective_error, 2)}). The "
        f"error is counted by {main.estimand}: {weighed}. "
        f"δ = {rate(main.delta, 2)} is {spent(main)}."
    )


def spent(main: Certificate) -> str:
    """Return how a certificate's δ is spent over thresholds and candidates."""
    grid = counted(main.parameters["grid"], "threshold")
    others = f" and {count(main.candidates)} candidates" if main.candidates > 1 else ""
    if main.parameters["multiplicity"] == "bonferroni":
        return f"shared among {grid}{others}"
    each = f", shared among {count(main.candidates)} candidates" if main.candidates > 1 else ""
    way = {
        "fixed": f"spent whole on one of {grid} after the other, up to the first that fails",
        "path": "spent once: the limits hold at every threshold together",
        "calibrated": f"calibrated by simulation over {grid} together",
    }
    return way[main.parameters["multiplicity"]] + each


def explain(source: PageSource) -> list[NothingCertified]:
    """Return a reason for every budget and side that certifies nothing."""
    return [NothingCertified(c, _diagnose(c, source)) for c in source.deployed if not c.certified]


def _diagnose(certificate: Certificate, source: PageSource) -> Diagnosis:
    from certify_assets.certificates import diagnose, settings_of

    table = source.issued_on
    asked = settings_of(certificate)
    pool = source.pool_of(certificate)
    found = diagnose(table.scores, table.outcomes, table.tasks, pool=pool, **dict(asked))
    tasks = None if source.profile is None else source.profile.tasks
    return replace(found, corpus_tasks=tasks)


class FindingRow(NamedTuple):
    """A finding, and which certificates it is on."""

    code: str
    message: str
    where: str


class ControlBar(NamedTuple):
    """An AUROC as a bar: the judge's own, or a control's."""

    words: str
    value: float
    judge: bool


def finding_rows(source: PageSource) -> list[FindingRow]:
    """Return every finding of the deployed procedure once; why nothing passes has its own part."""
    places: dict[tuple[str, str], list[Certificate]] = {}
    for certificate in source.deployed:
        for finding in certificate.findings:
            if finding["code"] != "nothing_passes":
                places.setdefault((finding["code"], finding["message"]), []).append(certificate)
        for code, text in _PROVENANCE.items():
            if given := certificate.provenance.get(code):
                message = text.format(given)
                message = f"{message[0].upper()}{message[1:]}"
                places.setdefault((code, message), []).append(certificate)
    for certificate, message in source.agent_shifts:
        places.setdefault(("agent_shift", message), []).append(certificate)
    return [
        FindingRow(code, message, _where(found, source.deployed))
        for (code, message), found in places.items()
    ]


def _where(found: list[Certificate], everything: Sequence[Certificate]) -> str:
    if len(found) == len(everything):
        return "every certificate"
    return ", ".join(f"{c.side} {percent(c.alpha)}" for c in found)


def corpus_facts(source: PageSource) -> list[tuple[str, str, str]]:
    """Return symbol, value and words of size and clustering, and what they leave."""
    main = source.headline
    sizes = np.unique(source.cal.tasks, return_counts=True)[1].astype(float)
    known = "labelled " if source.drawn else ""
    unknown = "rows without an outcome, left out"
    if source.drawn:
        unknown = "drawn runs without a clear label, which count as wrong"
    weighted = float(np.square(sizes).sum() / sizes.sum()) if sizes.size else None
    return [
        ("n", count(main.trajectories), f"scored runs in {source.evidence}"),
        ("G", count(main.tasks), "tasks they belong to"),
        ("m̃", compact(weighted), "runs a task (size-weighted)"),
        ("π", percent(main.success_rate), f"of {known}runs succeed"),
        ("ICC", rate(main.icc), "likeness of runs of one task"),
        ("DEFF", compact(main.deff), "design effect 1 + (m̃ − 1)·ICC"),
        (Markup("n<sub>eff</sub>"), compact(round(main.n_eff, 1)), "effective runs, n / DEFF"),
        *([("", count(source.cal.unlabelled), unknown)] if source.cal.unlabelled else []),
    ]


def control_bars(source: PageSource) -> list[ControlBar]:
    """Return the judge's AUROC on what certifies it and that of every control, for the bars."""
    from certify_assets.certificates.auroc import auroc

    own = float(auroc(source.cal.scores, source.cal.outcomes))
    rows = [ControlBar("the judge", own, True)] if np.isfinite(own) else []
    for key, value in source.controls.items():
        if not key.endswith("_auroc") or value is None:
            continue
        if np.isfinite(value):
            words = _CONTROLS.get(key, key.removesuffix("_auroc").replace("_", " ") + " alone")
            rows.append(ControlBar(words, value, False))
    return rows


def lineage_rows(source: PageSource) -> list[tuple[str, str, bool]]:
    """Return name and value of all that the headline rests on, and whether it is a hash."""
    main = source.headline
    given = {**main.provenance, **{key: str(value) for key, value in source.lineage.items()}}
    ordered = [key for key in _LINEAGE if key in given] + sorted(
        key for key in given if key not in _LINEAGE
    )
    rows = [(_LINEAGE.get(key, key.replace("_", " ")), given[key]) for key in ordered]
    rows += [
        ("certified rows (content hash)", str(main.inputs["sha256"])),
        ("rows", count(main.inputs["rows"])),
    ]
    rows += [
        (f"certificate: {c.side}, budget {percent(c.alpha)}", c.sha256) for c in source.deployed
    ]
    rows += [(f"software: {name}", str(value)) for name, value in sorted(main.software.items())]
    rows += [("seed", str(main.seed))]
    return [(name, value, bool(_HASH.fullmatch(value))) for name, value in rows]
