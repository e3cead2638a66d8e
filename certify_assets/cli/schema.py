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
        from certify_assets.certificates.certificate_files import document_schema

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
