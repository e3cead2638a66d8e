"""Certificate documents that commands take: one certificate, or {"certificates": [...]}."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from certify_assets.cli.options import OPEN_SHARE, SIDE, gathered
from certify_assets.cli.reading import Unlabelled, argument_order, read_pool, stored_pool
from certify_assets.corpora import CERTIFYING
from certify_assets.documents import JsonObject
from certify_assets.errors import ForgedCertificateError, InputError
from certify_assets.files import read_json
from certify_assets.tables.score_reading import ReadingOptions

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate, CertificateSet


class CertificateFile(NamedTuple):
    """A certificate file as its user gave it: nothing in it is checked but its keys."""

    path: Path
    #: JSON objects, not yet checked
    documents: list[Any]
    #: what a document says next to its certificates
    outline: JsonObject
    #: of a document of the platform: the pool by which its certificates are recomputed
    pool: Any = None
    #: whether it is a document of several
    several: bool = False

    def parsed(self) -> list[Certificate]:
        """Return its certificates; their digests are not checked."""
        from certify_assets.certificates import Certificate

        found = []
        for place, document in enumerate(self.documents, 1):
            try:
                found.append(Certificate.parse(document)[0])
            except ForgedCertificateError as error:
                where = f"certificate {place} of {len(self.documents)}: " if self.several else ""
                raise ForgedCertificateError(f"{where}{error}") from None
        return found

    def chosen(self, choice: Choice) -> Any:
        """Return the document of the chosen certificates, as it is verified."""
        pairs = zip(self.documents, self.parsed(), strict=True)
        chosen = [document for document, item in pairs if choice.names(item)]
        if not chosen:
            raise InputError(
                f"{self.path} holds no certificate of that side, budget and procedure."
            )
        whole = len(chosen) == len(self.documents)
        # what a document says of all its certificates together
        return {"certificates": chosen, **(self.outline if whole else {})}

    def checked(self) -> CertificateSet:
        """Return its certificates as one set; digests and outline must be theirs."""
        from certify_assets.certificates import Certificate, CertificateSet

        certificates = [Certificate.from_dict(document) for document in self.documents]
        return CertificateSet.of(certificates, self.outline)

    def unlabelled(self, given: Path | None, reading: ReadingOptions) -> Unlabelled | None:
        """Return the pool that is given, that of the document, or pool.json next to it."""
        if given is not None:
            return read_pool(given, reading, certified=certified_splits(self.parsed()))
        if self.pool is not None:
            return stored_pool(self.pool)
        beside = self.path.with_name("pool.json")
        named = any("pool" in item.inputs for item in self.parsed())
        return stored_pool(read_json(beside)) if named and beside.is_file() else None


def read_certificate_file(path: Path) -> CertificateFile:
    """Read one certificate, or a document of several."""
    from certify_assets.certificates.sides import OUTLINE

    try:
        document = read_json(path)
    except InputError as error:
        if not path.is_file():
            raise
        raise InputError(f"{error} It is no certificate{argument_order()}.") from None
    if not isinstance(document, dict) or "certificates" not in document:
        return CertificateFile(path, [document], {})
    outline = {name: value for name, value in document.items() if name != "certificates"}
    pool, inner = outline.pop("pool", None), document["certificates"]
    if not set(outline) <= set(OUTLINE) or not isinstance(inner, list) or not inner:
        raise ForgedCertificateError(
            f"{path} is not a list of certificates as the command writes it; give the file as it "
            "was written."
        )
    return CertificateFile(path, inner, outline, pool, several=True)


@dataclass(frozen=True)
class Choice:
    """Which certificates of a document to take; None takes any."""

    side: str | None = None
    alpha: float | None = None
    procedure: str | None = None

    def names(self, item: Certificate) -> bool:
        """Whether a certificate is one of those."""
        return all(value in (None, getattr(item, name)) for name, value in vars(self).items())


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
    try:
        held = list(read_certificate_file(path).checked().certificates)
    except ForgedCertificateError as error:
        raise InputError(f"{path} does not hold a certificate: {error}") from None
    chosen = [item for item in held if (choice or Choice()).names(item)]
    if not chosen:
        raise InputError(
            f"{path} holds no certificate of that side, budget and procedure; it holds "
            f"{_named(held)}."
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


def certified_splits(certificates: Sequence[Certificate]) -> tuple[str, ...]:
    """Return the splits of a score table that certificates are of; CAL where they name none."""
    named = {
        name for item in certificates for name in item.provenance.get("split", "").split(" and ")
    }
    return ("cal", *sorted(named.intersection(CERTIFYING) - {"cal"}))
