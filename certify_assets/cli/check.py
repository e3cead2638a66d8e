"""Commands on a certificate and a score table: audit, resample, verify, decide, report."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.documents import (
    CertificateFile,
    Choice,
    certified_splits,
    choice_options,
    load_certificates,
    one_a_side,
    read_certificate_file,
)
from certify_assets.cli.options import (
    PATH,
    SIDE,
    Finite,
    column_options,
    pilot_option,
    pool_option,
    read_pilot,
    read_pool,
    read_scores,
    read_small_pool,
    score_pieces,
    split_option,
    stream_option,
)
from certify_assets.cli.output import (
    FIGURES,
    NOTHING,
    complain,
    emit_json,
    json_option,
    percent,
    refuse_overwrite,
    show_line,
    show_table,
    write_tables,
    write_text,
)
from certify_assets.errors import ForgedCertificateError, InputError, StaleCertificateError

if TYPE_CHECKING:
    from certify_assets.certificates import Audit, Certificate, CertificateSet
    from certify_assets.cli.options import Table, Unlabelled
    from certify_assets.evaluation.decisions import DecisionCounts, Decisions
    from certify_assets.evaluation.pieces import ScorePieces
    from certify_assets.evaluation.score_table import ScoreTable

_HASH = re.compile(r"[0-9a-f]{64}")


@click.command()
@click.argument("certificate", type=PATH)
@click.argument("scores", type=PATH)
@choice_options
@column_options
@json_option
@click.pass_context
def audit(
    ctx: click.Context,
    /,
    certificate: Path,
    scores: Path,
    choice: Choice,
    as_json: bool,
    **columns: Any,
) -> None:
    """How the certified threshold does on other labelled tasks.

    CERTIFICATE is one certificate, or a document with one a side, each of which is audited;
    --side, --alpha and --procedure choose from a document of more. Uses the rows with split=test
    where SCORES has a split column. ERROR (exit 3): the task-level lower bound of the realised
    error exceeds α. WARN: the point estimate does but not the bound, or too few tasks are covered
    to tell. PASS otherwise.
    """
    certificates = one_a_side(certificate, load_certificates(certificate, choice))
    audits = _audits(certificates, read_scores(scores, **columns).choose_split("test"))
    verdict = _worst(certificates, audits)
    if as_json:
        each = [
            {"side": item.side, "alpha": item.alpha, **audit.to_dict()}
            for item, audit in zip(certificates, audits, strict=True)
        ]
        emit_json(audits[0].to_dict() if len(audits) == 1 else {"verdict": verdict, "audits": each})
    else:
        names = list(audits[0].to_dict())
        rows = [[name, *[_cell(audit.to_dict()[name]) for audit in audits]] for name in names]
        sides = [item.side for item in certificates]
        show_table("Audit", FIGURES if len(audits) == 1 else ("figure", *sides), rows)
    ctx.exit(NOTHING if verdict == "ERROR" else 0)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _worst(certificates: list[Certificate], audits: list[Audit]) -> str:
    """Return the worst verdict of the certified sides, of any where none is certified."""
    pairs = list(zip(certificates, audits, strict=True))
    verdicts = {audit.verdict for item, audit in pairs if item.certified}
    verdicts = verdicts or {audit.verdict for audit in audits}
    return next((name for name in ("ERROR", "WARN") if name in verdicts), "PASS")


@click.command()
@click.argument("scores", type=PATH)
@click.option("--threshold", type=float, required=True, help="The threshold to audit.")
@click.option("--side", type=SIDE, default="reject", help="Which decision it makes.")
@click.option("--alpha", type=float, default=0.1, help="Error budget.")
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
    task_col: str,
    score_col: str,
    outcome_col: str,
    lower_is_better: bool,
    **options: Any,
) -> None:
    """How often a threshold's error exceeds α when tasks are resampled.

    On the scores from which a bootstrap chose its own threshold this passes by construction: it is
    evidence only on other scores, or for another procedure's threshold.
    """
    from certify_assets.certificates import resample_audit

    if draws != "exact" and not (draws.isdecimal() and int(draws) > 0):
        raise click.UsageError(f"--draws is {draws!r}; give a whole number above zero, or exact.")
    columns = (task_col, score_col, outcome_col, lower_is_better)
    table = read_scores(scores, *columns).choose_split(split, required=True)
    result = resample_audit(
        table.scores,
        table.labelled(),
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


@click.command()
@click.argument("certificate", type=PATH)
@click.argument("scores", type=PATH)
@pilot_option
@pool_option
@stream_option
@choice_options
@column_options
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    certificate: Path,
    scores: Path,
    pilot: Path | None,
    pool: Path | None,
    stream: bool,
    choice: Choice,
    as_json: bool,
    **columns: Any,
) -> None:
    """Recompute a certificate from its scores and compare every byte.

    Exit 3, with the first difference, when the certificate was altered, is incomplete, or is of
    other scores, or when it is one of betting and its pilot table is not given. Exit 2 when it was
    issued with a pool and none is given. What the scores
    cannot show (the names and hashes under provenance, the selection rule) is carried as it is:
    the data root's own checks compare those. Of a document of several each is recomputed, and
    what it says of them together; --side, --alpha and --procedure choose from it.
    """
    from certify_assets.certificates import NOT_VOUCHED

    given = read_certificate_file(certificate)
    documents = [item for item in given.certificates if choice.names(item)]
    if not documents:
        raise InputError(f"{certificate} holds no certificate of that side, budget and procedure.")
    unread = _unread(documents, {"--pilot": pilot, "--pool": pool})
    certified = certified_splits(documents)
    # tables of the platform, which name more splits, are small
    if certified == ("cal",) and (stream or _was_in_pieces(documents, scores)):
        its_pool = pool or _stored_pool(certificate, documents)
        unlabelled = None if its_pool is None else read_small_pool(its_pool, **columns)
        source = score_pieces(scores, "cal", columns)
        difference = _verify_pieces(given, documents, source, unlabelled)
    else:
        table = read_scores(scores, **columns).choose_split(*certified)
        others = None if pilot is None else read_pilot(pilot, **columns)
        unlabelled = _pool(pool or _stored_pool(certificate, documents), certified, columns)
        difference = _verify_whole(given, documents, table, others, unlabelled)
    for sentence in unread:
        complain(sentence)
    if as_json:
        result = {
            "verified": difference is None,
            "certificates": len(documents),
            "difference": difference,
        }
        emit_json({**result, "not_vouched": NOT_VOUCHED} if difference is None else result)
    elif difference is None:
        show_line(
            f"Verified: {len(documents)} certificate(s) recomputed from {scores}, byte for "
            f"byte. {NOT_VOUCHED}"
        )
    if difference is not None:
        complain(f"not verified: {difference}")
        ctx.exit(NOTHING)


def _unread(documents: list[Any], given: dict[str, Path | None]) -> list[str]:
    """Say which tables no procedure of the certificates reads."""
    from certify_assets.certificates import PROCEDURES

    named = [item.get("procedure") for item in documents if isinstance(item, dict)]
    methods = [PROCEDURES[name] for name in named if isinstance(name, str) and name in PROCEDURES]
    reads = {
        "--pilot": any(item.pilot for item in methods),
        "--pool": any(item.calibrated for item in methods),
    }
    return [
        f"{name} changes nothing: no procedure of these certificates reads it."
        for name, path in given.items()
        if path is not None and methods and not reads[name]
    ]


def _stored_pool(certificate: Path, documents: list[Any]) -> Path | None:
    """Return the file of the pool that certificates of the platform name, next to theirs."""
    for document in documents:
        inputs = document.get("inputs") if isinstance(document, dict) else None
        pool = inputs.get("pool") if isinstance(inputs, dict) else None
        named = str(pool.get("sha256")) if isinstance(pool, dict) else ""
        for path in (
            certificate.parent / "pools" / f"{named}.json",
            certificate.parent / "pool.json",
        ):
            if _HASH.fullmatch(named) and path.is_file():
                return path
    return None


def _pool(
    path: Path | None, certified: tuple[str, ...], columns: dict[str, Any]
) -> Unlabelled | None:
    return None if path is None else read_pool(path, **columns, certified=certified)


def _was_in_pieces(documents: list[Any], scores: Path) -> bool:
    """Whether a table is large, and its certificates were issued on it in pieces."""
    from certify_assets.certificates import TASK_SCHEMA
    from certify_assets.evaluation.pieces import is_large

    schemas = [item.get("schema") for item in documents if isinstance(item, dict)]
    return schemas == [TASK_SCHEMA] * len(documents) and is_large(scores)


def _verify_whole(
    given: CertificateFile,
    documents: list[Any],
    table: ScoreTable,
    pilot: Table | None,
    pool: Unlabelled | None,
) -> str | None:
    from certify_assets.certificates import verify_certificate, verify_set

    data = (table.scores, table.labelled(), table.tasks)
    others: dict[str, Any] = {"pilot": pilot, "pool": pool, "agents": table.agents}
    named = table.trajectories is not None
    return _first_difference(
        given,
        documents,
        lambda item: verify_certificate(item, *data, named=named, **others),
        lambda found: verify_set(found, *data, **others),
    )


def _verify_pieces(
    given: CertificateFile,
    documents: list[Any],
    source: ScorePieces,
    pool: Unlabelled | None,
) -> str | None:
    from certify_assets.certificates import (
        Certificate,
        settings_of,
        verify_counted,
        verify_counted_set,
    )
    from certify_assets.certificates.evaluation import grids_of
    from certify_assets.certificates.pool import observe_pool
    from certify_assets.evaluation.counting import counted_table

    grids = set()
    for document in documents:
        # what is wrong with one is said where it is verified
        with suppress(ForgedCertificateError, InputError):
            asked = settings_of(Certificate.parse(document))
            # sides that share one δ are both counted
            sides = ("reject", "release") if given.outline else (asked.side,)
            grids |= grids_of([asked], sides)
    seen = None if pool is None else observe_pool(*pool)
    with counted_table(source, grids, seen) as table:
        return _first_difference(
            given,
            documents,
            lambda item: verify_counted(item, table, seen),
            lambda found: verify_counted_set(found, table, seen),
        )


def _first_difference(
    given: CertificateFile,
    documents: list[Any],
    verify: Callable[[Any], str | None],
    together: Callable[[CertificateSet], str | None],
) -> str | None:
    """Return the first difference of the certificates, or of what is said of them together."""
    from certify_assets.certificates import Certificate

    for place, document in enumerate(documents, 1):
        if (found := verify(document)) is not None:
            one = len(documents) == 1
            return found if one else f"certificate {place} of {len(documents)}: {found}"
    if not given.outline:
        return None
    try:
        items = [Certificate.from_dict(item) for item in given.certificates]
        return together(given.certificate_set(items))
    except ForgedCertificateError as error:
        return str(error)


_QUEUE_HELP = (
    "Write the rows that go to human review here (CSV, Parquet or JSON Lines). Names are written "
    "as they are; a CSV is refused where one begins like a formula, which a spreadsheet would run."
)


@click.command()
@click.argument("certificate", type=PATH)
@click.argument("scores", type=PATH)
@click.option("--queue", type=PATH, help=_QUEUE_HELP)
@click.option("--decisions", type=PATH, help="Write every row with its decision and reason here.")
@stream_option
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
    stream: bool,
    split: str | None,
    choice: Choice,
    as_json: bool,
    **columns: Any,
) -> None:
    """Decide new trajectories: reject, release or human review.

    CERTIFICATE is one certificate, or a document with one a side; --side, --alpha and --procedure
    choose from a document of more. A row in both regions, an unscored row and every row where
    nothing was certified go to human review (exit 3 when nothing was certified at all). Read in
    pieces, SCORES and what is written are Parquet, with the same rows.
    """
    refuse_overwrite(
        {"--queue": queue, "--decisions": decisions}, {"CERTIFICATE": certificate, "SCORES": scores}
    )
    certificates = one_a_side(certificate, load_certificates(certificate, choice))
    result = _decide(certificates, scores, queue, decisions, stream, split, columns)
    counts = {name: result.count(name) for name in ("reject", "release", "human")}
    hashes = result.certificate_sha256
    if as_json:
        emit_json(
            {
                **counts,
                "reasons": result.reasons(),
                "certificate_sha256": hashes[0] if len(hashes) == 1 else list(hashes),
            }
        )
    else:
        total = max(1, sum(counts.values()))
        show_table(
            "Decisions",
            ["decision", "trajectories", "share"],
            [[name, str(n), f"{100 * n / total:.1f} %"] for name, n in counts.items()],
        )
        for reason, number in result.reasons().items():
            show_line(f"  {reason}: {number}")
    ctx.exit(0 if any(item.certified for item in certificates) else NOTHING)


def _decide(
    certificates: list[Certificate],
    scores: Path,
    queue: Path | None,
    decisions: Path | None,
    stream: bool,
    split: str | None,
    columns: dict[str, Any],
) -> Decisions | DecisionCounts:
    """Decide in memory or in pieces, and write what is asked for."""
    from certify_assets.evaluation.decisions import decide_pieces, decide_table
    from certify_assets.evaluation.pieces import is_large
    from certify_assets.evaluation.table_files import PARQUET_ENDINGS

    written = [path for path in (queue, decisions) if path is not None]
    other = next((p for p in written if p.suffix.lower() not in PARQUET_ENDINGS), None)
    if stream and other is not None:
        raise InputError(
            f"{other} is no Parquet file, and only those are written in pieces; name one that ends "
            "in .parquet, or leave --stream out."
        )
    if stream or (other is None and is_large(scores)):
        source = score_pieces(scores, split, columns, required=True)
        return decide_pieces(certificates, source, decisions=decisions, queue=queue)
    table = read_scores(scores, **columns).choose_split(split, required=True)
    result = decide_table(certificates, table)
    write_tables((queue, result.queue()), (decisions, result.frame))
    return result


@click.command()
@click.argument("certificate", type=PATH)
@click.argument("scores", type=PATH)
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
@click.option("--title", help="Title of the page. [default: name of the score table]")
@click.option(
    "--minutes",
    type=Finite(min=0, min_open=True),
    default=6.0,
    help="Minutes a reviewer needs for one run.",
)
@click.option(
    "--score-scale",
    help="What a score is; log-odds are shown with their probability, anything else as it is. "
    "[default: probability where all are from 0 to 1, log-odds where some are negative]",
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
    minutes: float,
    score_scale: str | None,
    as_json: bool,
    **columns: Any,
) -> None:
    """Draw a certificate as a page that opens from disk.

    CERTIFICATE is one certificate or a {"certificates": [...]} document, from which --side, --alpha
    and --procedure choose; every one drawn must be of SCORES, and is recomputed before (exit 3
    where one is not).
    """
    from certify_assets.reports.certificate_page import render_page
    from certify_assets.reports.certificate_source import recognised_scale

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
    whole = read_scores(scores, **columns)
    certified = certified_splits([item.to_dict() for item in certificates])
    table = whole.choose_split(*certified)
    documents = [item.to_dict() for item in certificates]
    unlabelled = _pool(pool or _stored_pool(certificate, documents), certified, columns)
    others = None if pilot is None else read_pilot(pilot, **columns)
    difference = _verify_whole(given, documents, table, others, unlabelled)
    if difference is not None:
        raise StaleCertificateError(f"{certificate} is not of {scores}: {difference}")
    test = _audit_table(whole, audit_path, columns)
    scale = score_scale or recognised_scale(table.scores)
    page = render_page(
        certificates,
        table.to_frame(),
        title=title or scores.stem,
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


def _audit_table(
    whole: ScoreTable, path: Path | None, columns: dict[str, Any]
) -> ScoreTable | None:
    if path is not None:
        return read_scores(path, **columns).choose_split("test")
    if whole.splits is None or "test" not in set(whole.splits):
        return None
    test = whole.choose_split("test")
    # a table of the data root carries TEST rows without outcomes: there is nothing to audit with
    if test.outcomes is None or bool((test.outcomes < 0).all()):
        return None
    return test


def _audits(certificates: list[Certificate], test: ScoreTable) -> list[Audit]:
    from certify_assets.certificates import audit_certificate

    outcomes = test.labelled()
    if not len(test):
        raise InputError(f"{test.path} has no row to audit with; give labelled rows.")
    return [audit_certificate(item, test.scores, outcomes, test.tasks) for item in certificates]
