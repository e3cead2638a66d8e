"""The JSON schema of a certificate document."""

from __future__ import annotations

from typing import Any

from certify_assets.certificates.certificate import Certificate


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
