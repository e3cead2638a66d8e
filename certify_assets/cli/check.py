"""Commands on a certificate and a score table: audit, resample, decide, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.documents import (
    Choice,
    certified_splits,
    choice_options,
    load_certificates,
    one_a_side,
    read_certificate_file,
)
from certify_assets.cli.figures import show_figures, verbose_option
from certify_assets.cli.gate import Case, CiResult, State, gated
from certify_assets.cli.gate import report as report_result
from certify_assets.cli.options import (
    OPEN_SHARE,
    PATH,
    SIDE,
    Finite,
    certificate_argument,
    column_options,
    labelled,
    pilot_option,
    pool_option,
    read_pilot,
    read_scores,
    scores_argument,
    split_option,
)
from certify_assets.cli.output import (
    NOTHING,
    emit_json,
    json_option,
    percent,
    refuse_overwrite,
    say,
    show_line,
    show_table,
    write_tables,
    write_text,
)
from certify_assets.cli.verify import pool_of, verify_documents
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.tables.score_reading import ReadingOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from certify_assets.certificates import Audit, Certificate
    from certify_assets.corpora.formats.mlflow_server import VerdictCounts
    from certify_assets.evaluation.decisions import Decisions
    from certify_assets.tables.score_table import ScoreTable

_AUDITED = (
    "verdict",
    "realized_error",
    "lower_bound",
    "coverage",
    "covered_tasks",
    "tasks",
    "trajectories",
    "unscored",
    "reason",
)


@click.command()
@certificate_argument
@scores_argument
@choice_options
@column_options
@verbose_option
@json_option
@click.pass_context
@gated
def audit(
    ctx: click.Context,
    /,
    certificate: Path,
    scores: Path,
    choice: Choice,
    verbose: bool,
    as_json: bool,
    reading: ReadingOptions,
) -> None:
    """How the certified threshold does on other labelled tasks.

    CERTIFICATE is one certificate, or a document with one a side, each of which is audited;
    --side, --alpha and --procedure choose from a document of more. Uses the rows with split=test
    where SCORES has a split column. ERROR (exit 3): the task-level lower bound of the realised
    error exceeds α. WARN: the point estimate does but not the bound, or too few tasks are covered
    to tell. PASS otherwise.
    """
    certificates = one_a_side(certificate, load_certificates(certificate, choice))
    reading = reading.as_issued(certificate, certificates)
    audits = _audits(certificates, read_scores(scores, reading).choose_split("test"))
    verdict = _worst(certificates, audits)
    if as_json:
        each = [
            {"side": item.side, "alpha": item.alpha, **audit.to_dict()}
            for item, audit in zip(certificates, audits, strict=True)
        ]
        emit_json(audits[0].to_dict() if len(audits) == 1 else {"verdict": verdict, "audits": each})
    else:
        each_side = {
            item.side: audit.to_dict() for item, audit in zip(certificates, audits, strict=True)
        }
        show_figures("Audit", each_side, most=_AUDITED, verbose=verbose)
    report_result(_gate_result(scores, certificates, audits, verdict))
    ctx.exit(NOTHING if verdict == "ERROR" else 0)


def _gate_result(
    scores: Path, certificates: list[Certificate], audits: list[Audit], verdict: str
) -> CiResult:
    opened = any(item.certified for item in certificates)
    found, warnings = [], []
    for item, audit in zip(certificates, audits, strict=True):
        counts = item.certified or not opened
        failed = counts and audit.verdict == "ERROR"
        error = audit.realized_error
        of_them = "" if error is None else f", of which {percent(error)} are wrong"
        message = " ".join(
            [f"{audit.verdict}: {percent(audit.coverage)} of runs decided{of_them}."]
            + ([audit.reason] if audit.reason else [])
        )
        state: State = "failed" if failed else "passed" if counts else "skipped"
        found.append(Case(f"audit of {item.side}", state, message))
        if audit.verdict == "WARN":
            warnings.append(f"audit of {item.side}: {message}")
    return CiResult(
        scores.name, f"The audit says {verdict}.", tuple(found), warnings=tuple(warnings)
    )


def _worst(certificates: list[Certificate], audits: list[Audit]) -> str:
    """Return the worst verdict of the certified sides, of any where none is certified."""
    pairs = list(zip(certificates, audits, strict=True))
    verdicts = {audit.verdict for item, audit in pairs if item.certified}
    verdicts = verdicts or {audit.verdict for audit in audits}
    return next((name for name in ("ERROR", "WARN") if name in verdicts), "PASS")


@click.command()
@scores_argument
@click.option("--threshold", type=float, required=True, help="The threshold to audit.")
@click.option("--side", type=SIDE, default="reject", help="Which decision it makes.")
@click.option("--alpha", type=OPEN_SHARE, default=0.1, help="Error budget.")
@click.option("--draws", default="3000", help="Number of resamples, or 'exact'.")
@click.option("--seed", type=int, default=42, help="Seed of the draws.")
@split_option
@column_options
@json_option
def resample(
    scores: Path,
    as_json: bool,
    split: str | None,
    draws: str,
    reading: ReadingOptions,
    **options: Any,
) -> None:
    """How often a threshold's error exceeds α when tasks are resampled.

    On the scores from which a bootstrap chose its own threshold this passes by construction: it is
    evidence only on other scores, or for another procedure's threshold.
    """
    from certify_assets.certificates import resample_audit

    if draws != "exact" and not (draws.isdecimal() and int(draws) > 0):
        raise click.UsageError(f"--draws is {draws!r}; give a whole number above zero, or exact.")
    table = labelled(read_scores(scores, reading).choose_split(split, required=True))
    result = resample_audit(
        table.scores,
        table.labels,
        table.tasks,
        draws=draws if draws == "exact" else int(draws),
        **options,
    )
    if as_json:
        emit_json({**result.to_dict(), "exact": draws == "exact"})
        return
    show_line(
        f"The error at {options['threshold']:g} exceeds {options['alpha']:g} in "
        f"{percent(result.exceedance)} of task resamples "
        f"({'exact' if draws == 'exact' else draws + ' draws'})."
    )
    show_line(result.note)


_QUEUE_HELP = (
    "Write the rows that go to human review here (CSV, Parquet or JSON Lines). Names are written "
    "as they are; a CSV is refused where one begins like a formula, which a spreadsheet would run."
)


@click.command()
@certificate_argument
@scores_argument
@click.option("--queue", type=PATH, help=_QUEUE_HELP)
@click.option("--decisions", type=PATH, help="Write every row with its decision and reason here.")
@click.option(
    "--mlflow",
    metavar="URI",
    help="Log every decision as an assessment of the MLflow trace that trajectory_id names, at "
    "this server (http://HOST:PORT) or database; logged again, it is there once.",
)
@split_option
@choice_options
@column_options
@json_option
@click.pass_context
def decide(
    ctx: click.Context,
    /,
    certificate: Path,
    scores: Path,
    queue: Path | None,
    decisions: Path | None,
    mlflow: str | None,
    split: str | None,
    choice: Choice,
    as_json: bool,
    reading: ReadingOptions,
) -> None:
    """Decide new trajectories: reject, release or human review.

    CERTIFICATE is one certificate, or a document with one a side; --side, --alpha and --procedure
    choose from a document of more. A row in both regions, an unscored row and every row where
    nothing was certified go to human review (exit 3 when nothing was certified at all).
    """
    from certify_assets.certificates.scale import share_doubt

    refuse_overwrite(
        {"--queue": queue, "--decisions": decisions}, {"CERTIFICATE": certificate, "SCORES": scores}
    )
    certificates = one_a_side(certificate, load_certificates(certificate, choice))
    reading = reading.as_issued(certificate, certificates)
    table = read_scores(scores, reading, outcomes=False).choose_split(split, required=True)
    result = _decide(certificates, table, queue, decisions)
    assessed = _assess(mlflow, scores, result) if mlflow else None
    counts = result.rows.counts
    reasons = dict(sorted(Counter(result.rows.reasons.tolist()).items()))
    hashes = [item.sha256 for item in certificates]
    if as_json:
        emit_json(
            {
                **counts,
                "reasons": reasons,
                "certificate_sha256": hashes[0] if len(hashes) == 1 else hashes,
                **({"mlflow": assessed._asdict()} if assessed else {}),
            }
        )
    else:
        total = max(1, sum(counts.values()))
        show_table(
            "Decisions",
            ["decision", "trajectories", "share"],
            [[name, str(n), f"{100 * n / total:.1f} %"] for name, n in counts.items()],
        )
        for reason, number in reasons.items():
            show_line(f"  {reason}: {number}")
        if assessed:
            lost = assessed.unknown
            show_line(
                f"MLflow: {assessed.logged} decisions logged, {assessed.unchanged} there already"
                + (f"; {len(lost)} traces are not there, such as {lost[0]}" if lost else "")
            )
    for item in certificates:
        if doubt := share_doubt(item, table.scores, table.tasks):
            say(f"warning: {doubt}")
    ctx.exit(0 if any(item.certified for item in certificates) else NOTHING)


def _assess(address: str, scores: Path, result: Decisions) -> VerdictCounts:
    """Log decisions as assessments of the traces that the rows name."""
    from certify_assets.corpora.formats.mlflow_server import TraceVerdict, log_verdicts

    ids = result.table.trajectories
    if ids is None:
        raise InputError(
            f"{scores} has no trajectory_id, and --mlflow needs the id of every trace there; add "
            "the column."
        )
    rows = result.columns(slice(None))
    names = ("decision", "reason", "certificate_sha256")
    said = zip(ids, *(rows[name] for name in names), strict=True)
    return log_verdicts(address, [TraceVerdict(*map(str, row)) for row in said])


def _decide(
    certificates: list[Certificate], table: ScoreTable, queue: Path | None, decisions: Path | None
) -> Decisions:
    """Decide every row, and write what is asked for."""
    from certify_assets.evaluation.decisions import decide_table

    result = decide_table(certificates, table)
    asked = ((queue, result.queue()), (decisions, slice(None)))
    write_tables(
        *(
            (path, _harmless(path, result.columns(rows), table.naming_columns))
            for path, rows in asked
            if path is not None
        )
    )
    return result


def _harmless(
    path: Path, columns: dict[str, NDArray[Any]], naming: Collection[str]
) -> dict[str, NDArray[Any]]:
    """Keep a spreadsheet from running the texts of a CSV that are only passed on."""
    import numpy as np

    from certify_assets.tables.writing import defused

    # names are written as they are, or refused: another spelling would be lost to later joins
    if path.suffix.lower() != ".csv":
        return columns
    return {
        name: values
        if name in naming or values.dtype.kind != "O"
        else np.array(
            [defused(cell) if isinstance(cell, str) else cell for cell in values], dtype=object
        )
        for name, values in columns.items()
    }


@click.command()
@certificate_argument
@scores_argument
@click.option(
    "--audit",
    "audit_path",
    type=PATH,
    help="Score table of other labelled tasks. [default: rows with split=test, if any]",
)
@pilot_option
@pool_option
@choice_options
@click.option("--out", type=PATH, default=Path("certificate.html"), help="Where the page goes.")
@click.option("--title", help="Title of the page. [default: SCORES, side and budget]")
@click.option(
    "--minutes",
    type=Finite(min=0, min_open=True),
    help="Minutes a reviewer needs for one run: the page then says how many hours are saved.",
)
@column_options
@json_option
def report(
    certificate: Path,
    scores: Path,
    audit_path: Path | None,
    pilot: Path | None,
    pool: Path | None,
    choice: Choice,
    out: Path,
    title: str | None,
    minutes: float | None,
    as_json: bool,
    reading: ReadingOptions,
) -> None:
    """Draw a certificate as a page that opens from disk.

    CERTIFICATE is one certificate or a {"certificates": [...]} document, from which --side, --alpha
    and --procedure choose; every one drawn must be of SCORES, and is recomputed before (exit 3
    where one is not).
    """
    from certify_assets.reports.certificate_page import render_page
    from certify_assets.reports.certificate_source import recognised_scale
    from certify_assets.reports.certificate_text import page_title

    refuse_overwrite(
        {"--out": out},
        {
            "CERTIFICATE": certificate,
            "SCORES": scores,
            "--audit": audit_path,
            "--pilot": pilot,
            "--pool": pool,
        },
    )
    certificates = load_certificates(certificate, choice)
    given = read_certificate_file(certificate)
    reading = reading.as_issued(certificate, certificates)
    whole = read_scores(scores, reading)
    documents = [item.to_dict() for item in certificates]
    table = labelled(whole.choose_split(*certified_splits(documents)))
    unlabelled = pool_of(pool, certificate, given, reading)
    others = None if pilot is None else read_pilot(pilot, reading)
    difference = verify_documents(given, documents, table, others, unlabelled)
    if difference is not None:
        raise StaleCertificateError(f"{certificate} is not of {scores}: {difference}")
    test = _audit_table(whole, audit_path, reading)
    scale = reading.score_scale or recognised_scale(table.scores)
    if reading.lower_is_better and scale == "probability":
        # the negative of a probability is none; negated log-odds are log-odds
        scale = "score"
    page = render_page(
        certificates,
        table.to_frame(),
        title=title or page_title(scores.name, certificates),
        date=f"{_written(certificate):%Y-%m-%d}",
        audits=() if test is None else _audits(certificates, test),
        audit_frame=None if test is None else test.to_frame(),
        minutes_per_review=minutes,
        score_scale=scale,
        certificate_file=certificate.name,
        scores_file=scores.name,
        joint_delta=given.outline.get("joint_delta") if choice.side is None else None,
        given_pool=unlabelled,
    )
    write_text(out, page)
    document = {
        "page": str(out),
        "bytes": len(page.encode("utf-8")),
        "certificates": len(certificates),
        "audited": test is not None,
        "score_scale": scale,
    }
    if as_json:
        emit_json(document)
    else:
        show_line(f"{out}: {len(certificates)} certificate(s), {document['bytes']} bytes")


def _written(path: Path) -> datetime:
    """Return the day of a file: the same files give the same page."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _audit_table(
    whole: ScoreTable, path: Path | None, reading: ReadingOptions
) -> ScoreTable | None:
    if path is not None:
        return labelled(read_scores(path, reading).choose_split("test"))
    if whole.splits is None or "test" not in set(whole.splits):
        return None
    test = whole.choose_split("test")
    # a table of the data root carries TEST rows without outcomes: there is nothing to audit with
    if test.outcomes is None or bool((test.outcomes < 0).all()):
        return None
    return labelled(test)


def _audits(certificates: list[Certificate], test: ScoreTable) -> list[Audit]:
    from certify_assets.certificates import audit_certificate

    test = labelled(test)
    if not len(test):
        raise InputError(f"{test.path} has no row to audit with; give labelled rows.")
    return [audit_certificate(item, test.scores, test.labels, test.tasks) for item in certificates]
