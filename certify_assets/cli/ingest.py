"""``certify ops ingest`` and ``export``: runs in, decisions out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import PATH, corpus_option, parse_literals
from certify_assets.cli.output import (
    NOTHING,
    TextTable,
    answer,
    answers,
    figures,
    read_alike,
    refuse_overwrite,
    say,
    wants_json,
    write_tables,
)
from certify_assets.cli.progress import progress
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.storage.urls import absolute
from certify_assets.words import WORDS, percent

if TYPE_CHECKING:
    from certify_assets.operations.batches import BatchRecord
    from certify_assets.operations.receiving import Received

_COUNTS = ("batch", "runs", "new", "changed", "known", "files")


@click.command()
@click.argument("corpus")
@click.argument("paths", metavar="[PATH]…", nargs=-1)
@click.option(
    "--format",
    "format_name",
    default="",
    show_default=False,
    metavar="NAME",
    help=(
        "Source format, or auto to take the one that fits. [default: format and options of the "
        "corpus, auto where it comes with the package]"
    ),
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the source format; repeat for more.",
)
@click.option(
    "--decisions",
    type=PATH,
    help="Write every row of this call's batches here (CSV, Parquet or JSON Lines).",
)
@click.option("--dry-run", is_flag=True, help="Say what is new; store and decide nothing.")
@click.option(
    "--draw",
    is_flag=True,
    help="Draw labels from all runs that wait for a batch certificate, however few.",
)
@click.option(
    "--new-tasks",
    is_flag=True,
    help="Tasks with new ids are new, though known ones have their instructions.",
)
@click.option("--undo", metavar="BATCH", help="Take an unreviewed batch back; read nothing.")
@corpus_option
@answers
def ingest(
    corpus: Corpus,
    paths: tuple[str, ...],
    format_name: str,
    options: tuple[str, ...],
    decisions: Path | None,
    dry_run: bool,
    draw: bool,
    new_tasks: bool,
    undo: str | None,
) -> None:
    """Decide new runs of a corpus: auto-fail, auto-pass or review.

    Without PATH the files in inbox/CORPUS/ of the data root are read. PATH is a file, folder or
    archive of runs, or an fsspec URL, whose files are copied within limits. For a table of scores
    use `certify decide`. Outcomes are not needed and never read. Runs that a batch holds already
    are counted and left. A killed call is resumed.

    Tasks whose runs are all reviewed are drawn before anything is scored. Where the deployment is
    not valid (see `certify ops status CORPUS`), every run goes to review with the reason, and
    the exit code is 3.
    """
    from certify_assets.cli.launching import report_stored
    from certify_assets.operations.batch_audit import audit_summaries, standing_record
    from certify_assets.operations.batches import is_decided, waiting_batches
    from certify_assets.operations.deciding import decide_ready
    from certify_assets.operations.deployment import Deployment
    from certify_assets.operations.receiving import receive, undo_batch

    places = {f"PATH {number}": Path(path) for number, path in enumerate(paths, 1)}
    refuse_overwrite({"--decisions": decisions}, places)
    if undo is not None:
        if paths or dry_run or draw:
            raise InputError("--undo takes a batch back and reads nothing; give it alone.")
        undo_batch(corpus, undo)
        report_stored(corpus, "ops ingest --undo", "operations/decisions")
        answer(
            {"corpus": corpus.name, "undone": undo},
            f"{undo} is taken back; its runs may come again.",
        )
    if dry_run and draw:
        raise InputError("--dry-run stores nothing and --draw draws; give one of them.")
    received = receive(
        corpus,
        [absolute(path) for path in paths],
        format=format_name,
        options=parse_literals(options, "--option"),
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
    # these very files may have made batches earlier
    earlier = {*received.batches} - {record.batch for record in records}
    records += [
        standing_record(corpus, name) for name in sorted(earlier) if is_decided(corpus, name)
    ]
    refused = any(not item.decided for item in records)
    if dry_run and (came or waiting_batches(corpus)):
        # what the call itself would find
        refusal = Deployment.of(corpus).refusal
        refused |= refusal is not None
        if refusal is not None:
            say(str(refusal))
    if decisions is not None:
        _write(corpus, records, decisions)
    shown = {record.batch for record in records}
    draws = [
        item.sentence
        for item in (audit_summaries(corpus)[0] if draw or shown else ())
        if item.state == "provisional" and (draw or shown & set(item.batches))
    ]
    document = {
        "corpus": corpus.name,
        **{name: getattr(received, name) for name in _COUNTS},
        "dropped": dict(received.dropped),
        "sentences": list(received.sentences),
        "batches": [item.to_dict() for item in records],
    }
    read = _read(received) if received.files or not draw else []
    if not dry_run:
        # came before the result
        for sentence in () if wants_json() else read:
            say(sentence)
        read = []
    blocks = [*read, *(block for record in records for block in _decided(record))]
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
        head = head_text(decided(corpus, record.batch).head(corpus.name))
        tables.append(decisions_of(corpus, record.batch).assign(ledger=head))
    write_tables((path, pd.concat(tables, ignore_index=True)))


def _read(received: Received) -> list[str]:
    """Say what was read of a delivery."""
    dropped = ", ".join(f"{reason}: {n}" for reason, n in received.dropped.items())
    counted = (
        f"{received.runs:,} runs read; {received.new:,} new, {received.changed:,} changed, "
        f"{received.known:,} received before; left out: {dropped or 'nothing'}."
    )
    return [
        *([counted] if received.files else []),
        *read_alike(received.read_as),
        *received.sentences,
    ]


def _decided(record: BatchRecord) -> list[Any]:
    """Return what became of the runs of a batch, and what it rests on."""
    rows = [
        [WORDS.get(name, name), f"{number:,}", percent(number / max(1, record.rows))]
        for name, number in record.decisions.items()
    ]
    asked = ", ".join(f"{name} {number:,}" for name, number in record.asked.items() if name)
    title = f"Batch {record.batch}: {record.rows:,} runs"
    return [
        TextTable(title, ["decision", "runs", "share"], rows),
        *(f"  {name}: {number:,}" for name, number in record.reasons.items()),
        f"Reviewers are asked about: {asked or 'nothing'}",
        *(f"Promise: {promise}" for promise in record.promises),
        *record.remarks,
    ]


@click.command("export")
@click.argument("corpus")
@click.argument("path", metavar="FILE")
@click.option(
    "--format",
    "tool",
    required=True,
    type=click.Choice(["langfuse", "langsmith", "mlflow"]),
    help="Tool that takes the decisions: a file of scores for Langfuse or of feedback for "
    "LangSmith; with mlflow, FILE is the address of the server (http://HOST:PORT) or database.",
)
@click.option("--batch", default="", help="Only the decisions of this batch. [default: all]")
@corpus_option
@answers
def export(corpus: Corpus, path: str, tool: str, batch: str) -> None:
    """Write decisions as a file that a tracing tool imports, or log them as assessments in MLflow.

    There is one score, feedback or assessment a run, with its reason and certificate, which
    replaces the one before, so that it is there once however often it is written. Provisional runs
    are counted and left out. Where Langfuse's limit of a request asks for it, FILE-2 and more are
    written.
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
    answer(document, *figures(f"{made.written} decisions for {tool}: {where}", document))
