"""The monitor of every judge: labelled audit samples put to the certificates in use, with the check that raises the alarm."""

from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.judges.assets import FAMILY
from certify_assets.defs.names import OPERATIONS_GROUP, OWNERS, judge_group, judge_key, key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import JudgeSpec, judges
from certify_assets.operations import monitoring
from certify_assets.reports import monitor_page

__all__ = ["audit_sample", "monitor_assets", "monitor_checks"]


audit_sample = dg.AssetSpec(
    key("operations/audit_sample"),
    group_name=OPERATIONS_GROUP,
    kinds={"file"},
    owners=OWNERS,
    description=(
        "Score tables with outcomes in monitoring/<corpus>/<judge>/ of the data root: tasks drawn at random before scoring, every attempt labelled, "
        "in order of file name, then row. Labels from the review queue do not belong here."
    ),
)


def monitor_assets() -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """Return the audit sample and the monitor of every judge."""
    return [audit_sample, *(_monitor(spec) for spec in judges().values())]


def monitor_checks() -> list[dg.AssetChecksDefinition]:
    """Return the check of every judge's monitor."""
    return [_no_alarm(spec) for spec in judges().values()]


def _monitor(spec: JudgeSpec) -> dg.AssetsDefinition:
    @dg.asset(
        name="monitor",
        key_prefix=["judges", spec.name],
        group_name=judge_group(spec),
        partitions_def=corpora_partitions,
        owners=OWNERS,
        kinds={"html", "json"},
        code_version="1",
        tags={FAMILY: spec.kind},
        deps=[
            judge_key(spec.name, "certificate"),
            audit_sample,
            key("corpora/split_manifest"),
        ],
        description=(
            "What newly labelled tasks say of the thresholds in use: an alarm for an error above the budget that is false with probability at most "
            "delta over all time, an interval for the error, and a page. Says so where there are no labels yet."
        ),
    )
    def monitor(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        document = monitoring.monitor_judge(
            JudgedCorpus(Corpus(store, context.partition_key), spec.name)
        )
        metrics = monitor_page.monitor_metrics(document)
        return dg.MaterializeResult(
            metadata={
                "verdict": dg.MetadataValue.md(monitor_page.monitor_markdown(document)),
                "reason": document["reason"],
                "page": dg.MetadataValue.path(
                    monitor_page.write_monitor_page(
                        JudgedCorpus(Corpus(store, context.partition_key), spec.name)
                    )
                ),
                **metrics,
                **mlflow.record(
                    context,
                    store,
                    params={"status": document["status"], "files": len(document["files"])},
                    metrics=metrics,
                ),
            }
        )

    return monitor


def _no_alarm(spec: JudgeSpec) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=judge_key(spec.name, "monitor"),
        name="no_alarm",
        partitions_def=corpora_partitions,
        description="PASS; ERROR on an alarm; WARN where there is nothing to monitor, or too few tasks are covered for silence to mean much.",
    )
    def no_alarm(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> dg.AssetCheckResult:
        document = monitoring.load_monitor(
            JudgedCorpus(Corpus(data_root.store(), context.partition_key), spec.name)
        )
        return dg.AssetCheckResult(
            passed=document["status"] == "quiet",
            severity=dg.AssetCheckSeverity.ERROR
            if document["status"] == "alarm"
            else dg.AssetCheckSeverity.WARN,
            description=document["reason"],
        )

    return no_alarm
