"""Checks: questions about a corpus or the data root, answered by verdicts."""

from collections.abc import Callable, Iterator, Sequence
from inspect import getdoc
from typing import Any, NamedTuple

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import corpora_partitions
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot
from certify_assets.operations.checks import Verdict


class AssetQuestion(NamedTuple):
    """A check of an asset, which is asked with the corpus, or without one with the data root."""

    asset: str
    # checks of one step are asked together
    step: str
    ask: Callable[[Any], Verdict]
    blocking: bool
    partitioned: bool
    name: str
    description: str

    def spec(self, project: Project) -> dg.AssetCheckSpec:
        """Return the check as Dagster knows it."""
        return dg.AssetCheckSpec(
            self.name,
            asset=project.key(self.asset),
            blocking=self.blocking,
            description=self.description,
            partitions_def=corpora_partitions if self.partitioned else None,
        )


def check(
    asset: str,
    *,
    blocking: bool = False,
    partitioned: bool = True,
    named_by: object = None,
    step: str = "",
) -> Callable[[Callable[[Any], Verdict]], AssetQuestion]:
    """Return the decorator of a check; it has the name and docstring of its function.

    `named_by` is another function or class whose name and docstring it has. `step` names the step
    that asks it, by default the asset.
    """

    def decorated(ask: Callable[[Any], Verdict]) -> AssetQuestion:
        described: Any = named_by or ask
        said = getdoc(described) or ""
        return AssetQuestion(
            asset, step or asset, ask, blocking, partitioned, described.__name__, said
        )

    return decorated


def asked_together(
    project: Project, questions: Sequence[AssetQuestion]
) -> list[dg.AssetChecksDefinition]:
    """Return the checks as Dagster asks them: those of one step together, or some of them."""
    # a step costs more than most of these questions, and those of one asset read the same things
    steps = dict.fromkeys(question.step for question in questions)
    return [_step(project, [item for item in questions if item.step == step]) for step in steps]


def _step(project: Project, questions: Sequence[AssetQuestion]) -> dg.AssetChecksDefinition:
    specs = [question.spec(project) for question in questions]
    known = {spec.key: question for spec, question in zip(specs, questions, strict=True)}
    first = questions[0]

    @dg.multi_asset_check(
        name=f"{project.key(first.step).to_python_identifier()}_checks",
        specs=specs,
        can_subset=True,
    )
    def made(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> Iterator[dg.AssetCheckResult]:
        store = data_root.view()
        about: Any = Corpus(store, context.partition_key) if first.partitioned else store
        failed: list[Exception] = []
        for asked, question in known.items():
            if asked in context.selected_asset_check_keys:
                try:
                    verdict = question.ask(about)
                except Exception as error:
                    # the questions after it are asked all the same
                    failed.append(error)
                    continue
                yield dg.AssetCheckResult(
                    asset_key=asked.asset_key,
                    check_name=asked.name,
                    passed=verdict.passed,
                    severity=dg.AssetCheckSeverity.ERROR
                    if verdict.status == "ERROR"
                    else dg.AssetCheckSeverity.WARN,
                    description=as_sentence(verdict.sentence),
                    metadata=verdict.metadata,
                )
        if failed:
            raise failed[0]

    return made


def as_sentence(text: str) -> str:
    """Return what a check found as a sentence, which begins with a capital letter."""
    return text[:1].upper() + text[1:]
