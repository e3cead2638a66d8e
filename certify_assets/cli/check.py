"""Commands on a certificate and a score table: verify, audit, decide, report; and resample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from certify_assets.certificates import (
    NOT_VOUCHED,
    Audit,
    Certificate,
    audit_certificate,
    resample_audit,
)
from certify_assets.certificates import verify as recompute
from certify_assets.certificates.certificate_files import (
    CertificateFile,
    Choice,
    load_certificates,
    read_certificate_file,
)
from certify_assets.certificates.inputs import known_tasks, task_codes
from certify_assets.certificates.scale import share_doubt
from certify_assets.certificates.sides import OUTCOME_WORDS, confusion
from certify_assets.cli.gate import report_gate
from certify_assets.cli.options import (
    OPEN_SHARE,
    SIDE,
    certificate_argument,
    judge_option,
    labels_option,
    pilot_option,
    pool_option,
    scores_argument,
    split_option,
    truth_option,
)
from certify_assets.cli.output import (
    NOTHING,
    OUT,
    answer,
    answers,
    complain,
    decisions_table,
    figures,
    say,
    write_tables,
    write_text,
)
from certify_assets.cli.reading import (
    calibration_of,
    certified_splits,
    choice_options,
    column_options,
    issued_and_reading,
    labelled,
    labelled_rows,
    pool_of,
    read_pilot,
    read_scores,
)
from certify_assets.documents import JsonObject
from certify_assets.errors import ForgedCertificateError, InputError, StaleCertificateError
from certify_assets.tables.cells import ScoreScaleError
from certify_assets.tables.decisions import Decisions, decide_table
from certify_assets.tables.drawn import keep_labels
from certify_assets.tables.score_table import ScoreTable
from certify_assets.tables.settings import ReadingOptions
from certify_assets.tables.writing import harmless
from certify_assets.words import REASON_WORDS, WORDS, number_of, percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from certify_assets.corpora.formats.mlflow_server import VerdictCounts
    from certify_assets.corpora.inspect_verdicts import EditCounts

_AUDITED = ("verdict", "realized_error", "lower_bound", "coverage", "covered_tasks", "tasks")


@click.command()
@certificate_argument
@scores_argument
@pilot_option
@pool_option
@labels_option
@column_options
@answers
def verify(
    certificate: Path, scores: Path, labels: Path | None, reading: ReadingOptions, **more: Any
) -> None:
    """Recompute a certificate from its scores and compare every byte.

    Exit 3, with the first difference, where the certificate was altered, is incomplete or belongs
    to other scores. Exit 2 where the file holds no certificate, or its pool is not given. A
    certificate of betting needs its pilot table. In a document of several, each certificate is
    recomputed, and so are their joint figures.

    CERTIFICATE names the judge and the truth that it was issued with, so no option does.

    Scores cannot prove the names and hashes under provenance, nor the selection rule. The checks of
    the data root compare these.
    """
    given = read_certificate_file(certificate)
    try:
        issued = given.parsed()
        asked, reading = reading, replace(reading.as_issued(certificate, issued), issued=None)
        try:
            table = read_scores(scores, reading, outcomes=labels is None)
        except ScoreScaleError as error:
            if reading.score_scale == asked.score_scale:
                raise
            raise ForgedCertificateError(f"provenance.score_scale does not fit: {error}") from None
        table = table.choose_split(*certified_splits(issued))
        rows = calibration_of(issued, table, labels, reading)
        difference = _difference(given, rows, reading, **more)
    except ForgedCertificateError as error:
        difference = str(error)
    document = {
        "verified": not difference,
        "difference": difference,
        "certificates": len(given.documents),
    }
    if difference is not None:
        complain(f"not verified: {difference}")
        report_gate(certificate.name, ["Not verified."], [f"Not verified: {difference}"])
        answer(document, "Not verified.", code=NOTHING)
    said = f"Verified: {certificate.name} recomputes from {scores.name}, byte for byte."
    report_gate(certificate.name, [said])
    answer({**document, "not_vouched": NOT_VOUCHED}, said, NOT_VOUCHED)


def _difference(
    given: CertificateFile,
    rows: ScoreTable,
    reading: ReadingOptions,
    *,
    pilot: Path | None,
    pool: Path | None,
) -> str | None:
    """Recompute certificates from their table; return the first difference."""
    return recompute(
        given.document,
        **rows.evidence,
        pilot=None if pilot is None else read_pilot(pilot, reading),
        pool=pool_of(given, pool, reading),
    )


@click.command()
@certificate_argument
@scores_argument
@click.option(
    "--disagreements",
    type=OUT,
    help="Write here the decided rows whose label disagrees, the surest decision first.",
)
@labels_option
@judge_option
@truth_option
@choice_options
@column_options
@answers
def audit(
    certificate: Path,
    scores: Path,
    disagreements: Path | None,
    labels: Path | None,
    judge: str | None,
    truth: str | None,
    choice: Choice,
    reading: ReadingOptions,
) -> None:
    """Measure the error of a certified threshold on other labelled tasks.

    CERTIFICATE is one certificate, or a document with one for each side. From a larger document,
    --side, --alpha and --procedure choose. Where SCORES has a split column, the rows with
    split=test are used.

    ERROR (exit 3): the task-level lower bound of the realised error exceeds α. WARN: only the point
    estimate does, or too few tasks are covered to tell. PASS otherwise.
    """
    certificates, reading = issued_and_reading(certificate, choice, reading)
    table = read_scores(scores, reading, outcomes=labels is None, judge=judge, truth=truth)
    test = labelled_rows(table.choose_split("test"), labels, reading)
    each: list[JsonObject] = [
        {"side": item.side, "alpha": item.alpha, **audited.to_dict()}
        for item, audited in zip(certificates, _audits(certificates, test), strict=True)
    ]
    # of certificates that decide something, where there are any
    active = {item.side for item in certificates if item.certified}
    counting = [item for item in each if item["side"] in active] or each
    verdicts = {item["verdict"] for item in counting}
    verdict = next((name for name in ("ERROR", "WARN") if name in verdicts), "PASS")
    single = {name: value for name, value in each[0].items() if name not in ("side", "alpha")}
    # of several, the figures of the one whose verdict it is
    lead = next(item for item in counting if item["verdict"] == verdict)
    document: JsonObject = single if len(each) == 1 else {**lead, "audits": each}
    lines = [f"{WORDS[item['side']]}: {item['reason']}" for item in each if item["reason"]]
    decided = decide_table(certificates, test)
    if disagreements is not None:
        document["disagreements"] = found = _contradicted(decided, disagreements)
        lines += _confusion_lines(found)
    if both := int(np.count_nonzero(decided.rows.reasons == "overlap")):
        lines.append(
            f"Under both thresholds: {number_of(both, 'row')}. Each audit above counts them as "
            "decided, and `certify decide` sends them to review."
        )
    report_gate(
        scores.name,
        [f"The audit says {verdict}.", *map(_audit_sentence, each)],
        [_audit_sentence(item) for item in counting if item["verdict"] == "ERROR"],
        [_audit_sentence(item) for item in each if item["verdict"] == "WARN"],
    )
    lines.append(
        "For a page with this audit, give `certify report` one table: rows of the certificate with "
        "split=cal, and these rows with split=test."
    )
    names = [WORDS[item.side] for item in certificates] if len(each) > 1 else []
    blocks = figures("Audit", *each, most=_AUDITED, names=names)
    answer(document, *blocks, *lines, code=NOTHING if verdict == "ERROR" else 0)


def _audit_sentence(item: JsonObject) -> str:
    error = item["realized_error"]
    wrong = "" if error is None else f", {percent(error)} of them wrong on held-out tasks"
    share = f"{percent(item['coverage'])} decided{wrong}"
    return f"audit of {WORDS[item['side']]}: {item['verdict']}: {share}. {item['reason']}".rstrip()


def _contradicted(decided: Decisions, path: Path) -> JsonObject:
    """Write the decided rows whose label says otherwise; return their number and all counts."""
    places, labels = decided.disagreements(), decided.table.labels
    rows = decided.columns(places)
    rows["label"] = np.array(OUTCOME_WORDS, dtype=object)[labels[places]]
    write_tables((path, harmless(path, rows, decided.table.naming_columns)))
    counts = confusion(decided.rows.decisions, labels)
    return {"file": str(path), "runs": len(places), "confusion": counts}


def _confusion_lines(contradicted: JsonObject) -> list[str]:
    runs = number_of(contradicted["runs"], "decided run")
    return [
        "Decisions and labels",
        *(
            f"  {WORDS[name]}: {of['failure']:,} failures, {of['success']:,} successes"
            for name, of in contradicted["confusion"].items()
        ),
        f"wrote {contradicted['file']}: {runs} whose label disagrees",
    ]


def _audits(certificates: Sequence[Certificate], test: ScoreTable) -> list[Audit]:
    if not len(test):
        raise InputError(f"{test.path} has no row to audit with. Give labelled rows.")
    return [
        audit_certificate(item, test.scores, test.labels, test.tasks, again=test.again)
        for item in certificates
    ]


@click.command()
@scores_argument
@click.option("--threshold", type=float, required=True, help="The threshold to audit.")
@click.option("--side", type=SIDE, default="reject", help="Which decision it makes.")
@click.option("--alpha", type=OPEN_SHARE, default=0.1, help="Error budget.")
@click.option("--draws", default="3000", help="Number of resamples, or 'exact'.")
@click.option("--seed", type=int, default=42, help="Seed of the draws.")
@split_option
@column_options
@answers
def resample(
    scores: Path, split: str | None, draws: str, reading: ReadingOptions, **options: Any
) -> None:
    """Estimate how often a threshold's error exceeds α when tasks are resampled.

    On the scores from which a bootstrap chose the threshold, this passes by construction. It is
    evidence only on other scores, or for the threshold of another procedure.
    """
    exact = draws == "exact"
    if not exact and not (draws.isdecimal() and int(draws) > 0):
        raise click.UsageError(f"--draws is {draws!r}; give a whole number above zero, or exact.")
    table = labelled(read_scores(scores, reading).choose_split(split, required=True))
    result = resample_audit(
        table.scores, table.labels, table.tasks, draws="exact" if exact else int(draws), **options
    )
    answer(
        {**result.to_dict(), "exact": exact},
        f"The error at {options['threshold']:g} exceeds {options['alpha']:g} in "
        f"{percent(result.exceedance)} of task resamples ({draws}{'' if exact else ' draws'}).",
        result.note,
    )


@click.command()
@certificate_argument
@scores_argument
@click.option(
    "--queue",
    type=OUT,
    help="Write the rows that go to review here, with their scores and outcomes.",
)
@click.option(
    "--decisions",
    type=OUT,
    help="Write every row with its decision and reason here. [default for a log of Inspect: edit "
    "the log itself; another name with its ending gets a copy]",
)
@click.option(
    "--mlflow",
    metavar="URI",
    help="Log every decision once at the MLflow trace that trajectory_id names, at this address.",
)
@split_option
@choice_options
@column_options
@answers
def decide(
    certificate: Path,
    scores: Path,
    queue: Path | None,
    decisions: Path | None,
    mlflow: str | None,
    split: str | None,
    choice: Choice,
    reading: ReadingOptions,
) -> None:
    """Decide new trajectories: auto-fail (reject), auto-pass (release) or review (human).

    CERTIFICATE is one certificate, or a document with one for each side. From a larger document,
    --side, --alpha and --procedure choose. Rows under both thresholds and unscored rows go to
    review. So does every row where nothing is certified (exit 3). SCORES may be a log of Inspect
    AI: its samples get the score "certified", as an edit with provenance.

    Files are CSV, Parquet or JSON Lines. A name that a spreadsheet would run as a formula is
    refused in a CSV.
    """
    keep_labels(queue)
    certificates, reading = issued_and_reading(certificate, choice, reading)
    table = read_scores(scores, reading, outcomes=False).choose_split(split, required=True)
    result = decide_table(certificates, table)
    out = decisions or scores
    edited = out if out.suffix == scores.suffix and _is_inspect_log(scores) else None
    write_tables(
        *(
            (path, harmless(path, result.columns(rows), table.naming_columns))
            for path, rows in ((queue, result.queue()), (decisions, slice(None)))
            if path not in (None, edited)
        )
    )
    for item in certificates:
        if doubt := share_doubt(item, table.scores, table.tasks):
            say(f"warning: {doubt}")
    known = known_tasks(certificates[0].inputs, task_codes(table.tasks)[0])
    if known.number:
        say(f"warning: {known.sentence.replace('give new tasks', 'its promise is on new tasks')}")
    counts, hashes = result.rows.counts, [item.sha256 for item in certificates]
    reasons = dict(sorted(Counter(result.rows.reasons.tolist()).items()))
    document: JsonObject = {
        **counts,
        "reasons": reasons,
        "certificate_sha256": hashes[0] if len(hashes) == 1 else hashes,
    }
    blocks: list[Any] = [decisions_table("Decisions", counts)]
    blocks += [f"  {REASON_WORDS[reason]}: {number:,}" for reason, number in reasons.items()]
    blocks += [
        f"wrote {path}: {number_of(number, 'run')} {what}"
        for path, number, what in (
            (None if edited else decisions, len(table), "with their decisions"),
            (queue, counts["human"], "to review"),
        )
        if path is not None
    ]
    if mlflow:
        document["mlflow"] = _assess(mlflow, scores, result)._asdict()
        blocks += figures("MLflow", document["mlflow"])
    if edited:
        found = _edit_log(scores, edited, result)
        document["inspect"] = {"log": str(edited), **found._asdict()}
        blocks.append(
            f"{edited} has the verdicts as the score certified: {found.written:,} written, "
            f"{found.unchanged:,} unchanged."
        )
    certified = any(item.certified for item in certificates)
    answer(document, *blocks, code=0 if certified else NOTHING)


def _is_inspect_log(path: Path) -> bool:
    from certify_assets.corpora.formats import detect_format

    try:
        return path.suffix.lower() in (".eval", ".json") and detect_format([path]) == "inspect"
    except InputError:
        return False


def _edit_log(scores: Path, out: Path, result: Decisions) -> EditCounts:
    """Write decisions into a log of Inspect as edits of its samples' scores."""
    from certify_assets.corpora.inspect_verdicts import SampleVerdict, write_verdicts

    table, rows = result.table, result.rows
    assert table.trajectories is not None
    values = (None if np.isnan(score) else float(score) for score in table.scores)
    said = zip(rows.decisions.tolist(), rows.reasons.tolist(), values, strict=True)
    verdicts = dict(zip(table.trajectories.tolist(), map(SampleVerdict._make, said), strict=True))
    return write_verdicts(scores, out, verdicts, result.certificates)


