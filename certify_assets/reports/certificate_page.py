"""The certificate page with its figures: one HTML file, no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from certify_assets.certificates.gates import sample_gate
from certify_assets.certificates.settings import CALIBRATED, PATH
from certify_assets.reports.certificate_source import PageScores, PageSource
from certify_assets.reports.certificate_text import (
    AUDIT_WORDS,
    audited,
    banner,
    control_bars,
    corpus_facts,
    explain,
    finding_rows,
    lineage_rows,
    procedure_words,
    promise_notes,
    promises,
    threshold_words,
)
from certify_assets.reports.charts import task_heatmap
from certify_assets.reports.figures import Panel, risk_coverage, score_distribution
from certify_assets.reports.wording import count, counted, done, log_odds, percent, rate, render

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Audit, Certificate, ThresholdCurve
    from certify_assets.certificates.evidence import GivenPool
    from certify_assets.corpora.profile import CorpusProfile
    from certify_assets.judges.pool import StoredPool
    from certify_assets.judges.record import CandidateScore
    from certify_assets.operations.left_out_agents import LeftOutAgents

#: what resampling by the pseudo-task adds
_WORST = ", together with one more task that is wrong in every run"


def render_page(
    certificates: Sequence[Certificate],
    scores_frame: pd.DataFrame,
    *,
    title: str,
    audits: Sequence[Audit] = (),
    lineage: Mapping[str, str] | None = None,
    profile: CorpusProfile | None = None,
    controls: Mapping[str, float | None] | None = None,
    canaries: str = "",
    score_scale: str = "log-odds",
    certificate_file: str = "CERTIFICATE.json",
    scores_file: str = "SCORES",
    labels_file: str = "",
    arms: Sequence[CandidateScore] = (),
    chosen_arm: str = "",
    left_out: LeftOutAgents | None = None,
    delta_spent: str = "",
    joint_delta: float | None = None,
    pool: StoredPool | None = None,
    given_pool: GivenPool | None = None,
    date: str = "",
    home: str = "",
) -> str:
    """Render the page on which a release is decided: any certificates of one score table."""
    # the default procedure leads where it is present; the file names are those of the command that
    # verifies the page
    source = PageSource(
        certificates=list(certificates),
        issued_on=PageScores.from_frame(scores_frame),
        audits=audits,
        lineage=lineage or {},
        profile=profile,
        controls=controls or {},
        score_scale=score_scale,
        left_out=left_out,
        delta_spent=delta_spent,
        joint_delta=joint_delta,
        pool=pool,
        given_pool=given_pool,
        date=date,
    )
    main, reasons = source.headline, explain(source)
    shares = main.delta / main.level
    enough = sample_gate(main.n_eff, alpha=main.alpha, delta=main.delta, grid=shares)
    return render(
        "certificate.html",
        hashed=f"certificate {main.sha256}",
        date=date,
        home=home,
        certificate_file=certificate_file,
        scores_file=scores_file,
        labels_file=labels_file,
        source=source,
        main=main,
        evidence=source.evidence,
        agents=source.agents,
        title=title,
        about=(
            f"{_rows(source)}, {percent(main.success_rate)} {_of(source)}successful, task ICC "
            f"{rate(main.icc, 2)}"
            if main.trajectories
            else "No run has a score."
        ),
        banner=banner(source, reasons),
        procedure_words=procedure_words,
        threshold_words=threshold_words,
        audit_words=AUDIT_WORDS,
        audits=audited(source),
        promises=promises(source),
        promise_notes=promise_notes(source),
        reasons=reasons,
        facts=corpus_facts(source),
        gate=enough.reason,
        controls=control_bars(source),
        canaries=canaries,
        panels=build_panels(source),
        findings=finding_rows(source),
        lineage=lineage_rows(source),
        arms=arms,
        chosen_arm=chosen_arm,
        largest_error=largest_error(source),
        agent_note=agent_note(source),
    )


def _rows(source: PageSource) -> str:
    main = source.headline
    where = "" if source.evidence == "CAL" else f" in {source.evidence}"
    return f"{counted(main.trajectories, 'run')} of {counted(main.tasks, 'task')}{where}"


def _of(source: PageSource) -> str:
    """Say of which runs a success rate is, where the others have no clear label."""
    known = len(source.cal.tasks)
    return (
        f"of the {counted(known, 'labelled run')} " if known < len(source.issued_on.tasks) else ""
    )


def largest_error(source: PageSource) -> str:
    """Say what the agent with the largest error says of one that CAL never saw."""
    from certify_assets.certificates import largest_agent_error

    worst, alpha = largest_agent_error(source.agents), source.headline.alpha
    if worst is None or worst.error is None:
        return ""
    of = f"{count(worst.covered)} decided runs"
    if source.headline.promise == "average":
        of = "the runs that the certificate says it decides"
    found = f"The largest is that of {worst.agent}, {percent(worst.error)} of {of}"
    if worst.error <= alpha:
        return f"{found}, within the budget of {percent(alpha)}."
    shifted = any(certificate is source.headline for certificate, _ in source.agent_shifts)
    return f"{found}: above the budget of {percent(alpha)}{', beyond chance' if shifted else ''}."


def agent_note(source: PageSource) -> str:
    """Say whether the judge has seen the agents that are left out, and what their number says."""
    from certify_assets.certificates.agents import ENOUGH_AGENTS

    number, found = len(source.agents), source.left_out
    if found is None:
        judge = (
            "The judge is not trained again: where it was trained on runs of an agent, it has seen "
            "that agent."
        )
    elif found.seen:
        known = [row.agent for row in source.agents if not row.unseen]
        whom = "the agents" if len(known) == number else ", ".join(known)
        judge = f"The judge has seen {whom}, and is not trained again: {found.seen}."
    else:
        judge = "The judge is trained again without the agent as well."
    if number < ENOUGH_AGENTS:
        return f"{judge} {number} agents are too few for a bound on the next one;"
    return (
        f"{judge} Another agent like these {number} would be above the largest of them with "
        f"probability 1/{number + 1} at most;"
    )


def _curve_of(certificate: Certificate, source: PageSource) -> ThresholdCurve:
    """Recompute the grid behind a certificate from its score table."""
    from certify_assets.certificates import settings_of, threshold_curve

    settings, table = dict(settings_of(certificate)), source.issued_on
    pool = source.pool_of(certificate)
    return threshold_curve(table.scores, table.outcomes, table.tasks, pool=pool, **settings)


def build_panels(source: PageSource) -> list[Panel]:
    """Draw every figure of the page, in reading order."""
    panels: list[Panel] = []
    for number, certificate in enumerate(source.sides):
        panels += _side_panels(source, certificate, f"f{number}")
    return [*panels, _heatmap_panel(source)]


def _side_panels(source: PageSource, certificate: Certificate, name: str) -> list[Panel]:
    curve = _curve_of(certificate, source)
    first = certificate is source.headline
    layout = "lead" if first else "half"
    panels = [_risk_panel(certificate, curve, name, where=source.evidence, layout=layout)]
    if first:
        panels.append(_score_panel(source))
    return panels


def _risk_panel(
    certificate: Certificate, curve: ThresholdCurve, name: str, *, where: str, layout: str
) -> Panel:
    point = None
    if certificate.certified and certificate.selective_error is not None:
        point = (certificate.coverage, certificate.selective_error)
    budget = percent(certificate.alpha)
    agrees, satisfies = (
        ("", "")
        if certificate.parameters["guard"] == "none"
        else (" and the guard agrees", " and satisfies the guard")
    )
    ending = (
        f"The certified point is the farthest one at which the bound stays within {budget}{agrees}."
        if point
        else f"No threshold of the grid keeps the bound within {budget}{satisfies}."
    )
    by_rows = certificate.parameters["multiplicity"] == PATH
    if by_rows:
        # the proof has limits of errors, and no bound of the error at a threshold
        ending = (
            "The certified point is the farthest one that the procedure passes."
            if point
            else "The procedure passes no threshold."
        )
        lines = f"on {where}; a run without a clear label counts as wrong. "
    else:
        worst = _WORST if certificate.parameters["multiplicity"] == CALIBRATED else ""
        lines = (
            f"on {where}; the dashed line is what the error could be once runs of one task are "
            f"resampled together{worst}. "
        )
    return Panel(
        f"{name}risk",
        f"Error against share decided, {certificate.side} side",
        risk_coverage(
            curve,
            alpha=certificate.alpha,
            point=point,
            name=f"{name}risk",
            large=layout == "lead",
            bounded=not by_rows,
        ),
        "Left to right, the judge decides more runs. The solid line is how often it was "
        f"wrong {lines}{ending}",
        layout,
    )


def _score_panel(source: PageSource) -> Panel:
    thresholds = {c.side: c.threshold for c in source.sides if c.threshold is not None}
    regions = "; ".join(
        (
            f"{done(side)} {'at or below' if side == 'reject' else 'at or above'} "
            f"{log_odds(value, source.score_scale)}"
        )
        for side, value in sorted(thresholds.items())
    )
    return Panel(
        "scores",
        "Scores by outcome",
        score_distribution(
            source.cal.scores,
            source.cal.outcomes,
            thresholds=thresholds,
            scale=source.score_scale,
            name="scores",
        ),
        "Successes stand up, failures hang down (hatched). A judge that knows keeps the two apart. "
        + (
            f"Runs are {regions}."
            if regions
            else "No threshold is certified, so every run goes to review."
        ),
    )


def _heatmap_panel(source: PageSource) -> Panel:
    table = source.cal
    drawn = task_heatmap(table.tasks, table.scores, table.outcomes, source.decisions)
    sample = (
        f" {count(drawn.shown)} of {count(drawn.tasks)} tasks are drawn, evenly spaced."
        if drawn.shown < drawn.tasks
        else ""
    )
    review = " Runs under both thresholds go to review." if len(source.sides) > 1 else ""
    wrong = (
        (
            f"A cross is a wrong decision: {count(drawn.wrong_tasks)} of {count(drawn.tasks)} "
            f"tasks hold one.{review}"
        )
        if source.headline.certified
        else ""
    )
    together = (
        "Rows of one colour are why runs of a task count together: they succeed and fail together. "
        if drawn.tasks < len(table.tasks)
        else ""
    )
    return Panel(
        "map",
        f"Every run of {source.evidence}, by task",
        drawn.markup,
        "One row is a task, the best success rate on top; one cell is a run, its lowest score "
        f"left. {together}{wrong}{sample}",
        layout="wide",
    )
