"""Assets of operation: inbox, batches, decisions, review queue, labels, recertification."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import to_frame
from certify_assets.defs.assets import (
    AssetStep,
    MaterializeResult,
    Metadata,
    asset_step,
    column_lineage,
    table_metadata,
)
from certify_assets.defs.checks import asked_together
from certify_assets.defs.judges import monitor_made
from certify_assets.defs.names import CERTIFYING, INBOX, OPERATIONS_GROUP, code_version
from certify_assets.defs.policies import EXPIRES, KEPT_CURRENT, on_device_of_any_judge
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.errors import IntegrityError
from certify_assets.judges.specs import SIDES
from certify_assets.operations import batch_drawing, checks, deciding, history, receiving
from certify_assets.operations.batch_audit import STATES
from certify_assets.operations.batch_drawing import waiting_runs
from certify_assets.operations.batches import batch_names, decided
from certify_assets.operations.checks import Verdict
from certify_assets.operations.decisions import PROVISIONAL, decisions_of, load_decisions
from certify_assets.operations.deployment import deployed_spending, load_deployment
from certify_assets.operations.labels import label_table, write_label_table
from certify_assets.operations.monitoring import monitor_deployed
from certify_assets.operations.notifications import notify
from certify_assets.operations.recertification import NOTHING_DEPLOYED, recertify_deployed
from certify_assets.operations.review_index import KINDS
from certify_assets.operations.review_queue import load_queue, queue_agreement
from certify_assets.reports import history_page, review_page
from certify_assets.words import number_of

#: written by a command, not by a run
DEPLOYMENT = "operations/deployment"
_VERSION = code_version(**CERTIFYING)
_COPIED = ("trajectory_id", "task_id", "agent", "attempt", "source_file", "source_sha256")
_QUEUED = ("trajectory_id", "task_id", "batch", "attempt")
_LABELLED = ("trajectory_id", "task_id", "batch", "asked", "decision")
_DECISIONS = "operations/decisions"


class RecertificationConfig(dg.Config):
    """What a run configures of a recertification."""

    deploy: bool = Field(
        False, description="Whether the new certificates are deployed, if all checks pass."
    )


def operation_assets(project: Project) -> list[Any]:
    """Return the assets from the inbox to the decisions."""
    inbox = project.source(
        INBOX,
        OPERATIONS_GROUP,
        kinds={"file"},
        description="New agent runs in inbox/<corpus>/ of the data root, in any published format; "
        "outcomes are not needed and never used.",
    )
    deployment = project.source(
        DEPLOYMENT,
        OPERATIONS_GROUP,
        kinds={"json"},
        deps=project.every("certificate", "audit"),
        description="The judge that decides, its certificates and the plan of the draw: written by "
        "`certify ops deploy`, past the checks.",
    )

    @dg.asset(
        **project.about("operations/incoming_runs", OPERATIONS_GROUP, _VERSION),
        deps=[inbox, deployment],
        kinds={"parquet"},
    )
    def incoming_runs(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Import new runs as a batch, without their outcomes.

        A batch is one delivery. The partition is the corpus, not the batch: each materialization
        takes all files that arrived. Runs that came before are separated, and the audit sample is
        drawn before anything is scored. The same files twice are one batch.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            received = receiving.receive(step.corpus)
            names = ("runs", "new", "changed", "known", "files")
            counts = {name: getattr(received, name) for name in names}
            metadata = {
                **table_metadata(to_frame([]), rows=received.new + received.changed),
                "batch": received.batch or "none: nothing is new",
                "dropped": dict(received.dropped),
                "sentences": " ".join(received.sentences) or "none",
            }
            return step.made(metadata, params={"batch": received.batch}, metrics=counts)

    @dg.asset(
        **project.about(_DECISIONS, OPERATIONS_GROUP, _VERSION),
        **on_device_of_any_judge(project),
        deps=[incoming_runs, deployment, project.key("corpora/split_manifest")],
        kinds={"parquet"},
    )
    def decisions(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Decide every new run: auto-fail, auto-pass or review.

        The column `batch` names the delivery of a run. Each row has reason, score, thresholds and
        certificate. If judge, certificate, audit or monitor is not valid, every run goes to review,
        and this page says why.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            corpus = step.corpus
            records = deciding.decide_ready(corpus, report=step.report)
            kinds = (*SIDES, "human", PROVISIONAL)
            counts = {kind: sum(item.decisions.get(kind, 0) for item in records) for kind in kinds}
            remarks = " ".join(remark for item in records for remark in item.remarks)
            names = batch_names(corpus)
            rows = sum(decided(corpus, name).content.rows for name in names)
            last = decisions_of(corpus, names[-1]) if names else load_decisions(corpus)
            certificates = dict.fromkeys(found for item in records for found in item.certificates)
            metadata = {
                **table_metadata(last, rows=rows),
                **column_lineage(_sources(project, corpus)),
                "promises": {item.batch: list(item.promises) for item in records},
                "batches": [item.to_dict() for item in records],
            }
            return step.made(
                metadata,
                metrics=counts,
                params={"said": remarks or "nothing to look at"},
                # the record is found from a certificate or a batch
                tags={
                    "certify.batches": ";".join(item.batch for item in records)[:5000],
                    "certificate_sha256": ";".join(certificates),
                },
            )

    @dg.asset(
        **project.about("operations/batch_certificates", OPERATIONS_GROUP, _VERSION),
        deps=[decisions],
        kinds={"json"},
    )
    def batch_certificates(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Close batches with runs that the corpus certificate does not cover.

        These are runs of new agents or known tasks. Such a batch is provisional until the labels of
        its draw suffice. Then it is certified or goes to reviewers.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            audits, faults = batch_drawing.close_batches(step.corpus)
            if faults:
                raise IntegrityError(" ".join(faults.values()))
            said = [item.sentence for item in audits]
            said += [item.sentence() for item in waiting_runs(step.corpus)]
            figures = {
                **{state: sum(item.state == state for item in audits) for state in STATES},
                "labels": sum(item.labelled for item in audits),
                "labels_wanted": sum(len(item.wanted) for item in audits),
                "decided_runs": sum(item.decided for item in audits),
            }
            metadata = {
                "said": " ".join(said) or "no batch has uncovered runs.",
                "promises": {item.record.batch: item.promise for item in audits},
                "batches": [item.to_dict() for item in audits],
            }
            return step.made(metadata, metrics=figures)

    return [inbox, deployment, incoming_runs, batch_certificates, decisions]


def review_assets(project: Project) -> list[dg.AssetsDefinition]:
    """Return the queue and the labels."""
    decisions = project.key(_DECISIONS)

    @dg.asset(
        **project.about("operations/review_queue", OPERATIONS_GROUP, _VERSION),
        deps=[decisions, project.key("operations/batch_certificates")],
        kinds={"parquet", "html"},
    )
    def review_queue(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """List the runs that need review and have no label, the most needed first.

        Draws of provisional batches come first, then the audit sample, then what the judge left
        undecided. Writes a table, and a page with the budget. `certify review serve` serves the
        page for labelling.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            queue = load_queue(step.corpus)
            budget = queue.budget
            counts = {f"{kind.kind}_labels": kind.labels for kind in budget.kinds}
            metadata = {
                **table_metadata(queue.frame),
                **_copied(decisions, _QUEUED),
                # no artifact of MLflow, which more people may read: it has the texts of runs
                "page": dg.MetadataValue.path(review_page.write_queue_page(step.corpus, queue)),
                "budget": dg.MetadataValue.md(review_page.budget_markdown(budget)),
            }
            return step.made(
                metadata,
                metrics={
                    **counts,
                    "saved_runs": budget.saved,
                    "hours": round(budget.minutes / 60, 2),
                    "saved_hours": round(budget.saved_minutes / 60, 2),
                },
            )

    @dg.asset(
        **project.about("operations/reviewed_labels", OPERATIONS_GROUP, _VERSION),
        deps=[review_queue, decisions],
        kinds={"parquet"},
    )
    def reviewed_labels(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Resolve the labels of the review page and of label files.

        Each run has one row with the majority's outcome, every vote, and why it was in the queue.
        Only rows of the audit sample measure how often the judge is wrong.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            table = write_label_table(step.corpus)
            asked = table.frame["asked"]
            by_kind = {f"labelled_{kind}": int((asked == kind).sum()) for kind in KINDS}
            metadata = table_metadata(table.frame) | _copied(decisions, _LABELLED)
            return step.made(metadata, metrics={**table.figures(), **by_kind})

    return [review_queue, reviewed_labels]


def recertify_assets(project: Project) -> list[dg.AssetsDefinition]:
    """Return monitor and recertification of the deployed judge, what follows, and the history."""
    labels = project.key("operations/reviewed_labels")

    @dg.asset(
        **project.about("operations/monitor", OPERATIONS_GROUP, _VERSION),
        deps=[labels],
        kinds={"html", "json"},
        automation_condition=KEPT_CURRENT,
        freshness_policy=EXPIRES,
    )
    def monitor(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Test the deployed judge's thresholds on labelled tasks of the draw.

        An alarm is false with probability at most delta over all time. It is recorded with its
        time, and notifications are sent. The page shows an interval for the error.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            document = monitor_deployed(step.corpus)
            if document is None:
                return _unchanged(step, {"reason": NOTHING_DEPLOYED})
            judge, unsent = step.judge(document.judge), notify(step.corpus)
            return monitor_made(step, judge, document, document.sha256, not_told=unsent)

    @dg.asset(
        **project.about("operations/recertification", OPERATIONS_GROUP, _VERSION),
        **on_device_of_any_judge(project),
        deps=[labels, monitor],
        kinds={"json"},
    )
    def recertification(
        context: dg.AssetExecutionContext,
        config: RecertificationConfig,
        data_root: DataRoot,
        mlflow: MlflowTracker,
    ) -> MaterializeResult:
        """Certify the deployed judge on CAL and the audit sample together.

        Each recertification spends a share of delta by the declared schedule. It is made once for
        each set of labels, when enough tasks are new. The rows are stored with the certificates, so
        anyone can recompute them.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            record, said = recertify_deployed(step.corpus, deploy=config.deploy)
            if record is None:
                return _unchanged(step, {"said": said})
            metadata = {
                "said": said,
                "joint": record.joint,
                "delta_spent": deployed_spending(step.corpus).total(),
                "findings": list(record.findings),
                "left_out": dict(record.left_out),
                "certificates": dg.MetadataValue.path(step.store.locate(record.certificates_key)),
            }
            return step.made(
                metadata,
                params={
                    "number": record.number,
                    "schedule": record.schedule,
                    "labels_sha256": record.labels.sha256,
                },
                metrics=record.metrics,
                tags={"inputs_sha256": record.inputs_sha256},
            )

    @dg.asset(
        **project.about("operations/history", OPERATIONS_GROUP, _VERSION),
        deps=[recertification, monitor],
        kinds={"html", "json"},
        automation_condition=KEPT_CURRENT,
    )
    def operation_history(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Draw the history of the certificates, over deployments and recertifications.

        Shows certified coverage, realised error with its interval, alarms and δ spent.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            document = history.write_history(step.corpus)
            history_page.write_history_page(step.store, document)
            metadata = {
                "verdict": dg.MetadataValue.md(history_page.history_markdown(document)),
                "joint": document.joint,
                "not_told": notify(step.corpus),
            }
            page = history.history_key(step.corpus.name, "history.html")
            return step.made(metadata, page=page)

    return [monitor, operation_history, recertification]


def _unchanged(step: AssetStep, metadata: Mapping[str, str]) -> MaterializeResult:
    # a version of its own, or every run without a result would be news for what depends on it
    return dg.MaterializeResult(
        metadata={**metadata, "ledger": step.ledger}, data_version=dg.DataVersion("nothing")
    )


def _copied(asset_key: dg.AssetKey, columns: Sequence[str]) -> Metadata:
    """Return the lineage of columns that an asset has under the same names."""
    return column_lineage({name: [(asset_key, name)] for name in columns})


def _sources(project: Project, corpus: Corpus) -> dict[str, list[tuple[dg.AssetKey, str]]]:
    """Return where the columns come from: the runs, and the judge that is deployed now."""
    incoming = project.key("operations/incoming_runs")
    copied = {name: [(incoming, name)] for name in _COPIED}
    deployed = load_deployment(corpus)
    if deployed is None:
        return copied
    model, certificate = project.keys(f"judges/{deployed.judge}", "model", "certificate")
    score = [(incoming, "instruction"), (incoming, "steps"), (model, "adapter_sha256")]
    threshold = (certificate, "threshold")
    return {
        **copied,
        "score": score,
        **{f"{side}_threshold": [threshold] for side in ("reject", "release")},
        "decision": [*score, threshold],
        "reason": [*score, threshold],
        "certificate_sha256": [(certificate, "sha256")],
        "adapter_sha256": [(model, "adapter_sha256")],
        "asked": [(incoming, "task_id"), (project.key(DEPLOYMENT), "sampling")],
    }


# of the runs that two reviewers labelled: a tenth in dispute questions the instructions,
# a quarter is no ground truth
_WARN, _ERROR = 0.10, 0.25


def operation_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return the checks of the decisions; rows that were refused go to review, so none blocks."""
    return [
        asked_together(project, {"operations/decisions": [checks.deployment_stands]}),
        asked_together(project, {"operations/batch_certificates": [checks.batches_certified]}),
    ]


def recertify_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return the checks of monitor and recertification, each of three states."""
    asked = [checks.delta_left, checks.audit_sample_complete, checks.not_expired]
    return [
        asked_together(project, {"operations/monitor": [checks.no_alarm]}),
        asked_together(project, {"operations/recertification": asked}),
    ]


def review_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return the checks of the labels."""
    asked = {"operations/reviewed_labels": [reviewers_agree, labels_of_known_runs]}
    return [asked_together(project, asked)]


def reviewers_agree(corpus: Corpus) -> Verdict:
    """Two reviewers differ on at most 10 % of the runs that both labelled; ERROR above 25 %.

    WARN too where no run was labelled twice, or where a reviewer is clearly wrong on more than 10 %
    of the known runs.
    """
    agreement = queue_agreement(corpus)
    disputed = label_table(corpus).figures()["disputed"]
    share = disputed / agreement.runs if agreement.runs else None
    found = [one for one in agreement.reviewers if one.gold_high is not None]
    # the better end of the interval: a few known runs accuse nobody
    misses = any(one.gold_high < 1 - _WARN for one in found if one.gold_high is not None)
    return Verdict.of(
        share is not None and share <= _WARN and not misses,
        " ".join([agreement.sentence(), *(one.gold_sentence() for one in found)]),
        otherwise="ERROR" if share is not None and share > _ERROR else "WARN",
        doubly=agreement.runs,
        **({} if agreement.kappa is None else {"kappa": agreement.kappa}),
    )


def labels_of_known_runs(corpus: Corpus) -> Verdict:
    """Every label is of a run that was decided: ERROR where a labelled batch is gone."""
    unknown = label_table(corpus).unknown
    gone = f"In no decided batch: {number_of(len(unknown), 'labelled run')}, such as "
    return Verdict.of(
        not unknown,
        f"{gone}{unknown[0]!a}. Restore the batch." if unknown else "all are known.",
        unknown=len(unknown),
    )
