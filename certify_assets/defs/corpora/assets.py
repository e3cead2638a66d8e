"""Assets of a corpus: runs, trajectories, profile, leak controls, manifest, four splits."""

from typing import Any

import dagster as dg

from certify_assets.corpora import report as corpus_report
from certify_assets.corpora.config import SCHEMA, THRESHOLDS
from certify_assets.corpora.schema import ARROW_SCHEMA, to_frame
from certify_assets.corpora.splits import PROFILES, SPLITS
from certify_assets.defs.assets import (
    AssetPlan,
    AssetStep,
    Made,
    asset,
    column_lineage,
    table_metadata,
)
from certify_assets.defs.names import CORPORA_GROUP, SOURCE, code_version
from certify_assets.defs.policies import KEPT_CURRENT
from certify_assets.defs.project import Project
from certify_assets.reports import corpus_page as pages
from certify_assets.reports.corpus_page import page_key, profile_markdown

_SCHEMA = {"schema": str(ARROW_SCHEMA), "config": SCHEMA}
_SPLITTING = {"profiles": {name: dict(shares) for name, shares in PROFILES.items()}}
_VERSION = code_version(**_SCHEMA, **_SPLITTING, leaks=dict(THRESHOLDS))
_RUNS_AND_SPLITS = ("corpora/trajectories", "corpora/split_manifest")
_DISJOINT = " Shares no task with any other split."
_SPLITS = {
    "sft": "Trajectories that train the judge.",
    "rl": "Trajectories for reinforcement learning and the harvest pool. Their labels also certify "
    "judges that did not learn from them.",
    "cal": "Trajectories that calibrate thresholds: every certificate is computed on them.",
    "test": "Trajectories that audit certificates; outcomes are read only through the ledger.",
}


@asset(
    "corpora/trajectories",
    CORPORA_GROUP,
    deps=[SOURCE],
    code_version=code_version(**_SCHEMA),
    kinds={"parquet"},
)
def trajectories(step: AssetStep) -> Made:
    """Import every attempt of the corpus into one schema, and say what was left out and why."""
    from certify_assets.operations.returned_runs import checking_delivery

    summary = step.corpus.import_trajectories(check=checking_delivery(step.corpus))
    if gone := step.corpus.missing_source:
        step.context.log.warning(f"{gone} is missing. The runs are used as they were imported.")
    counts = {"trajectories": summary.trajectories, "tasks": summary.tasks}
    metadata = {
        **table_metadata(to_frame([]), rows=summary.trajectories),
        "agents": ", ".join(summary.agents),
        "dropped": dict(summary.dropped),
        "source_files": dict(sorted(summary.files.items())[:50]),
        "sha256": summary.sha256,
    }
    return step.made(
        metadata,
        metrics={**counts, "dropped": sum(summary.dropped.values())},
        tags={"trajectories_sha256": summary.sha256},
    )


@asset(
    "corpora/split_manifest",
    CORPORA_GROUP,
    deps=["corpora/trajectories"],
    kinds={"json"},
    code_version=_VERSION,
)
def split_manifest(step: AssetStep) -> Made:
    """Assign each task to SFT, RL, CAL or TEST, with seed, shares and hash.

    Every downstream step verifies the assignment.
    """
    corpus = step.corpus
    manifest = corpus.make_splits()
    counts = {f"{split}_tasks": len(manifest.tasks[split]) for split in SPLITS}
    params = {"profile": manifest.profile, "seed": manifest.seed}
    return step.made(
        {"sha256": manifest.sha256},
        params=params,
        metrics=counts,
        tags={"manifest_sha256": manifest.sha256},
    )


def _split(name: str) -> AssetPlan:
    @asset(
        f"corpora/{name}_split",
        CORPORA_GROUP,
        deps=_RUNS_AND_SPLITS,
        kinds={"parquet"},
        description=_SPLITS[name] + _DISJOINT,
        code_version=_VERSION,
    )
    def split(step: AssetStep) -> Made:
        frame = step.corpus.write_split(name)
        counts = {"trajectories": len(frame), "tasks": int(frame["task_id"].nunique())}
        source = step.project.key("corpora/trajectories")
        copied = column_lineage({column: [(source, column)] for column in frame.columns})
        return step.made({**table_metadata(frame), **copied}, metrics=counts)

    return split


@asset(
    "corpora/profile",
    CORPORA_GROUP,
    deps=_RUNS_AND_SPLITS,
    kinds={"json"},
    code_version=_VERSION,
)
def corpus_profile(step: AssetStep) -> Made:
    """Measure size, success rate, clustering and duplicates of the corpus and its splits.

    Says whether a certificate is arithmetically possible.
    """
    corpus = step.corpus
    profile = corpus.measure_profile().to_dict()
    names = ("success_rate", "icc", "deff", "n_eff", "mean_task_size")
    numbers = {name: float(profile[name]) for name in names if profile[name] is not None}
    metadata = {
        "trajectories": profile["trajectories"],
        "tasks": profile["tasks"],
        "gates": dg.MetadataValue.md(profile_markdown(profile["gates"])),
        "profile": profile,
    }
    return step.made(metadata, metrics=numbers)


@asset(
    "corpora/leak_controls",
    CORPORA_GROUP,
    deps=_RUNS_AND_SPLITS,
    kinds={"json"},
    code_version=_VERSION,
)
def leak_controls(step: AssetStep) -> Made:
    """Measure how well length, number of steps or agent name alone predict the outcome.

    TEST is left out. A judge must beat these controls.
    """
    controls = step.corpus.measure_leaks().to_dict()
    aurocs = {
        name: float(value)
        for name, value in controls.items()
        if name.endswith("_auroc") and value is not None
    }
    return step.made({"controls": controls}, metrics=aurocs)


# not leak_controls: where its check blocks, the page that shows the evidence is still drawn
@asset(
    "corpora/report",
    CORPORA_GROUP,
    deps=[*_RUNS_AND_SPLITS, "corpora/profile"],
    kinds={"html"},
    code_version=_VERSION,
)
def corpus_page(step: AssetStep) -> Made:
    """Draw the corpus before any judge reads it.

    Shows profile, gates, flips, outcomes by task and attempt, leak controls with their
    evidence, labels, texts, and what the import left out. Outcomes of TEST enter only the
    profile. The page is one file without scripts.
    """
    report = corpus_report.gather_report(step.corpus)
    flips = {
        f"flip_rate_{name}s": getattr(report.profile.flips, f"{name}_rate")
        for name in ("cell", "task")
    }
    metadata = {"corpus": pages.standing(report).heading}
    pages.write_corpus_page(step.store, report)
    return step.made(metadata, metrics=flips, page=page_key(step.corpus.name))


def corpus_assets(project: Project) -> list[Any]:
    """Return every asset of a corpus before its judges."""
    source_runs = project.source(
        SOURCE,
        CORPORA_GROUP,
        kinds={"file"},
        description="Agent runs as their harness wrote them: the files and folders in the "
        "corpus's configuration. The data version is the hash of the configuration and, where a "
        "sensor watches them, of the files.",
    )
    # a command imports trajectories alone: the page waits for the splits that are made of them
    current = KEPT_CURRENT.ignore(project.select("corpora", "trajectories"))
    splits = map(_split, SPLITS)
    plans = (trajectories, split_manifest, *splits, corpus_profile, leak_controls)
    return [
        source_runs,
        *(plan.definition(project) for plan in plans),
        corpus_page.definition(project, automation_condition=current),
    ]
