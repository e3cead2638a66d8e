"""Verification: issue the certificate again from the data and compare every byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from certify_assets._version import __version__
from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.inputs import (
    Inputs,
    Observations,
    PoolInputs,
    observe,
    repeated_rows,
    same_table,
)
from certify_assets.certificates.issuance import issue
from certify_assets.certificates.pool import EVERY_TASK, GIVEN, GivenPool, Pool, as_pool
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.sides import CertificateSet, joint_deltas
from certify_assets.documents import read_json_text
from certify_assets.errors import ForgedCertificateError, InputError, quoted

#: what a successful verification leaves open
NOT_VOUCHED = (
    "Not verified: provenance and selection, which are claims about things that the scores do not "
    "show (which judge, which manifest, how many candidates were compared, who chose a pool), "
    "and that the outcomes are right."
)


def settings_of(certificate: Certificate) -> Settings:
    """Return the settings that a certificate says it was issued under."""
    parameters: dict[str, Any] = {**certificate.parameters}
    # the pilot is a table, of which a certificate holds the hash; the procedure says how it pays
    del parameters["pilot"], parameters["multiplicity"]
    return Settings(
        alpha=certificate.alpha,
        delta=certificate.delta,
        side=certificate.side,
        procedure=certificate.procedure,
        seed=certificate.seed,
        candidates=certificate.candidates,
        **parameters,
    )


def verify_certificate(
    document: Any,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    pilot: tuple[ArrayLike, ArrayLike, Sequence[Any] | NDArray[Any]] | None = None,
    pool: GivenPool | None = None,
    agents: Sequence[Any] | NDArray[Any] | None = None,
    named: bool = False,
    alone: bool = False,
) -> str | None:
    """Recompute a certificate from the data and return the first difference, as a sentence; None
    when there is none.

    Parameters
    ----------
    document : dict, bytes, str or Certificate
        The certificate as it was written.
    scores, outcomes, tasks
        The table that it is said to be of, in any order.
    pilot : tuple of scores, outcomes and tasks, optional
        The pilot table of a betting certificate, which cannot be recomputed without it.
    pool : Pool, or tuple of scores and tasks, optional
        The pool of a certificate that names one under inputs.pool. Of scores and tasks alone nobody
        knows who chose them, so what the document says of that is carried as it is.
    agents : sequence of hashables, optional
        Agent of every row: rows of different agents do not repeat one another.
    named : bool
        Whether every row is known to be a run of its own, as in a table with trajectory_id; else
        the document must have a finding on rows that repeat others, where there are any.
    alone : bool
        Whether the task of every row is the id of its run.

    Returns
    -------
    str or None
        Key, value in the document, value recomputed.

    Raises
    ------
    InputError
        If the table itself cannot be used, or the certificate was issued with a pool and none is
        given.

    Notes
    -----
    ``provenance``, ``selection`` and ``ledger`` name things that are not in the table (which judge,
    which manifest, which rule). They are carried as they are, which ``NOT_VOUCHED`` tells a reader:
    verification does not vouch for them beyond the digest, which anybody can compute. Everything
    else is recomputed, under the settings that the document names.
    """
    table, others = observe(scores, outcomes, tasks), None if pilot is None else observe(*pilot)
    repeats = 0 if named else repeated_rows(table, scores, outcomes, tasks, agents)
    given_pool = as_pool(pool)
    try:
        certificate, digest = _read(document)
    except ForgedCertificateError as error:
        return str(error)
    its_pool = certificate.inputs.get("pool")
    if its_pool is not None and given_pool is None:
        raise InputError(
            "The certificate was issued with a pool of unlabelled runs and cannot be recomputed "
            "without it; give it (--pool)."
        )
    try:
        if certificate.software["version"] != __version__:
            return (
                f"software.version is {certificate.software['version']!r} in the document and "
                f"{__version__!r} here; verify with the version that issued it, or issue it again."
            )
        if found := _table_difference(certificate.inputs, table.fingerprint):
            return found
        if found := _pilot_difference(certificate.parameters["pilot"], others):
            return found
        unlabelled = None if its_pool is None else _as_named(given_pool, its_pool)
        if found := _pool_difference(certificate, unlabelled, given=given_pool is not None):
            return found
        if repeats and all(item["code"] != "duplicate_rows" for item in certificate.findings):
            return (
                f"{repeats} of {table.rows} rows repeat an earlier one, and the document lacks "
                "the finding duplicate_rows; where each is a run of its own, give its "
                "trajectory_id (from Python named=True) or its agent."
            )
        again = issue(
            table,
            settings_of(certificate),
            pilot=None if certificate.parameters["pilot"] is None else others,
            pool=unlabelled,
            provenance=certificate.provenance,
            selection=certificate.selection,
            repeats=repeats,
            alone=alone,
        )
    except (ForgedCertificateError, InputError) as error:
        return str(error)
    again = again.replace(ledger=certificate.ledger)
    given = {**certificate.to_dict(), "digest": digest}
    # the digest last: where it is all that differs, the settings, the provenance or the selection
    # were changed
    if found := _difference({**given, "digest": ""}, {**again.to_dict(), "digest": ""}):
        return found
    return _difference(given, again.to_dict())


def _table_difference(given: Inputs, inputs: Inputs) -> str | None:
    """Whether a document's table is the one given."""
    if same_table(given, inputs):
        return None
    key: Literal["sha256", "rows"] = "sha256" if given["sha256"] != inputs["sha256"] else "rows"
    return (
        f"inputs.{key} is {given[key]!r} in the document and {inputs[key]!r} for these data; give "
        "the table that it was issued on."
    )


