"""One factory of checks: a question about a corpus or the data root, answered by a verdict."""

from collections.abc import Callable
from inspect import getdoc
from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import corpora_partitions, key
from certify_assets.defs.resources import DataRoot
from certify_assets.operations.checks import Verdict


def check(
    asset: str, *, blocking: bool = False, partitioned: bool = True, named_by: object = None
) -> Callable[[Callable[[Any], Verdict]], dg.AssetChecksDefinition]:
    """Return the decorator of a check of an asset, which is asked with the corpus.

    Without a partition it is asked with the data root. Name and description are those of the
    function, or of `named_by`.
    """

    def decorated(ask: Callable[[Any], Verdict]) -> dg.AssetChecksDefinition:
        described: Any = named_by or ask

        @dg.asset_check(
            asset=key(asset),
            name=described.__name__,
            blocking=blocking,
            partitions_def=corpora_partitions if partitioned else None,
            description=getdoc(described),
        )
        def made(
            context: dg.AssetCheckExecutionContext, data_root: DataRoot
        ) -> dg.AssetCheckResult:
            store = data_root.view()
            verdict = ask(Corpus(store, context.partition_key) if partitioned else store)
            return dg.AssetCheckResult(
                passed=verdict.passed,
                severity=dg.AssetCheckSeverity.ERROR
                if verdict.status == "ERROR"
                else dg.AssetCheckSeverity.WARN,
                description=as_sentence(verdict.sentence),
                metadata=verdict.metadata,
            )

        return made

    return decorated


def as_sentence(text: str) -> str:
    """Return what a check found as a sentence, which begins with a capital letter."""
    return text[:1].upper() + text[1:]
