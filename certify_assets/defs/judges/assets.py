"""One factory builds the same five assets for every judge, with the judge as key prefix and group."""

from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.judges.arms import arm_deps, audit_deps
from certify_assets.defs.judges.harvest import harvest_adapter
from certify_assets.defs.judges.language import language_adapter, language_scores
from certify_assets.defs.judges.training import progress_lines
from certify_assets.defs.judges.transfer import transfer_adapter
from certify_assets.defs.metadata import bill_metadata, bill_metrics, score_metadata
from certify_assets.defs.names import OWNERS, judge_group, judge_key, key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.evaluation import certification
from certify_assets.evaluation.audit import audit_judge
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import PROCEDURES, JudgeSpec, judges
from certify_assets.reports import judge_page

__all__ = ["FAMILY", "judge_assets"]

# how jobs tell judges that cost money from others, without reading the user's document
FAMILY = "certify/family"


def judge_assets() -> list[dg.AssetsDefinition]:
    """Return the assets of every judge: those of the platform and those that the user's document adds."""
    return [asset for spec in judges().values() for asset in _chain(spec)]


def _chain(spec: JudgeSpec) -> list[dg.AssetsDefinition]:
    made = harvest_adapter(spec) if spec.gated else _adapter(spec)
    return [made, _scores(spec), _certificate(spec), _audit(spec), _page(spec)]


def _common(spec: JudgeSpec, *, kinds: set[str], code_version: str = "1") -> dict[str, Any]:
    return {
        "key_prefix": ["judges", spec.name],
        "group_name": judge_group(spec),
        "partitions_def": corpora_partitions,
        "owners": OWNERS,
        "kinds": kinds,
        "code_version": code_version,
        "tags": {FAMILY: spec.kind},
    }


def _key(spec: JudgeSpec, name: str) -> dg.AssetKey:
    return judge_key(spec.name, name)