def _pilot_difference(given: str | None, pilot: Observations | None) -> str | None:
    """Whether a document's pilot is the one given; one that names none needs none."""
    if given is None or (pilot is not None and pilot.sha256 == given):
        return None
    if pilot is None:
        return (
            "the certificate was issued with a pilot table and cannot be recomputed without it; "
            "give it (--pilot)."
        )
    return (
        f"parameters.pilot is {quoted(given)} in the document and {pilot.sha256!r} for the pilot "
        "given; give the pilot that it was issued with."
    )


def _as_named(pool: Pool | None, named: PoolInputs) -> Pool | None:
    """Return a pool with the origin that a document claims for it, where its rows are all there is.

    Rows do not show who chose them: whoever has the data root compares them with its rule.
    """
    claims = pool is not None and (pool.origin, named["origin"]) == (GIVEN, EVERY_TASK)
    return replace(pool, origin=EVERY_TASK) if pool is not None and claims else pool


def _pool_difference(certificate: Certificate, pool: Pool | None, *, given: bool) -> str | None:
    """Whether a document's pool is the one given; other procedures than pseudo_task read none."""
    if pool is None:
        if given and settings_of(certificate).method.calibrated:
            return "the certificate was issued without a pool, and one is given; leave it out."
        return None
    named, found = certificate.inputs["pool"], pool.fingerprint
    if named == found:
        missing = {"corpus", "judge"} - set(certificate.provenance)
        if named["origin"] == EVERY_TASK and missing:
            return (
                "inputs.pool.origin is 'every_task' in the document, the rule of the platform, and "
                "its provenance names no judge on a corpus."
            )
        return None
    if named["sha256"] == found["sha256"]:
        return f"inputs.pool is {quoted(named)} in the document and {found} for the pool given."
    return (
        f"inputs.pool.sha256 is {quoted(named['sha256'])} in the document and {pool.sha256!r} for "
        "the pool given; give the pool that it was issued with."
    )


def verify_set(
    given: CertificateSet,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    pilot: tuple[ArrayLike, ArrayLike, Sequence[Any] | NDArray[Any]] | None = None,
    pool: GivenPool | None = None,
) -> str | None:
    """Recompute how sides that share one δ came to theirs; return the first difference.

    Each certificate is verified by itself, with :func:`verify_certificate`.
    """
    if given.joint_delta is None:
        return None
    if not given.shares_settings:
        return (
            f"joint_delta is {given.joint_delta!r} in the document, and only both sides of a "
            "procedure under the same settings can share it; give the certificates alone."
        )
    others, unlabelled = None if pilot is None else observe(*pilot), as_pool(pool)
    observations = observe(scores, outcomes, tasks)
    for item in given.certificates:
        settings = settings_of(item).replace(delta=given.joint_delta)
        taken = unlabelled if settings.method.calibrated else None
        deltas = joint_deltas(observations, settings, pilot=others, pool=taken)
        if item.delta != deltas[item.side]:
            return (
                f"delta of the {item.side} side by {item.procedure} is {item.delta!r} in the "
                f"document and {deltas[item.side]!r} by sharing {given.joint_delta:g}."
            )
    return None


def _read(document: Any) -> tuple[Certificate, Any]:
    if isinstance(document, Certificate):
        return document, document.digest
    if isinstance(document, bytes | str):
        document = read_json_text(document, Certificate.TITLE, Certificate.REFUSAL)
    return Certificate.parse(document)


def _difference(given: Any, found: Any, path: str = "") -> str | None:
    """First difference of two JSON values, keys sorted; an integer is no float, and True no 1."""
    if type(given) is type(found) is dict:
        for key in sorted(set(given) | set(found)):
            where = f"{path}.{key}" if path else key
            if key not in given or key not in found:
                found_in = "in the document only" if key in given else "missing in the document"
                return f"{where} is {found_in}."
            if inner := _difference(given[key], found[key], where):
                return inner
        return None
    if type(given) is type(found) is list and len(given) == len(found):
        for place, (left, right) in enumerate(zip(given, found, strict=True)):
            if inner := _difference(left, right, f"{path}[{place}]"):
                return inner
        return None
    if type(given) is type(found) and given == found:
        return None
    return f"{path} is {quoted(given, 200)} in the document and {quoted(found, 200)} recomputed."
