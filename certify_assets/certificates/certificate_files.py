"""Certificate files: one certificate, or {"certificates": [...]} with keys about all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.sides import OUTLINE, CertificateSet
from certify_assets.documents import JsonObject
from certify_assets.errors import ForgedCertificateError, InputError, quoted
from certify_assets.files import read_json


class CertificateFile(NamedTuple):
    """A certificate file as its user gave it: nothing in it is checked but its keys."""

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
        found = []
        for place, document in enumerate(self.documents, 1):
            try:
                found.append(Certificate.parse(document)[0])
            except ForgedCertificateError as error:
                where = f"certificate {place} of {len(self.documents)}: " if self.several else ""
                raise ForgedCertificateError(f"{where}{error}") from None
        return found

    @property
    def document(self) -> JsonObject:
        """The document as it is verified, with the keys about all its certificates."""
        pool = {} if self.pool is None else {"pool": self.pool}
        return {"certificates": self.documents, **self.outline, **pool}

    def checked(self) -> CertificateSet:
        """Return its certificates as one set; digests and outline must match them."""
        certificates = [Certificate.from_dict(document) for document in self.documents]
        return CertificateSet.of(certificates, self.outline)


def read_certificate_file(path: Path) -> CertificateFile:
    """Read one certificate, or a document of several."""
    try:
        document = read_json(path)
    except InputError:
        # what begins like JSON has a fault, whose place was named
        if not path.is_file() or path.read_bytes().lstrip()[:1] in b"{[":
            raise
        raise InputError(
            f"{path} is not a certificate, which is a JSON document. Name the certificate before "
            "any scores."
        ) from None
    several = isinstance(document, dict) and "certificates" in document
    inner = document["certificates"] if several else [document]
    # what has no key of a certificate is another file, and no altered certificate
    if (
        not inner
        or not isinstance(inner, list)
        or not all(
            isinstance(item, dict) and item.keys() & Certificate.model_fields.keys()
            for item in inner
        )
    ):
        raise InputError(
            f"{path} does not hold a certificate; give a file that certify certificate wrote."
        )
    if not several:
        return CertificateFile(inner, {})
    outline = {name: value for name, value in document.items() if name != "certificates"}
    pool = outline.pop("pool", None)
    if unknown := sorted(outline.keys() - set(OUTLINE)):
        raise ForgedCertificateError(
            f"{path} has the key {quoted(unknown[0])}, which no certificate has; give the file as "
            "it was written."
        )
    return CertificateFile(inner, outline, pool, several=True)


@dataclass(frozen=True)
class Choice:
    """Which certificates of a document to take; None takes any."""

    side: str | None = None
    alpha: float | None = None
    procedure: str | None = None

    def names(self, item: Certificate) -> bool:
        """Whether a certificate is one of those."""
        return all(value in (None, getattr(item, name)) for name, value in vars(self).items())


def load_certificates(path: Path, choice: Choice | None = None) -> list[Certificate]:
    """Return the chosen certificates of a file, each checked for keys, types and sense."""
    try:
        held = list(read_certificate_file(path).checked().certificates)
    except ForgedCertificateError as error:
        named = str(error).startswith(str(path))
        raise InputError(str(error) if named else f"{path}: {error}") from None
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
            f"{path} holds {len(several)} certificates of the {repeated} side: {_named(several)}. "
            "Choose one for each side with --alpha and --procedure."
        )
    return certificates


def _named(certificates: list[Certificate]) -> str:
    names = (f"{item.side} α = {item.alpha:g} {item.procedure}" for item in certificates)
    return ", ".join(dict.fromkeys(names))


def document_schema() -> dict[str, Any]:
    """Return the JSON schema of one certificate or several (draft 2020-12)."""
    certificate = Certificate.json_schema()
    parts = certificate.pop("$defs")
    certificate["properties"]["digest"] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    certificate["required"].append("digest")
    # all three are there exactly where something is certified
    certificate["if"] = {"properties": {"certified": {"const": True}}}
    for case, kind in (("then", "number"), ("else", "null")):
        names = ("threshold", "selective_error", "tail")
        certificate[case] = {"properties": {name: {"type": kind} for name in names}}
    one = {"$ref": "#/$defs/certificate"}
    several = {
        "type": "object",
        "properties": {
            "certificates": {"type": "array", "items": one, "minItems": 1},
            "decided": {"type": "number", "minimum": 0, "maximum": 1},
            "human": {"type": "number", "minimum": 0, "maximum": 1},
            "statement": {"type": ["string", "null"]},
            "pool": {"type": "object"},
        },
        "required": ["certificates"],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Certificate document of certify_assets",
        "oneOf": [one, several],
        "$defs": {"certificate": certificate, **parts},
    }
