"""What a reader asks after the verdict: what exactly is promised, and where nothing is certified, why and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from certify_assets.reports.source import certificate_settings
from certify_assets.reports.wording import (
    DASH,
    compact,
    confidence,
    count,
    counted,
    done,
    hours,
    percent,
    rate,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from certify_assets.certificates import Certificate, Diagnosis
    from certify_assets.reports.source import PageSource

__all__ = [
    "Gate",
    "Reason",
    "arithmetic",
    "explain",
    "promise_notes",
    "promises",
    "short_reason",
    "spent",
]

_WRONG = {"reject": "had in fact succeeded", "release": "had in fact failed"}
_HOLDS = {
    "asymptotic": "The confidence is approximate: it holds as the number of tasks grows, and simulations support it from about 20 tasks.",
    "finite-sample": "The confidence holds at any number of tasks.",
    "conjectured": "The confidence holds at any number of tasks if a published conjecture does.",
    "none under clustering": "The confidence would need independent runs, and runs of one task are not: do not rely on it.",
}


@dataclass(frozen=True)
class Gate:
    """One of the things that may stop a certificate: its value, and whether it is what stopped it."""

    value: str
    stopped: bool


@dataclass(frozen=True)
class Reason:
    """Why one budget and side certify nothing."""

    side: str
    alpha: str
    tasks: Gate
    base_rate: Gate
    judge: Gate
    guard: Gate
    sentence: str
    lift: str
    tasks_needed: int | None


def promises(source: PageSource) -> list[str]:
    """Return the promise of each certified side of the headline, one readable sentence each."""
    return [_promise(c) for c in source.sides if c.certified]


def _promise(certificate: Certificate) -> str:
    averaged = "" if certificate.estimand == "trajectory" else ", averaged over tasks,"
    return (
        f"Of runs like these, {percent(certificate.coverage)} can be {done(certificate.side)} on the judge's word alone; among them{averaged} at most "
        f"{percent(certificate.alpha)} {_WRONG[certificate.side]}, with {confidence(1 - certificate.delta, certificate.validity)}."
    )


def promise_notes(source: PageSource) -> list[str]:
    """Return the lines under the promise: what it rests on, how it holds, what it saves."""
    main = source.headline
    if not main.certified:
        return [
            f"No promise is made. All {count(1000)} of every 1,000 runs are reviewed: {hours(1, source.minutes_per_review):.1f} reviewer-hours."
        ]
    saved = hours(source.decided, source.minutes_per_review)
    together = ""
    if len(source.sides) > 1:
        together = (
            f" Both sides hold together with {percent(source.confidence(source.sides))} confidence."
        )
        if round(source.overlap, 4) > 0:
            both = percent(source.overlap)
            together += f" Each side is certified as it stands, before the {both} of runs under both thresholds are handed to people."
    minutes = compact(source.minutes_per_review)
    return [
        _rests(main, source.evidence),
        _HOLDS.get(main.validity, "") + together,
        f"At {minutes} minutes a review this saves {saved:.1f} of {hours(1, source.minutes_per_review):.1f} reviewer-hours in every 1,000 runs.",
    ]


def _rests(main: Certificate, evidence: str) -> str:
    weighed = "every run counts once" if main.estimand == "trajectory" else "every task counts once"
    return (
        f"It rests on {counted(main.trajectories, 'scored run')} of {counted(main.tasks, 'task')} in {evidence}; "
        f"{counted(main.covered_trajectories, 'run')} of {counted(main.covered_tasks, 'task')} are {done(main.side)}, "
        f"{count(main.errors)} of them wrongly ({percent(main.selective_error, 2)}). The error is counted by {main.estimand}: {weighed}. "
        f"δ = {rate(main.delta, 2)} is {spent(main)}."
    )


def spent(main: Certificate) -> str:
    """Return how a certificate's δ is spent over the thresholds of its grid, and over the candidates."""
    grid = counted(main.parameters["grid"], "threshold")
    others = f" and {count(main.candidates)} candidates" if main.candidates > 1 else ""
    if main.parameters["multiplicity"] == "bonferroni":
        return f"shared among {grid}{others}"
    each = f", shared among {count(main.candidates)} candidates" if main.candidates > 1 else ""
    way = {
        "fixed": f"spent whole on one of {grid} after the other, up to the first that fails",
        "fallback": f"shared among {counted(len(main.parameters['starts'] or []), 'start')} of chains over {grid}",
        "maxt": f"compared with tails adjusted for {grid} together",
    }
    return way.get(main.parameters["multiplicity"], f"shared among {grid}") + each


def explain(source: PageSource) -> list[Reason]:
    """Return a reason for every budget and side that certifies nothing."""
    return [_reason(c, _diagnose(c, source)) for c in source.deployed if not c.certified]


def _diagnose(certificate: Certificate, source: PageSource) -> Diagnosis:
    from certify_assets.certificates import diagnose

    table = source.cal
    return diagnose(table.scores, table.outcomes, table.tasks, **certificate_settings(certificate))


def _reason(certificate: Certificate, diagnosis: Diagnosis) -> Reason:
    stopped = diagnosis.stopped_by
    guard = (
        "stops it"
        if stopped == "guard"
        else "not the obstacle"
        if certificate.parameters["guard"] != "none"
        else "none"
    )
    lift = (
        f"about {count(diagnosis.tasks_needed)} to {counted(2 * diagnosis.tasks_needed, 'task')} like these, {count(diagnosis.tasks)} now"
        if diagnosis.tasks_needed
        else "no number of tasks like these; a judge that ranks better, or a larger budget"
    )
    return Reason(
        side=certificate.side,
        alpha=percent(certificate.alpha),
        tasks=Gate(
            f"{counted(diagnosis.tasks, 'task')}, {counted(certificate.trajectories, 'run')}",
            stopped in ("tasks", "no_scores"),
        ),
        base_rate=Gate(percent(diagnosis.success_rate), stopped == "base_rate"),
        judge=Gate(DASH if diagnosis.auroc is None else rate(diagnosis.auroc), stopped == "judge"),
        guard=Gate(guard, stopped == "guard"),
        sentence=diagnosis.sentence,
        lift=lift,
        tasks_needed=diagnosis.tasks_needed,
    )


def short_reason(reasons: Sequence[Reason]) -> str:
    """Return one sentence for the banner of a page on which nothing is certified."""
    if not reasons:
        return ""
    first = reasons[0]
    told = {
        first.tasks.stopped: "there are too few tasks to show that the judge is good enough",
        first.base_rate.stopped: "there is next to nothing that this side could decide",
        first.judge.stopped: "the judge does not rank runs well enough",
        first.guard.stopped: "there are too few tasks to rule out that some fool the judge throughout",
    }
    return (
        f"On the {first.side} side at {first.alpha}, {told[True]}."
        if True in told
        else first.sentence
    )


def arithmetic(source: PageSource) -> str:
    """Return what any judge would need: the smallest error-free sample, and what the evidence offers."""
    from certify_assets.certificates import n_min

    main = source.headline
    least, shared = n_min(main.alpha, main.delta), n_min(main.alpha, main.level)
    enough = "clears" if main.n_eff >= shared else "does not clear"
    return (
        f"To exclude an error of {percent(main.alpha)}, even a faultless judge needs {count(least)} independent decisions at δ, {count(shared)} at δ shared "
        f"among the thresholds. {compact(round(main.n_eff, 1))} effective runs in {source.evidence}: it {enough} that bar."
    )
