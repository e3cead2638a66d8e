"""Data quality: Great Expectations checkpoints behind blocking checks."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.splits import SPLITS
from certify_assets.defs.checks import as_sentence, check
from certify_assets.defs.names import corpora_partitions, key
from certify_assets.defs.resources import DataRoot
from certify_assets.errors import IntegrityError
from certify_assets.operations.checks import Verdict
from certify_assets.reports.corpus_page import check_table, write_data_docs

if TYPE_CHECKING:
    from certify_assets.corpora.quality import QualityResult

_TABLE_SUITES = {
    "schema": "Every column of a trajectory is there and no identity is missing.",
    "unique_trajectory_id": "No trajectory_id occurs twice.",
    "binary_outcome": "Every outcome that is there is 0 or 1.",
    "no_leak_field": "No key of a harness that holds the outcome, and no column beyond the schema.",
    "duplicates": "No two trajectories read the same.",
}
_WARNINGS = {"duplicates"}


@dg.multi_asset_check(
    name="trajectory_quality",
    specs=[
        dg.AssetCheckSpec(
            name,
            asset=key("corpora/trajectories"),
            description=text,
            blocking=name not in _WARNINGS,
            partitions_def=corpora_partitions,
        )
        for name, text in _TABLE_SUITES.items()
    ],
)
def trajectory_quality(
    context: dg.AssetCheckExecutionContext, data_root: DataRoot
) -> Iterator[dg.AssetCheckResult]:
    """Run the suites of the trajectory table."""
    results, docs = _evaluated(data_root, context.partition_key, stored_splits=False)
    for name in _TABLE_SUITES:
        yield _check_result(results[name], key("corpora/trajectories"), docs)


@dg.multi_asset_check(
    name="split_quality",
    specs=[
        *(
            dg.AssetCheckSpec(
                "disjoint_tasks",
                asset=key(f"corpora/{split}_split"),
                description="No task is in two splits, and the stored splits are those of the "
                "manifest, with no id twice.",
                blocking=True,
                additional_deps=[
                    key(f"corpora/{other}_split") for other in SPLITS if other != split
                ],
                partitions_def=corpora_partitions,
            )
            for split in SPLITS
        ),
        dg.AssetCheckSpec(
            "n_min_tasks",
            asset=key("corpora/cal_split"),
            description="As many tasks certify as a certificate needs by arithmetic.",
            additional_deps=[key(f"corpora/{other}_split") for other in SPLITS if other != "cal"],
            partitions_def=corpora_partitions,
        ),
    ],
)
def split_quality(
    context: dg.AssetCheckExecutionContext, data_root: DataRoot
) -> Iterator[dg.AssetCheckResult]:
    """Run the suites of the stored splits: one evaluation, one result a split."""
    results, docs = _evaluated(data_root, context.partition_key, stored_splits=True)
    together = [results[name] for name in ("disjoint_tasks", "split_rows", "manifest")]
    for split in SPLITS:
        yield dg.AssetCheckResult(
            check_name="disjoint_tasks",
            asset_key=key(f"corpora/{split}_split"),
            passed=all(result.passed for result in together),
            severity=dg.AssetCheckSeverity.ERROR,
            description=" ".join(as_sentence(result.detail) for result in together),
            metadata={"data_docs": dg.MetadataValue.path(docs)},
        )
    yield _check_result(results["n_min_tasks"], key("corpora/cal_split"), docs)


@check("corpora/leak_controls", blocking=True)
def no_structural_leak(corpus: Corpus) -> Verdict:
    """Length, steps, agent and verdict phrases alone do not predict the outcome.

    WARN where the owner accepted that with a reason.
    """
    checks = corpus.leak_checks
    over, accepted = checks.over, checks.accepted
    said = "every control is under its threshold"
    if over:
        said = f"{checks.leaks} alone tells the outcome"
        said += (
            f"; accepted: {accepted}"
            if accepted
            else ", and a judge would certify that, not the work; remove the leak, or say why to "
            "go on: certify corpus import … --replace --set accept_structural_leak=REASON"
        )
    return Verdict.of(
        not over,
        said,
        otherwise="WARN" if accepted else "ERROR",
        controls=dg.MetadataValue.md(check_table(checks)),
        evidence=dg.MetadataValue.json(checks.to_dict()["evidence"]),
    )


@check("corpora/trajectories", blocking=True)
def separate_tasks(corpus: Corpus) -> Verdict:
    """No task is there under several ids, by its instruction or by copies of its runs.

    It holds too where the owner says why they are separate tasks.
    """
    about = asdict(corpus.task_overlap())
    try:
        said = corpus.require_separate_tasks() or "every task has its own instruction and runs"
    except IntegrityError as error:
        return Verdict("ERROR", str(error), about)
    return Verdict("PASS", said, about)


def corpus_checks() -> list[dg.AssetChecksDefinition]:
    """Return every check of this domain."""
    return [trajectory_quality, split_quality, separate_tasks, no_structural_leak]


def _evaluated(
    data_root: DataRoot, corpus: str, *, stored_splits: bool
) -> tuple[dict[str, "QualityResult"], str]:
    """Run the suites and write their Data Docs: an asset that a failed check blocks would not."""
    opened = Corpus(data_root.view(), corpus)
    report = opened.quality_report(stored_splits=stored_splits)
    docs = write_data_docs(opened, report)
    return {result.name: result for result in report.results}, docs


def _check_result(result: "QualityResult", asset: dg.AssetKey, docs: str) -> dg.AssetCheckResult:
    severity = (
        dg.AssetCheckSeverity.ERROR if result.severity == "error" else dg.AssetCheckSeverity.WARN
    )
    return dg.AssetCheckResult(
        check_name=result.name,
        asset_key=asset,
        passed=result.passed,
        severity=severity,
        description=as_sentence(result.detail),
        metadata={"data_docs": dg.MetadataValue.path(docs)},
    )
