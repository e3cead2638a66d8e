"""Reading certificate documents: one certificate, or {"certificates": [...]}."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from certify_assets.cli.options import OPEN_SHARE, SIDE, argument_order, gathered
from certify_assets.corpora import CERTIFYING
from certify_assets.errors import ForgedCertificateError, InputError
from certify_assets.files import read_json

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate, CertificateSet


def certified_splits(documents: Sequence[Any]) -> tuple[str, ...]:
    """Return the splits of a score table that certificates are of; CAL where they name none."""
    named = {
        name
        for document in documents
        if isinstance(document, dict) and isinstance(document.get("provenance"), dict)
        for name in str(document["provenance"].get("split", "")).split(" and ")
    }
    return ("cal", *sorted(named.intersection(CERTIFYING) - {"cal"}))


class CertificateFile(NamedTuple):
    """A certificate file as its user gave it: nothing in it is checked but its keys."""

    #: JSON objects, not yet checked
    certificates: list[Any]
    #: what a document says next to its certificates
    outline: dict[str, Any]
    #: of a document of the platform: the pool by which its certificates are recomputed
    pool: Any = None
    #: whether it is a document of several
    several: bool = False

    def certificate_set(self, certificates: list[Certificate]) -> CertificateSet:
        """Return its certificates as one set, once they are checked; its outline must be theirs."""
        from certify_assets.certificates import CertificateSet

        return CertificateSet.of(certificates, self.outline)


def read_certificate_file(path: Path) -> CertificateFile:
    """Read one certificate, or a document of several."""
    from certify_assets.certificates.sides import OUTLINE

    if path.suffix.lower() != ".json" and path.is_file() and not _is_json(path):
        raise InputError(
            f"{path} is a table, not the JSON document of a certificate{argument_order()}."
        )
    document = read_json(path)
    if not isinstance(document, dict) or "certificates" not in document:
        return CertificateFile([document], {})
    outline = {name: value for name, value in document.items() if name != "certificates"}
    pool = outline.pop("pool", None)
    inner = document["certificates"]
    if not set(outline) <= set(OUTLINE) or not isinstance(inner, list) or not inner:
        raise ForgedCertificateError(
            f"{path} is not a list of certificates as the command writes it; give the file as it "
            "was written."
        )
    return CertificateFile(inner, outline, pool, several=True)


def _is_json(path: Path) -> bool:
    """Whether a file begins as a certificate does; a table of JSON Lines does, too."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return False
    try:
        with path.open("rb") as file:
            return file.read(100).lstrip()[:1] == b"{"
    except OSError:
        return True


@dataclass(frozen=True)
class Choice:
    """Which certificates of a document to take; None takes any."""

    side: str | None = None
    alpha: float | None = None
    procedure: str | None = None

    def names(self, document: Any) -> bool:
        """Whether a JSON object, which need not be a certificate, says that it is one of those."""
        asked = {name: value for name, value in vars(self).items() if value is not None}
        return not asked or (
            isinstance(document, dict)
            and all(document.get(name) == value for name, value in asked.items())
        )


choice_options = gathered(
    "choice",
    Choice,
    click.option(
        "--procedure", help="Of a document of several: the certificates of this procedure."
    ),
    click.option(
        "--alpha", type=OPEN_SHARE, help="Of a document of several: those of this error budget."
    ),
    click.option("--side", type=SIDE, help="Of a document of several: those of this side."),
)


def load_certificates(path: Path, choice: Choice | None = None) -> list[Certificate]:
    """Return the chosen certificates of a file, each checked for keys, types and sense."""
    from certify_assets.certificates import Certificate

    try:
        given = read_certificate_file(path)
        certificates = [Certificate.from_dict(document) for document in given.certificates]
        given.certificate_set(certificates)
    except ForgedCertificateError as error:
        raise InputError(f"{path} does not hold a certificate: {error}") from None
    chosen = [item for item in certificates if (choice or Choice()).names(vars(item))]
    if not chosen:
        raise InputError(
            f"{path} holds no certificate of that side, budget and procedure; it holds "
            f"{_named(certificates)}."
        )
    return chosen


def one_a_side(path: Path, certificates: list[Certificate]) -> list[Certificate]:
    """Return the certificates, refusing two of one side."""
    sides = [item.side for item in certificates]
    if repeated := next((side for side in sides if sides.count(side) > 1), None):
        several = [item for item in certificates if item.side == repeated]
        raise InputError(
            f"{path} holds {len(several)} certificates of the {repeated} side ({_named(several)}); "
            "give one a side, chosen by --alpha and --procedure."
        )
    return certificates


def _named(certificates: list[Certificate]) -> str:
    return "; ".join(
        dict.fromkeys(f"{item.side}, {item.alpha:g}, {item.procedure}" for item in certificates)
    )
