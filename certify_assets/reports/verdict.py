"""The top of a certificate page: what is certified, how sure, what it saves, and whether TEST agreed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.reports.explain import Reason, short_reason
from certify_assets.reports.wording import DASH, confidence, count, done, hours, log_odds, percent

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate
    from certify_assets.reports.source import PageSource

__all__ = [
    "AUDIT_WORDS",
    "AuditRow",
    "Banner",
    "Claim",
    "DecisionRow",
    "audit_rows",
    "banner",
    "decision_rows",
    "procedure_words",
]

#: what an audit's verdict says to somebody who decides on a release, the most reassuring first
AUDIT_WORDS: dict[str, str] = {
    "PASS": "held on TEST",
    "NONE": "not audited yet",
    "WARN": "not settled on TEST",
    "ERROR": "broken on TEST",
}

_PROCEDURES: dict[str, str] = {
    "guarded_taskboot": "Guarded TaskBoot",
    "taskboot": "TaskBoot",
    "naive": "Naive Clopper–Pearson",
    "deff": "Design-effect Clopper–Pearson",
    "one_per_task": "One run per task",
    "task_hoeffding": "Task-level Hoeffding",
    "betting": "Betting",
    "gaffke": "Gaffke",
    "korn_graubard": "Korn–Graubard",
}


def procedure_words(name: str) -> str:
    """Return a procedure's name for people."""
    return _PROCEDURES.get(name, name.replace("_", " "))


@dataclass(frozen=True)
class Claim:
    """One big number of the banner: a side and the share that it decides."""

    side: str
    share: str
    words: str


@dataclass(frozen=True)
class Banner:
    """The verdict.

    Attributes
    ----------
    state : str
        ``certified``, ``warn``, ``failed`` or ``nothing``: decides colour, icon and heading.
    heading, sentence : str
        One line each.
    claims : tuple of Claim
        Empty when nothing is certified.
    facts : tuple of (str, str)
        Label and value of the figures beside the number.
    """

    state: str
    heading: str
    sentence: str
    claims: tuple[Claim, ...]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class DecisionRow:
    """One line of the table of what is certified; `main` marks those that the banner speaks of."""

    alpha: str
    side: str
    certified: bool
    share: str
    threshold: str
    observed: str
    covered_tasks: str
    saved: str
    audit: str
    audit_words: str
    main: bool


@dataclass(frozen=True)
class AuditRow:
    """One audit: what the certified threshold did on tasks that had no part in choosing it."""

    claim: str
    side: str
    verdict: str
    words: str
    realized: str
    lower: str
    coverage: str
    own_coverage: str
    covered_tasks: str
    point_rule: str
    reason: str


def banner(source: PageSource, reasons: Sequence[Reason]) -> Banner:
    """Say the verdict of a page.

    Parameters
    ----------
    source : PageSource
        What the page is about.
    reasons : sequence of Reason
        Why budgets and sides certify nothing.
    """
    main = source.headline
    if not main.certified:
        return _nothing(source, reasons)
    verdicts = {_verdict(source.audit_of(c)) for c in source.sides}
    state = "failed" if "ERROR" in verdicts else "warn" if "WARN" in verdicts else "certified"
    heading = {
        "certified": "Certified",
        "warn": "Certified, but the audit on TEST does not settle it",
        "failed": "Do not deploy: the audit contradicts the certificate",
    }[state]
    claims = tuple(
        Claim(c.side, percent(c.coverage), f"of runs can be {done(c.side)} without a person")
        for c in source.sides
    )
    trust = confidence(source.confidence(source.sides), main.validity)
    budget = percent(main.alpha)
    among = " and among the ".join(done(c.side) for c in source.sides)
    both = " for both at once" if len(source.sides) > 1 else ""
    sentence = f"Wrong decisions among the {among} runs: at most {budget}, with {trust}{both}."
    if round(source.overlap, 4) > 0:
        sentence += (
            f" {percent(source.overlap)} of runs fall under both thresholds and go to a person."
        )
    return Banner(state, heading, sentence, claims, _facts(source))


