"""Checks of operation: deployment and decisions, labels, monitor, recertification."""

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.checks import asked_together
from certify_assets.defs.project import Project
from certify_assets.operations import checks
from certify_assets.operations.checks import Verdict
from certify_assets.operations.labels import label_table
from certify_assets.operations.review_queue import queue_agreement
from certify_assets.words import number_of

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
