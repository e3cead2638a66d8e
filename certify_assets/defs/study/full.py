"""The study as assets: validity over split seeds and procedures on real scores, a partition a corpus, and the site over all of them."""

from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import OWNERS, RESEARCH_GROUP, judge_key, key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.judges.specs import JUDGES

__all__ = ["full_study_assets", "study_tables_job"]


class SeedConfig(dg.Config):
    """What is drawn.

    Parameters
    ----------
    seeds : int
        Split seeds, from 42 on.
    """

    seeds: int = 20


def full_study_assets() -> list[dg.AssetsDefinition]:
    """Return the assets of this domain."""
    return [seed_study, real_scores, study_report]


@dg.asset(
    partitions_def=corpora_partitions,
    deps=[key(f"corpora/{name}") for name in ("trajectories", "split_manifest", "leak_controls")],
    kinds={"json"},
    description=(
        "The corpus split, judged, certified and audited anew for every seed: how often each procedure issued a certificate, and how often that was true on "
        "TEST. Registered before TEST is read; a killed study goes on."
    ),
    key_prefix="research",
    group_name=RESEARCH_GROUP,
    owners=OWNERS,
    code_version="1",
)
def seed_study(
    context: dg.AssetExecutionContext,
    config: SeedConfig,
    data_root: DataRoot,
    mlflow: MlflowTracker,
) -> dg.MaterializeResult[Any]:
    """Run the lexical judge over split seeds."""
    from certify_assets.research.pages.study_site import seeds_metrics
    from certify_assets.research.seed_study import SeedPlan, run_seeds

    plan = SeedPlan(seeds=tuple(range(42, 42 + config.seeds)))
    document = run_seeds(
        Corpus(data_root.store(), context.partition_key),
        plan,
        run_id=context.run.run_id,
        say=context.log.info,
    )
    metrics = seeds_metrics(document)
    return dg.MaterializeResult(
        metadata={
            **metrics,
            **mlflow.record(
                context, data_root.store(), params=config.model_dump(), metrics=metrics
            ),
        }
    )


@dg.asset(
    partitions_def=corpora_partitions,
    deps=[judge_key(name, "audit") for name in JUDGES],
    kinds={"json"},
    description=(
        "Nine procedures on the scores of every audited judge, on CAL and on TEST's own, with the task-resampling audit of the naive one and the three gates. "
        "Judges that are not there are passed over."
    ),
    key_prefix="research",
    group_name=RESEARCH_GROUP,
    owners=OWNERS,
    code_version="1",
)
def real_scores(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Run every procedure on real scores."""
    from certify_assets.research.real_scores import write_real_scores

    document = write_real_scores(
        Corpus(data_root.store(), context.partition_key), run_id=context.run.run_id
    )
    metrics = {
        f"auroc_test_{item['judge']}": item["auroc_test"]
        for item in document["judges"]
        if item["auroc_test"] is not None
    }
    metadata = {
        "judges": len(document["judges"]),
        "missing": dg.MetadataValue.json(document["missing"]),
        **metrics,
    }
    return dg.MaterializeResult(
        metadata={**metadata, **mlflow.record(context, data_root.store(), metrics=metrics)}
    )


@dg.asset(
    name="report",
    # every partition of what has one: the report is over all corpora
    deps=[
        *(
            key(f"research/{name}")
            for name in (
                "study_run",
                "seed_study",
                "real_scores",
                "harvests",
                "main_table",
                "certifiability",
                "simulation",
            )
        ),
        key("corpora/comparison"),
        key("corpora/agent_disjoint"),
    ],
    kinds={"html"},
    description="Every table of the paper with ours beside it, as a site that opens from disk and as Markdown, LaTeX and CSV; what was not run says so.",
    key_prefix="research",
    group_name=RESEARCH_GROUP,
    owners=OWNERS,
    code_version="1",
)
def study_report(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Draw the site from the stored documents."""
    from certify_assets.research.pages import study_site

    store = data_root.store()
    location = study_site.write_study_site(store)
    blocks = [block for found in study_site.study_tables(store).values() for block in found]
    counts = {"tables": len(blocks), "not_run": sum(len(block.missing) for block in blocks)}
    page = store.read_bytes(f"{study_site.SITE}/index.html").decode("utf-8")
    return dg.MaterializeResult(
        metadata={
            **counts,
            "page": dg.MetadataValue.path(location),
            **mlflow.record(context, store, metrics=counts, documents={"study.html": page}),
        }
    )


study_tables_job = dg.define_asset_job(
    "research_tables",
    selection=dg.AssetSelection.assets(
        *(
            key(f"research/{name}")
            for name in ("main_table", "certifiability", "simulation", "report")
        )
    ),
    description="The tables over all corpora, and the site: the job research_study runs what stands before them as well.",
)
