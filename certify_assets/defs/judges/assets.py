"""One factory builds the same assets for every judge: from its model to page and monitor."""

from typing import Any

import dagster as dg

from certify_assets.defs.assets import (
    AssetStep,
    MaterializeResult,
    about_judge,
    asset_step,
    bill_metrics,
    score_metadata,
)
from certify_assets.defs.judges.models import judge_model
from certify_assets.defs.policies import EXPIRES, KEPT_CURRENT
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.pool import load_pool
from certify_assets.judges.spec import JudgeSpec
from certify_assets.operations import certifier, monitoring
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.judge_figures import (
    audited_figures,
    certified_figures,
    scoring_figures,
)
from certify_assets.operations.monitoring import MonitorRecord
from certify_assets.operations.spending import read_spending
from certify_assets.reports import judge_page, monitor_page


def judge_assets(project: Project) -> list[dg.AssetsDefinition]:
    """Return the assets of every judge: the platform's, and those of the user's document."""
    return [asset for spec in project.judges.values() for asset in _assets_of(project, spec)]


def _assets_of(project: Project, spec: JudgeSpec) -> list[dg.AssetsDefinition]:
    model = judge_model(project, spec)
    manifest = project.key("corpora/split_manifest")
    evidence = project.keys("corpora", "profile", "leak_controls")

    @dg.asset(
        **about_judge(project, spec, "scores"),
        kinds={"parquet"},
        deps=[model, manifest, *project.keys("corpora", "rl_split", "cal_split", "test_split")],
    )
    def scores(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Score every RL, CAL and TEST trajectory.

        The score is the log-odds of success, with both log-probabilities. TEST rows carry no
        outcome.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            judge = step.judge(spec.name)
            table = judge.score(report=step.report)
            metadata, counts = score_metadata(project, table)
            if judge.bill is not None:
                metadata["bill"] = dg.MetadataValue.json(dict(judge.bill))
            metrics = {**counts, **bill_metrics(judge.bill)}
            figures = scoring_figures(judge, table)
            return step.made(metadata, metrics=metrics, figures=figures, reads=["cal"])

    rows = " and ".join(split.upper() for split in spec.calibration_splits)

    @dg.asset(
        **about_judge(project, spec, "certificate"),
        kinds={"json"},
        freshness_policy=EXPIRES,
        deps=[
            *(scores, model),
            *project.keys("corpora", *(f"{split}_split" for split in spec.calibration_splits)),
            *(manifest, *evidence),
        ],
        description="Certify the share of runs that this judge may decide alone: both sides at "
        f"both budgets, from {rows}. The result is canonical JSON, which `certify verify` "
        "recomputes.",
    )
    def certificate(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        with asset_step(project, context, data_root, mlflow) as step:
            judge = step.judge(spec.name)
            certificates = certifier.certify_judge(judge, run_id=context.run.run_id)
            figures = certified_figures(certifier.deciding(certificates))
            sides = certifier.deciding_sides(certificates)
            context.log.info(f"{judge}: {sides.sentence}")
            headline = sides.lead
            documents = {
                f"{item.side}_{item.alpha:g}_{item.procedure}.json": item.to_json().decode()
                for item in certificates
            }
            metadata = {
                "verdict": dg.MetadataValue.md(judge_page.verdict(sides)),
                "gates": dg.MetadataValue.md(judge_page.gates(judge.calibration[0], headline)),
                **figures,
                "cal_tasks": headline.tasks,
                "cal_trajectories": headline.trajectories,
                "sha256": headline.sha256,
            }
            if (pool := load_pool(judge, certificates)) is not None:
                metadata["pool"] = pool.sentence
                # without it nobody else can recompute those that name it
                documents["pool.json"] = pool.to_json().decode()
            metadata["delta_spent"] = read_spending(step.corpus).of(spec.name).total()
            names = ("procedure", "delta", "tasks", "candidates")
            return step.made(
                metadata,
                params={name: getattr(headline, name) for name in names},
                figures=figures,
                reads=judge.calibration_splits,
                documents=documents,
                tags={
                    "certificate_sha256": headline.sha256,
                    "manifest_sha256": str(headline.provenance["manifest_sha256"]),
                },
            )

    @dg.asset(
        **about_judge(project, spec, "audit"),
        kinds={"json"},
        deps=[certificate, scores, project.key("corpora/test_split")],
    )
    def audit(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Audit the thresholds of CAL once on TEST, through the ledger.

        Shows realised error with its bounds, coverage, and task resampling.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            judge = step.judge(spec.name)
            result = audit_judge(judge, run_id=context.run.run_id)
            figures = audited_figures(result.audits)
            metadata = {
                **{name: value for name, value in figures.items() if value is not None},
                "verdicts": dg.MetadataValue.md(judge_page.audit_table(result.audits)),
                # runs like those of TEST tell nothing of runs that were written for the judge
                "canary_lift": judge_page.canary_sentence(judge),
            }
            read = {"ledger_read": result.entry.kind}
            return step.made(metadata, figures=figures, reads=["test"], params=read)

    @dg.asset(
        **about_judge(project, spec, "report"),
        kinds={"html"},
        automation_condition=KEPT_CURRENT,
        deps=[certificate, audit, scores, *evidence],
    )
    def report(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Draw the certificate as a page that opens from disk and needs no script.

        Shows verdict, promise, curves, histograms, heatmap, lineage and limits.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            judge = step.judge(spec.name)
            judge_page.write_page(judge)
            return step.made({}, page=judge.key("page.html"))

    @dg.asset(
        **about_judge(project, spec, "monitor"),
        kinds={"html", "json"},
        automation_condition=KEPT_CURRENT,
        freshness_policy=EXPIRES,
        deps=[certificate, manifest],
    )
    def monitor(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Test the thresholds of the judge on newly labelled tasks, where it is deployed.

        An alarm for an error above the budget is false with probability at most delta over all
        time. The page shows an interval for the error, or that there are no labels yet.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            judge = step.judge(spec.name)
            return monitor_made(step, judge, monitoring.monitor_judge(judge))

    return [model, scores, certificate, audit, report, monitor]


def monitor_made(
    step: AssetStep, judge: JudgedCorpus, document: MonitorRecord, version: str = "", **more: Any
) -> MaterializeResult:
    """Draw the page of a monitor; return the result of its asset."""
    monitor_page.write_monitor_page(judge)
    verdict = dg.MetadataValue.md(monitor_page.monitor_markdown(document))
    return step.made(
        {"verdict": verdict, "reason": document.reason, "judge": judge.name, **more},
        version=version,
        params={"status": document.status},
        metrics=monitor_page.monitor_metrics(document),
        page=judge.key("monitor.html"),
    )
