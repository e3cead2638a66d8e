"""``certify report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from certify_assets.cli.documents import load_certificates
from certify_assets.cli.options import (
    PATH,
    Finite,
    column_options,
    pilot_option,
    read_pilot,
    read_scores,
)
from certify_assets.cli.output import (
    emit_json,
    json_option,
    refuse_overwrite,
    show_line,
    write_text,
)
from certify_assets.errors import InputError, StaleCertificateError

if TYPE_CHECKING:
    from certify_assets.certificates import Audit, Certificate
    from certify_assets.cli.options import Table
    from certify_assets.evaluation.score_table import ScoreTable


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
@click.option("--out", type=PATH, default=Path("certificate.html"), help="Where the page goes.")
@click.option("--title", help="Title of the page. [default: name of the score table]")
@click.option(
    "--minutes",
    type=Finite(min=0, min_open=True),
    default=6.0,
    help="Minutes a reviewer needs for one run.",
)
@click.option(
    "--score-scale", default="log-odds", help="What a score is; anything else is shown as it is."
)
@column_options
@json_option
def report(
    certificate: Path,
    scores: Path,
    audit_path: Path | None,
    pilot: Path | None,
    out: Path,
    title: str | None,
    minutes: float,
    score_scale: str,
    as_json: bool,
    **columns: str,
) -> None:
    """Draw a certificate as a page that opens from disk.

    CERTIFICATE is one certificate or a {"certificates": [...]} document; every one must be of
    SCORES, and is recomputed before it is drawn (exit 3 where one is not).
    """
    from certify_assets.reports.certificate_page import render_page

    refuse_overwrite(
        {"--out": out},
        {"CERTIFICATE": certificate, "SCORES": scores, "--audit": audit_path, "--pilot": pilot},
    )
    certificates = load_certificates(certificate)
    whole = read_scores(scores, **columns)
    table = whole.choose_split("cal")
    _verify(
        certificate, certificates, table, None if pilot is None else read_pilot(pilot, **columns)
    )
    test = _audit_table(whole, audit_path, columns)
    page = render_page(
        certificates,
        table.to_frame(),
        title=title or scores.stem,
        audits=() if test is None else _audits(certificates, test),
        audit_frame=None if test is None else test.to_frame(),
        minutes_per_review=minutes,
        score_scale=score_scale,
        certificate_file=certificate.name,
        scores_file=scores.name,
    )
    write_text(out, page)
    document = {
        "page": str(out),
        "bytes": len(page.encode("utf-8")),
        "certificates": len(certificates),
        "audited": test is not None,
    }
    if as_json:
        emit_json(document)
    else:
        show_line(f"{out}: {len(certificates)} certificate(s), {document['bytes']} bytes")


def _verify(
    path: Path, certificates: list[Certificate], table: ScoreTable, pilot: Table | None
) -> None:
    from certify_assets.certificates import verify_certificate

    outcomes = table.labelled()
    for item in certificates:
        difference = verify_certificate(
            item.to_dict(), table.scores, outcomes, table.tasks, pilot=pilot
        )
        if difference is not None:
            raise StaleCertificateError(f"{path} is not of {table.path}: {difference}")


def _audit_table(
    whole: ScoreTable, path: Path | None, columns: dict[str, str]
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
