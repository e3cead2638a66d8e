"""The compact model as an asset: what ships is verified, and pretrained again where the run asks for it."""

from typing import Any

import dagster as dg

from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.defs.judges.training import POOL, attempted, machine_tags, progress_lines
from certify_assets.defs.names import LM_GROUP, OWNERS, key
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.judges.lm.compact import shipped as compact

__all__ = ["compact_assets", "compact_checks"]


class CompactConfig(dg.Config):
    """Whether the model is built again.

    Parameters
    ----------
    rebuild : bool
        Pretrain it from its runs into models/compact of the data root and compare the bytes with those that ship.
    limit : int or None
        Only so many runs, for a trial.
    """

    rebuild: bool = False
    limit: int | None = None


@dg.asset(
    key_prefix="judges",
    group_name=LM_GROUP,
    kinds={"safetensors"},
    owners=OWNERS,
    code_version="1",
    pool=POOL,
    op_tags=machine_tags("compact"),
    description=(
        "The causal language model that comes with the package and that base, sft and grpo read: every file as its provenance says. "
        "With rebuild: true it is pretrained again (about four CPU minutes, resumable) and compared byte by byte; judges go on reading what ships."
    ),
)
def compact_model(
    context: dg.AssetExecutionContext,
    config: CompactConfig,
    data_root: DataRoot,
    mlflow: MlflowTracker,
) -> dg.MaterializeResult[Any]:
    """Verify the shipped model, or build it again."""
    store = data_root.store()
    found = compact.require_shipped()
    metadata: dict[str, Any] = {
        "revision": found.revision,
        "parameters": found.parameters,
        "runs": found.provenance["runs"],
        "tokens": found.provenance["tokens"],
        "settings": dg.MetadataValue.json(found.provenance["settings"]),
        "versions": dg.MetadataValue.json(found.provenance["versions"]),
        "pretraining_tasks": dg.MetadataValue.json(found.provenance["pretraining_tasks"]),
    }
    if config.rebuild:
        with attempted(context):
            built, same = compact.rebuild(store, limit=config.limit, report=progress_lines(context))
        metadata |= {
            "rebuilt": dg.MetadataValue.path(str(built.folder)),
            "rebuilt_revision": built.revision,
            "same_bytes": all(same.values()),
        }
        metadata["rebuilt_files"] = dg.MetadataValue.json(same)
    curve = found.provenance["loss_curve"]
    recorded = mlflow.record(
        context,
        store,
        params={
            **found.provenance["settings"],
            "runs": found.provenance["runs"],
            "tokens": found.provenance["tokens"],
        },
        metrics={"parameters": found.parameters},
        tags={"certify.base_model": "compact", "certify.base_revision": found.revision},
        curves={
            name: [(point["step"], point[name]) for point in curve]
            for name in ("loss", "verdict_loss")
        },
        files={found.folder / "provenance.json": "model", found.folder / "config.json": "model"},
    )
    return dg.MaterializeResult(
        metadata={**metadata, **recorded}, data_version=dg.DataVersion(found.revision)
    )


@dg.asset_check(
    asset=key("judges/compact_model"),
    name="as_shipped",
    blocking=True,
    description="The hash of every file and the number of parameters are those of the provenance that came with the model.",
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
    description="No task that the model was pretrained on is in CAL or TEST of an embedded corpus; the warning names others that share a task.",
)
def task_disjoint(data_root: DataRoot) -> dg.AssetCheckResult:
    """Compare the pretraining tasks with the splits of the data root."""
    common = compact.tasks_in_common(data_root.store())
    embedded = any(name in EMBEDDED for name in common)
    told = "; ".join(
        f"{corpus}: {len(tasks)} tasks of CAL and TEST ({', '.join(tasks[:5])})"
        for corpus, tasks in common.items()
    )
    return dg.AssetCheckResult(
        passed=not common,
        severity=dg.AssetCheckSeverity.ERROR if embedded else dg.AssetCheckSeverity.WARN,
        description=f"{told}. What a judge on this model scores there, it may have read."
        if common
        else "no task in common.",
    )


def compact_assets() -> list[dg.AssetsDefinition]:
    """Return the asset of the compact model."""
    return [compact_model]


def compact_checks() -> list[dg.AssetChecksDefinition]:
    """Return its checks."""
    return [as_shipped, task_disjoint]
