"""The JSON schema of a certificate document, from the annotations of its classes."""

from __future__ import annotations

from typing import Any

from certify_assets.certificates.certificate import (
    SCHEMA,
    Certificate,
    LedgerHead,
    Parameters,
    kinds_of,
)
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.inputs import LEVELS, Inputs, PoolInputs, ScoreRange

_Schema = dict[str, Any]
_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
    tuple: "array",
}
_HASH = {"pattern": "^[0-9a-f]{64}$"}
_COUNT, _POSITIVE = {"minimum": 0}, {"minimum": 1}
_SHARE = {"minimum": 0, "maximum": 1}
_OPEN_SHARE = {"exclusiveMinimum": 0, "exclusiveMaximum": 1}
_COUNTS = ("trajectories", "covered_trajectories", "covered_tasks", "effective_tasks", "errors")
_TEXT = {"type": "string"}
#: limits of a value beyond its type, by its key
_LIMITS: dict[str, _Schema] = {
    **dict.fromkeys(("alpha", "delta", "joint_delta"), _OPEN_SHARE),
    **dict.fromkeys(("coverage", "success_rate", "decided", "human"), _SHARE),
    **dict.fromkeys((*_COUNTS, "rows"), _COUNT),
    **dict.fromkeys(("candidates", "grid"), _POSITIVE),
    **dict.fromkeys(("sha256", "digest"), _HASH),
    # a number in a certificate, digests in its inputs: neither limit is of the other type
    "tasks": {"minimum": 0, "pattern": "^[0-9a-f]{12}( [0-9a-f]{12})*$"},
    "schema": {"const": SCHEMA},
    "side": {"enum": list(SIDES)},
    "assumptions": {"items": _TEXT},
    "provenance": {"additionalProperties": _TEXT},
    "quantiles": {"items": {"type": "number"}, "minItems": len(LEVELS), "maxItems": len(LEVELS)},
}
_PARTS: _Schema = {
    "parameters": Parameters,
    "inputs": Inputs,
    "pool": PoolInputs,
    "scores": ScoreRange,
    "ledger": LedgerHead,
}


def document_schema() -> _Schema:
    """Return the JSON schema of one certificate or several (draft 2020-12)."""
    kinds = kinds_of(Certificate) | {"digest": (str,)}
    # those of the platform alone name an event of a ledger
    certificate = _object(kinds, needed=tuple(name for name in kinds if name != "ledger"))
    finding = _object({"code": (str,), "message": (str,)})
    certificate["properties"]["findings"]["items"] = finding
    certificate["properties"]["software"] = _object({"version": (str,)})
    # all three are there exactly where something is certified
    certificate["if"] = {"properties": {"certified": {"const": True}}}
    for case, kind in (("then", "number"), ("else", "null")):
        names = ("threshold", "selective_error", "tail")
        certificate[case] = {"properties": {name: {"type": kind} for name in names}}
    one = {"$ref": "#/$defs/certificate"}
    several = _object(
        {
            "certificates": (list,),
            "decided": (float,),
            "human": (float,),
            "joint_delta": (float, type(None)),
            "promise": (str, type(None)),
        },
        needed=("certificates",),
    )
    several["properties"]["certificates"] |= {"items": one, "minItems": 1}
    several["properties"]["pool"] = {"type": "object"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Certificate document of certify_assets",
        "oneOf": [one, several],
        "$defs": {"certificate": certificate},
    }


def _object(kinds: dict[str, tuple[type, ...]], needed: tuple[str, ...] | None = None) -> _Schema:
    """An object of these keys and no others; all are needed by default."""
    properties = {}
    for name, allowed in kinds.items():
        if name in _PARTS:
            part = _PARTS[name]
            properties[name] = _object(kinds_of(part), tuple(sorted(part.__required_keys__)))
        else:
            types = [_TYPES[kind] for kind in allowed]
            kind = types[0] if len(types) == 1 else types
            properties[name] = {"type": kind, **_LIMITS.get(name, {})}
    return {
        "type": "object",
        "properties": properties,
        "required": list(kinds if needed is None else needed),
        "additionalProperties": False,
    }
