"""``certify ops recertify``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import COUNT, NATURAL, OPEN_SHARE, corpus_option
from certify_assets.cli.output import NOTHING, answer, answers, figures, say, table
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.words import WORDS, percent

if TYPE_CHECKING:
    from certify_assets.operations.deployment import Deployed
    from certify_assets.operations.recertification_record import RecertificationRecord
    from certify_assets.operations.spending import Schedule


accept_relabelled_option = click.option(
    "--accept-relabelled",
    is_flag=True,
    help="Deploy although labels or runs were changed after a certificate was seen.",
)


@click.command()
@corpus_option
@click.option("--judge", help="Judge to recertify. [default: the one that is deployed]")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show which tasks count and the δ it would spend, without computing a certificate.",
)
@click.option("--deploy", "deploys", is_flag=True, help="Deploy the new certificates.")
@accept_relabelled_option
@click.option(
    "--schedule",
    type=click.Choice(["planned", "inverse_square"]),
    help="How δ is spent; declare it once. [default: planned]",
)
@click.option(
    "--total", type=OPEN_SHARE, help="δ of all recertifications together. [default: 0.05]"
)
@click.option("--count", type=COUNT, help="Shares of the planned schedule. [default: 4]")
@click.option(
    "--every",
    "least_new_tasks",
    type=COUNT,
    help="New tasks that a recertification needs, part of the schedule. [default: 20]",
)
@click.option("--reason", default="", show_default=False, help="Why the schedule changes.")
@click.option(
    "--at-least", type=NATURAL, help="New tasks needed this time. [default: the schedule's]"
)
@answers
def recertify(
    corpus: Corpus,
    judge: str | None,
    dry_run: bool,
    deploys: bool,
    accept_relabelled: bool,
    schedule: str | None,
    reason: str,
    at_least: int | None,
    **shares: Any,
) -> None:
    """Certify the judge of CORPUS again, on CAL and the audit sample.

    The audit sample is made of runs that were drawn before anything was scored, by default one of a
    task. Each recertification spends a share of δ, by a schedule that is declared before the first.
    The same labels are never paid for twice. Decide when to recertify by the calendar or by the
    number of labels, never by what the labels say.

    --deploy keeps the budgets of the current deployment. Exit 3 where nothing is certified, too few
    tasks are new, or the deployment is refused.
    """
    from certify_assets.cli.launching import report_stored
    from certify_assets.operations.deploying import RELABELLING_ACCEPTED, promote
    from certify_assets.operations.deployment import certified_judge, load_deployment
    from certify_assets.operations.notifications import notify
    from certify_assets.operations.recertification import preview_recertification
    from certify_assets.operations.recertification import recertify as make

    declared = _declared(schedule, shares)
    before = load_deployment(corpus)
    name = judge or (before.judge if before else None)
    if name is None:
        raise InputError(f"No judge is deployed on {corpus}. Deploy one, or name it with --judge.")
    judged = certified_judge(JudgedCorpus(corpus, name))
    if dry_run:
        preview = preview_recertification(judged, declared)
        title = f"Recertification {preview['number']} of {judged} on {corpus}"
        look = "What it would certify is not computed, because that would spend δ."
        least = preview["needed"] if at_least is None else at_least
        refused = not preview["made_before"] and preview["new_tasks"] < least
        few = "Too few tasks are new: it would be refused." if refused else None
        answer(preview, *figures(title, preview), few, look)
    record, said = make(judged, schedule=declared, reason=reason, least_new_tasks=at_least)
    deployed, lost = None, []
    if record is not None:
        report_stored(corpus, "ops recertify", "operations/recertification")
        if deploys:
            accepted = [RELABELLING_ACCEPTED] if accept_relabelled else []
            after = promote(corpus, record, accepted=accepted)
            deployed, lost = after.number, lost_sides(before, after)
            report_stored(corpus, "ops recertify --deploy", "operations/deployment")
    for sentence in notify(corpus):
        say(sentence)
    nothing = {"number": None, "corpus": corpus.name, "judge": judged.name}
    answer(
        {"said": said, "deployment": deployed, **(record.to_dict() if record else nothing)},
        said,
        *(_blocks(record) if record else ()),
        f"Deployment {deployed} decides now." if deployed else None,
        *lost,
        code=0 if record and any(side.certified for side in record.sides) else NOTHING,
    )


def _declared(kind: str | None, shares: Mapping[str, Any]) -> Schedule | None:
    """Return the schedule that the command declares, if it does."""
    from certify_assets.operations.spending import Schedule

    given = {name: value for name, value in shares.items() if value is not None}
    if kind is not None:
        return Schedule(kind, **given)  # type: ignore[arg-type]
    if given:
        option = next(iter(given)).replace("least_new_tasks", "every")
        raise InputError(
            f"--{option} is part of a schedule. Name the schedule (--schedule planned), or use "
            "--at-least to change only this call."
        )
    return None


def _blocks(record: RecertificationRecord) -> list[Any]:
    """Return what each side certifies, and how it does in the audit sample."""
    sides = [
        {
            "side": side.side,
            "alpha": side.alpha,
            "promise": side.promise,
            "coverage": side.coverage if side.certified else "nothing",
            "threshold": side.threshold,
            "error on the audit sample": _held_out(side.audit_sample),
            "error if open runs are wrong": None
            if side.worst_error is None
            else percent(side.worst_error),
        }
        for side in record.sides
    ]
    own = ", ".join(f"{number:,} tasks of {name}" for name, number in sorted(record.tasks.items()))
    own += f", {record.labelled:,} labelled runs"
    return [
        table(f"Recertification {record.number}: {own}; δ {record.delta:g}", sides),
        *(f"  {finding['code']}: {finding['message']}" for finding in record.findings),
        record.joint,
    ]


def _held_out(audit: Mapping[str, Any] | None) -> str | None:
    if not audit or audit["realized_error"] is None:
        return None
    return f"{percent(audit['realized_error'])}, {audit['verdict']}"


def lost_sides(before: Deployed | None, after: Deployed) -> list[str]:
    """Say which sides the judge decided until now, and decides no longer."""
    if before is None or before.judge != after.judge:
        return []
    return [
        f"The judge no longer decides {WORDS[side]}: nothing is certified at {percent(alpha)}. "
        f"`certify ops rollback {after.corpus} {before.number}` restores the earlier deployment."
        for side, alpha in before.alpha.items()
        if side not in after.alpha
    ]
