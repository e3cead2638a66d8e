"""Judges side by side as assets: the comparison of a corpus, its judges on unseen agents, and the main table over all corpora; with their checks."""

from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import CORPORA_GROUP, OWNERS, RESEARCH_GROUP, judge_key, key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.evaluation import agent_folds, comparison
from certify_assets.evaluation.comparison import write_main_table
from certify_assets.judges.specs import JUDGES, judges
from certify_assets.reports import comparison_page

__all__ = ["comparison_assets", "comparison_checks"]

_COMMON: dict[str, Any] = {
    "owners": OWNERS,
    "code_version": "1",
    "kinds": {"json", "html"},
}


class AgentFoldsConfig(dg.Config):
    """What is trained without some agents.

    Parameters
    ----------
    judges : list of str
        Judges that are trained on SFT; those that have not scored the corpus are passed over. A language model trains once a fold, minutes each.
    folds : int
        Groups of agents, 2 to 4.
    seed : int
        Of the groups.
    """

    judges: list[str] = ["lexical"]  # noqa: RUF012 - a pydantic field, copied for every instance
    folds: int = 4
    seed: int = 42


def comparison_assets() -> list[dg.AssetsDefinition]:
    """Return the assets of this domain; the comparison comes after the judges of the user's document too."""
    added = [
        dg.AssetDep(judge_key(name, part))
        for name in judges()
        if name not in JUDGES
        for part in ("certificate", "audit")
    ]
    compared = comparison_of_judges.map_asset_specs(lambda spec: spec.merge_attributes(deps=added))
    return [agent_disjoint, compared, main_table_of_judges]


def comparison_checks() -> list[dg.AssetChecksDefinition]:
    """Return their checks."""
    return [beats_controls, same_rows]


@dg.asset(
    key_prefix="corpora",
    group_name=CORPORA_GROUP,
    partitions_def=corpora_partitions,
    deps=[judge_key(name, "scores") for name in agent_folds.fold_judges()]
    + [key("corpora/sft_split"), key("corpora/cal_split")],
    description=(
        "Does a judge work on runs of agents it has never seen? Trained on the SFT runs of some agents, read on CAL runs of the others, beside the judge "
        "trained on all, on the same rows."
    ),
    **_COMMON | {"kinds": {"json"}},
)
def agent_disjoint(
    context: dg.AssetExecutionContext,
    config: AgentFoldsConfig,
    data_root: DataRoot,
    mlflow: MlflowTracker,
) -> dg.MaterializeResult[Any]:
    """Evaluate the judges that are there; what is missing is said."""
    store, corpus = data_root.store(), context.partition_key
    found, left_out = agent_folds.evaluate_scored(
        Corpus(store, corpus), config.judges, folds=config.folds, seed=config.seed
    )
    metrics = {f"unseen_{item['judge']}": item["disjoint"]["auroc"]["value"] for item in found}
    return dg.MaterializeResult(
        metadata={
            "unseen_agents": dg.MetadataValue.md(comparison_page.folds_markdown(found)),
            "said": dg.MetadataValue.text(
                " ".join(item["sentence"] for item in found)
                or "no judge that trains on SFT has scored this corpus."
            ),
            **{name: value for name, value in metrics.items() if value is not None},
            "left_out": dg.MetadataValue.json(left_out),
            **mlflow.record(
                context, store, params={"folds": config.folds, "seed": config.seed}, metrics=metrics
            ),
        }
    )


@dg.asset(
    name="comparison",
    key_prefix="corpora",
    group_name=CORPORA_GROUP,
    partitions_def=corpora_partitions,
    deps=[judge_key(name, part) for name in judges() for part in ("certificate", "audit")]
    + [key("corpora/agent_disjoint"), key("corpora/leak_controls")],
    description=(
        "Every judge that scored the corpus beside the leak controls: AUROC and its interval, within tasks too, certified coverage, audit, cost; which is "
        "best at what, and what does not help. Judges that are not there are named, not waited for."
    ),
    **_COMMON,
)
def comparison_of_judges(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Compare what stands in the data root."""
    store, corpus = data_root.store(), context.partition_key
    document = comparison.write_comparison(Corpus(store, corpus))
    page, metrics = (
        comparison_page.render_comparison([document]),
        comparison_page.comparison_metrics(document),
    )
    return dg.MaterializeResult(
        metadata={
            "judges": dg.MetadataValue.md(comparison_page.comparison_markdown(document)),
            "findings": dg.MetadataValue.json([item["message"] for item in document["findings"]]),
            "missing": dg.MetadataValue.json(document["missing"]),
            **comparison_page.plotted(metrics),
            "page": dg.MetadataValue.path(
                comparison_page.write_comparison_page(store, page, corpus)
            ),
            **mlflow.record(context, store, metrics=metrics, documents={"comparison.html": page}),
        }
    )


@dg.asset(
    name="main_table",
    key_prefix="research",
    group_name=RESEARCH_GROUP,
    # every partition: the table is over all corpora
    deps=[key("corpora/comparison")],
    description="Every judge on every corpus of the data root: AUROC, certified coverage at both budgets, audit, cost; as page, CSV, Markdown and LaTeX.",
    **_COMMON,
)
def main_table_of_judges(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Compare every corpus anew, so that the table is of what stands in the data root now."""
    store = data_root.store()
    document = write_main_table(store)
    page = comparison_page.render_comparison(document["corpora"], document["left_out"])
    comparison_page.write_main_exports(store, document["corpora"])
    return dg.MaterializeResult(
        metadata={
            "corpora": dg.MetadataValue.md(comparison_page.table_markdown(document["corpora"])),
            "rows": sum(len(item["rows"]) for item in document["corpora"]),
            "left_out": dg.MetadataValue.json(document["left_out"]),
            "page": dg.MetadataValue.path(comparison_page.write_comparison_page(store, page)),
            **mlflow.record(context, store, documents={"main_table.html": page}),
        }
    )


@dg.asset_check(
    asset=key("corpora/comparison"),
    partitions_def=corpora_partitions,
    description="Every language-model judge ranks better than length alone and agent alone, its interval above both: one that does not has learnt a leak.",
)
def beats_controls(
    context: dg.AssetCheckExecutionContext, data_root: DataRoot
) -> dg.AssetCheckResult:
    """Read the stored comparison."""
    document = data_root.store().read_json(comparison.comparison_key(context.partition_key))
    said = comparison.beaten_by_controls(document)
    read = comparison.readers(document)
    return dg.AssetCheckResult(
        passed=not said,
        severity=dg.AssetCheckSeverity.WARN,
        description=" ".join(said)
        or (
            f"{', '.join(read)}: above both."
            if read
            else "no language-model judge has scored this corpus."
        ),
    )


@dg.asset_check(
    asset=key("corpora/comparison"),
    partitions_def=corpora_partitions,
    description="All judges scored the same labelled CAL rows, all of them.",
)
def same_rows(context: dg.AssetCheckExecutionContext, data_root: DataRoot) -> dg.AssetCheckResult:
    """Read the stored comparison."""
    document = data_root.store().read_json(comparison.comparison_key(context.partition_key))
    said = comparison.other_rows(document)
    return dg.AssetCheckResult(
        passed=not said,
        severity=dg.AssetCheckSeverity.WARN,
        description=" ".join(said)
        or f"{document['cal']['trajectories']} rows, scored by every judge.",
    )
