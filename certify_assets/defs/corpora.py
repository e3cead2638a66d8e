"""Assets of a corpus and their checks: runs, splits, profile, leak controls."""

from dataclasses import asdict
from functools import partial, update_wrapper
from typing import Any

import dagster as dg

from certify_assets.corpora import report as corpus_report
from certify_assets.corpora.config import SCHEMA, THRESHOLDS
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import ARROW_SCHEMA, to_frame
from certify_assets.corpora.splits import PROFILES, SPLITS
from certify_assets.defs.assets import MaterializeResult, asset_step, column_lineage, table_metadata
from certify_assets.defs.checks import asked_together
from certify_assets.defs.names import CORPORA_GROUP, SOURCE, code_version, corpora_partitions
from certify_assets.defs.policies import KEPT_CURRENT
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.errors import IntegrityError
from certify_assets.operations.checks import Verdict
from certify_assets.reports import corpus_page as pages
from certify_assets.reports.corpus_page import check_table, page_key, profile_markdown

_SCHEMA = {"schema": str(ARROW_SCHEMA), "config": SCHEMA}
_SPLITTING = {"profiles": {name: dict(shares) for name, shares in PROFILES.items()}}
_VERSION = code_version(**_SCHEMA, **_SPLITTING, leaks=dict(THRESHOLDS))
_SPLITS = {
    "sft": "Trajectories that train the judge.",
    "rl": "Trajectories for reinforcement learning and the harvest pool. Their labels also certify "
    "judges that did not learn from them.",
    "cal": "Trajectories that calibrate thresholds: every certificate is computed on them.",
    "test": "Trajectories that audit certificates; outcomes are read only through the ledger.",
}


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

    @dg.asset(
        **project.about("corpora/trajectories", CORPORA_GROUP, code_version(**_SCHEMA)),
        deps=[source_runs],
        kinds={"parquet"},
    )
    def trajectories(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Import every attempt of the corpus into one schema, and say what was left out and why."""
        from certify_assets.operations.returned_runs import checking_delivery

        with asset_step(project, context, data_root, mlflow) as step:
            summary = step.corpus.import_trajectories(check=checking_delivery(step.corpus))
            if gone := step.corpus.missing_source:
                context.log.warning(f"{gone} is missing. The runs are used as they were imported.")
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

    @dg.asset(
        **project.about("corpora/split_manifest", CORPORA_GROUP, _VERSION),
        deps=[trajectories],
        kinds={"json"},
    )
    def split_manifest(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Assign each task to SFT, RL, CAL or TEST, with seed, shares and hash.

        Every downstream step verifies the assignment.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            manifest = step.corpus.make_splits()
            return step.made(
                {"sha256": manifest.sha256},
                params={"profile": manifest.profile, "seed": manifest.seed},
                metrics={f"{split}_tasks": len(manifest.tasks[split]) for split in SPLITS},
                tags={"manifest_sha256": manifest.sha256},
            )

    runs_and_splits = [trajectories, split_manifest]

    def split_of(name: str) -> dg.AssetsDefinition:
        @dg.asset(
            **project.about(f"corpora/{name}_split", CORPORA_GROUP, _VERSION),
            deps=runs_and_splits,
            kinds={"parquet"},
            description=f"{_SPLITS[name]} Shares no task with any other split.",
        )
        def split(
            context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
        ) -> MaterializeResult:
            with asset_step(project, context, data_root, mlflow) as step:
                frame = step.corpus.write_split(name)
                counts = {"trajectories": len(frame), "tasks": int(frame["task_id"].nunique())}
                copied = {column: [(trajectories.key, column)] for column in frame.columns}
                return step.made(table_metadata(frame) | column_lineage(copied), metrics=counts)

        return split

    @dg.asset(
        **project.about("corpora/profile", CORPORA_GROUP, _VERSION),
        deps=runs_and_splits,
        kinds={"json"},
    )
    def profile(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Measure size, success rate, clustering and duplicates of the corpus and its splits.

        Says whether a certificate is arithmetically possible.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            found = step.corpus.measure_profile().to_dict()
            names = ("success_rate", "icc", "deff", "n_eff", "mean_task_size")
            numbers = {name: float(found[name]) for name in names if found[name] is not None}
            metadata = {
                "trajectories": found["trajectories"],
                "tasks": found["tasks"],
                "gates": dg.MetadataValue.md(profile_markdown(found["gates"])),
                "profile": found,
            }
            return step.made(metadata, metrics=numbers)

    @dg.asset(
        **project.about("corpora/leak_controls", CORPORA_GROUP, _VERSION),
        deps=runs_and_splits,
        kinds={"json"},
    )
    def leak_controls(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Measure how well length, number of steps or agent name alone predict the outcome.

        TEST is left out. A judge must beat these controls.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            controls = step.corpus.measure_leaks().to_dict()
            aurocs = {
                name: float(value)
                for name, value in controls.items()
                if name.endswith("_auroc") and value is not None
            }
            return step.made({"controls": controls}, metrics=aurocs)

    @dg.asset(
        **project.about("corpora/report", CORPORA_GROUP, _VERSION),
        # not leak_controls: where its check blocks, the page that shows the evidence is still drawn
        deps=[*runs_and_splits, profile],
        kinds={"html"},
        # a command imports trajectories alone: the page waits for the splits that are made of them
        automation_condition=KEPT_CURRENT.ignore(dg.AssetSelection.assets(trajectories)),
    )
    def report(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Draw the corpus before any judge reads it.

        Shows profile, gates, flips, outcomes by task and attempt, leak controls with their
        evidence, labels, texts, and what the import left out. Outcomes of TEST enter only the
        profile. The page is one file without scripts.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            found = corpus_report.gather_report(step.corpus)
            flips = {
                f"flip_rate_{name}s": getattr(found.profile.flips, f"{name}_rate")
                for name in ("cell", "task")
            }
            pages.write_corpus_page(step.store, found)
            metadata = {"corpus": pages.standing(found).heading}
            return step.made(metadata, metrics=flips, page=page_key(step.corpus.name))

    splits = map(split_of, SPLITS)
    return [source_runs, trajectories, split_manifest, *splits, profile, leak_controls, report]


def no_leak_field(corpus: Corpus) -> Verdict:
    """No text quotes a key by which a harness records the outcome."""
    found = corpus.harness_keys()
    return Verdict.of(
        not found,
        f"texts of runs quote {', '.join(found)}. Remove what reveals the outcome."
        if found
        else "no text quotes a key of a harness",
    )


def separate_tasks(corpus: Corpus) -> Verdict:
    """No task has several ids: no two share their instruction or copies of runs.

    PASS too where the owner gave a reason why they are separate tasks.
    """
    about = asdict(corpus.task_overlap())
    try:
        said = corpus.require_separate_tasks() or "every task has its own instruction and runs"
    except IntegrityError as error:
        return Verdict("ERROR", str(error), about)
    return Verdict("PASS", said, about)


def disjoint_tasks(corpus: Corpus, split: str) -> Verdict:
    """No task is in two splits: the manifest holds, and the split has the runs that it gives."""
    try:
        tasks = corpus.split(split)["task_id"].nunique()
    except IntegrityError as error:
        return Verdict("ERROR", str(error))
    return Verdict("PASS", f"{tasks:,} tasks, all of them in this split alone")


def no_structural_leak(corpus: Corpus) -> Verdict:
    """Length, steps, agent and verdict phrases alone do not predict the outcome.

    WARN where the owner accepted that with a reason.
    """
    checks = corpus.leak_checks
    over, accepted = checks.over, checks.accepted
    said = "every control is under its threshold"
    if over:
        said = f"{checks.leaks} alone predicts the outcome. " + (
            f"Accepted: {accepted}"
            if accepted
            else "Remove the leak, or give the reason for accepting it: certify corpus import … "
            "--replace --set accept_structural_leak=REASON"
        )
    return Verdict.of(
        not over,
        said,
        otherwise="WARN" if accepted else "ERROR",
        controls=dg.MetadataValue.md(check_table(checks)),
        evidence=dg.MetadataValue.json(checks.to_dict()["evidence"]),
    )


def corpus_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return every check of this domain."""

    @dg.asset_check(
        asset=project.key("corpora/trajectories"),
        additional_deps=project.keys("corpora", *(f"{split}_split" for split in SPLITS)),
        partitions_def=corpora_partitions,
        # the last step of a run: importing Great Expectations takes seconds
        op_tags={"dagster/priority": "-1"},
    )
    def data_quality(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> dg.AssetCheckResult:
        """Validate the runs of the stored splits by a suite of Great Expectations."""
        from certify_assets.corpora.quality import stored_runs, validate_runs

        corpus = Corpus(data_root.view(), context.partition_key)
        if not all(corpus.has("splits", f"{split}.parquet") for split in SPLITS):
            return dg.AssetCheckResult(passed=True, description="Not all splits are stored yet.")
        config = corpus.config
        found = validate_runs(
            stored_runs(corpus), certifying=config.certifying, alpha=max(config.alphas)
        )
        missed = [
            f"{item.expected.removesuffix('.')} ({item.observed})" for item in found if not item.met
        ]
        records = [dg.TableRecord(asdict(item)) for item in found]
        return dg.AssetCheckResult(
            passed=not missed,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"Expectations that are not met: {'; '.join(missed)}."
            if missed
            else f"All {len(found)} expectations are met.",
            metadata={"expectations": dg.MetadataValue.table(records)},
        )

    of_splits = {
        f"corpora/{split}_split": update_wrapper(
            partial(disjoint_tasks, split=split), disjoint_tasks
        )
        for split in SPLITS
    }
    of_runs = (no_leak_field, separate_tasks)
    return [
        asked_together(project, {"corpora/trajectories": of_runs}, blocking=of_runs),
        asked_together(
            project,
            {asset: [ask] for asset, ask in of_splits.items()},
            blocking=of_splits.values(),
            step="corpora/splits",
        ),
        asked_together(
            project, {"corpora/leak_controls": [no_structural_leak]}, blocking=[no_structural_leak]
        ),
        data_quality,
    ]
