"""The command that recomputes certificates from their score table, and what reports use of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.documents import (
    CertificateFile,
    Choice,
    certified_splits,
    choice_options,
    read_certificate_file,
)
from certify_assets.cli.gate import Case, CiResult, gated, report
from certify_assets.cli.options import (
    certificate_argument,
    column_options,
    labelled,
    pilot_option,
    pool_option,
    read_pilot,
    read_pool,
    read_scores,
    scores_argument,
    stored_pool,
)
from certify_assets.cli.output import NOTHING, complain, emit_json, json_option, show_line
from certify_assets.errors import ForgedCertificateError, InputError
from certify_assets.files import read_json
from certify_assets.tables.score_reading import ReadingOptions

if TYPE_CHECKING:
    from certify_assets.cli.options import Table, Unlabelled
    from certify_assets.tables.score_table import ScoreTable


@click.command()
@certificate_argument
@scores_argument
@pilot_option
@pool_option
@choice_options
@column_options
@json_option
@click.pass_context
@gated
def verify(
    ctx: click.Context,
    /,
    certificate: Path,
    scores: Path,
    pilot: Path | None,
    pool: Path | None,
    choice: Choice,
    as_json: bool,
    reading: ReadingOptions,
) -> None:
    """Recompute a certificate from its scores and compare every byte.

    Exit 3, with the first difference, when the certificate was altered, is incomplete or is of
    other scores, or when it is one of betting and its pilot table is not given. Exit 2 when it was
    issued with a pool and none is given. What the scores cannot show (the names and hashes under
    provenance, the selection rule) is carried as it is: the data root's own checks compare those.
    Of a document of several each is recomputed, and what it says of them together; --side, --alpha
    and --procedure choose from it.
    """
    from certify_assets.certificates import NOT_VOUCHED

    given = read_certificate_file(certificate)
    documents = [item for item in given.certificates if choice.names(item)]
    if not documents:
        raise InputError(f"{certificate} holds no certificate of that side, budget and procedure.")
    unread = _unread(documents, {"--pilot": pilot, "--pool": pool})
    certified = certified_splits(documents)
    asked, reading = reading, _as_issued(certificate, documents, reading)
    difference: str | None = (
        f"provenance says that the scores were percentages, and those of {scores} are none; give "
        "the table that it was issued on."
    )
    if (whole := _read_as_issued(scores, asked, reading)) is not None:
        table = whole.choose_split(*certified)
        others = None if pilot is None else read_pilot(pilot, reading)
        unlabelled = pool_of(pool, certificate, given, reading)
        difference = verify_documents(given, documents, table, others, unlabelled)
    for sentence in unread:
        complain(sentence)
    if as_json:
        result: dict[str, Any] = {
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
    verified = f"{len(documents)} certificate(s) recomputed from {scores.name}, byte for byte."
    report(
        CiResult(
            certificate.name,
            f"Verified: {verified}" if difference is None else f"Not verified: {difference}",
            (
                Case("verify", "passed", verified)
                if difference is None
                else Case("verify", "failed", difference),
            ),
        )
    )
    if difference is not None:
        complain(f"not verified: {difference}")
        ctx.exit(NOTHING)


def _as_issued(certificate: Path, documents: list[Any], reading: ReadingOptions) -> ReadingOptions:
    """Read scores as the documents say, which the hash of their table then confirms or not."""
    from certify_assets.certificates import Certificate

    found = []
    for document in documents:
        # what is wrong with one is said where it is verified
        with suppress(ForgedCertificateError):
            found.append(Certificate.parse(document)[0])
    return replace(reading.as_issued(certificate, found), issued=None) if found else reading


def _read_as_issued(path: Path, asked: ReadingOptions, issued: ReadingOptions) -> ScoreTable | None:
    """Read scores on the scale that documents claim; None where they are on none such."""
    try:
        return read_scores(path, issued)
    except InputError:
        if issued.score_scale == asked.score_scale:
            raise
        # whatever else is wrong with the table
        read_scores(path, asked)
        return None


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


def pool_of(
    given: Path | None,
    certificate: Path,
    document: CertificateFile,
    reading: ReadingOptions,
) -> Unlabelled | None:
    """Read the pool that is given, else the one in the document or in pool.json next to it."""
    if given is not None:
        return read_pool(given, reading, certified=certified_splits(document.certificates))
    if document.pool is not None:
        return stored_pool(document.pool, f"the pool in {certificate}")
    beside = certificate.with_name("pool.json")
    named = any(_names_pool(item) for item in document.certificates)
    return stored_pool(read_json(beside), str(beside)) if named and beside.is_file() else None


def _names_pool(document: Any) -> bool:
    inputs = document.get("inputs") if isinstance(document, dict) else None
    return isinstance(inputs, dict) and "pool" in inputs


def verify_documents(
    given: CertificateFile,
    documents: list[Any],
    table: ScoreTable,
    pilot: Table | None,
    pool: Unlabelled | None,
) -> str | None:
    """Recompute certificates from their table; return the first difference.

    What a document says of its certificates together is recomputed where all of them are.
    """
    from certify_assets.certificates import verify as recompute

    table = labelled(table)
    every = len(documents) == len(given.certificates)
    return recompute(
        {"certificates": documents, **(given.outline if every else {})},
        table.scores,
        table.labels,
        table.tasks,
        agents=table.agents,
        named=table.named,
        alone=table.alone,
        pilot=pilot,
        pool=pool,
    )
