"""Assets of a corpus: runs → trajectories → profile, leak controls, manifest → four task-disjoint splits."""

from typing import Any

import dagster as dg

from certify_assets.corpora import report as corpus_report
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.splits import SPLITS
from certify_assets.defs.metadata import column_lineage, table_metadata
from certify_assets.defs.names import CORPORA_GROUP, OWNERS, key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.reports import corpus_page as pages
from certify_assets.reports.corpus_page import data_docs_key
from certify_assets.reports.gates import profile_markdown

__all__ = ["corpus_assets", "source_runs"]

_OF_A_CORPUS: dict[str, Any] = {
    "partitions_def": corpora_partitions,
    "group_name": CORPORA_GROUP,
    "key_prefix": "corpora",
    "owners": OWNERS,
    "code_version": "1",
}
_SPLIT_PROMISES = {
    "sft": "Trajectories that train the judge. Shares no task with any other split.",
    "rl": "Trajectories kept for reinforcement learning and for the harvest pool. Shares no task with any other split.",
    "cal": "Trajectories that calibrate thresholds: every certificate is computed here. Shares no task with any other split.",
    "test": "Trajectories that audit certificates; outcomes are read only through the TEST ledger. Shares no task with any other split.",
}

source_runs = dg.AssetSpec(
    key("corpora/source_runs"),
    group_name=CORPORA_GROUP,
    kinds={"file"},
    owners=OWNERS,
    description="Agent runs as their harness published them: files and folders named in the corpus's configuration.",
)


class MiniwobConfig(dg.Config):
    """How the embedded corpora are generated.

    Parameters
    ----------
    attempts : int
        Attempts a task and agent.
    seed : int
        Seed of instances and faults.
    workers : int
        Browser processes.
    tasks : list of str
        Tasks to run; empty for all.
    """

    attempts: int = 4
    seed: int = 42
    workers: int = 2
    tasks: list[str] = []  # noqa: RUF012 - a pydantic field, copied for every instance


@dg.asset(
    key_prefix="corpora",
    group_name=CORPORA_GROUP,
    kinds={"chromium", "parquet"},
    owners=OWNERS,
    code_version="1",
    description=(
        "Runs of scripted agents on the MiniWoB++ pages in a real Chromium, the source of the two embedded corpora. "
        "The package ships its output; materialize it to generate the runs again (about ten minutes on two cores, resumable)."
    ),
)
def miniwob_runs(
    context: dg.AssetExecutionContext, config: MiniwobConfig, data_root: DataRoot
) -> dg.MaterializeResult[Any]:
    """Generate the embedded corpora again."""
    from certify_assets.research.miniwob import generate

    folder = data_root.store().local_path("generated/miniwob")

    def progress(done: int, total: int) -> None:
        if done % 100 == 0 or done == total:
            context.log.info(f"{done} of {total} episodes")

    made = generate(
        folder,
        attempts=config.attempts,
        seed=config.seed,
        workers=config.workers,
        tasks=config.tasks or None,
        progress=progress,
    )
    counts: dict[str, Any] = {
        "episodes": made.episodes,
        "kept": made.kept,
        "retries": made.retries,
        "failed": dg.MetadataValue.json(made.failed),
    }
    tables = {name: dg.MetadataValue.path(str(path)) for name, path in made.tables.items()}
    return dg.MaterializeResult(metadata={**counts, **tables})


