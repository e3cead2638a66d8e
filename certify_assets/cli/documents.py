"""Reading certificate documents: one certificate, or {"certificates": [...]}."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.errors import ForgedCertificateError, InputError
from certify_assets.files import read_json

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

__all__ = ["certificate_documents", "load_certificates", "one_certificate"]


def certificate_documents(path: Path) -> list[Any]:
    """Return the JSON objects of a certificate file, not yet checked."""
    document = read_json(path)
    if isinstance(document, dict) and "certificates" in document:
        inner = document["certificates"]
        if set(document) != {"certificates"} or not isinstance(inner, list) or not inner:
            raise ForgedCertificateError(f"{path} is not a list of certificates as the command writes it; give the file as it was written.")
        return inner
    return [document]


def load_certificates(path: Path) -> list[Certificate]:
    """Return the certificates of a file, each checked for keys, types and sense.

    Raises
    ------
    InputError
        If the file does not hold certificates: for a command that uses one, that is a bad input.
    """
    from certify_assets.certificates import Certificate

    try:
        return [Certificate.from_dict(document) for document in certificate_documents(path)]
    except ForgedCertificateError as error:
        raise InputError(f"{path} does not hold a certificate: {error}") from None


def one_certificate(path: Path) -> Certificate:
    """Return the one certificate of a file.

    Raises
    ------
    InputError
        If the file holds several.
    """
    certificates = load_certificates(path)
    if len(certificates) > 1:
        raise InputError(f"{path} holds {len(certificates)} certificates; give a file with the one to use.")
    return certificates[0]
