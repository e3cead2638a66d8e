"""The certificates in use: those of the deployment where a judge is deployed, else the strictest of its own that certify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.layout import deployment_key

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

__all__ = ["complete_before", "deployed_document", "deployed_number", "in_use"]


def deployed_document(corpus: Corpus) -> dict[str, Any] | None:
    """Return the deployment of a corpus as it is stored; None where no judge is deployed."""
    document: dict[str, Any] | None = (
        corpus.store.read_json(deployment_key(corpus.name))
        if corpus.store.exists(deployment_key(corpus.name))
        else None
    )
    return document


def deployed_number(judge: JudgedCorpus) -> int:
    """Return the recertification whose certificates are deployed; 0 for the judge's first ones, or where another judge is deployed."""
    document = deployed_document(judge.corpus)
    if document is None or document["judge"] != judge.name:
        return 0
    parts = str(document["certificates_key"]).split("/")
    return int(parts[3]) if parts[:1] == ["operations"] else 0


def complete_before(judge: JudgedCorpus) -> int:
    """Return the line of the journal of labels up to which tasks may be in the certificates in use."""
    from certify_assets.operations.recertified import load_recertification

    number = deployed_number(judge)
    return 0 if number == 0 else int(load_recertification(judge.corpus, number)["labels"]["lines"])


def in_use(judge: JudgedCorpus) -> list[Certificate] | None:
    """Return the certificates that the deployment names, recomputed; None where the judge is not deployed.

    Raises
    ------
    StaleCertificateError, ForgedCertificateError, IntegrityError
        As `deployment.deployed_certificates` and `recertification.load_recertified`.
    """
    from certify_assets.operations.deployment import deployed_certificates
    from certify_assets.operations.recertified import load_recertified

    document = deployed_document(judge.corpus)
    if document is None or document["judge"] != judge.name:
        return None
    if number := deployed_number(judge):
        # also against its own document and the journal of what was spent
        load_recertified(judge.corpus, number)
    return deployed_certificates(judge.corpus)
