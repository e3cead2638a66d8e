"""CertHarvest as assets: rounds whose adapter is skipped where the gate is closed, and the study of harvests of one corpus."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.judges.training import (
    POOL,
    adapter_artifacts,
    attempted,
    machine_tags,
    progress_lines,
)
from certify_assets.defs.names import OWNERS, RESEARCH_GROUP, judge_group, judge_key, key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.errors import GateClosedError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import HARVEST_JUDGES, JudgeSpec

__all__ = ["harvest_adapter", "harvest_assets", "harvest_checks"]


def harvest_adapter(spec: JudgeSpec) -> dg.AssetsDefinition:
    """Return the adapter of a round; a closed gate leaves it and what follows skipped, with the reason observed on it."""
    start = [judge_key(spec.start, name) for name in ("model", "scores")]

    @dg.asset(
        name="model",
        key_prefix=["judges", spec.name],
        group_name=judge_group(spec),
        deps=[
            *start,
            *(
                key(f"corpora/{name}")
                for name in ("sft_split", "rl_split", "cal_split", "split_manifest")
            ),
        ],
        partitions_def=corpora_partitions,
        output_required=False,
        owners=OWNERS,
        kinds=set(spec.libraries),
        pool=POOL if spec.uses_language_model else None,
        op_tags=machine_tags(spec.model) if spec.uses_language_model else None,
        code_version="1",
        description=f"{spec.summary} Skipped, with the reason, where half A certifies nothing.",
    )
    def adapter(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> Iterator[Any]:
        store = data_root.store()
        try:
            with attempted(context):
                record = JudgedCorpus(Corpus(store, context.partition_key), spec.name).train(
                    report=progress_lines(context),
                )
        except GateClosedError as closed:
            context.log.warning(str(closed))
            context.log_event(
                dg.AssetObservation(
                    context.asset_key,
                    partition=context.partition_key,
                    metadata={"gate_closed": str(closed)},
                )
            )
            return
        told = store.read_json(f"judges/{spec.name}/{context.partition_key}/contamination.json")
        figures = {
            "harvested": told["size"],
            "pool": told["pool"],
            "contamination": told["contamination"],
        }
        tags = {"adapter_sha256": record.adapter_sha256}
        with adapter_artifacts(
            JudgedCorpus.of(Corpus(store, context.partition_key), spec), record
        ) as kept:
            recorded = mlflow.record(context, store, metrics=figures, tags=tags, **kept)
        yield dg.MaterializeResult(
            metadata={
                **figures,
                "sft_trajectories": record.sft_trajectories,
                "sha256": record.adapter_sha256,
                **recorded,
            },
            data_version=dg.DataVersion(record.adapter_sha256),
        )

    return adapter


@dg.asset(
    deps=[key(f"corpora/{name}") for name in ("trajectories", "split_manifest", "leak_controls")],
    key_prefix="research",
    partitions_def=corpora_partitions,
    group_name=RESEARCH_GROUP,
    owners=OWNERS,
    kinds={"json"},
    code_version="1",
    description=(
        "Every harvest of the lexical judge side by side: three gates, both budgets and sides, both split profiles, two rounds; with labels spent on "
        "training instead, cuts without a certificate, contamination by the withheld labels, and how far each harvest is from its pool."
    ),
)
def harvests(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Run the study of harvests of one corpus."""
    from certify_assets.reports.harvest_table import harvest_markdown
    from certify_assets.research.harvest_study import run_harvests

    store = data_root.store()
    document = run_harvests(
        Corpus(store, context.partition_key), run_id=context.run.run_id, say=context.log.info
    )
    counts = {
        name: document[name]
        for name in ("harvests", "within_budget", "beyond_chance", "gates_closed")
    }
    return dg.MaterializeResult(
        metadata={
            "table": dg.MetadataValue.md(harvest_markdown(document)),
            **counts,
            **mlflow.record(context, store, metrics=counts),
        }
    )


@dg.asset_check(
    asset=key("research/harvests"),
    partitions_def=corpora_partitions,
    description="No harvest is wrong beyond its budget by more than chance, measured by the labels that were withheld from it.",
)
def harvests_within_budget(
    context: dg.AssetCheckExecutionContext, data_root: DataRoot
) -> dg.AssetCheckResult:
    """Read the stored study."""
    document = data_root.store().read_json(f"harvests/{context.partition_key}/lexical.json")
    return dg.AssetCheckResult(
        passed=not document["beyond_chance"],
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{document['within_budget']} of {document['harvests']} harvests within budget, {document['beyond_chance']} above it beyond chance.",
    )


def harvest_assets() -> list[dg.AssetsDefinition]:
    """Return what is not part of a judge's chain."""
    return [harvests]


def harvest_checks() -> list[dg.AssetChecksDefinition]:
    """Return the blocking check of every round, and that of the study."""
    return [harvests_within_budget, *(_stays_out(name) for name in HARVEST_JUDGES)]


def _stays_out(judge: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=judge_key(judge, "model"),
        name="pseudo_labels_stay_out",
        blocking=True,
        partitions_def=corpora_partitions,
        description="No harvested run is of a task of CAL or TEST, and the harvest is the one that the adapter was trained on.",
    )
    def pseudo_labels_stay_out(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> dg.AssetCheckResult:
        from certify_assets.judges.families.harvest import harvest_violations

        found = harvest_violations(
            JudgedCorpus(Corpus(data_root.store(), context.partition_key), judge)
        )
        return dg.AssetCheckResult(
            passed=not found,
            severity=dg.AssetCheckSeverity.ERROR,
            description=found[0]
            if found
            else "no pseudo-label is of a task that certifies or audits.",
        )

    return pseudo_labels_stay_out
