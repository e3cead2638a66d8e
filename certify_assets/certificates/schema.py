"""The JSON schema of certificate documents, for readers in other languages and for editors."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final

from certify_assets.certificates.certificate import SCHEMA, Certificate, Parameters, kinds_of
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.inputs import Inputs, PoolInputs

_JSON: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    tuple: "array",
    dict: "object",
    NoneType: "null",
}
_SHA256: Final = {"pattern": "^[0-9a-f]{64}$"}
_PROBABILITY: Final = {"exclusiveMinimum": 0, "exclusiveMaximum": 1}
_SHARE: Final = {"minimum": 0, "maximum": 1}
_TEXTS: Final = {"items": {"type": "string"}}
#: numbers of a certificate that are no shares
_COUNTS: Final = (
    "trajectories",
    "tasks",
    "covered_trajectories",
    "covered_tasks",
    "errors",
    "effective_tasks",
)
#: keys that are null exactly where nothing is certified
_OF_CERTIFIED: Final = ("threshold", "selective_error", "tail")


def certificate_schema() -> dict[str, Any]:
    """Return the JSON schema of a certificate document, as ``schemas/certificate.json`` ships it.

    A document is one certificate, or several with what they say together. The schema says which
    keys and values there are; what contradicts each other, and the digest, only
    :meth:`Certificate.from_dict` checks, and the figures only a recomputation.
    """
    several = {
        "certificates": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/certificate"}},
        "decided": {"type": "number", **_SHARE},
        "human": {"type": "number", **_SHARE},
        "joint_delta": {"type": ["number", "null"], **_PROBABILITY},
        "promise": {"type": ["string", "null"]},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Certificate document of certify_assets",
        "oneOf": [{"$ref": "#/$defs/certificate"}, _object(several, required=("certificates",))],
        "$defs": {"certificate": _certificate()},
    }


def _certificate() -> dict[str, Any]:
    text = (str,)
    pool = _object(_typed(kinds_of(PoolInputs), {"sha256": _SHA256, "rows": {"minimum": 0}}))
    inputs = _typed(kinds_of(Inputs), {"sha256": _SHA256, "rows": {"minimum": 0}})
    inputs = {**inputs, "pool": pool}
    finding = _object(_typed({"code": text, "message": text}))
    keys: dict[str, dict[str, Any]] = {
        "schema": {"const": SCHEMA},
        "side": {"enum": list(SIDES)},
        "alpha": _PROBABILITY,
        "delta": _PROBABILITY,
        "coverage": _SHARE,
        "success_rate": _SHARE,
        "candidates": {"minimum": 1},
        **{name: {"minimum": 0} for name in _COUNTS},
        "assumptions": _TEXTS,
        "findings": {"items": finding},
        "parameters": _object(_typed(kinds_of(Parameters), {"grid": {"minimum": 1}})),
        "provenance": {"additionalProperties": {"type": "string"}},
        "inputs": _object(inputs, required=("sha256", "rows")),
        "software": _object(_typed({"version": text})),
    }
    properties = _typed({**kinds_of(Certificate), "digest": text}, {**keys, "digest": _SHA256})
    return {
        **_object(properties),
        "if": {"properties": {"certified": {"const": True}}},
        "then": {"properties": {name: {"type": "number"} for name in _OF_CERTIFIED}},
        "else": {"properties": {name: {"type": "null"} for name in _OF_CERTIFIED}},
    }


def _typed(
    kinds: Mapping[str, tuple[type, ...]], more: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the schema of each key by its types, and what else is known of it."""
    names = {name: [_JSON[kind] for kind in of] for name, of in kinds.items()}
    return {
        name: {"type": of[0] if len(of) == 1 else of, **(more or {}).get(name, {})}
        for name, of in names.items()
    }


def _object(
    properties: Mapping[str, Any], *, required: tuple[str, ...] | None = None
) -> dict[str, Any]:
    """Return the schema of an object with these keys and no others, by default all of them."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": sorted(properties) if required is None else list(required),
        "additionalProperties": False,
    }
