"""The adapter of a transfer judge: trained on every other partition's SFT split, skipped with the reason where there is none to train on."""

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
from certify_assets.defs.names import OWNERS, judge_group, judge_key, key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.judges.families.transfer import no_sources
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.specs import JudgeSpec
from certify_assets.judges.transfer import describe_sources
from certify_assets.storage.store import Store

__all__ = ["transfer_adapter"]


def transfer_adapter(spec: JudgeSpec) -> dg.AssetsDefinition:
    """Return the adapter asset of a transfer judge, with the check that warns where it has no source."""
    everywhere = dg.AllPartitionMapping()
    check = dg.AssetCheckSpec(
        "has_sources",
        asset=judge_key(spec.name, "model"),
        partitions_def=corpora_partitions,
        description="Other corpora are there to train on; WARN with the reason where none is, and the judge is skipped.",
    )

    @dg.asset(
        name="model",
        key_prefix=["judges", spec.name],
        group_name=judge_group(spec),
        partitions_def=corpora_partitions,
        owners=OWNERS,
        kinds=set(spec.libraries),
        code_version="1",
        deps=[
            dg.AssetDep(key("corpora/sft_split"), partition_mapping=everywhere),
            # every source's, and the target's own with its CAL and TEST, whose tasks no row may share
            dg.AssetDep(key("corpora/split_manifest"), partition_mapping=everywhere),
            key("corpora/cal_split"),
            key("corpora/test_split"),
        ],
        check_specs=[check],
        pool=POOL if spec.uses_language_model else None,
        op_tags=machine_tags(spec.model) if spec.uses_language_model else None,
        output_required=False,
        description=f"{spec.summary} Of its own partition it reads tasks and instructions of CAL and TEST, to leave them out, and no SFT row.",
    )
    def adapter(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> Iterator[Any]:
        store, corpus = data_root.store(), context.partition_key
        missing = no_sources(JudgedCorpus.of(Corpus(store, corpus), spec))
        if missing:
            context.log.warning(f"{spec.name} is skipped: {missing}")
            yield _checked(spec, passed=False, description=missing)
            return
        with attempted(context):
            record = JudgedCorpus(Corpus(store, corpus), spec.name).train(
                report=progress_lines(context)
            )
        yield dg.MaterializeResult(
            asset_key=judge_key(spec.name, "model"),
            metadata=_metadata(context, mlflow, record, store, spec),
            data_version=dg.DataVersion(record.adapter_sha256),
        )
        yield _checked(spec, passed=True, description=describe_sources(record.detail("transfer")))

    return adapter


def _checked(spec: JudgeSpec, *, passed: bool, description: str) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=judge_key(spec.name, "model"),
        check_name="has_sources",
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN,
        description=description,
    )


def _metadata(
    context: dg.AssetExecutionContext,
    mlflow: MlflowTracker,
    record: JudgeRecord,
    store: Store,
    spec: JudgeSpec,
) -> dict[str, Any]:
    params: dict[str, Any] = {
        name: value
        for name in ("success_weight", "sft_trajectories", "sft_tasks", "seed")
        if (value := getattr(record, name)) is not None
    }
    sources = {item["corpus"]: item["rows"] for item in record.detail("transfer")["sources"]}
    tags = {
        "adapter_sha256": record.adapter_sha256,
        "training_sources": describe_sources(record.detail("transfer")),
    }
    kept_params = {**params, **{f"rows_{name}": rows for name, rows in sources.items()}}
    with adapter_artifacts(
        JudgedCorpus.of(Corpus(store, context.partition_key), spec), record
    ) as kept:
        recorded = mlflow.record(context, store, params=kept_params, tags=tags, **kept)
    return {
        **params,
        "sha256": record.adapter_sha256,
        "sources": dg.MetadataValue.json(record.detail("transfer")["sources"]),
        "left_out": dg.MetadataValue.json(record.detail("transfer")["left_out"]),
        **recorded,
    }