def _adapter(spec: JudgeSpec) -> dg.AssetsDefinition:
    if spec.needs_other_corpora:
        return transfer_adapter(spec)
    # a judge with several candidates is picked on CAL: the lineage shows that it has seen it
    deps = [
        key(f"corpora/{name}")
        for name in ("sft_split", "split_manifest", *(["cal_split"] if spec.chooses else []))
    ]
    about: dict[str, Any] = {
        "name": "model",
        "description": f"{spec.summary} Saved without pickle.",
    }
    if spec.hosted:
        deps = [key("corpora/split_manifest")]
        about["description"] = (
            f"{spec.summary} Its registration: what the server says of itself, hashes of prompt and settings."
        )
    elif spec.uses_language_model:
        before = spec.upstream
        deps += [key("corpora/rl_split")] if spec.start else []
        deps += [judge_key(before, "model")] if before else []
        deps += [key("judges/compact_model")] if spec.model == "compact" else []
        return language_adapter(
            spec, [*deps, *arm_deps(spec)], **about, **_common(spec, kinds=set(spec.libraries))
        )

    @dg.asset(deps=deps, **about, **_common(spec, kinds=set(spec.libraries)))
    def adapter(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        record = JudgedCorpus(Corpus(store, context.partition_key), spec.name).train()
        params = {
            name: value
            for name in ("success_weight", "candidates", "sft_trajectories", "sft_tasks", "seed")
            if (value := getattr(record, name)) is not None
        }
        selection = {f"coverage_{row['name']}": float(row["coverage"]) for row in record.selection}
        return dg.MaterializeResult(
            metadata={
                **params,
                **selection,
                "sha256": record.adapter_sha256,
                **mlflow.record(
                    context,
                    store,
                    params=params,
                    metrics=selection,
                    tags={"adapter_sha256": record.adapter_sha256},
                ),
            },
            data_version=dg.DataVersion(record.adapter_sha256),
        )

    return adapter


def _scores(spec: JudgeSpec) -> dg.AssetsDefinition:
    deps = [
        _key(spec, "model"),
        *(
            key(f"corpora/{name}")
            for name in ("split_manifest", "rl_split", "cal_split", "test_split")
        ),
    ]
    promise = "Score of every RL, CAL and TEST trajectory: log-odds of success, the two log-probabilities beside it. TEST rows carry no outcome."
    about = {"name": "scores", "description": promise, **_common(spec, kinds={"parquet"})}
    if spec.uses_language_model:
        return language_scores(spec, deps, **about)

    @dg.asset(deps=deps, **about)
    def scores(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        table = JudgedCorpus(Corpus(store, context.partition_key), spec.name).score(
            report=progress_lines(context),
        )
        bill = JudgedCorpus(Corpus(store, context.partition_key), spec.name).bill
        about, counts = score_metadata(table)
        metrics = {**counts, **bill_metrics(bill)}
        return dg.MaterializeResult(
            metadata={
                **about,
                **bill_metadata(bill),
                **mlflow.record(context, store, metrics=metrics),
            }
        )

    return scores


def _certificate(spec: JudgeSpec) -> dg.AssetsDefinition:
    @dg.asset(
        name="certificate",
        deps=[
            _key(spec, "scores"),
            _key(spec, "model"),
            *(
                key(f"corpora/{name}")
                for name in ("cal_split", "split_manifest", "profile", "leak_controls")
            ),
        ],
        description=(
            "What share of the reviewing this judge may take over: certificates of both sides at both budgets, from CAL, "
            "as canonical JSON that `certify verify` recomputes."
        ),
        **_common(spec, kinds={"json"}),
    )
    def certificate(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        certificates = certification.certify_judge(
            JudgedCorpus(Corpus(store, context.partition_key), spec.name), run_id=context.run.run_id
        )
        coverage = {
            f"{item.side}_coverage_at_{item.alpha:g}": float(item.coverage)
            for item in certificates
            if item.procedure == PROCEDURES[0]
        }
        headline = judge_page.headline(certificates)
        return dg.MaterializeResult(
            metadata={
                "verdict": dg.MetadataValue.md(
                    judge_page.verdict(
                        JudgedCorpus(Corpus(store, context.partition_key), spec.name), headline
                    )
                ),
                "gates": dg.MetadataValue.md(
                    judge_page.gates(
                        JudgedCorpus(Corpus(store, context.partition_key), spec.name), headline
                    )
                ),
                **coverage,
                "page": dg.MetadataValue.path(
                    store.locate(f"judges/{spec.name}/{context.partition_key}/page.html")
                ),
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
                    documents={
                        f"{item.side}_{item.alpha:g}_{item.procedure}.json": item.to_json().decode()
                        for item in certificates
                    },
                    tags={
                        "certificate_sha256": headline.sha256,
                        "manifest_sha256": str(headline.provenance["manifest_sha256"]),
                    },
                ),
            },
            data_version=dg.DataVersion(headline.sha256),
        )

    return certificate


def _audit(spec: JudgeSpec) -> dg.AssetsDefinition:
    @dg.asset(
        name="audit",
        deps=[_key(spec, "certificate"), _key(spec, "scores"), key("corpora/test_split")],
        description="The thresholds of CAL, read once on TEST through the ledger: realised error with its bounds, coverage, task resampling.",
        **_common(spec, kinds={"json"}),
    )
    def audit(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        result = audit_judge(
            JudgedCorpus(Corpus(store, context.partition_key), spec.name), run_id=context.run.run_id
        )
        metrics = result.metrics()
        return dg.MaterializeResult(
            metadata={
                **metrics,
                "verdicts": dg.MetadataValue.md(judge_page.audit_table(result.audits)),
                "ledger_read": result.entry.kind,
                "ledger_head": result.ledger_head,
                **mlflow.record(
                    context,
                    store,
                    metrics=metrics,
                    params={"ledger_read": result.entry.kind},
                    tags={"ledger_head": result.ledger_head},
                ),
            }
        )

    return audit


def _page(spec: JudgeSpec) -> dg.AssetsDefinition:
    @dg.asset(
        name="report",
        deps=[
            _key(spec, "certificate"),
            _key(spec, "audit"),
            _key(spec, "scores"),
            key("corpora/profile"),
            key("corpora/leak_controls"),
            *audit_deps(spec),
        ],
        description="The certificate as a page: verdict, promise, curves, histograms, heatmap, lineage, limits. Opens from disk, needs no script.",
        **_common(spec, kinds={"html"}),
    )
    def page(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> dg.MaterializeResult[Any]:
        store = data_root.store()
        location = judge_page.write_page(
            JudgedCorpus(Corpus(store, context.partition_key), spec.name)
        )
        html = store.read_bytes(f"judges/{spec.name}/{context.partition_key}/page.html").decode(
            "utf-8"
        )
        return dg.MaterializeResult(
            metadata={
                "page": dg.MetadataValue.path(location),
                "index": dg.MetadataValue.path(judge_page.write_index(store)),
                **mlflow.record(context, store, documents={"certificate.html": html}),
            }
        )

    return page
