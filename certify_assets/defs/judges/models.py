"""The model of a judge: trained in this step, as a graph of ops in the pool, or registered."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypedDict

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.defs.assets import (
    AssetStep,
    Made,
    Metadata,
    asset,
    judge_asset,
    score_metadata,
    writing,
)
from certify_assets.defs.corpora.assets import skip
from certify_assets.defs.judges.training import adapter_artifacts, attempted, progress_lines
from certify_assets.defs.names import LM_GROUP, corpora_partitions, judge_key, key
from certify_assets.defs.pool import POOL, machine_tags, on_device
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.errors import GateClosedError
from certify_assets.evaluation.judge_results import Figures, scoring_figures, training_figures
from certify_assets.judges.families.transfer import no_sources
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm import lineage
from certify_assets.judges.lm.compact import shipped as compact
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.specs import JudgeSpec
from certify_assets.judges.transfer import PoolRecord

Dep = dg.AssetKey | dg.AssetDep
_SHOWN = ("success_weight", "candidates", "sft_trajectories", "sft_tasks", "seed")


def judge_model(spec: JudgeSpec) -> dg.AssetsDefinition:
    """Return the model asset of a judge."""
    if spec.needs_other_corpora:
        return _transfer_model(spec)
    if spec.gated:
        return _harvest_model(spec)
    if spec.hosted:
        described = f"{spec.summary} Its registration: what the server says of itself, hashes of "
        return _plain_model(spec, ["split_manifest"], described + "prompt and settings.")
    # a judge with several candidates is picked on CAL: the lineage shows that it has seen it
    deps = ["sft_split", "split_manifest", *(["cal_split"] if spec.chooses else [])]
    described = f"{spec.summary} Saved without pickle."
    if not spec.uses_language_model:
        return _plain_model(spec, deps, described)
    before = spec.upstream
    keys = [key(f"corpora/{name}") for name in (*deps, *(["rl_split"] if spec.start else []))]
    keys += [judge_key(before, "model")] if before else []
    keys += [key("judges/compact_model")] if spec.reads_compact else []
    return _language_model(spec, keys, described)


def _plain_model(spec: JudgeSpec, deps: Sequence[str], described: str) -> dg.AssetsDefinition:
    @judge_asset(
        spec,
        "model",
        *spec.libraries,
        deps=[key(f"corpora/{name}") for name in deps],
        description=described,
    )
    def model(step: AssetStep) -> Made:
        judge = step.judge(spec.name)
        record = judge.train()
        params, selection = _shown(record), _selection(record)
        tags = {"adapter_sha256": record.adapter_sha256}
        metadata = {**params, **selection, "sha256": record.adapter_sha256}
        return step.made(metadata, params=params, metrics=selection, tags=tags, **_trained(judge))

    return model


class _Trained(TypedDict):
    """What the summary of a judge says of its training."""

    figures: Figures
    reads: list[str]


def _trained(judge: JudgedCorpus) -> _Trained:
    return {"figures": training_figures(judge), "reads": list(judge.spec.training_splits)}


def _shown(record: JudgeRecord) -> dict[str, float]:
    found = {name: getattr(record, name) for name in _SHOWN}
    return {name: value for name, value in found.items() if value is not None}


def _selection(record: JudgeRecord) -> dict[str, float]:
    return {f"coverage_{row['name']}": float(row["coverage"]) for row in record.selection}


def _harvest_model(spec: JudgeSpec) -> dg.AssetsDefinition:
    """A round of CertHarvest; a closed gate leaves it and what follows skipped, with the reason."""
    splits = ("sft_split", "rl_split", "cal_split", "split_manifest")

    @judge_asset(
        spec,
        "model",
        *spec.libraries,
        deps=[judge_key(spec.start, name) for name in ("model", "scores")]
        + [key(f"corpora/{name}") for name in splits],
        output_required=False,
        **(on_device(spec.model) if spec.uses_language_model else {}),
        description=f"{spec.summary} Skipped, with the reason, where half A certifies nothing.",
    )
    def model(step: AssetStep) -> Iterator[Any]:
        judge = JudgedCorpus.of(step.corpus, spec)
        try:
            with attempted(step.context):
                record = judge.train(report=progress_lines(step.context))
        except GateClosedError as closed:
            skip(step, str(closed))
            return
        harvest = step.store.read_json(judge.key("contamination.json"))
        figures = {
            "harvested": harvest["size"],
            "pool": harvest["pool"],
            "contamination": harvest["contamination"],
        }
        about_it = {
            **figures,
            "sft_trajectories": record.sft_trajectories,
            "sha256": record.adapter_sha256,
        }
        tags = {"adapter_sha256": record.adapter_sha256}
        with adapter_artifacts(judge, record) as kept:
            yield step.made(about_it, metrics=figures, tags=tags, **_trained(judge), **kept)

    return model


def _transfer_model(spec: JudgeSpec) -> dg.AssetsDefinition:
    """A judge of every other partition's SFT split; skipped where there is none."""
    everywhere = dg.AllPartitionMapping()

    @judge_asset(
        spec,
        "model",
        *spec.libraries,
        deps=[
            dg.AssetDep(key("corpora/sft_split"), partition_mapping=everywhere),
            # every source's, and the target's own: no row may share a task with its CAL or TEST
            dg.AssetDep(key("corpora/split_manifest"), partition_mapping=everywhere),
            key("corpora/cal_split"),
            key("corpora/test_split"),
        ],
        check_specs=[
            dg.AssetCheckSpec(
                "has_sources",
                asset=judge_key(spec.name, "model"),
                partitions_def=corpora_partitions,
                description="Other corpora are there to train on; WARN with the reason where "
                "none is, and the judge is skipped.",
            )
        ],
        **(on_device(spec.model) if spec.uses_language_model else {}),
        output_required=False,
        description=f"{spec.summary} Of its own partition it reads tasks and instructions of CAL "
        "and TEST, to leave them out, and no SFT row.",
    )
    def model(step: AssetStep) -> Iterator[Any]:
        judge = JudgedCorpus.of(step.corpus, spec)
        if missing := no_sources(judge):
            skip(step, missing)
            yield _has_sources(spec, missing, passed=False)
            return
        with attempted(step.context):
            record = judge.train(report=progress_lines(step.context))
        yield _transferred(step, judge, record)
        yield _has_sources(spec, PoolRecord.of(record).describe(), passed=True)

    return model


