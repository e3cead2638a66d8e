"""``certify monitor``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.documents import Choice, choice_options, load_certificates, one_a_side
from certify_assets.cli.figures import show_figures, verbose_option
from certify_assets.cli.options import PATH, certificate_argument, split_option
from certify_assets.cli.output import (
    NOTHING,
    emit_json,
    json_option,
    refuse_overwrite,
    show_line,
    write_text,
)
from certify_assets.cli.reading import column_options, labelled, read_scores
from certify_assets.files import sha256_bytes
from certify_assets.tables.score_reading import ReadingOptions
from certify_assets.work import counted

if TYPE_CHECKING:
    from certify_assets.certificates import Monitoring
    from certify_assets.operations.monitor_record import MonitorEntry

_MONITORED = (
    "alarm",
    "realized_error",
    "interval",
    "tasks",
    "covered_tasks",
    "trajectories",
    "covered_trajectories",
    "errors",
    "unscored",
    "e_process",
)


@click.command()
@certificate_argument
@click.argument("labels", type=PATH)
@click.option(
    "--detector",
    type=click.Choice(["e_process", "shiryaev_roberts"]),
    default="e_process",
    help="Which detector is the alarm; both are reported.",
)
@click.option(
    "--html",
    "page",
    type=PATH,
    help="Write the monitor as a page that opens from disk, to this file.",
)
@split_option
@choice_options
@column_options
@verbose_option
@json_option
@click.pass_context
def monitor(
    ctx: click.Context,
    /,
    certificate: Path,
    labels: Path,
    page: Path | None,
    split: str | None,
    choice: Choice,
    verbose: bool,
    as_json: bool,
    reading: ReadingOptions,
    **options: Any,
) -> None:
    """Raise an alarm when newly labelled tasks show an error above α.

    LABELS is a score table with an outcome in every row, in the order in which the rows came; a
    task stands where its first row does. It holds tasks drawn at random before scoring, all
    attempts labelled: a column provenance that says anything but audit_sample, or a column
    audit_sample that is not true, is refused. Rows that CERTIFICATE does not decide say nothing
    about its error; a task without any other is counted and no more. Of a document with one
    certificate a side every certified one is monitored; --side picks one.

    The alarm (exit 3) is false with probability at most δ, however often one looks. A task weighs
    by the share of its attempts that is covered.
    """
    from certify_assets.operations.monitor_record import monitor_entry
    from certify_assets.tables.score_table import NOT_STATED, require_audit_sample

    refuse_overwrite({"--html": page}, {"CERTIFICATE": certificate, "LABELS": labels})
    certificates = one_a_side(certificate, load_certificates(certificate, choice))
    reading = reading.as_issued(certificate, certificates)
    table = labelled(read_scores(labels, reading).choose_split(split, required=True))
    stated = require_audit_sample(labels)
    entries = []
    # one that certifies nothing decides nothing to monitor; alone it is refused
    monitored = [item for item in certificates if item.certified] or certificates[:1]
    for item in counted("monitoring", monitored):
        entry = monitor_entry(item, table.scores, table.labels, table.tasks, **options)
        if not stated:
            findings = (*entry.result.findings, NOT_STATED)
            entry = replace(entry, result=replace(entry.result, findings=findings))
        entries.append(entry)
    if page is not None:
        _write_page(page, entries, labels)
    alarm = any(entry.result.alarm for entry in entries)
    if as_json and len(certificates) == 1:
        emit_json(entries[0].result.to_dict())
    elif as_json:
        followed = [
            {"side": entry.side, "alpha": entry.alpha, **entry.result.to_dict()}
            for entry in entries
        ]
        nothing = [item.side for item in certificates if not item.certified]
        emit_json({"alarm": alarm, "monitors": followed, "not_certified": nothing})
    else:
        for entry in entries:
            _show(entry.result, f"Monitor, {entry.side} side", verbose=verbose)
    ctx.exit(NOTHING if alarm else 0)


def _write_page(page: Path, entries: list[MonitorEntry], labels: Path) -> None:
    from certify_assets.operations.monitor_record import (
        MonitorRecord,
        SampleFile,
        describe_monitors,
    )
    from certify_assets.reports.monitor_page import render_monitor_page

    status, reason = describe_monitors(entries)
    result = entries[0].result
    rows = result.trajectories + result.unscored
    digest = sha256_bytes(labels.read_bytes())
    record = MonitorRecord(
        corpus="",
        judge="",
        status=status,
        reason=reason,
        certificates=tuple(entry.certificate_sha256 for entry in entries),
        files=(SampleFile(labels.name, digest, rows, result.tasks),),
        monitors=tuple(entries),
    )
    write_text(page, render_monitor_page(record, title=labels.stem))


def _show(result: Monitoring, title: str, *, verbose: bool) -> None:
    shown = {
        **vars(result),
        **{
            name: f"{part.value:.4g} now, at most {part.largest:.4g}; alarm from {part.threshold:g}"
            for name, part in (
                ("e_process", result.e_process),
                ("shiryaev_roberts", result.shiryaev_roberts),
            )
        },
    }
    del shown["findings"]
    show_figures(title, {"": shown}, most=_MONITORED, verbose=verbose)
    if result.alarm:
        show_line(
            f"Alarm after {result.first_alarm_at} tasks, at {result.first_alarm_task}: "
            "issue a new certificate."
        )
    for finding in result.findings:
        show_line(f"  {finding['code']}: {finding['message']}")
