"""The people's side of operation as assets: the queue of what is asked, the labels that came back, and whether reviewers agree."""

from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.metadata import column_lineage, table_metadata
from certify_assets.defs.names import OPERATIONS_GROUP, OWNERS, key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.operations.labels import label_table, write_label_table
from certify_assets.operations.review_queue import KINDS, load_queue
from certify_assets.reports import review_page

__all__ = ["review_assets", "review_checks"]

DECISIONS = key("operations/decisions")

# of the runs that two people labelled: a tenth in dispute is worth a look at the instructions, a quarter is no ground truth
_WARN, _ERROR = 0.10, 0.25


class ReviewCosts(dg.Config):
    """What labelling takes, as assumed, and how often two people are asked.

    Parameters
    ----------
    minutes_per_run : float
        What a label takes a person.
    double : float
        Share of the runs that two people are asked about.
    """

    minutes_per_run: float = 4.0
    double: float = 0.0


@dg.asset(
    deps=[DECISIONS],
    partitions_def=corpora_partitions,
    key_prefix="operations",
    group_name=OPERATIONS_GROUP,
    owners=OWNERS,
    kinds={"parquet", "html"},
    code_version="1",
    description=(
        "The runs that people are asked about and nobody has labelled, the most needed first: the audit sample by whole tasks, spot checks, then what the "
        "judge left undecided; a table, and a page with the budget. `certify review` serves the page on which they are labelled."
    ),
)
def review_queue(
    context: dg.AssetExecutionContext,
    config: ReviewCosts,
    data_root: DataRoot,
    mlflow: MlflowTracker,
) -> dg.MaterializeResult[Any]:
    """Write table and page of the queue."""
    store, corpus = data_root.store(), context.partition_key
    made = load_queue(
        Corpus(store, corpus), minutes_per_run=config.minutes_per_run, double=config.double
    )
    page = review_page.write_queue_page(Corpus(store, corpus), made)
    counts = {f"{kind.kind}_labels": kind.labels for kind in made.budget.kinds} | {
        "saved_runs": made.budget.saved
    }
    hours = {
        "hours": round(made.budget.minutes / 60, 2),
        "saved_hours": round(made.budget.saved_minutes / 60, 2),
    }
    lineage = column_lineage(
        {
            name: [(DECISIONS, name)]
            for name in (
                "trajectory_id",
                "task_id",
                "batch",
                "attempt",
                "agent",
                "score",
                "decision",
            )
        }
    )
    return dg.MaterializeResult(
        metadata={
            **table_metadata(made.frame),
            **lineage,
            "page": dg.MetadataValue.path(page),
            "budget": dg.MetadataValue.md(review_page.budget_markdown(made.budget)),
            **counts,
            **hours,
            **mlflow.record(
                context, store, params=config.model_dump(), metrics={**counts, **hours}
            ),
        }
    )


@dg.asset(
    deps=[review_queue, DECISIONS],
    partitions_def=corpora_partitions,
    key_prefix="operations",
    group_name=OPERATIONS_GROUP,
    owners=OWNERS,
    kinds={"parquet"},
    code_version="1",
    description=(
        "What people said, from the journal that the page and label files write: one row a run with the majority's outcome, every vote, and why the run was "
        "asked about. Only rows of the audit sample and of spot checks say how often the judge errs."
    ),
)
def reviewed_labels(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Write the table of resolved labels."""
    store = data_root.store()
    made = write_label_table(Corpus(store, context.partition_key))
    figures = {name: value for name, value in made.figures().items() if value is not None}
    by_kind = {f"labelled_{kind}": int((made.frame["asked"] == kind).sum()) for kind in KINDS}
    lineage = column_lineage(
        {
            name: [(DECISIONS, name)]
            for name in ("trajectory_id", "task_id", "batch", "asked", "decision")
        }
    )
    recorded = mlflow.record(context, store, metrics={**figures, **by_kind})
    return dg.MaterializeResult(
        metadata={**table_metadata(made.frame), **lineage, **figures, **by_kind, **recorded}
    )


@dg.asset_check(
    asset=reviewed_labels,
    partitions_def=corpora_partitions,
    description="Of the runs that two people labelled they differ on at most 10 %; ERROR above 25 %; WARN too where nobody was asked twice.",
)
def reviewers_agree(
    context: dg.AssetCheckExecutionContext, data_root: DataRoot
) -> dg.AssetCheckResult:
    """Compare the share in dispute with what is bearable."""
    made = label_table(Corpus(data_root.store(), context.partition_key))
    share = made.disagreement
    told = (
        "no run was labelled by two people, so it is not known whether they agree."
        if share is None
        else made.sentence()
    )
    return dg.AssetCheckResult(
        passed=share is not None and share <= _WARN,
        severity=dg.AssetCheckSeverity.ERROR
        if share is not None and share > _ERROR
        else dg.AssetCheckSeverity.WARN,
        description=told,
        metadata={"doubly": made.doubly},
    )


@dg.asset_check(
    asset=reviewed_labels,
    partitions_def=corpora_partitions,
    description="Every label is of a run that was decided: ERROR where a batch is gone that people labelled.",
)
def labels_of_known_runs(
    context: dg.AssetCheckExecutionContext, data_root: DataRoot
) -> dg.AssetCheckResult:
    """Count labels without a decision."""
    unknown = label_table(Corpus(data_root.store(), context.partition_key)).unknown
    told = (
        f"{len(unknown)} labelled runs are in no decided batch, such as {unknown[0]!a}; restore the batch."
        if unknown
        else "all are known."
    )
    return dg.AssetCheckResult(
        passed=not unknown,
        severity=dg.AssetCheckSeverity.ERROR,
        description=told,
        metadata={"unknown": len(unknown)},
    )


def review_assets() -> list[dg.AssetsDefinition]:
    """Return the queue and the labels."""
    return [review_queue, reviewed_labels]


def review_checks() -> list[dg.AssetChecksDefinition]:
    """Return the checks of the labels."""
    return [reviewers_agree, labels_of_known_runs]
