"""``certify schema``."""

from __future__ import annotations

from typing import Any

import click

from certify_assets.cli.output import emit_json

_OF = ("certificate", "settings", "corpus", "judges", "notifications")


@click.command()
@click.argument("document", type=click.Choice(_OF))
def schema(document: str) -> None:
    """Print the JSON schema of a document.

    `certificate` is what `certify certificate` writes, `settings` what its --settings reads,
    `corpus` an item of `corpora` in a Dagster component. `judges` and `notifications` are the files
    judges.yaml and notifications.yaml of the data root. An editor that knows the schema completes
    and checks what you write.
    """
    emit_json(schema_of(document))


def schema_of(document: str) -> dict[str, Any]:
    """Return the JSON schema of a document, generated from its class."""
    if document == "certificate":
        return document_schema()
    if document == "settings":
        from certify_assets.certificates import Settings

        return Settings.model_json_schema()
    if document == "corpus":
        from certify_assets.corpora.config import corpus_schema

        return corpus_schema()
    if document == "judges":
        from certify_assets.judges.specs import judges_schema

        return judges_schema()
    from certify_assets.operations.notifications import Notifications

    return Notifications.model_json_schema()


def document_schema() -> dict[str, Any]:
    """Return the JSON schema of one certificate or several (draft 2020-12)."""
    from certify_assets.certificates import Certificate

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
