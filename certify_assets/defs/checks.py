"""Checks: questions about a corpus or the data root, answered by verdicts."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from inspect import getdoc
from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import corpora_partitions
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.checks import Verdict

Ask = Callable[[Any], Verdict]


def asked_together(
    project: Project,
    asked: Mapping[str, Sequence[Ask]],
    *,
    blocking: Container[Ask] = (),
    step: str = "",
    partitioned: bool = True,
) -> dg.AssetChecksDefinition:
    """Return checks of assets as one step, which may ask some of them.

    Parameters
    ----------
    project : Project
        Code location.
    asked : Mapping[str, Sequence[Ask]]
        Functions that answer the checks of each asset, which have their names and docstrings. They
        take the corpus, or the judge of the asset on it.
    blocking : Container[Ask]
        Those of the functions whose checks block.
    step : str, optional
        Name of the step, by default of the asset.
    partitioned : bool
        Whether each corpus is a partition; where not, the functions take the data root.
    """
    first = next(iter(asked))
    judge = project.judge_of(project.key(first))
    asks = [(asset, ask) for asset, found in asked.items() for ask in found]
    specs = [
        dg.AssetCheckSpec(
            ask.__name__,
            asset=project.key(asset),
            blocking=ask in blocking,
            description=getdoc(ask),
            partitions_def=corpora_partitions if partitioned else None,
        )
        for asset, ask in asks
    ]

    # a step costs more than most of these questions, and those of one asset read the same things
    @dg.multi_asset_check(
        name=f"{project.key(step or first).to_python_identifier()}_checks",
        specs=specs,
        can_subset=True,
    )
    def checks(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> Iterator[dg.AssetCheckResult]:
        about: Any = data_root.view()
        if partitioned:
            about = Corpus(about, context.partition_key)
        if judge:
            about = JudgedCorpus(about, judge)
        failed: list[Exception] = []
        for spec, (_, ask) in zip(specs, asks, strict=True):
            if spec.key in context.selected_asset_check_keys:
                try:
                    verdict = ask(about)
                except Exception as error:
                    # the questions after it are asked all the same; the first error is raised
                    if failed:
                        context.log.error(f"{spec.name}: {error!r}", exc_info=error)
                    failed.append(error)
                    continue
                yield dg.AssetCheckResult(
                    asset_key=spec.asset_key,
                    check_name=spec.name,
                    passed=verdict.passed,
                    severity=dg.AssetCheckSeverity.ERROR
                    if verdict.status == "ERROR"
                    else dg.AssetCheckSeverity.WARN,
                    # as a sentence
                    description=verdict.sentence[:1].upper() + verdict.sentence[1:],
                    metadata=verdict.metadata,
                )
        if failed:
            raise failed[0]

    return checks
