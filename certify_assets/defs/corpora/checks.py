"""Checks of a corpus: leaks, separate tasks and splits block; Great Expectations warns."""

from dataclasses import asdict
from functools import partial, update_wrapper

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.splits import SPLITS
from certify_assets.defs.checks import asked_together
from certify_assets.defs.names import corpora_partitions
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot
from certify_assets.errors import IntegrityError
from certify_assets.operations.checks import Verdict
from certify_assets.reports.corpus_page import check_table


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
