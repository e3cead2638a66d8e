"""One factory builds the same five assets for every judge, with the judge as key prefix and group."""

from typing import Any

import dagster as dg

from certify_assets.defs.judges.transfer import transfer_adapter
from certify_assets.defs.metadata import bill_metadata, bill_metrics, column_lineage, table_metadata
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.protocol import auditing, certification, scoring, training
from certify_assets.protocol.judge_specs import ENDPOINT, PROCEDURES, JudgeSpec, judges
from certify_assets.reports import judge_page

__all__ = ["FAMILY", "judge_assets"]

OWNERS = ["team:evaluation"]
# how jobs tell judges that cost money from others, without reading the user's document
FAMILY = "certify/family"


def judge_assets() -> list[dg.AssetsDefinition]:
    """Return the assets of every judge: those of the platform and those that the user's document adds."""
    return [asset for spec in judges().values() for asset in _chain(spec)]


def _chain(spec: JudgeSpec) -> list[dg.AssetsDefinition]:
    return [_adapter(spec), _scores(spec), _certificate(spec), _audit(spec), _page(spec)]


def _common(spec: JudgeSpec, *, kinds: set[str], code_version: str = "1") -> dict[str, Any]:
    return {
        "key_prefix": spec.name,
        "group_name": spec.name,
        "partitions_def": corpora_partitions,
        "owners": OWNERS,
        "kinds": kinds,
        "code_version": code_version,
        "tags": {FAMILY: spec.family},
    }


def _key(spec: JudgeSpec, name: str) -> dg.AssetKey:
    return dg.AssetKey([spec.name, name])


