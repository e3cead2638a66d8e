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
from certify_assets.defs.checks import asked_together
from certify_assets.defs.judge_models import judge_model
from certify_assets.defs.policies import EXPIRES, KEPT_CURRENT
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.pool import load_pool
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import HARVEST_JUDGES
from certify_assets.operations import certifier, monitoring
from certify_assets.operations.audit import audit_judge, load_audits
from certify_assets.operations.checks import Verdict
from certify_assets.operations.judge_figures import (
    audited_figures,
    certified_figures,
    scoring_figures,
)
from certify_assets.operations.monitoring import MonitorRecord
from certify_assets.operations.spending import read_spending
from certify_assets.reports import judge_page, monitor_page
from certify_assets.words import WORDS


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


def judge_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return the checks of every judge: the platform's, and those of the user's document."""
    blocking = (reproducible, audit_verdict, test_ledger, pseudo_labels_stay_out)
    found = []
    for judge in project.judges:
        asked = {
            "certificate": [reproducible, certified, canary_lift],
            "audit": [audit_verdict, test_ledger],
            "monitor": [no_alarm],
        }
        if judge in HARVEST_JUDGES:
            asked["model"] = [pseudo_labels_stay_out]
        found += [
            asked_together(project, {f"judges/{judge}/{part}": asks}, blocking=blocking)
            for part, asks in asked.items()
        ]
    return found


def reproducible(judge: JudgedCorpus) -> Verdict:
    """Every certificate recomputes bit for bit from the stored scores.

    It depends on what is stored now.
    """
    found = certifier.verify_stored(judge)
    said = found[0] if found else "every certificate was recomputed, byte for byte."
    return Verdict.of(not found, said)


def certified(judge: JudgedCorpus) -> Verdict:
    """Show the share that both sides decide together.

    For each side and budget without a certificate, it says whether tasks, judge or guard stopped
    it. WARN where no answer of the judge can be read.
    """
    sides = certifier.deciding_sides(certifier.load_certificates(judge))
    reasons = certifier.why_nothing(judge)
    return Verdict.of(
        judge.unread not in reasons,
        " ".join([sides.sentence, *reasons]),
        otherwise="WARN",
        certified=bool(sides.certified),
        decided=sides.decided,
    )


def canary_lift(judge: JudgedCorpus) -> Verdict:
    """Texts that claim success lift few failed runs above the median success.

    The setting canary_lift of the corpus is the largest share allowed.
    """
    found, most = judge.canaries, judge.corpus.config.canary_lift
    if found is None or found.worst is None:
        return Verdict("PASS", judge_page.canary_sentence(judge))
    lift = found.worst[1]
    return Verdict.of(
        lift <= most,
        f"{found.sentence()} The limit is {most:g} (canary_lift of the corpus).",
        otherwise="WARN",
        lift=lift,
        runs=found.runs,
        **dict(found.lifts),
    )


def audit_verdict(judge: JudgedCorpus) -> Verdict:
    """PASS; WARN where the audit cannot tell.

    ERROR where the realised error on TEST exceeds the budget beyond chance.
    """
    audits, _ = load_audits(judge)
    made = [audit for audit in audits if audit.covered_tasks]
    verdicts = {audit.verdict for audit in made}
    worst = next((verdict for verdict in ("ERROR", "WARN") if verdict in verdicts), "PASS")
    said = "; ".join(
        f"{WORDS[audit.side]} at {audit.alpha:g}: {audit.verdict}, {audit.reason}" for audit in made
    )
    # one sentence where every audit says the same: nothing was certified or has a score
    said = said or " ".join(dict.fromkeys(audit.reason for audit in audits))
    return Verdict(worst if made else "WARN", said)


def test_ledger(judge: JudgedCorpus) -> Verdict:
    """TEST was read under a registration, and no configuration changed after a result was seen."""
    from certify_assets.operations.ledger import (
        POOL_KIND,
        READ_KINDS,
        ledger_entries,
        ledger_violations,
    )

    broken = ledger_violations(judge.corpus, judge.name)
    kinds = [entry.kind for entry in ledger_entries(judge.corpus) if entry.judge == judge.name]
    said = [f"{kinds.count(kind)} {kind}" for kind in (*READ_KINDS, POOL_KIND) if kind in kinds]
    said += [f"the read of {item.time} is {item.kind}" for item in broken[:1]]
    return Verdict.of(not broken, "; ".join(said))


def pseudo_labels_stay_out(judge: JudgedCorpus) -> Verdict:
    """No pseudo-labelled run is of a task of CAL or TEST.

    The stored harvest is the one that the model was trained on.
    """
    from certify_assets.judges.families.harvest import harvest_violations

    found = harvest_violations(judge)
    said = found[0] if found else "no pseudo-label is of a task that certifies or audits."
    return Verdict.of(not found, said)


def no_alarm(judge: JudgedCorpus) -> Verdict:
    """PASS, also where there is nothing to monitor; ERROR on an alarm."""
    document = monitoring.load_monitor(judge)
    return Verdict.of(document.status != "alarm", document.reason)
