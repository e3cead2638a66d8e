"""Assets of operation: new runs in the inbox → batches → decisions by the deployed judge."""

from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import to_frame
from certify_assets.defs.judges.training import progress_lines
from certify_assets.defs.metadata import column_lineage, table_metadata
from certify_assets.defs.names import OPERATIONS_GROUP, OWNERS, judge_key, key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.judges.specs import judges
from certify_assets.operations import batches, layout
from certify_assets.operations.decisions import BatchRecord, summarize
from certify_assets.operations.deployment_record import load_deployment

__all__ = ["operation_assets"]

_OF_A_CORPUS: dict[str, Any] = {
    "partitions_def": corpora_partitions,
    "group_name": OPERATIONS_GROUP,
    "key_prefix": "operations",
    "owners": OWNERS,
    "code_version": "1",
}
_COPIED = ("trajectory_id", "task_id", "agent", "attempt", "source_file", "source_sha256")

inbox = dg.AssetSpec(
    key("operations/inbox"),
    group_name=OPERATIONS_GROUP,
    kinds={"file"},
    owners=OWNERS,
    description="New agent runs in inbox/<corpus>/ of the data root, in any published format; outcomes are not needed and never read.",
)


def operation_assets() -> list[Any]:
    """Return every asset of this domain."""
    return [inbox, _deployment(), incoming_runs, decisions]


def _deployment() -> dg.AssetSpec:
    return dg.AssetSpec(
        key("operations/deployment"),
        group_name=OPERATIONS_GROUP,
        kinds={"json"},
        owners=OWNERS,
        deps=[judge_key(name, step) for name in judges() for step in ("certificate", "audit")],
        description="The judge that decides, its certificates and the plan of the draw: written by `certify ops deploy`, past the checks.",
    )


@dg.asset(
    deps=[key("operations/inbox"), key("operations/deployment")],
    kinds={"parquet"},
    description=(
        "New runs as a batch: imported without their outcomes, told apart from those that came before, and their tasks drawn before anything is scored. "
        "The same files twice are one batch."
    ),
    **_OF_A_CORPUS,
)
def incoming_runs(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Import what lies in the inbox."""
    store = data_root.store()
    received = batches.receive(Corpus(store, context.partition_key))
    counts = {
        name: getattr(received, name) for name in ("runs", "new", "changed", "known", "files")
    }
    return dg.MaterializeResult(
        metadata={
            **table_metadata(to_frame([]), rows=received.new + received.changed),
            **counts,
            "batch": received.batch or "none: nothing is new",
            "dropped": dg.MetadataValue.json(dict(received.dropped or {})),
            "sentences": " ".join(received.sentences) or "none",
            **mlflow.record(context, store, params={"batch": received.batch}, metrics=counts),
        }
    )


@dg.asset(
    deps=[
        key("operations/incoming_runs"),
        key("operations/deployment"),
        key("corpora/split_manifest"),
    ],
    kinds={"parquet"},
    description=(
        "Reject, release or a person for every new run, with reason, score, thresholds and certificate. Where judge, certificate, audit or monitor do not "
        "stand, everything goes to people and this page says why."
    ),
    **_OF_A_CORPUS,
)
def decisions(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Decide the batches that wait."""
    store, corpus = data_root.store(), context.partition_key
    records = batches.decide_ready(Corpus(store, corpus), report=progress_lines(context))
    counts, said = summarize(records)
    return dg.MaterializeResult(
        metadata={
            **_table(Corpus(store, corpus)),
            **column_lineage(_sources(Corpus(store, corpus))),
            **counts,
            "said": said,
            "batches": dg.MetadataValue.json([item.to_dict() for item in records]),
            **mlflow.record(
                context, store, metrics=counts, params={"said": said}, tags=_tags(records)
            ),
        }
    )


def _table(corpus: Corpus) -> dict[str, Any]:
    """Return rows of all batches, and the columns of the last."""
    names = layout.batch_names(corpus)
    last = layout.decisions_of(corpus, names[-1]) if names else layout.load_decisions(corpus)
    return table_metadata(last, rows=sum(BatchRecord.load(corpus, name).rows for name in names))


def _tags(records: list[BatchRecord]) -> dict[str, str]:
    """Return by what the record is found from a certificate or a batch."""
    hashes = dict.fromkeys(sha256 for item in records for sha256 in item.certificates)
    return {
        "certify.batches": ";".join(item.batch for item in records)[:5000],
        "certificate_sha256": ";".join(hashes),
    }


def _sources(corpus: Corpus) -> dict[str, list[tuple[dg.AssetKey, str]]]:
    """Return where the columns come from: the runs, and the judge that is deployed now."""
    copied = {name: [(incoming_runs.key, name)] for name in _COPIED}
    deployed = load_deployment(corpus)
    if deployed is None:
        return copied
    adapter, certificate = (judge_key(deployed.judge, name) for name in ("model", "certificate"))
    score = [
        (incoming_runs.key, "instruction"),
        (incoming_runs.key, "steps"),
        (adapter, "adapter_sha256"),
    ]
    thresholds = {
        f"{side}_threshold": [(certificate, "threshold")] for side in ("reject", "release")
    }
    return {
        **copied,
        "score": score,
        **thresholds,
        "decision": [*score, (certificate, "threshold")],
        "reason": [*score, (certificate, "threshold")],
        "certificate_sha256": [(certificate, "sha256")],
        "adapter_sha256": [(adapter, "adapter_sha256")],
        "asked": [(incoming_runs.key, "task_id"), (key("operations/deployment"), "sampling")],
    }
