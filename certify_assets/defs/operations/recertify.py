"""Recertification as assets: the monitor of the deployed judge, certificates on CAL and the audit sample, the history; with their checks and sensor."""

import json
from collections.abc import Callable
from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import OPERATIONS_GROUP, OWNERS, key
from certify_assets.defs.partitions import CORPORA, corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations import checks, history
from certify_assets.operations.checks import Verdict
from certify_assets.operations.monitoring import monitor_deployed, stream_source
from certify_assets.operations.notifications import notify
from certify_assets.operations.recertification import NOTHING_DEPLOYED, recertify_deployed
from certify_assets.reports import history_page, monitor_page

__all__ = ["recertify_assets", "recertify_checks", "recertify_job", "reviewed_labels_sensor"]

LABELS = key("operations/reviewed_labels")
# a page label is a line of the journal: not a run for every one of them
_PATIENCE = 300


class RecertifyConfig(dg.Config):
    """What becomes of a recertification.

    Parameters
    ----------
    deploy : bool
        Whether what is certified decides from then on, where all checks let it.
    """

    deploy: bool = False


def recertify_assets() -> list[dg.AssetsDefinition]:
    """Return the assets of this domain."""
    return [operation_monitor, recertification, operation_history]


@dg.asset(
    name="monitor",
    deps=[LABELS],
    kinds={"html", "json"},
    description=(
        "The deployed judge's thresholds against labelled tasks of the draw: an alarm that is false with probability at most delta over all time, an "
        "interval for the error, a page. An alarm is written down with its time, and those who are to be told are."
    ),
    partitions_def=corpora_partitions,
    key_prefix="operations",
    group_name=OPERATIONS_GROUP,
    owners=OWNERS,
    code_version="1",
)
def operation_monitor(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Monitor the judge that is deployed, whichever it is."""
    store = data_root.store()
    corpus = Corpus(store, context.partition_key)
    document = monitor_deployed(corpus)
    if document is None:
        return dg.MaterializeResult(metadata={"reason": NOTHING_DEPLOYED})
    judge = document["judge"]
    metrics = monitor_page.monitor_metrics(document)
    return dg.MaterializeResult(
        metadata={
            "verdict": dg.MetadataValue.md(monitor_page.monitor_markdown(document)),
            "reason": document["reason"],
            "judge": judge,
            "page": dg.MetadataValue.path(
                monitor_page.write_monitor_page(JudgedCorpus(corpus, judge))
            ),
            "not_told": dg.MetadataValue.json(notify(corpus)),
            **metrics,
            **mlflow.record(
                context,
                store,
                params={"status": document["status"], "judge": judge},
                metrics=metrics,
            ),
        }
    )


@dg.asset(
    deps=[LABELS, operation_monitor],
    kinds={"json"},
    description=(
        "Certificates of the deployed judge on CAL and the audit sample together, at a delta of their own by the declared schedule: once for each set of "
        "labels, when enough tasks are new. From the rows beside them anybody recomputes them."
    ),
    partitions_def=corpora_partitions,
    key_prefix="operations",
    group_name=OPERATIONS_GROUP,
    owners=OWNERS,
    code_version="1",
)
def recertification(
    context: dg.AssetExecutionContext,
    config: RecertifyConfig,
    data_root: DataRoot,
    mlflow: MlflowTracker,
) -> dg.MaterializeResult[Any]:
    """Recertify where it is due; deploy where that is asked for."""
    store, corpus = data_root.store(), context.partition_key
    record, said = recertify_deployed(Corpus(store, corpus), deploy=config.deploy)
    if record is None:
        return dg.MaterializeResult(metadata={"said": said})
    metrics = record.metrics
    return dg.MaterializeResult(
        metadata={
            "said": said,
            "joint": record.joint,
            "findings": dg.MetadataValue.json(list(record.findings)),
            "left_out": dg.MetadataValue.json(dict(record.left_out)),
            "certificates": dg.MetadataValue.path(store.locate(record.certificates_key)),
            **metrics,
            **mlflow.record(
                context,
                store,
                params={
                    "number": record.number,
                    "schedule": record.schedule,
                    "labels_sha256": record.labels.sha256,
                },
                metrics=metrics,
                tags={"inputs_sha256": record.inputs_sha256},
            ),
        },
        data_version=dg.DataVersion(record.inputs_sha256),
    )


@dg.asset(
    name="history",
    deps=[recertification, operation_monitor],
    kinds={"html", "json"},
    description="Certified coverage, realised error with its interval, alarms and confidence spent, over deployments and recertifications, as a page.",
    partitions_def=corpora_partitions,
    key_prefix="operations",
    group_name=OPERATIONS_GROUP,
    owners=OWNERS,
    code_version="1",
)
def operation_history(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Gather and draw what became of the certificates."""
    store, corpus = data_root.store(), context.partition_key
    document = history.write_history(Corpus(store, corpus))
    metrics = history_page.history_metrics(document)
    return dg.MaterializeResult(
        metadata={
            "verdict": dg.MetadataValue.md(history_page.history_markdown(document)),
            "page": dg.MetadataValue.path(history_page.write_history_page(store, document)),
            "joint": document["joint"],
            "not_told": dg.MetadataValue.json(notify(Corpus(store, corpus))),
            **metrics,
            **mlflow.record(context, store, metrics=metrics),
        }
    )


# asset, check → what is asked, and the promise
_CHECKS: dict[tuple[str, str], tuple[Callable[[Corpus], Verdict], str]] = {
    ("monitor", "no_alarm"): (
        checks.no_alarm,
        "PASS; ERROR on an alarm; WARN where nothing is deployed or labelled, or too few tasks are covered for silence to mean much.",
    ),
    ("recertification", "delta_left"): (
        checks.delta_left,
        "PASS; WARN where the next share of delta is under a tenth of the first; ERROR where none is left, or the journal was altered.",
    ),
    ("recertification", "audit_sample_complete"): (
        checks.audit_sample_complete,
        "PASS; WARN where more than a twentieth of the drawn tasks that could count are open or tied; ERROR from a half, or of mixed provenance.",
    ),
    ("recertification", "not_expired"): (
        checks.not_expired,
        "PASS; WARN from four fifths of the age at which certificates expire; ERROR beyond it.",
    ),
}


def recertify_checks() -> list[dg.AssetChecksDefinition]:
    """Return their checks, each of three states."""
    return [_check(asset, name) for asset, name in _CHECKS]


def _check(asset: str, name: str) -> dg.AssetChecksDefinition:
    ask, promise = _CHECKS[asset, name]

    @dg.asset_check(
        asset=key(f"operations/{asset}"),
        name=name,
        partitions_def=corpora_partitions,
        description=promise,
    )
    def check(context: dg.AssetCheckExecutionContext, data_root: DataRoot) -> dg.AssetCheckResult:
        verdict = ask(Corpus(data_root.store(), context.partition_key))
        return dg.AssetCheckResult(
            passed=verdict.status == "PASS",
            severity=dg.AssetCheckSeverity.ERROR
            if verdict.status == "ERROR"
            else dg.AssetCheckSeverity.WARN,
            description=verdict.sentence,
        )

    return check


recertify_job = dg.define_asset_job(
    "recertify_deployed",
    # the labels and the queue too: what is decided has a job of its own
    selection=dg.AssetSelection.groups(OPERATIONS_GROUP)
    - dg.AssetSelection.assets(key("operations/incoming_runs"), key("operations/decisions")),
    description="Put what people said of one corpus to the monitor of its deployed judge, recertify where enough is new, and draw the history.",
)


@dg.sensor(
    name="reviewed_labels",
    job=recertify_job,
    minimum_interval_seconds=_PATIENCE,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Looks at the journals of labels; what people said since the last look goes to monitor and recertification. The same journal twice is once.",
)
def reviewed_labels_sensor(
    context: dg.SensorEvaluationContext, data_root: DataRoot
) -> dg.SensorResult | dg.SkipReason:
    """Ask for one run a corpus whose journal holds something else than at the last look; the hash is of its whole lines, so no clock matters."""
    store = data_root.store()
    seen: dict[str, str] = json.loads(context.cursor or "{}")
    known = {
        corpus: stream_source(Corpus(store, corpus))
        for corpus in sorted(context.instance.get_dynamic_partitions(CORPORA))
    }
    now = {corpus: source["labels_sha256"] for corpus, source in known.items() if source["labels"]}
    new = {corpus: sha256 for corpus, sha256 in now.items() if seen.get(corpus) != sha256}
    if not new:
        return dg.SkipReason(
            "nobody labelled anything since the last look"
            if now
            else "nobody labelled anything yet"
        )
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(run_key=f"labels:{corpus}:{sha256}", partition_key=corpus)
            for corpus, sha256 in new.items()
        ],
        cursor=json.dumps(seen | new, sort_keys=True),
    )
