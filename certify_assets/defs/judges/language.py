"""Adapter and scores of a language-model judge: graphs of ops, those that need the device in its pool."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.judges.arms import arm_events
from certify_assets.defs.judges.training import POOL, attempted, machine_tags, progress_lines
from certify_assets.defs.metadata import score_metadata
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm import lineage
from certify_assets.judges.specs import JudgeSpec

__all__ = ["language_adapter", "language_scores"]

Dep = dg.AssetKey | dg.AssetDep


def language_adapter(spec: JudgeSpec, deps: Sequence[Dep], **about: Any) -> dg.AssetsDefinition:
    """Return the adapter of a judge: prepare → train → register."""
    prepare, train, register = _prepare(spec, deps), _train(spec), _register(spec)

    @dg.graph_asset(ins=_ins(deps), **about)
    def model(**upstream: Any) -> Any:
        return register.alias("register")(
            train.alias("train")(prepare.alias("prepare")(**upstream))
        )

    return model


def language_scores(spec: JudgeSpec, deps: Sequence[Dep], **about: Any) -> dg.AssetsDefinition:
    """Return the scores of a judge: score → record."""
    score, record = _score(spec, deps), _record(spec)

    @dg.graph_asset(ins=_ins(deps), **about)
    def scores(**upstream: Any) -> Any:
        return record.alias("record")(score.alias("score")(**upstream))

    return scores


def _name(dep: Dep) -> str:
    return (dep.asset_key if isinstance(dep, dg.AssetDep) else dep).to_python_identifier()


def _ins(deps: Sequence[Dep]) -> dict[str, dg.AssetIn]:
    # what an op reads it reads from the data root: between ops and assets nothing is handed on, so nothing is pickled
    return {_name(dep): _in(dep) for dep in deps}


def _in(dep: Dep) -> dg.AssetIn:
    if isinstance(dep, dg.AssetDep):
        return dg.AssetIn(
            key=dep.asset_key, dagster_type=dg.Nothing, partition_mapping=dep.partition_mapping
        )
    return dg.AssetIn(key=dep, dagster_type=dg.Nothing)


def _nothing(deps: Sequence[Dep]) -> dict[str, dg.In]:
    return {_name(dep): dg.In(dg.Nothing) for dep in deps}


def _prepare(spec: JudgeSpec, deps: Sequence[Dep]) -> dg.OpDefinition:
    @dg.op(
        name=f"{spec.name}__model__prepare",
        ins=_nothing(deps),
        out=dg.Out(dg.Nothing),
        description="Splits, start and base model are what they say they are; what is wrong is said before the device is waited for.",
    )
    def prepare(context: dg.OpExecutionContext, data_root: DataRoot) -> None:
        facts = lineage.check_prepared(
            JudgedCorpus(Corpus(data_root.store(), context.partition_key), spec.name)
        )
        context.log.info(", ".join(f"{name} {value}" for name, value in facts.items()))

    return prepare


def _train(spec: JudgeSpec) -> dg.OpDefinition:
    @dg.op(
        name=f"{spec.name}__model__train",
        ins={"prepared": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        pool=POOL,
        tags=machine_tags(spec.model),
        description=f"{spec.summary} Goes on from its checkpoints.",
    )
    def train(context: dg.OpExecutionContext, data_root: DataRoot) -> None:
        with attempted(context):
            JudgedCorpus(Corpus(data_root.store(), context.partition_key), spec.name).train(
                report=progress_lines(context),
            )

    return train


def _register(spec: JudgeSpec) -> dg.OpDefinition:
    @dg.op(
        name=f"{spec.name}__model__register",
        ins={"trained": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        description="The adapter in MLflow as safetensors, with its settings, its loss and the run that it started from.",
    )
    def register(
        context: dg.OpExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[None]:
        store, corpus = data_root.store(), context.partition_key
        judge = JudgedCorpus(Corpus(store, corpus), spec.name)
        record = judge.stored_artifact
        params, tags = lineage.adapter_params(record), lineage.adapter_tags(record)
        selection = {f"coverage_{row['name']}": float(row["coverage"]) for row in record.selection}
        start = mlflow.find(context, store, lineage.start_tags(record))
        with judge.artifact_files() as folder:
            recorded = mlflow.record(
                context,
                store,
                params=params,
                metrics=selection,
                tags=tags | ({lineage.START_RUN: start} if start else {}),
                curves=lineage.adapter_curves(record),
                files=lineage.adapter_files(folder),
            )
        shown: dict[str, Any] = {
            name: params[name]
            for name in ("candidates", "chosen", "sft_trajectories", "sft_tasks", "seed")
            if name in params
        }
        about: dict[str, Any] = {
            **shown,
            **selection,
            "sha256": record.adapter_sha256,
            "base_revision": tags["certify.base_revision"],
        }
        for made in arm_events(context.instance, spec, record):
            context.log_event(made)
        version = dg.DataVersion(record.adapter_sha256)
        return dg.MaterializeResult(
            metadata={**about, **recorded}, data_version=version, value=None
        )

    return register


def _score(spec: JudgeSpec, deps: Sequence[Dep]) -> dg.OpDefinition:
    @dg.op(
        name=f"{spec.name}__scores__score",
        ins=_nothing(deps),
        out=dg.Out(dg.Nothing),
        pool=POOL,
        tags=machine_tags(spec.model),
        description="Scores RL, CAL and TEST; goes on from the shares that a killed run left.",
    )
    def score(context: dg.OpExecutionContext, data_root: DataRoot) -> None:
        with attempted(context):
            JudgedCorpus(Corpus(data_root.store(), context.partition_key), spec.name).score(
                report=progress_lines(context),
            )

    return score


def _record(spec: JudgeSpec) -> dg.OpDefinition:
    @dg.op(
        name=f"{spec.name}__scores__record",
        ins={"scored": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        description="Counts, schema and column lineage of the score table.",
    )
    def record(
        context: dg.OpExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[None]:
        store = data_root.store()
        about, counts = score_metadata(
            store.read_table(f"judges/{spec.name}/{context.partition_key}/scores.parquet")
        )
        return dg.MaterializeResult(
            metadata={**about, **mlflow.record(context, store, metrics=counts)}, value=None
        )

    return record
