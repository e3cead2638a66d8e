"""Work outside runs: what a command stored, reported to Dagster as materializations."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.execution import instance_with
from certify_assets.defs.names import VERSION, key, stored_version
from certify_assets.operations.labels import write_label_table


def report(corpus: Corpus, assets: Sequence[str], command: str) -> None:
    """Report assets of a corpus, by name, as materialized by a command outside a run."""
    events = [_event(corpus, name, command) for name in assets]
    with instance_with([corpus.name]) as instance:
        for event in events:
            instance.report_runless_asset_event(event)


def _event(corpus: Corpus, name: str, command: str) -> dg.AssetMaterialization:
    if name == "operations/reviewed_labels":
        # a command adds events, and the asset is the table that is resolved from them
        write_label_table(corpus)
    version = stored_version(corpus.store, key(name), corpus.name)
    tags = {VERSION: version.value} if version else {}
    return dg.AssetMaterialization(
        key(name), partition=corpus.name, tags=tags, metadata={"made_by": command}
    )