def _assess(address: str, scores: Path, result: Decisions) -> VerdictCounts:
    """Log decisions as assessments of the traces that the rows name."""
    from certify_assets.corpora.formats.mlflow_server import TraceVerdict, log_verdicts

    ids = result.table.trajectories
    if ids is None:
        raise InputError(
            f"{scores} has no trajectory_id, and --mlflow needs the id of every trace there. Add "
            "the column."
        )
    rows = result.columns(slice(None))
    names = ("decision", "reason", "certificate_sha256")
    said = zip(ids, *(rows[name] for name in names), strict=True)
    return log_verdicts(address, [TraceVerdict(*map(str, row)) for row in said])


@click.command()
@certificate_argument
@scores_argument
@pilot_option
@pool_option
@labels_option
@choice_options
@click.option("--out", type=OUT, default=Path("certificate.html"), help="Where the page goes.")
@column_options
@answers
def report(
    certificate: Path,
    scores: Path,
    labels: Path | None,
    choice: Choice,
    out: Path,
    reading: ReadingOptions,
    **more: Any,
) -> None:
    """Draw a certificate as a page that opens from disk.

    CERTIFICATE is one certificate or a {"certificates": [...]} document, from which --side, --alpha
    and --procedure choose. Each is first recomputed from SCORES (exit 3 where one does not match).
    """
    from certify_assets.reports.certificate_page import page_title, render_page

    certificates = load_certificates(certificate, choice)
    given = read_certificate_file(certificate)
    reading = reading.as_issued(certificate, certificates)
    whole = read_scores(scores, reading, outcomes=labels is None)
    table = whole.choose_split(*certified_splits(certificates))
    rows = calibration_of(certificates, table, labels, reading)
    if difference := _difference(given, rows, reading, **more):
        raise StaleCertificateError(f"{certificate} is not of {scores}: {difference}")
    test, scale = _test_rows(whole), _scale(reading)
    written = datetime.fromtimestamp(certificate.stat().st_mtime, UTC)
    page = render_page(
        certificates,
        rows.to_frame().assign(link=_links(rows)),
        title=page_title(scores.name, certificates),
        # the day of the file: the same files give the same page
        date=f"{written:%Y-%m-%d}",
        audits=() if test is None else _audits(certificates, test),
        score_scale=scale,
        certificate_file=certificate.name,
        scores_file=scores.name,
        labels_file="" if labels is None else labels.name,
        given_pool=pool_of(given, more["pool"], reading),
    )
    write_text(out, page)
    document = {
        "page": str(out),
        "bytes": len(page.encode("utf-8")),
        "certificates": len(certificates),
        "audited": test is not None,
        "score_scale": scale,
    }
    answer(document, f"wrote {out}: {number_of(len(certificates), 'certificate')}")


