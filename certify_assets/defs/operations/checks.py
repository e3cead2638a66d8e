"""Checks of operation: the deployment stands, decisions stand on deployed certificates, the drawn tasks are the plan's."""

from collections.abc import Callable

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot
from certify_assets.operations import checks

__all__ = ["operation_checks"]

# name → what is asked, whether it stops what comes after, and the promise
_CHECKS: dict[str, tuple[Callable[[Corpus], checks.Verdict], bool, str]] = {
    "deployment_stands": (
        checks.deployment_stands,
        # rows that were refused go to people: what comes after is for them
        False,
        "PASS; WARN where no judge is deployed, or MLflow has no record of it; ERROR where certificates are stale, the audit failed or an alarm was raised.",
    ),
    "decided_by_deployed": (
        checks.decided_by_deployed,
        True,
        "PASS; WARN where no row is decided; ERROR where a table was altered, or rows stand on a certificate that was never deployed or is not kept.",
    ),
    "drawn_as_planned": (
        checks.drawn_as_planned,
        True,
        "PASS; WARN where a batch came while no judge was deployed; ERROR where the drawn tasks are not those of the plan.",
    ),
}


def operation_checks() -> list[dg.AssetChecksDefinition]:
    """Return the checks of the decisions."""
    return [_check(name) for name in _CHECKS]


def _check(name: str) -> dg.AssetChecksDefinition:
    ask, blocking, promise = _CHECKS[name]

    @dg.asset_check(
        asset=key("operations/decisions"),
        name=name,
        blocking=blocking,
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
