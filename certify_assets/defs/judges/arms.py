"""Arms of GRPO: an asset partitioned by arm and corpus, and the audit of the choice on TEST."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.assets import AssetStep, Made, judge_asset
from certify_assets.defs.judges.training import attempted, progress_lines
from certify_assets.defs.names import (
    FAMILY,
    PART,
    VERSION,
    corpora_partitions,
    judge_code_version,
    judge_key,
    key,
)
from certify_assets.defs.pool import on_device
from certify_assets.defs.resources import DataRoot
from certify_assets.defs.setup import judges
from certify_assets.evaluation import arms_audit
from certify_assets.judges.arms import train_arm
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.rewards import CONTROLS
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.specs import JudgeSpec
from certify_assets.reports import arms as arms_report

_BY_CORPUS = dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name="corpus")


def arm_partitions(spec: JudgeSpec) -> dg.MultiPartitionsDefinition:
    """Return the arms and controls of a judge, by corpus."""
    # keys join in the alphabetical order of the dimensions: "reject_3|miniwob_weak"
    arms = dg.StaticPartitionsDefinition([*spec.arms, *CONTROLS])
    return dg.MultiPartitionsDefinition({"arm": arms, "corpus": corpora_partitions})


def _reinforced() -> list[JudgeSpec]:
    return [spec for spec in judges().values() if spec.arms]


def arm_assets(specs: Sequence[JudgeSpec] | None = None) -> list[dg.AssetsDefinition]:
    """Return the arms and their audit for every judge of the family grpo."""
    chosen = _reinforced() if specs is None else specs
    return [made for spec in chosen for made in (_arm(spec), _arms_audit(spec))]


def arm_checks(specs: Sequence[JudgeSpec] | None = None) -> list[dg.AssetChecksDefinition]:
    """Return the checks of every audit of arms."""
    chosen = _reinforced() if specs is None else specs
    return [made for spec in chosen for made in (_arms_registered(spec), _beats_controls(spec))]


def arm_deps(spec: JudgeSpec) -> list[dg.AssetDep]:
    """Return what the model of a judge with arms depends on: all arms of the corpus."""
    return (
        [dg.AssetDep(judge_key(spec.name, "arm"), partition_mapping=_BY_CORPUS)]
        if spec.arms
        else []
    )


def arm_events(
    instance: dg.DagsterInstance, spec: JudgeSpec, record: JudgeRecord
) -> list[dg.AssetMaterialization]:
    """Return the arms that a choice depends on and no partition shows: the model trained them."""
    arm_key, found = judge_key(spec.name, "arm"), []
    for arm, version in record.detail("arms").items():
        partition = dg.MultiPartitionKey({"arm": arm, "corpus": record.corpus})
        filters = dg.AssetRecordsFilter(asset_key=arm_key, asset_partitions=[partition])
        records = instance.fetch_materializations(filters, limit=1).records
        shown = records[0].asset_materialization if records else None
        if shown is None or (shown.tags or {}).get(VERSION) != version:
            metadata = {"made_by": f"judges/{spec.name}/model"}
            found.append(
                dg.AssetMaterialization(
                    arm_key, partition=partition, metadata=metadata, tags={VERSION: version}
                )
            )
    return found


def audit_deps(spec: JudgeSpec) -> list[dg.AssetKey]:
    """Return what the report of a judge with arms shows next to its certificates."""
    return [judge_key(spec.name, "arms_audit")] if spec.arms else []


def arm_jobs() -> list[Any]:
    """Return a job a judge, for one arm on one corpus."""
    # an arm has two dimensions of partitions, so it cannot be in a job with assets that have one
    return [
        dg.define_asset_job(
            f"{spec.name}_arms",
            selection=dg.AssetSelection.assets(judge_key(spec.name, "arm")),
            description=f"Train one arm of {spec.name}, or a control, on one corpus. The job "
            "train_lm_judges trains what is missing by itself.",
        )
        for spec in _reinforced()
    ]


def _arm(spec: JudgeSpec) -> dg.AssetsDefinition:
    sources = [
        judge_key(spec.start, "model"),
        *(key(f"corpora/{name}") for name in ("rl_split", "cal_split", "split_manifest")),
    ]

    @judge_asset(
        spec,
        "arm",
        "pytorch",
        code_version=judge_code_version(spec, "model"),
        partitions_def=arm_partitions(spec),
        tags={FAMILY: spec.kind, PART: "arm"},
        **on_device(spec.model),
        deps=[dg.AssetDep(source, partition_mapping=_BY_CORPUS) for source in sources],
        description=f"Train one arm of {spec.name}, or a weighted cross-entropy that it is "
        f"compared with, from {spec.start} on RL; adapters and CAL scores of the steps that are "
        "candidates. An arm finished under the same start, settings, rows and renderer is reused.",
    )
    def arm(step: AssetStep) -> Made:
        partition: Any = step.context.partition_key
        place = dict(partition.keys_by_dimension)
        judge = JudgedCorpus.of(Corpus(step.store, place["corpus"]), spec)
        with attempted(step.context):
            record = train_arm(judge, place["arm"], report=progress_lines(step.context))
        names = ("optimiser", "control", "rl_trajectories", "rl_tasks")
        params = {**record.reward, **{name: getattr(record, name) for name in names}}
        history = {"reward_first": record.history[0], "reward_last": record.history[-1]}
        # the log of either optimiser has the mean reward of a step under this name
        reward = {name: float(step["reward"]) for name, step in history.items() if "reward" in step}
        return step.made(
            {**params, **reward, "steps": dg.MetadataValue.json(dict(record.steps))},
            version=record.key,
            params={**params, **record.config},
            metrics=reward,
            tags={"arm_key": record.key, "start_sha256": record.start_sha256},
        )

    return arm


def _arms_audit(spec: JudgeSpec) -> dg.AssetsDefinition:
    splits = ("cal_split", "test_split", "split_manifest")

    @judge_asset(
        spec,
        "arms_audit",
        "json",
        code_version=judge_code_version(spec, "model"),
        # it scores TEST with every arm, on the device
        **on_device(spec.model),
        deps=[
            *arm_deps(spec),
            judge_key(spec.name, "model"),
            *(key(f"corpora/{name}") for name in splits),
        ],
        description="Place the choice among arms between the best and the worst on TEST, next to "
        "weighted cross-entropy: every certificate registered before TEST is read, every read "
        "through the ledger. The oracle is known only from TEST's outcomes, and never deployed.",
    )
    def arms_audited(step: AssetStep) -> Made:
        found = arms_audit.audit_arms(
            JudgedCorpus.of(step.corpus, spec),
            run_id=step.run_id,
            report=progress_lines(step.context),
        )
        metrics = arms_report.arms_metrics(found)
        table = arms_report.candidates_markdown(found)
        metadata = {
            "bracket": dg.MetadataValue.md(arms_report.arms_markdown(found)),
            "candidates": dg.MetadataValue.md(table),
            "chosen": found["plan"]["deployed"],
            **metrics,
            "ledger_head": found["ledger_head"],
        }
        tags = {name: found[name] for name in ("registration", "ledger_head")}
        return step.made(
            metadata,
            metrics=metrics,
            documents={"arms.md": table},
            tags=tags,
        )

    return arms_audited


def _arms_registered(spec: JudgeSpec) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=judge_key(spec.name, "arms_audit"),
        name="arms_registered",
        blocking=True,
        partitions_def=corpora_partitions,
        description="Every arm's certificates recompute to what was registered, and TEST was read "
        "for each under that registration, unchanged.",
    )
    def arms_registered(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> dg.AssetCheckResult:
        corpus = Corpus(data_root.store(), context.partition_key)
        difference = arms_audit.verify_arms(JudgedCorpus.of(corpus, spec))
        kinds, broken = arms_audit.arm_reads(JudgedCorpus(corpus, spec.name))
        words = "; ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
        return dg.AssetCheckResult(
            passed=difference is None and not broken,
            severity=dg.AssetCheckSeverity.ERROR,
            description=difference
            or words + (f"; the read of {broken[0].time} is {broken[0].kind}" if broken else ""),
        )

    return arms_registered


def _beats_controls(spec: JudgeSpec) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=judge_key(spec.name, "arms_audit"),
        name="beats_controls",
        partitions_def=corpora_partitions,
        description="The chosen arm covers more of TEST on the reject side than the start and "
        "than weighted cross-entropy; a warning where not.",
    )
    def beats_controls(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> dg.AssetCheckResult:
        corpus = Corpus(data_root.store(), context.partition_key)
        found = arms_audit.load_arms_audit(JudgedCorpus.of(corpus, spec))
        cells = [
            (cell, seen)
            for cell, seen in zip(found["plan"]["cells"], found["brackets"], strict=True)
            if cell["side"] == "reject"
        ]
        return dg.AssetCheckResult(
            passed=all(seen["beats_baseline"] and seen["beats_control"] for _, seen in cells),
            severity=dg.AssetCheckSeverity.WARN,
            description=" ".join(arms_report.improvement(cell, seen) for cell, seen in cells),
        )

    return beats_controls