def _has_sources(spec: JudgeSpec, description: str, *, passed: bool) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=judge_key(spec.name, "model"),
        check_name="has_sources",
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN,
        description=description,
    )


def _transferred(step: AssetStep, judge: JudgedCorpus, record: JudgeRecord) -> Made:
    pool = PoolRecord.of(record)
    params = {name: value for name, value in _shown(record).items() if name != "candidates"}
    rows = {f"rows_{item.corpus}": item.rows for item in pool.sources}
    tags = {
        "adapter_sha256": record.adapter_sha256,
        "training_sources": pool.describe(),
    }
    metadata = {
        **params,
        "sha256": record.adapter_sha256,
        "sources": dg.MetadataValue.json([asdict(item) for item in pool.sources]),
        "left_out": dg.MetadataValue.json(pool.left_out),
    }
    with adapter_artifacts(judge, record) as kept:
        return step.made(metadata, params={**params, **rows}, tags=tags, **_trained(judge), **kept)


def _language_model(spec: JudgeSpec, deps: Sequence[Dep], described: str) -> dg.AssetsDefinition:
    """A language model's adapter: prepare → train → register."""
    prepare, train, register = _prepare(spec, deps), _train(spec), _register(spec)

    @judge_asset(spec, "model", *spec.libraries, graph=True, ins=_ins(deps), description=described)
    def model(**upstream: Any) -> Any:
        return register.alias("register")(
            train.alias("train")(prepare.alias("prepare")(**upstream))
        )

    return model


def language_scores(spec: JudgeSpec, deps: Sequence[Dep], described: str) -> dg.AssetsDefinition:
    """Return the scores of a language model: score → record."""
    score, record = _score(spec, deps), _record(spec)

    @judge_asset(spec, "scores", "parquet", graph=True, ins=_ins(deps), description=described)
    def scores(**upstream: Any) -> Any:
        return record.alias("record")(score.alias("score")(**upstream))

    return scores


def _name(dep: Dep) -> str:
    return (dep.asset_key if isinstance(dep, dg.AssetDep) else dep).to_python_identifier()


def _ins(deps: Sequence[Dep]) -> dict[str, dg.AssetIn]:
    # an op reads from the data root: nothing is passed between ops, so nothing is pickled
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
        description="Verify splits, start and base model before the device is waited for.",
    )
    def prepare(context: dg.OpExecutionContext, data_root: DataRoot) -> None:
        judge = JudgedCorpus(Corpus(data_root.view(), context.partition_key), spec.name)
        facts = lineage.check_prepared(judge)
        context.log.info(", ".join(f"{name} {value}" for name, value in facts.items()))

    return prepare


def _on_machine(
    spec: JudgeSpec, name: str, ins: dict[str, dg.In], work: Callable[..., object], described: str
) -> dg.OpDefinition:
    """Return an op in the pool of the device that trains or scores."""

    @dg.op(
        name=f"{spec.name}__{name}",
        ins=ins,
        out=dg.Out(dg.Nothing),
        pool=POOL,
        tags=machine_tags(spec.model),
        description=described,
    )
    def op(context: dg.OpExecutionContext, data_root: DataRoot) -> None:
        judge = JudgedCorpus(Corpus(data_root.view(), context.partition_key), spec.name)
        with writing(context, data_root), attempted(context):
            work(judge, report=progress_lines(context))

    return op


