"""``certify ops recertify``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from certify_assets.cli.options import COUNT, NATURAL, OPEN_SHARE, corpus_option
from certify_assets.cli.output import NOTHING, answer, answers, figures, say, table
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.words import WORDS, percent

if TYPE_CHECKING:
    from certify_assets.operations.deployment import Deployed
    from certify_assets.operations.recertification_record import RecertificationRecord


_SHOWN = (
    "drawn",
    "counted",
    "new_tasks",
    "needed",
    "left_out",
    "open_share",
    "delta",
    "made_before",
    "total",
)
accept_relabelled_option = click.option(
    "--accept-relabelled",
    is_flag=True,
    help="Deploy although labels or runs were changed after a certificate was seen.",
)


@click.command()
@click.argument("corpus")
@click.option("--judge", help="Judge to recertify. [default: the one that is deployed]")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say which tasks count and what it would spend; computes no certificate.",
)
@click.option(
    "--deploy",
    "deploys",
    is_flag=True,
    help="Let what is certified decide from now on, at the budgets of the deployment.",
)
@accept_relabelled_option
@click.option(
    "--schedule",
    type=click.Choice(["planned", "inverse_square"]),
    help="How δ is spent; declared once. [default: planned]",
)
@click.option("--total", type=OPEN_SHARE, default=0.05, help="δ of all together.")
@click.option("--count", type=COUNT, default=4, help="Equal shares of the planned schedule.")
@click.option("--every", type=COUNT, default=20, help="Least new tasks, part of the schedule.")
@click.option(
    "--reason",
    default="",
    show_default=False,
    help="A sentence on why the schedule changes, where another was declared.",
)
@click.option(
    "--at-least", type=NATURAL, help="New tasks needed this time. [default: the schedule's]"
)
@corpus_option
@answers
@click.pass_context
def recertify(
    ctx: click.Context,
    /,
    corpus: Corpus,
    judge: str | None,
    dry_run: bool,
    deploys: bool,
    accept_relabelled: bool,
    schedule: Literal["planned", "inverse_square"] | None,
    reason: str,
    at_least: int | None,
    total: float,
    count: int,
    every: int,
) -> None:
    """Certify the judge of CORPUS again, on CAL and the audit sample.

    The audit sample are runs that were drawn before anything was scored, by default one of a task.
    Each recertification spends a share of δ that a schedule declares before the first; the same
    labels twice are one recertification. Decide when to recertify by the calendar or by the number
    of labels, never by what they say. Exit 3 where nothing is certified, too few tasks are new, or
    the deployment is refused.
    """
    from certify_assets.cli.launching import report_stored
    from certify_assets.operations.deploying import RELABELLING_ACCEPTED, promote
    from certify_assets.operations.deployment import certified_judge, load_deployment
    from certify_assets.operations.notifications import notify
    from certify_assets.operations.recertification import preview_recertification
    from certify_assets.operations.recertification import recertify as make
    from certify_assets.operations.spending import Schedule

    for name in ("total", "count", "every"):
        if not schedule and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise InputError(
                f"--{name} is part of a schedule; name the schedule too (--schedule "
                "planned is the default one), or give --at-least for this time alone."
            )
    judged = certified_judge(JudgedCorpus(corpus, judge or _deployed(corpus)))
    declared = (
        None if schedule is None else Schedule(schedule, total, count=count, least_new_tasks=every)
    )
    if dry_run:
        preview = preview_recertification(judged, declared)
        title = f"Recertification {preview['number']} of {judged} on {corpus}"
        look = "A look at what would come of it is a recertification: run it without --dry-run."
        answer(preview, *figures(title, preview, most=_SHOWN), look)
    record, said = make(judged, schedule=declared, reason=reason, least_new_tasks=at_least)
    deployed, lost = None, []
    if record is not None:
        report_stored(corpus, "ops recertify", "operations/recertification")
        if deploys:
            accepted = [RELABELLING_ACCEPTED] if accept_relabelled else []
            before = load_deployment(corpus)
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
        *([] if deployed is None else [f"deployment {deployed} decides now."]),
        *lost,
        code=0 if record and any(side.certified for side in record.sides) else NOTHING,
    )


def _deployed(corpus: Corpus) -> str:
    from certify_assets.operations.deployment import load_deployment

    document = load_deployment(corpus)
    if document is None:
        raise InputError(
            f"no judge is deployed on {corpus}; deploy one, or name a judge with --judge."
        )
    return document.judge


def _blocks(record: RecertificationRecord) -> list[Any]:
    """Return what each side certifies, and how it does in the audit sample."""
    sides = [
        {
            "side": side.side,
            "alpha": side.alpha,
            "promise": side.promise,
            "coverage": side.coverage if side.certified else "nothing",
            "threshold": side.threshold,
            "error of the audit sample": _held_out(side.audit_sample),
            "error if open runs are wrong": _share(side.worst_error),
        }
        for side in record.sides
    ]
    own = ", ".join(f"{number} tasks of {name}" for name, number in sorted(record.tasks.items()))
    own += f", {record.labelled} labelled runs of them"
    return [
        table(f"Recertification {record.number}: {own}; δ {record.delta:g}", sides),
        *(f"  {finding['code']}: {finding['message']}" for finding in record.findings),
        record.joint,
    ]


def lost_sides(before: Deployed | None, after: Deployed) -> list[str]:
    """Say which sides the judge decided until now, and decides no longer."""
    if before is None or before.judge != after.judge:
        return []
    return [
        f"{WORDS[side]} is not decided any longer: at {percent(alpha)} the recertification "
        f"certifies nothing on this side. `certify ops rollback {after.corpus} {before.number}` "
        "returns to the deployment before."
        for side, alpha in before.alpha.items()
        if side not in after.alpha
    ]


def _share(value: float | None) -> str | None:
    return None if value is None else percent(value)


def _held_out(audit: Mapping[str, Any] | None) -> str | None:
    if not audit or audit["realized_error"] is None:
        return None
    return f"{percent(audit['realized_error'])}, {audit['verdict']}"
