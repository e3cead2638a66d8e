"""The model of a judge, trained or registered in one step, and the compact language model."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dagster as dg

from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.defs.assets import (
    AssetStep,
    MaterializeResult,
    Metadata,
    about_judge,
    asset_step,
)
from certify_assets.defs.checks import asked_together
from certify_assets.defs.names import LM_GROUP, corpora_partitions
from certify_assets.defs.policies import on_device
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.errors import GateClosedError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.compact import shipped as compact
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import upstream
from certify_assets.operations.checks import Verdict
from certify_assets.operations.judge_figures import training_figures
from certify_assets.storage.store import Store

# of a stored adapter, that are logged
_LOGGED = ("adapter_model.safetensors", "adapter_config.json", "judge.json", "provenance.json")
_TRAINED = ("optimiser", "rl_trajectories", "trainable_parameters", "steps")
_SHOWN = ("success_weight", "candidates", "sft_trajectories", "sft_tasks", "seed")


def judge_model(project: Project, spec: JudgeSpec) -> dg.AssetsDefinition:
    """Return the model asset of a judge; skipped where a gate is closed or no source is there."""
    asset_key = project.key(f"judges/{spec.name}/model")
    sources = dg.AssetCheckSpec(
        "has_sources",
        asset=asset_key,
        partitions_def=corpora_partitions,
        description="Other corpora are there to train on; WARN with the reason where none is, and "
        "the judge is skipped.",
    )

    def has_sources(description: str, *, passed: bool) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(
            asset_key=asset_key,
            check_name=sources.name,
            passed=passed,
            severity=dg.AssetCheckSeverity.WARN,
            description=description,
        )

    @dg.asset(
        **about_judge(project, spec, "model"),
        kinds=set(spec.libraries),
        deps=_read_by(project, spec),
        check_specs=[sources] if spec.needs_other_corpora else None,
        output_required=not (spec.gated or spec.needs_other_corpora),
        description=spec.summary,
    )
    def model(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> Iterator[Any]:
        found: list[Any] = []
        with asset_step(project, context, data_root, mlflow) as step:
            judge = JudgedCorpus.of(step.corpus, spec)
            if spec.needs_other_corpora and (missing := judge.family.no_sources(judge)):
                step.skip(missing)
                found.append(has_sources(missing, passed=False))
            elif (record := _trained(step, judge)) is not None:
                found.append(_recorded(step, judge, record))
                if spec.needs_other_corpora:
                    read = judge.family.provenance(record)["training_sources"]
                    found.append(has_sources(read, passed=True))
        # Dagster hears of it once it is stored
        yield from found

    return model


def _trained(step: AssetStep, judge: JudgedCorpus) -> JudgeRecord | None:
    """Train a judge; None where its gate is closed."""
    try:
        return judge.train(report=step.report)
    except GateClosedError as closed:
        step.skip(str(closed))
        return None


def _read_by(project: Project, spec: JudgeSpec) -> list[dg.AssetKey | dg.AssetDep]:
    """Return what a training reads."""
    if spec.needs_other_corpora:
        # every source's, and the target's own: no row may share a task with its CAL or TEST
        everywhere = dg.AllPartitionMapping()
        return [
            dg.AssetDep(project.key("corpora/sft_split"), partition_mapping=everywhere),
            dg.AssetDep(project.key("corpora/split_manifest"), partition_mapping=everywhere),
            *project.keys("corpora", "cal_split", "test_split"),
        ]
    read = ["corpora/split_manifest"]
    if not spec.hosted:
        read.append("corpora/sft_split")
    # a judge with several candidates is picked on CAL: the lineage shows that it has seen it
    if spec.chooses or spec.gated:
        read.append("corpora/cal_split")
    if spec.start:
        read.append("corpora/rl_split")
    if before := upstream(spec):
        read += [f"judges/{before}/{part}" for part in ("model", "scores")[: 1 + spec.gated]]
    if spec.uses_language_model and spec.reads_compact and not spec.gated:
        read.append("judges/compact_model")
    return [project.key(name) for name in read]


def _recorded(step: AssetStep, judge: JudgedCorpus, record: JudgeRecord) -> MaterializeResult:
    """Return the metadata of a model, which MLflow keeps with the files of an adapter."""
    params = {name: getattr(record, name) for name in _SHOWN if getattr(record, name) is not None}
    metrics = {f"coverage_{row['name']}": float(row["coverage"]) for row in record.selection}
    tags = {"adapter_sha256": record.adapter_sha256}
    metadata: Metadata = {"sha256": record.adapter_sha256}
    if judge.spec.gated:
        harvest = step.store.read_json(judge.key("contamination.json"))
        metrics["harvested"] = harvest["size"]
        metrics |= {name: harvest[name] for name in ("pool", "contamination")}
    if judge.spec.needs_other_corpora:
        pool = record.detail("transfer")
        params |= {f"rows_{item['corpus']}": item["rows"] for item in pool["sources"]}
        tags["training_sources"] = judge.family.provenance(record)["training_sources"]
        metadata["sources"] = dg.MetadataValue.json(pool["sources"])
        metadata["left_out"] = dg.MetadataValue.json(pool["left_out"])
    language = judge.spec.uses_language_model
    # a harvested adapter has the settings of the judge that it starts from
    if language and not judge.spec.gated:
        base, training = record.details["provenance"]["settings"], record.detail("training")
        params |= training.get("config", {})
        params |= {name: training[name] for name in _TRAINED if name in training}
        tags |= {
            "certify.base_model": base["model"],
            "certify.base_revision": base["revision"],
            "certify.manifest_sha256": record.manifest_sha256,
        }
        for start in record.starts.values():
            tags["certify.start_sha256"] = start
        metadata["base_revision"] = base["revision"]
    with judge.artifact_files() if language else nullcontext() as folder:
        return step.made(
            metadata,
            params=params,
            metrics=metrics,
            tags=tags,
            curves=_adapter_curves(record) if language else {},
            files=_adapter_files(folder) if folder else {},
            prompts=judge.spec.prompts,
            figures=training_figures(judge),
            reads=judge.spec.training_splits,
        )


def _adapter_curves(record: JudgeRecord) -> dict[str, list[tuple[int, float]]]:
    """Return the loss of every step: of the one training, or of every arm by its name."""
    training = record.detail("training")
    named = {f"loss_{arm}": points for arm, points in training.get("loss_curves", {}).items()} | {
        "loss": training.get("loss_curve", [])
    }
    return {
        name: [(int(point["step"]), float(point["loss"])) for point in points]
        for name, points in named.items()
        if points
    }


def _adapter_files(folder: Path) -> dict[Path, str]:
    """Return the files of a stored adapter that are logged: safetensors and JSON."""
    return {folder / name: "adapter" for name in _LOGGED if (folder / name).is_file()}


def compact_model(project: Project) -> dg.AssetsDefinition:
    """Return the asset of the language model that comes with the package."""

    @dg.asset(
        **project.about("judges/compact_model", LM_GROUP, partitions=None),
        kinds={"safetensors"},
        **on_device("compact"),
    )
    def model(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Verify the causal language model that comes with the package.

        The judges base, sft and grpo start from it. Every file must match its provenance.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            found = compact.require_shipped()
            facts = found.provenance
            shown = {name: facts[name] for name in ("versions", "pretraining_tasks")}
            return step.made(
                {"revision": found.revision, **shown},
                version=found.revision,
                params={**facts["settings"], "runs": facts["runs"], "tokens": facts["tokens"]},
                metrics={"parameters": facts["parameters"]},
                tags={"certify.base_model": "compact", "certify.base_revision": found.revision},
                curves={"loss": [(point["step"], point["loss"]) for point in facts["loss_curve"]]},
                files={found.folder / name: "model" for name in ("provenance.json", "config.json")},
            )

    return model


def compact_model_check(project: Project) -> dg.AssetChecksDefinition:
    """Return the check of that asset."""
    asked = {"judges/compact_model": [task_disjoint]}
    return asked_together(project, asked, blocking=[task_disjoint], partitioned=False)


def task_disjoint(store: Store) -> Verdict:
    """No task that the model was pretrained on is in RL, CAL or TEST of an embedded corpus.

    WARN names other corpora that share a task.
    """
    common = compact.tasks_in_common(store)
    shared = "; ".join(
        f"{corpus}: {len(tasks):,} tasks of RL, CAL and TEST ({', '.join(tasks[:5])})"
        for corpus, tasks in common.items()
    )
    read = f"{shared}. A judge on this model may have read these runs in pretraining."
    return Verdict.of(
        not common,
        read if common else "no task in common.",
        otherwise="ERROR" if any(name in EMBEDDED for name in common) else "WARN",
    )