def _links(table: ScoreTable) -> NDArray[np.object_]:
    """Return where the source shows each run: the first column that holds web addresses alone.

    Of a log it is its column of links, some of which may be places in its files.
    """
    from certify_assets.storage.urls import is_web_address

    columns, none = table.file_columns(), np.full(len(table), "", dtype=object)
    if not isinstance(table.source, Path):
        return columns.get("link", none)
    for values in columns.values():
        texts = [cell for cell in values.tolist() if cell not in (None, "") and cell == cell]
        if texts and all(map(is_web_address, texts)):
            return np.array([cell if is_web_address(cell) else "" for cell in values], dtype=object)
    return none


def _scale(reading: ReadingOptions) -> str:
    """Return what scores are said to be; numbers alone do not say it."""
    scale = reading.score_scale or "score"
    # the negative of a probability is none; negated log-odds are log-odds
    return "score" if reading.lower_is_better and scale == "probability" else scale


def _test_rows(whole: ScoreTable) -> ScoreTable | None:
    """Return the rows to audit with; a table of the data root has no outcomes of TEST."""
    if whole.splits is None or "test" not in set(whole.splits):
        return None
    test = whole.choose_split("test")
    unknown = test.outcomes is None or bool((test.outcomes < 0).all())
    return None if unknown else labelled(test)
