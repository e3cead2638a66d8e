"""One factory builds the same assets for every judge: model, scores, certificate, audit, report."""

from typing import Any

import dagster as dg

from certify_assets.defs.assets import AssetStep, Made, bill_metrics, judge_asset, score_metadata
from certify_assets.defs.judges.models import judge_model
from certify_assets.defs.policies import EXPIRES, KEPT_CURRENT, pool_of
from certify_assets.defs.project import Project
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
    """Return the chain of every judge: the platform's, and those of the user's document."""
    makers = (judge_model, _scores, _certificate, _audit, _report)
    return [maker(project, spec) for spec in project.judges.values() for maker in makers]


def monitor_assets(project: Project) -> list[dg.AssetsDefinition]:
    """Return the monitor of every judge."""
    return [_monitor(project, spec) for spec in project.judges.values()]


def _scores(project: Project, spec: JudgeSpec) -> dg.AssetsDefinition:
    @judge_asset(
        project,
        spec,
        "scores",
        "parquet",
        deps=[
            project.key(f"judges/{spec.name}/model"),
            *project.keys("corpora", "split_manifest", "rl_split", "cal_split", "test_split"),
        ],
        **pool_of(spec),
    )
    def scores(step: AssetStep) -> Made:
        """Score every RL, CAL and TEST trajectory.

        The score is the log-odds of success, with both log-probabilities. TEST rows carry no
        outcome.
        """
        judge = step.judge(spec.name)
        table = judge.score(report=step.report)
        metadata, counts = score_metadata(project, table)
        if judge.bill is not None:
            metadata["bill"] = dg.MetadataValue.json(dict(judge.bill))
        metrics = {**counts, **bill_metrics(judge.bill)}
        figures = scoring_figures(judge, table)
        return step.made(metadata, metrics=metrics, figures=figures, reads=["cal"])

    return scores


def _certificate(project: Project, spec: JudgeSpec) -> dg.AssetsDefinition:
    rows = " and ".join(split.upper() for split in spec.calibration_splits)

    @judge_asset(
        project,
        spec,
        "certificate",
        "json",
        freshness_policy=EXPIRES,
        deps=[
            *project.keys(f"judges/{spec.name}", "scores", "model"),
            *project.keys("corpora", *(f"{split}_split" for split in spec.calibration_splits)),
            *project.keys("corpora", "split_manifest", "profile", "leak_controls"),
        ],
        description="Certify the share of runs that this judge may decide alone: both sides at "
        f"both budgets, from {rows}. The result is canonical JSON, which `certify verify` "
        "recomputes.",
    )
    def certificate(step: AssetStep) -> Made:
        judge = step.judge(spec.name)
        certificates = certifier.certify_judge(judge, run_id=step.run_id)
        figures = certified_figures(certifier.deciding(certificates))
        sides = certifier.deciding_sides(certificates)
        step.context.log.info(f"{judge}: {sides.sentence}")
        pool = load_pool(judge, certificates)
        headline = sides.lead
        metadata = {
            "verdict": dg.MetadataValue.md(judge_page.verdict(sides)),
            "gates": dg.MetadataValue.md(judge_page.gates(judge.calibration[0], headline)),
            **figures,
            "cal_tasks": headline.tasks,
            "cal_trajectories": headline.trajectories,
            "sha256": headline.sha256,
            **({} if pool is None else {"pool": pool.sentence}),
            "delta_spent": read_spending(step.corpus).of(spec.name).total(),
        }
        return step.made(
            metadata,
            params={
                name: getattr(headline, name)
                for name in ("procedure", "delta", "tasks", "candidates")
            },
            figures=figures,
            reads=judge.calibration_splits,
            documents={
                **{
                    f"{item.side}_{item.alpha:g}_{item.procedure}.json": item.to_json().decode()
                    for item in certificates
                },
                # without it nobody else can recompute those that name it
                **({} if pool is None else {"pool.json": pool.to_json().decode()}),
            },
            tags={
                "certificate_sha256": headline.sha256,
                "manifest_sha256": str(headline.provenance["manifest_sha256"]),
            },
        )

    return certificate


def _audit(project: Project, spec: JudgeSpec) -> dg.AssetsDefinition:
    @judge_asset(
        project,
        spec,
        "audit",
        "json",
        deps=[
            *project.keys(f"judges/{spec.name}", "certificate", "scores"),
            project.key("corpora/test_split"),
        ],
    )
    def audit(step: AssetStep) -> Made:
        """Audit the thresholds of CAL once on TEST, through the ledger.

        Shows realised error with its bounds, coverage, and task resampling.
        """
        judge = step.judge(spec.name)
        result = audit_judge(judge, run_id=step.run_id)
        figures = audited_figures(result.audits)
        metadata = {
            **{name: value for name, value in figures.items() if value is not None},
            "verdicts": dg.MetadataValue.md(judge_page.audit_table(result.audits)),
            # runs like those of TEST tell nothing of runs that were written for the judge
            "canary_lift": judge_page.canary_sentence(judge),
        }
        return step.made(
            metadata,
            figures=figures,
            reads=["test"],
            params={"ledger_read": result.entry.kind},
        )

    return audit


def _report(project: Project, spec: JudgeSpec) -> dg.AssetsDefinition:
    @judge_asset(
        project,
        spec,
        "report",
        "html",
        automation_condition=KEPT_CURRENT,
        deps=[
            *project.keys(f"judges/{spec.name}", "certificate", "audit", "scores"),
            *project.keys("corpora", "profile", "leak_controls"),
        ],
    )
    def report(step: AssetStep) -> Made:
        """Draw the certificate as a page that opens from disk and needs no script.

        Shows verdict, promise, curves, histograms, heatmap, lineage and limits.
        """
        judge = step.judge(spec.name)
        judge_page.write_page(judge)
        return step.made({}, page=judge.key("page.html"))

    return report


def _monitor(project: Project, spec: JudgeSpec) -> dg.AssetsDefinition:
    @judge_asset(
        project,
        spec,
        "monitor",
        "html",
        "json",
        automation_condition=KEPT_CURRENT,
        freshness_policy=EXPIRES,
        deps=[
            project.key(f"judges/{spec.name}/certificate"),
            project.key("corpora/split_manifest"),
        ],
    )
    def monitor(step: AssetStep) -> Made:
        """Test the thresholds of the judge on newly labelled tasks, where it is deployed.

        An alarm for an error above the budget is false with probability at most delta over all
        time. The page shows an interval for the error, or that there are no labels yet.
        """
        judge = step.judge(spec.name)
        return monitor_made(step, judge, monitoring.monitor_judge(judge))

    return monitor


def monitor_made(
    step: AssetStep, judge: JudgedCorpus, document: MonitorRecord, version: str = "", **more: Any
) -> Made:
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