def _train(spec: JudgeSpec) -> dg.OpDefinition:
    described = f"{spec.summary} Resumes from its checkpoints."
    ins = {"prepared": dg.In(dg.Nothing)}
    return _on_machine(spec, "model__train", ins, JudgedCorpus.train, described)


def _register(spec: JudgeSpec) -> dg.OpDefinition:
    @dg.op(
        name=f"{spec.name}__model__register",
        ins={"trained": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        description="Log the adapter to MLflow as safetensors, with its settings, its loss and "
        "the run that it started from.",
    )
    def register(
        context: dg.OpExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[None]:
        step = AssetStep(context, data_root, mlflow)
        judge = step.judge(spec.name)
        artifact = judge.stored_artifact
        params, tags = lineage.adapter_params(artifact), lineage.adapter_tags(artifact)
        selection = _selection(artifact)
        start = mlflow.find(context, step.store, lineage.start_tags(artifact, step.store.root))
        metadata = {
            **{name: params[name] for name in (*_SHOWN, "chosen") if name in params},
            **selection,
            "sha256": artifact.adapter_sha256,
            "base_revision": tags["certify.base_revision"],
        }
        with judge.artifact_files() as folder:
            return step.made(
                metadata,
                params=params,
                metrics=selection,
                tags=tags | ({lineage.START_RUN: start} if start else {}),
                curves=lineage.adapter_curves(artifact),
                files=lineage.adapter_files(folder),
                **_trained(judge),
            )

    return register


def _score(spec: JudgeSpec, deps: Sequence[Dep]) -> dg.OpDefinition:
    described = "Score RL, CAL and TEST; resumes from the shards that a killed run left."
    return _on_machine(spec, "scores__score", _nothing(deps), JudgedCorpus.score, described)


def _record(spec: JudgeSpec) -> dg.OpDefinition:
    @dg.op(
        name=f"{spec.name}__scores__record",
        ins={"scored": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        description="Report counts, schema and column lineage of the score table.",
    )
    def record(
        context: dg.OpExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[None]:
        step = AssetStep(context, data_root, mlflow)
        judge = step.judge(spec.name)
        scores = judge.score_table()
        metadata, counts = score_metadata(scores)
        return step.made(metadata, metrics=counts, figures=scoring_figures(judge, scores))

    return record


@asset(
    "judges",
    LM_GROUP,
    partitions_def=None,
    kinds={"safetensors"},
    **on_device("compact"),
    description="Verify the causal language model that comes with the package and that base, sft "
    "and grpo read: every file as its provenance says.",
)
def compact_model(step: AssetStep) -> Made:
    """Verify the shipped model."""
    found = compact.require_shipped()
    facts = found.provenance
    counts = {name: facts[name] for name in ("runs", "tokens")}
    metadata: Metadata = {
        "revision": found.revision,
        "parameters": found.parameters,
        **counts,
        **{
            name: dg.MetadataValue.json(facts[name])
            for name in ("settings", "versions", "pretraining_tasks")
        },
    }
    return step.made(
        metadata,
        version=found.revision,
        params={**facts["settings"], **counts},
        metrics={"parameters": found.parameters},
        tags={"certify.base_model": "compact", "certify.base_revision": found.revision},
        curves={"loss": [(point["step"], point["loss"]) for point in facts["loss_curve"]]},
        files={found.folder / name: "model" for name in ("provenance.json", "config.json")},
    )


@dg.asset_check(
    asset=key("judges/compact_model"),
    name="as_shipped",
    blocking=True,
    description="The hash of every file and the number of parameters are those of the provenance "
    "that came with the model.",
)
def as_shipped() -> dg.AssetCheckResult:
    """Compare hashes and count."""
    found = compact.shipped()
    return dg.AssetCheckResult(
        passed=not found.faults,
        severity=dg.AssetCheckSeverity.ERROR,
        description=" ".join(found.faults)
        or f"{len(found.files)} files and {found.parameters:,} parameters are as shipped.",
        metadata={"files": dg.MetadataValue.json(found.files)},
    )


@dg.asset_check(
    asset=key("judges/compact_model"),
    name="task_disjoint",
    blocking=True,
    description="No task that the model was pretrained on is in RL, CAL or TEST of an embedded "
    "corpus; the warning names others that share a task.",
)
def task_disjoint(data_root: DataRoot) -> dg.AssetCheckResult:
    """Compare the pretraining tasks with the splits of the data root."""
    common = compact.tasks_in_common(data_root.view())
    embedded = any(name in EMBEDDED for name in common)
    shared = "; ".join(
        f"{corpus}: {len(tasks)} tasks of RL, CAL and TEST ({', '.join(tasks[:5])})"
        for corpus, tasks in common.items()
    )
    return dg.AssetCheckResult(
        passed=not common,
        severity=dg.AssetCheckSeverity.ERROR if embedded else dg.AssetCheckSeverity.WARN,
        description=f"{shared}. What a judge on this model scores there, it may have read."
        if common
        else "no task in common.",
    )
