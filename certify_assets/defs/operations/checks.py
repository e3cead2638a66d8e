"""Checks of operation: deployment and decisions, labels, monitor, recertification."""

from collections.abc import Callable

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.assets import three_states
from certify_assets.defs.names import corpora_partitions, key
from certify_assets.defs.resources import DataRoot
from certify_assets.operations import checks
from certify_assets.operations.checks import Verdict
from certify_assets.operations.labels import label_table
from certify_assets.operations.review_queue import queue_agreement

# of the runs that two reviewers labelled: a tenth in dispute questions the instructions,
# a quarter is no ground truth
_WARN, _ERROR = 0.10, 0.25

# what is asked, of which asset, whether it stops what comes after, the promise
_DECISIONS: tuple[tuple[Callable[[Corpus], Verdict], str, bool, str], ...] = (
    (
        checks.deployment_stands,
        "decisions",
        # rows that were refused go to human review: what comes after is for that
        False,
        "PASS; WARN where no judge is deployed, or MLflow has no record of it; ERROR where "
        "certificates are stale, the audit failed or an alarm was raised.",
    ),
    (
        checks.decided_by_deployed,
        "decisions",
        True,
        "PASS; WARN where no row is decided; ERROR where a table was altered, or rows depend on a "
        "certificate that was never deployed or is not kept.",
    ),
    (
        checks.drawn_as_planned,
        "decisions",
        True,
        "PASS; WARN where a batch came while no judge was deployed; ERROR where the drawn tasks "
        "are not those of the plan.",
    ),
    (
        checks.batches_certified,
        "batch_certificates",
        False,
        "PASS; WARN while a batch is provisional and runs of its draw wait for labels; ERROR where "
        "an audit is not the one that was drawn.",
    ),
)
_RECERTIFICATION: tuple[tuple[Callable[[Corpus], Verdict], str, bool, str], ...] = (
    (
        checks.no_alarm,
        "monitor",
        False,
        "PASS; ERROR on an alarm; WARN where a judge is deployed and nothing is labelled, or too "
        "few tasks are covered for silence to mean much.",
    ),
    (
        checks.delta_left,
        "recertification",
        False,
        "PASS; WARN where the next share of delta is under a tenth of the first; ERROR where none "
        "is left, or what was spent cannot be read.",
    ),
    (
        checks.audit_sample_complete,
        "recertification",
        False,
        "PASS; WARN where more than a twentieth of the drawn tasks that could count are open or "
        "tied; ERROR from a half, or of mixed provenance.",
    ),
    (
        checks.not_expired,
        "recertification",
        False,
        "PASS; WARN from four fifths of the age at which certificates expire; ERROR beyond it.",
    ),
)


def operation_checks() -> list[dg.AssetChecksDefinition]:
    """Return the checks of the decisions."""
    return [_check(*what) for what in _DECISIONS]


def recertify_checks() -> list[dg.AssetChecksDefinition]:
    """Return the checks of monitor and recertification, each of three states."""
    return [_check(*what) for what in _RECERTIFICATION]


def review_checks() -> list[dg.AssetChecksDefinition]:
    """Return the checks of the labels."""
    return [reviewers_agree, labels_of_known_runs]


def _check(
    ask: Callable[[Corpus], Verdict], asset: str, blocking: bool, promise: str
) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=key(f"operations/{asset}"),
        name=ask.__name__,
        blocking=blocking,
        partitions_def=corpora_partitions,
        description=promise,
    )
    def check(context: dg.AssetCheckExecutionContext, data_root: DataRoot) -> dg.AssetCheckResult:
        verdict = ask(Corpus(data_root.view(), context.partition_key))
        return dg.AssetCheckResult(
            passed=verdict.status == "PASS",
            severity=three_states(verdict.status),
            description=verdict.sentence,
        )

    return check


@dg.asset_check(
    asset=key("operations/reviewed_labels"),
    partitions_def=corpora_partitions,
    description="Of the runs that two reviewers labelled they differ on at most 10 %; ERROR above "
    "25 %; WARN too where no run was labelled twice, or where a reviewer misses surely more than "
    "10 % of the known runs.",
)
def reviewers_agree(
    context: dg.AssetCheckExecutionContext, data_root: DataRoot
) -> dg.AssetCheckResult:
    """Compare the share in dispute with what is bearable."""
    corpus = Corpus(data_root.view(), context.partition_key)
    made = label_table(corpus)
    share, agreement = made.disagreement, queue_agreement(corpus)
    found = [one for one in agreement.reviewers if one.gold_high is not None]
    # the better end of the interval: a few known runs accuse nobody
    misses = any(one.gold_high < 1 - _WARN for one in found if one.gold_high is not None)
    return dg.AssetCheckResult(
        passed=share is not None and share <= _WARN and not misses,
        severity=three_states("ERROR" if share is not None and share > _ERROR else "WARN"),
        description=" ".join(
            [
                "no run was labelled by two reviewers, so it is not known whether they agree."
                if share is None
                else f"{made.sentence()} {agreement.sentence()}",
                *(one.gold_sentence() for one in found),
            ]
        ),
        metadata={
            "doubly": made.doubly,
            **({} if agreement.kappa is None else {"kappa": agreement.kappa}),
        },
    )


@dg.asset_check(
    asset=key("operations/reviewed_labels"),
    partitions_def=corpora_partitions,
    description="Every label is of a run that was decided: ERROR where a labelled batch is gone.",
)
def labels_of_known_runs(
    context: dg.AssetCheckExecutionContext, data_root: DataRoot
) -> dg.AssetCheckResult:
    """Count labels without a decision."""
    unknown = label_table(Corpus(data_root.view(), context.partition_key)).unknown
    return dg.AssetCheckResult(
        passed=not unknown,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{len(unknown)} labelled runs are in no decided batch, such as "
        f"{unknown[0]!a}; restore the batch."
        if unknown
        else "all are known.",
        metadata={"unknown": len(unknown)},
    )