@dg.asset(
    deps=[source_runs, miniwob_runs],
    kinds={"parquet"},
    description="Every attempt of the corpus in one schema, with what was dropped on the way and why.",
    **_OF_A_CORPUS,
)
def trajectories(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Import the corpus."""
    store = data_root.store()
    summary = Corpus(store, context.partition_key).import_trajectories()
    return dg.MaterializeResult(
        metadata={
            **table_metadata(to_frame([]), rows=summary.trajectories),
            "tasks": summary.tasks,
            "agents": ", ".join(summary.agents),
            "dropped": dg.MetadataValue.json(summary.dropped),
            "source_files": dg.MetadataValue.json(dict(sorted(summary.files.items())[:50])),
            "sha256": summary.sha256,
            "data_docs": dg.MetadataValue.path(store.locate(data_docs_key(context.partition_key))),
            **mlflow.record(
                context,
                store,
                metrics={
                    "trajectories": summary.trajectories,
                    "tasks": summary.tasks,
                    "dropped": sum(summary.dropped.values()),
                },
                tags={"trajectories_sha256": summary.sha256},
            ),
        },
        data_version=dg.DataVersion(summary.sha256),
    )


@dg.asset(
    deps=[trajectories],
    kinds={"json"},
    description="Which task belongs to SFT, RL, CAL or TEST, with seed, shares and hash. Everything downstream verifies it again before it runs.",
    **_OF_A_CORPUS,
)
def split_manifest(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Assign tasks to splits."""
    store = data_root.store()
    manifest = Corpus(store, context.partition_key).make_splits()
    counts = {f"{split}_tasks": len(manifest.tasks[split]) for split in SPLITS}
    return dg.MaterializeResult(
        metadata={
            **counts,
            "profile": manifest.profile,
            "seed": manifest.seed,
            "sha256": manifest.sha256,
            **mlflow.record(
                context,
                store,
                params={"profile": manifest.profile, "seed": manifest.seed},
                metrics=counts,
                tags={"manifest_sha256": manifest.sha256},
            ),
        },
        data_version=dg.DataVersion(manifest.sha256),
    )


def _split_asset(split: str) -> dg.AssetsDefinition:
    @dg.asset(
        name=f"{split}_split",
        deps=[trajectories, split_manifest],
        kinds={"parquet"},
        description=_SPLIT_PROMISES[split],
        **_OF_A_CORPUS,
    )
    def split_asset(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        frame = Corpus(store, context.partition_key).write_split(split)
        counts = {"trajectories": len(frame), "tasks": int(frame["task_id"].nunique())}
        return dg.MaterializeResult(
            metadata={
                **table_metadata(frame),
                "tasks": counts["tasks"],
                "data_docs": dg.MetadataValue.path(
                    store.locate(data_docs_key(context.partition_key))
                ),
                **column_lineage({name: [(trajectories.key, name)] for name in frame.columns}),
                **mlflow.record(context, store, metrics=counts),
            }
        )

    return split_asset


@dg.asset(
    name="profile",
    deps=[trajectories, split_manifest],
    kinds={"json"},
    description="Size, success rate, clustering and duplicates of the corpus and its splits, and whether a certificate is arithmetically possible.",
    **_OF_A_CORPUS,
)
def corpus_profile(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Describe the corpus before any judge reads it."""
    store = data_root.store()
    corpus = Corpus(store, context.partition_key)
    profile = corpus.measure_profile().to_dict()
    numbers = {
        name: profile[name] for name in ("success_rate", "icc", "deff", "n_eff", "mean_task_size")
    }
    return dg.MaterializeResult(
        metadata={
            "trajectories": profile["trajectories"],
            "tasks": profile["tasks"],
            **{name: float(value) for name, value in numbers.items()},
            "gates": dg.MetadataValue.md(profile_markdown(profile["gates"])),
            "profile": dg.MetadataValue.json({**profile, **corpus.hashes}),
            **mlflow.record(context, store, metrics=numbers),
        }
    )


@dg.asset(
    deps=[trajectories, split_manifest],
    kinds={"json"},
    description="How well length, number of steps or the agent's name alone predict the outcome (TEST left out). A judge must beat them.",
    **_OF_A_CORPUS,
)
def leak_controls(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Measure what a judge could get without reading."""
    store = data_root.store()
    controls = Corpus(store, context.partition_key).measure_leaks().to_dict()
    aurocs = {
        name: float(value)
        for name, value in controls.items()
        if name.endswith("_auroc") and value is not None
    }
    return dg.MaterializeResult(
        metadata={
            **aurocs,
            "controls": dg.MetadataValue.json(controls),
            **mlflow.record(context, store, metrics=aurocs),
        }
    )


@dg.asset(
    name="report",
    # not leak_controls: where its check blocks, the page that shows the evidence must still be drawn
    deps=[trajectories, split_manifest, corpus_profile],
    kinds={"html"},
    description=(
        "What the corpus is worth before any judge reads it: profile, gates, flips, outcomes by task and attempt (TEST left out), leak controls with "
        "their evidence, labels, texts, and what the import left out. One file, without scripts."
    ),
    **_OF_A_CORPUS,
)
def corpus_page(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Draw the corpus."""
    store = data_root.store()
    report = corpus_report.gather_report(Corpus(store, context.partition_key))
    flips = {
        f"flip_rate_{name}s": getattr(report.profile.flips, f"{name}_rate")
        for name in ("cell", "task")
    }
    return dg.MaterializeResult(
        metadata={
            "corpus": dg.MetadataValue.md(pages.corpus_markdown(report)),
            **{name: float(value) for name, value in flips.items() if value is not None},
            "page": dg.MetadataValue.path(pages.write_corpus_page(store, report)),
            "data_docs": dg.MetadataValue.path(store.locate(data_docs_key(context.partition_key))),
            **mlflow.record(context, store, metrics=flips),
        }
    )


split_assets = [_split_asset(split) for split in SPLITS]


def corpus_assets() -> list[Any]:
    """Return every asset of this domain."""
    return [
        source_runs,
        miniwob_runs,
        trajectories,
        split_manifest,
        *split_assets,
        corpus_profile,
        leak_controls,
        corpus_page,
    ]