def _nothing(source: PageSource, reasons: Sequence[Reason]) -> Banner:
    where = source.evidence
    facts = [
        (f"scored runs in {where}", count(source.headline.trajectories)),
        (f"tasks in {where}", count(source.headline.tasks)),
    ]
    liftable = [reason for reason in reasons if reason.tasks_needed is not None]
    if liftable:
        nearest = min(liftable, key=lambda reason: reason.tasks_needed or 0)
        facts.append(
            (
                f"tasks like these might certify {nearest.side} at {nearest.alpha}",
                f"{count(nearest.tasks_needed)} to {count(2 * (nearest.tasks_needed or 0))}",
            )
        )
    return Banner(
        "nothing",
        "Nothing certified",
        f"Every run goes to a person. {short_reason(reasons)}",
        (Claim("human", percent(0.0), "of runs can be decided without a person"),),
        tuple(facts),
    )


def _facts(source: PageSource) -> tuple[tuple[str, str], ...]:
    facts = [
        (
            "reviewer-hours saved per 1,000 runs",
            f"{hours(source.decided, source.minutes_per_review):.1f}",
        )
    ]
    if len(source.sides) > 1:
        facts.append(("of runs decided in all", percent(source.decided)))
    worst = max(source.sides, key=lambda c: list(AUDIT_WORDS).index(_verdict(source.audit_of(c))))
    audit = source.audit_of(worst)
    if audit is None:
        facts.append(("audit on TEST", AUDIT_WORDS["NONE"]))
    else:
        wrong = (
            f"{percent(audit['realized_error'], 2)} wrong"
            if audit.get("realized_error") is not None
            else "nothing to measure"
        )
        facts.append((f"{worst.side} audit: {AUDIT_WORDS[_verdict(audit)]}", wrong))
    facts.append(
        (
            f"{'half B' if source.evidence != 'CAL' else 'CAL'} tasks with a {done(source.headline.side)} run",
            f"{count(source.headline.covered_tasks)} of {count(source.headline.tasks)}",
        )
    )
    return tuple(facts)


def _verdict(audit: Mapping[str, Any] | None) -> str:
    return "NONE" if audit is None else str(audit.get("verdict", "NONE"))


def decision_rows(source: PageSource) -> list[DecisionRow]:
    """Return one row a budget and side of the procedure that decisions use."""
    return [_row(source, certificate) for certificate in source.deployed]


def _row(source: PageSource, certificate: Certificate) -> DecisionRow:
    audit = source.audit_of(certificate)
    verdict = _verdict(audit) if certificate.certified else ""
    return DecisionRow(
        alpha=percent(certificate.alpha),
        side=certificate.side,
        certified=certificate.certified,
        share=percent(certificate.coverage) if certificate.certified else "nothing",
        threshold=_threshold(certificate, source.score_scale),
        observed=percent(certificate.selective_error, 2),
        covered_tasks=f"{count(certificate.covered_tasks)} of {count(certificate.tasks)}"
        if certificate.certified
        else DASH,
        saved=f"{hours(certificate.coverage, source.minutes_per_review):.1f} h"
        if certificate.certified
        else DASH,
        audit=verdict,
        audit_words=AUDIT_WORDS.get(verdict, ""),
        main=certificate.certified and certificate in source.sides,
    )


def _threshold(certificate: Certificate, scale: str) -> str:
    if certificate.threshold is None:
        return DASH
    sign = "≤" if certificate.side == "reject" else "≥"
    return f"{sign} {log_odds(certificate.threshold, scale)}"


def audit_rows(source: PageSource) -> list[AuditRow]:
    """Return one row an audited certificate of the procedure that decisions use; of one that certifies nothing only where no TEST row has a score."""
    pairs = [(c, source.audit_of(c)) for c in source.deployed]
    return [
        _audit_row(c, audit)
        for c, audit in pairs
        if audit is not None and (c.certified or _unscored(audit))
    ]


def _unscored(audit: Mapping[str, Any]) -> bool:
    return bool(audit.get("unscored")) and not audit.get("trajectories")


def _audit_row(certificate: Certificate, audit: Mapping[str, Any]) -> AuditRow:
    rule = audit.get("paper_rule_pass")
    return AuditRow(
        claim=percent(certificate.alpha),
        side=certificate.side,
        verdict=_verdict(audit),
        words=AUDIT_WORDS[_verdict(audit)],
        realized=percent(audit.get("realized_error"), 2),
        lower=percent(audit.get("lower_bound"), 2),
        coverage=percent(audit.get("coverage")),
        own_coverage=percent(audit.get("own_coverage")),
        covered_tasks=count(audit.get("covered_tasks")),
        point_rule=DASH if rule is None else "met" if rule else "missed",
        reason=str(audit.get("reason") or ""),
    )
