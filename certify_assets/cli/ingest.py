"""``certify ops ingest``, ``export`` and ``outcomes``: runs in, decisions out, later truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import corpus_option, source_options
from certify_assets.cli.output import (
    NOTHING,
    OUT,
    PATH,
    TextTable,
    answer,
    answers,
    decisions_table,
    figure,
    figures,
    read_alike,
    say,
    write_tables,
)
from certify_assets.cli.progress import progress
from certify_assets.cli.reading import column_options, remedies, say_read_as
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.storage.urls import absolute
from certify_assets.tables.settings import ReadingOptions
from certify_assets.words import REASON_WORDS, WORDS, number_of

if TYPE_CHECKING:
    from certify_assets.operations.batches import BatchRecord
    from certify_assets.operations.monitoring import MonitorRecord
    from certify_assets.operations.outcomes import DecidedOutcome
    from certify_assets.operations.receiving import Received

_COUNTS = ("batch", "runs", "new", "changed", "known", "files")


@click.command()
@corpus_option
@click.argument("paths", metavar="[PATH]…", type=click.Path(), nargs=-1)
@source_options
@click.option(
    "--decisions",
    type=OUT,
    help="Write every row of this call's batches here (CSV, Parquet or JSON Lines).",
)
@click.option("--dry-run", is_flag=True, help="Only report what is new; store and decide nothing.")
@click.option(
    "--draw",
    is_flag=True,
    help="Draw labels from all runs that wait for a batch certificate.",
)
@click.option(
    "--new-tasks",
    is_flag=True,
    help="Accept tasks with new ids as new, even if known tasks have the same instructions.",
)
@click.option("--undo", metavar="BATCH", help="Take an unreviewed batch back; read nothing.")
@answers
def ingest(
    corpus: Corpus,
    paths: tuple[str, ...],
    format_name: str | None,
    options: Mapping[str, Any],
    decisions: Path | None,
    dry_run: bool,
    draw: bool,
    new_tasks: bool,
    undo: str | None,
) -> None:
    """Decide new runs of a corpus: auto-fail, auto-pass or review.

    PATH is a file, folder or archive of runs, or an fsspec URL whose files are copied. Without PATH
    the files in inbox/CORPUS/ of the data root are read. Format and options are those of the
    corpus; for an embedded corpus the format is detected. For a table of scores use `certify
    decide`.

    Outcomes are not needed and never used. Runs that a batch holds already are counted and skipped.
    A killed call is resumed. The audit sample is drawn before anything is scored. Where the
    deployment is not valid (see `certify ops status CORPUS`), every run goes to review with the
    reason, and the exit code is 3.
    """
    from certify_assets.cli.launching import report_stored
    from certify_assets.operations.batch_audit import batch_audits, standing_record
    from certify_assets.operations.batches import is_decided, waiting_batches
    from certify_assets.operations.deciding import decide_ready
    from certify_assets.operations.deployment import open_deployment
    from certify_assets.operations.receiving import receive, undo_batch

    if undo is not None:
        if paths or dry_run or draw:
            raise InputError("--undo only takes a batch back. Give it alone.")
        undo_batch(corpus, undo)
        report_stored(corpus, "ops ingest --undo", "operations/decisions")
        answer(
            {"corpus": corpus.name, "undone": undo},
            f"{undo} is taken back; its runs may come again.",
        )
    if dry_run and draw:
        raise InputError("--dry-run and --draw exclude each other. Give one of them.")
    received = receive(
        corpus,
        [absolute(path) for path in paths],
        format=format_name or "",
        options=options,
        dry_run=dry_run,
        new_tasks=new_tasks,
    )
    with progress() as report:
        records = [] if dry_run else decide_ready(corpus, report=report, draw=draw)
    came = received.new + received.changed > 0
    stored = ["operations/incoming_runs"] if came and not dry_run else []
    stored += ["operations/decisions"] if records else []
    if stored:
        refused = any(not item.decided for item in records)
        report_stored(corpus, "ops ingest", *stored, refused=refused)
        _draw_monitor(corpus)
    # these very files may have made batches earlier
    earlier = {*received.batches} - {record.batch for record in records}
    records += [
        standing_record(corpus, name) for name in sorted(earlier) if is_decided(corpus, name)
    ]
    refused = any(not item.decided for item in records)
    if dry_run and (came or waiting_batches(corpus)):
        # what the call itself would find
        refusal = open_deployment(corpus).refusal
        refused |= refusal is not None
        if refusal is not None:
            say(str(refusal))
    if decisions is not None:
        _write(corpus, records, decisions)
    shown = {record.batch for record in records}
    draws = [
        item.sentence
        for item in (batch_audits(corpus)[0] if draw or shown else ())
        if item.state == "provisional" and (draw or shown & set(item.record.batches))
    ]
    document = {
        "corpus": corpus.name,
        **{name: getattr(received, name) for name in _COUNTS},
        "dropped": dict(received.dropped),
        "sentences": list(received.sentences),
        "batches": [item.to_dict() for item in records],
    }
    blocks: list[Any] = _read(received) if received.files or not draw else []
    if not dry_run:
        for sentence in blocks:
            say(sentence)
        blocks = [block for record in records for block in _decided(record)]
    if draws and any(name for record in records for name in record.asked):
        draws.append("These labels come on top of the runs for reviewers; the queue has both.")
    blocks += draws or (["No run waits for a draw of labels."] if draw else [])
    # what was read is said already
    answer(document, *(blocks or [None]), code=NOTHING if refused else 0)


def _write(corpus: Corpus, records: list[BatchRecord], path: Path) -> None:
    """Write every row of some batches, with the event that decided it."""
    import pandas as pd

    from certify_assets.operations.batches import decided
    from certify_assets.operations.decisions import decisions_of
    from certify_assets.storage.events import head_text

    if not records:
        raise InputError(
            "nothing was decided by this call, so there is nothing to write; leave --decisions out."
        )
    tables = []
    for record in records:
        # an older database than the one that decided them is noticed by it
        head = head_text(decided(corpus, record.batch).head)
        tables.append(decisions_of(corpus, record.batch).assign(ledger=head))
    write_tables((path, pd.concat(tables, ignore_index=True)))


def _read(received: Received) -> list[str]:
    """Say what was read of a delivery."""
    lines = [*read_alike(received.read_as), *received.sentences]
    if received.files:
        counted = (
            f"{received.runs:,} runs read; {received.new:,} new, {received.changed:,} changed, "
            f"{received.known:,} received before; left out: {figure('dropped', received.dropped)}."
        )
        lines.insert(0, counted)
    return lines


def _decided(record: BatchRecord) -> list[Any]:
    """Return what became of the runs of a batch, and what it rests on."""
    asked = ", ".join(
        f"{number:,} ({name.replace('_', ' ')})" for name, number in record.asked.items() if name
    )
    title = f"Batch {record.batch}: {record.rows:,} runs"
    return [
        decisions_table(title, record.decisions),
        *(f"  {REASON_WORDS[name]}: {number:,}" for name, number in record.reasons.items()),
        f"Runs for reviewers: {asked or 'none'}",
        *(f"Promise: {promise}" for promise in record.promises),
        *record.remarks,
    ]


@click.command("export")
@corpus_option
@click.argument("path", metavar="FILE")
@click.option(
    "--format",
    "tool",
    required=True,
    type=click.Choice(["langfuse", "langsmith", "mlflow"]),
    help="Tool that takes the decisions; with mlflow, FILE is the address of the server "
    "(http://HOST:PORT) or database.",
)
@click.option("--batch", default="", help="Only the decisions of this batch. [default: all]")
@answers
def export(corpus: Corpus, path: str, tool: str, batch: str) -> None:
    """Write decisions as a file that a tracing tool imports, or log them as assessments in MLflow.

    Langfuse takes a file of scores, LangSmith one of feedback. Each run has one score, feedback or
    assessment, with its reason and certificate. A later export replaces it. Provisional runs are
    counted and left out. A file too large for one request to Langfuse is split into FILE, FILE-2
    and so on.
    """
    from certify_assets.operations.decision_exports import export_decisions, log_decisions
    from certify_assets.storage.tracking import without_credentials

    if tool == "mlflow":
        made = log_decisions(corpus, path, batch=batch)
    else:
        made = export_decisions(corpus, Path(path), tool, batch=batch)
    document = {**asdict(made), "files": [str(file) for file in made.files]}
    if tool != "mlflow":
        del document["unchanged"]
    where = ", ".join(map(str, made.files)) or without_credentials(path)
    answer(document, *figures(f"{made.written:,} decisions for {tool}: {where}", document))


_SHOWN = 2
_OUTCOMES = ("failure", "success")
_USES = {
    "monitor": "drawn: counted by the monitor",
    "labelled": "drawn and labelled: the label counts",
    "not_drawn": "not drawn: no random sample, only listed",
}


@click.command()
@corpus_option
@click.argument("path", metavar="FILE", type=PATH)
@click.option(
    "--source",
    default="outcome",
    metavar="NAME",
    help="Where the outcomes come from, such as ci or refund. A source has one outcome of a run.",
)
@column_options
@answers
def outcomes(corpus: Corpus, path: Path, source: str, reading: ReadingOptions) -> None:
    """Add outcomes that became known after runs were decided: CI results, reverts, refunds.

    FILE is a table with trajectory_id and outcome. Runs that no batch decided are counted and left
    out; a file of such runs alone is refused. The same file again adds nothing. Where two sources
    differ, the later one counts and the run is listed. A label of a reviewer overrides an outcome,
    and contradictions are listed.

    The monitor reads outcomes of drawn runs in the order of the draw. An outcome counts once every
    drawn run before it has an outcome or a label. Outcomes of other runs are only listed. Exit 3
    where the monitor raises an alarm.
    """
    from certify_assets.operations.outcomes import decided_outcomes, import_outcomes

    with remedies():
        made = import_outcomes(corpus, path, reading, source=source)
    say_read_as(path, made.read_as)
    known, monitored = decided_outcomes(corpus), _monitored(corpus)
    uses = {use: [item for item in known if item.use == use] for use in _USES}
    wrong = [item for item in known if item.wrong]
    contradictions = [item for item in known if item.contradicted]
    document = {
        "corpus": corpus.name,
        "source": source,
        "added": made.added,
        "stood_already": made.stood_already,
        "without_outcome": made.without_outcome,
        "unknown": len(made.unknown),
        "uses": {use: len(items) for use, items in uses.items()},
        "wrong": [asdict(item) for item in wrong],
        "contradictions": [asdict(item) for item in contradictions],
        "monitor": monitored and {"status": monitored.status, "reason": monitored.reason},
    }
    rows = [
        [_USES[use], f"{len(items):,}", f"{sum(item.wrong for item in items):,}"]
        for use, items in uses.items()
    ]
    blocks: list[Any] = [
        f"{number_of(made.added, 'outcome')} added, {made.stood_already:,} known before.",
        TextTable("Known outcomes", ["use", "runs", "decided wrongly"], rows),
        *_listed("Decided wrongly", wrong),
        *_listed("A reviewer or an earlier source disagrees", contradictions),
    ]
    if made.unknown:
        blocks.insert(1, f"In no decided batch: {number_of(len(made.unknown), 'run')}.")
    if monitored:
        blocks.append(f"Monitor: {monitored.reason}")
    alarm = monitored is not None and monitored.status == "alarm"
    answer(document, *blocks, code=NOTHING if alarm else 0)


def _monitored(corpus: Corpus) -> MonitorRecord | None:
    """Put the outcomes to the monitor of the deployed judge."""
    from certify_assets.operations.monitoring import monitor_deployed

    try:
        found = monitor_deployed(corpus)
    except CertifyError as error:
        say(f"warning: the outcomes are stored, but the monitor could not read them: {error}")
        return None
    _draw_monitor(corpus)
    return found


def _draw_monitor(corpus: Corpus) -> None:
    from certify_assets.reports.monitor_page import draw_deployed

    draw_deployed(corpus.current)


def _listed(title: str, items: Sequence[DecidedOutcome]) -> list[str]:
    """Return a line with the number of runs, and one for each of the first."""
    if not items:
        return []
    lines = [f"{title}: {len(items):,}"]
    for item in items[:_SHOWN]:
        decision = WORDS.get(item.decision, item.decision)
        said = f"{_OUTCOMES[item.outcome]} ({item.source})"
        lines.append(f"  {item.trajectory_id}: {decision}, then {said}")
    if (more := len(items) - _SHOWN) > 0:
        lines.append(f"  and {more:,} more (--json lists them)")
    return lines
