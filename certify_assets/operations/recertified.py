"""Recertifications that were made: read with all their hashes, recomputed, and deployed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import (
    ForgedCertificateError,
    GateClosedError,
    IntegrityError,
    StaleCertificateError,
)
from certify_assets.files import sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns
from certify_assets.operations.layout import labels_key, recertification_key
from certify_assets.operations.spending import read_spending

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate
    from certify_assets.operations.deployment_record import Deployment

__all__ = [
    "CERTIFICATES",
    "DOCUMENT",
    "MOST_OPEN",
    "SCORES",
    "load_recertification",
    "load_recertified",
    "promote",
    "recertifications",
]

DOCUMENT: Final = "recertification.json"
SCORES: Final = "scores.parquet"
CERTIFICATES: Final = "certificates.json"
#: share of the drawn tasks that may be open or tied where a recertification is to decide
MOST_OPEN: Final = 0.5


def recertifications(corpus: Corpus) -> list[dict[str, Any]]:
    """Return the documents of all finished recertifications, the oldest first."""
    numbers = sorted(
        int(name)
        for name in corpus.store.names(f"operations/{corpus}/recertifications")
        if name.isdecimal()
    )
    done = [
        number
        for number in numbers
        if corpus.store.exists(recertification_key(corpus.name, number, DOCUMENT))
    ]
    return [load_recertification(corpus, number) for number in done]


def load_recertification(corpus: Corpus, number: int) -> dict[str, Any]:
    """Return the document of a recertification.

    Raises
    ------
    IntegrityError
        If it is not what was written down of it, the rows beside it are not those that it was made of, the journal of δ does not claim it, or the
        labels that it was made of were altered.
    """
    key = recertification_key(corpus.name, number, DOCUMENT)
    document: dict[str, Any] = corpus.store.read_json(key)
    spending = read_spending(corpus)
    if spending.made.get(number, (found := corpus.store.sha256(key))) != found:
        raise IntegrityError(
            f"{corpus.store.locate(key)} is not what was written when it was finished; restore it from a backup."
        )
    if (
        document.get("number") != number
        or corpus.store.sha256(recertification_key(corpus.name, number, SCORES))
        != document["scores_sha256"]
    ):
        raise IntegrityError(
            f"the rows of recertification {number} of {corpus} are not those that it was made of; restore its folder."
        )
    claim = next((item for item in spending.claims if item.number == number), None)
    if claim is None or (claim.inputs_sha256, claim.delta) != (
        document["inputs_sha256"],
        document["delta"],
    ):
        raise IntegrityError(
            f"recertification {number} of {corpus} is not the one that the journal of δ claims; restore both from a backup."
        )
    _require_labels(corpus, document)
    return document


def _require_labels(corpus: Corpus, document: Mapping[str, Any]) -> None:
    """Raise unless the journal of labels begins as it was when the recertification was made of it."""
    key, lines = labels_key(corpus.name), int(document["labels"]["lines"])
    data = corpus.store.read_bytes(key) if corpus.store.exists(key) else b""
    if (
        sha256_bytes(b"".join(data.splitlines(keepends=True)[:lines]))
        != document["labels"]["sha256"]
    ):
        raise IntegrityError(
            f"{corpus.store.locate(key)} does not begin as it was when recertification {document['number']} was made of it: labels were altered; restore it from "
            "a backup."
        )


def load_recertified(corpus: Corpus, number: int) -> list[Certificate]:
    """Return the certificates of a recertification, recomputed from its rows, after checking that they stand on what is stored now.

    Raises
    ------
    StaleCertificateError
        If adapter, renderer, manifest, scores or trajectories of the judge have changed since.
    ForgedCertificateError
        If a certificate does not recompute, or is not one that the document names.
    IntegrityError
        If the rows were changed, or the journal of what was spent does not hold the recertification.
    """
    from certify_assets.certificates import Certificate, verify_certificate

    document = load_recertification(corpus, number)
    table = corpus.store.read_table(recertification_key(corpus.name, number, SCORES))
    _, hashes, _ = JudgedCorpus(corpus, document["judge"]).calibration
    stored = corpus.store.read_json(recertification_key(corpus.name, number, CERTIFICATES))[
        "certificates"
    ]
    certificates = [Certificate.from_dict(item) for item in stored]
    if [item.sha256 for item in certificates] != document["certificates"]:
        raise ForgedCertificateError(
            f"the certificates of recertification {number} of {corpus} are not those that its document names."
        )
    for certificate in certificates:
        stale = next(
            (name for name, value in hashes.items() if certificate.provenance.get(name) != value),
            None,
        )
        if stale is not None:
            raise StaleCertificateError(
                f"recertification {number} of {corpus} belongs to another {stale.removesuffix('_sha256')} than the stored one; recertify."
            )
        if difference := verify_certificate(certificate, *columns(table)):
            raise ForgedCertificateError(
                f"a certificate of recertification {number} of {corpus} does not recompute: {difference}"
            )
    return certificates


def promote(corpus: Corpus, document: Mapping[str, Any]) -> Deployment:
    """Deploy the certificates of a recertification, at the budgets that decide now; where they are deployed already, nothing happens.

    Returns
    -------
    Deployment

    Raises
    ------
    GateClosedError
        If none of those sides is certified at its budget, the audit sample alone speaks against one, or the deployment's own checks do.
    """
    from certify_assets.operations.deployment import deploy, load_deployment

    judge, number = str(document["judge"]), int(document["number"])
    now = load_deployment(corpus)
    if now is not None and (now.judge, now.certificates_key) == (
        judge,
        document["certificates_key"],
    ):
        return now
    if document["open_share"] > MOST_OPEN:
        raise GateClosedError(
            f"recertification {number} of {corpus} is not deployed: {100 * document['open_share']:.0f} % of the drawn tasks were open or tied, and those that "
            "were complete may be the easy ones; label the rest of the audit sample, then recertify."
        )
    budgets = dict(now.alpha) if now is not None and now.judge == judge else None
    sides = [
        item
        for item in document["sides"]
        if item["certified"] and (budgets is None or budgets.get(item["side"]) == item["alpha"])
    ]
    if not sides:
        at = "" if budgets is None else " at the budgets that decide now"
        raise GateClosedError(
            f"recertification {number} of {corpus} certifies nothing{at}; the deployment stays as it is."
        )
    if against := next(
        (item for item in sides if (item["audit_sample"] or {}).get("verdict") == "ERROR"), None
    ):
        raise GateClosedError(
            f"recertification {number} of {corpus} is not deployed: on the audit sample alone its {against['side']} side at {against['alpha']:g} "
            f"fails ({against['audit_sample']['reason']}) The runs are no longer those of CAL."
        )
    alpha = None if budgets is None else {item["side"]: item["alpha"] for item in sides}
    return deploy(
        JudgedCorpus(corpus, judge), alpha=alpha, certificates_key=str(document["certificates_key"])
    )