def _adapter(spec: JudgeSpec) -> dg.AssetsDefinition:
    if spec.pool:
        return transfer_adapter(spec)
    # a judge with several candidates is picked on CAL: the lineage shows that it has seen it
    deps: list[Any] = ["sft_split", "split_manifest", *(["cal_split"] if spec.chooses else [])]
    if spec.start:
        deps += ["rl_split", dg.AssetKey([spec.start, "adapter"])]
    kinds = {"scikitlearn"} if spec.family == "lexical" else {"pytorch"}
    promise = f"{spec.summary} Saved without pickle."
    if spec.family == ENDPOINT:
        deps, kinds = ["split_manifest"], {"openai", "json"}
        promise = f"{spec.summary} Its registration: what the server says of itself, hashes of prompt and settings."

    @dg.asset(name="adapter", deps=deps, description=promise, **_common(spec, kinds=kinds))
    def adapter(context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        document = training.train_judge(store, context.partition_key, spec.name)
        params = {name: document[name] for name in ("success_weight", "candidates", "sft_trajectories", "sft_tasks", "seed")}
        selection = {f"coverage_{row['name']}": float(row["coverage"]) for row in document["selection"]}
        return dg.MaterializeResult(
            metadata={
                **params,
                **selection,
                "sha256": document["adapter_sha256"],
                **mlflow.record(context, store, params=params, metrics=selection, tags={"adapter_sha256": document["adapter_sha256"]}),
            },
            data_version=dg.DataVersion(document["adapter_sha256"]),
        )

    return adapter


def _scores(spec: JudgeSpec) -> dg.AssetsDefinition:
    @dg.asset(
        name="scores",
        deps=[_key(spec, "adapter"), "split_manifest", "rl_split", "cal_split", "test_split"],
        description="Score of every RL, CAL and TEST trajectory: log-odds of success, the two log-probabilities beside it. TEST rows carry no outcome.",
        **_common(spec, kinds={"parquet"}),
    )
    def scores(context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        table = scoring.score_corpus(store, context.partition_key, spec.name, tell=context.log.info)
        bill = scoring.stored_bill(store, context.partition_key, spec.name)
        counts = {f"{split}_rows": int((table["split"] == split).sum()) for split in ("rl", "cal", "test")}
        splits = [dg.AssetKey(name) for name in ("rl_split", "cal_split", "test_split")]
        copied = {name: [(key, name) for key in splits] for name in ("task_id", "trajectory_id", "agent", "attempt")}
        judged = {
            name: [(key, "steps") for key in splits] + [(key, "instruction") for key in splits]
            for name in ("score", "log_p_success", "log_p_fail")
        }
        labels = {"outcome": [(key, "outcome") for key in splits[:2]]}
        return dg.MaterializeResult(
            metadata={
                **table_metadata(table),
                **column_lineage({**copied, **judged, **labels}),
                **bill_metadata(bill),
                **mlflow.record(context, store, metrics={**counts, "unscored": int(table["score"].isna().sum()), **bill_metrics(bill)}),
            }
        )

    return scores


def _certificate(spec: JudgeSpec) -> dg.AssetsDefinition:
    @dg.asset(
        name="certificate",
        deps=[_key(spec, "scores"), _key(spec, "adapter"), "cal_split", "split_manifest", "corpus_profile", "leak_controls"],
        description=(
            "What share of the reviewing this judge may take over: certificates of both sides at both budgets, from CAL, "
            "as canonical JSON that `certify verify` recomputes."
        ),
        **_common(spec, kinds={"json"}),
    )
    def certificate(context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        certificates = certification.certify_judge(store, context.partition_key, spec.name, run_id=context.run_id)
        coverage = {
            f"{item.side}_coverage_at_{item.alpha:g}": float(item.coverage) for item in certificates if item.procedure == PROCEDURES[0]
        }
        headline = judge_page.headline(certificates)
        return dg.MaterializeResult(
            metadata={
                "verdict": dg.MetadataValue.md(judge_page.verdict(store, context.partition_key, spec.name, headline)),
                "gates": dg.MetadataValue.md(judge_page.gates(store, context.partition_key, spec.name, headline)),
                **coverage,
                "page": dg.MetadataValue.path(store.locate(f"judges/{spec.name}/{context.partition_key}/page.html")),
                "cal_tasks": headline.tasks,
                "cal_trajectories": headline.trajectories,
                "sha256": headline.sha256,
                **mlflow.record(
                    context,
                    store,
                    params={
                        "procedure": headline.procedure,
                        "delta": headline.delta,
                        "tasks": headline.tasks,
                        "candidates": headline.candidates,
                    },
                    metrics=coverage,
                    documents={f"{item.side}_{item.alpha:g}_{item.procedure}.json": item.to_json().decode() for item in certificates},
                    tags={"certificate_sha256": headline.sha256, "manifest_sha256": str(headline.provenance["manifest_sha256"])},
                ),
            },
            data_version=dg.DataVersion(headline.sha256),
        )

    return certificate


def _audit(spec: JudgeSpec) -> dg.AssetsDefinition:
    @dg.asset(
        name="audit",
        deps=[_key(spec, "certificate"), _key(spec, "scores"), "test_split"],
        description="The thresholds of CAL, read once on TEST through the ledger: realised error with its bounds, coverage, task resampling.",
        **_common(spec, kinds={"json"}),
    )
    def audit(context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        result = auditing.audit_judge(store, context.partition_key, spec.name, run_id=context.run_id)
        metrics = auditing.audit_metrics(result)
        return dg.MaterializeResult(
            metadata={
                **metrics,
                "verdicts": dg.MetadataValue.md(judge_page.audit_table(result.audits)),
                "ledger_read": result.entry.kind,
                "ledger_head": result.ledger_head,
                **mlflow.record(
                    context, store, metrics=metrics, params={"ledger_read": result.entry.kind}, tags={"ledger_head": result.ledger_head}
                ),
            }
        )

    return audit


def _page(spec: JudgeSpec) -> dg.AssetsDefinition:
    @dg.asset(
        name="page",
        deps=[_key(spec, "certificate"), _key(spec, "audit"), _key(spec, "scores"), "corpus_profile", "leak_controls"],
        description="The certificate as a page: verdict, promise, curves, histograms, heatmap, lineage, limits. Opens from disk, needs no script.",
        **_common(spec, kinds={"html"}),
    )
    def page(context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        location = judge_page.write_page(store, context.partition_key, spec.name)
        html = store.read_bytes(f"judges/{spec.name}/{context.partition_key}/page.html").decode("utf-8")
        return dg.MaterializeResult(
            metadata={
                "page": dg.MetadataValue.path(location),
                "index": dg.MetadataValue.path(judge_page.write_index(store)),
                **mlflow.record(context, store, documents={"certificate.html": html}),
            }
        )

    return page
