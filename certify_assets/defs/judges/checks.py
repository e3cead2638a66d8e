"""Checks of every judge's chain: the certificate recomputes, the audit holds, TEST was read by the book."""

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import judge_key
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot
from certify_assets.evaluation import certification
from certify_assets.evaluation import parity as parity_gate
from certify_assets.evaluation.audit import load_audits
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import JudgeSpec, judges

__all__ = ["judge_checks"]

_SEVERITIES = {
    "ERROR": dg.AssetCheckSeverity.ERROR,
    "WARN": dg.AssetCheckSeverity.WARN,
    "PASS": dg.AssetCheckSeverity.WARN,
}


def judge_checks() -> list[dg.AssetChecksDefinition]:
    """Return the checks of every judge: those of the platform and those that the user's document adds."""
    makers = (_reproducible, _certified, _audit_verdict, _test_ledger)
    known = judges().values()
    return [
        *(maker(spec) for spec in known for maker in makers),
        *(_parity(spec) for spec in known if spec.hosted),
    ]


def _parity(spec: JudgeSpec) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=judge_key(spec.name, "scores"),
        name="parity",
        blocking=True,
        partitions_def=corpora_partitions,
        description="The server's log-probabilities are those of a local model on the same rows; says why where there is none to compare with.",
    )
    def parity(context: dg.AssetCheckExecutionContext, data_root: DataRoot) -> dg.AssetCheckResult:
        reason = parity_gate.parity_exemption(spec)
        if reason is not None:
            return dg.AssetCheckResult(
                passed=True, description=f"not tested: {reason}. Every certificate says so."
            )
        document = parity_gate.run_parity(
            JudgedCorpus(Corpus(data_root.store(), context.partition_key), spec.name)
        )
        return dg.AssetCheckResult(
            passed=document["passed"],
            severity=dg.AssetCheckSeverity.ERROR,
            description=parity_gate.sentence(document),
            metadata={
                name: float(document[name]) for name in ("rows", "max_difference", "rank_agreement")
            },
        )

    return parity


def _reproducible(spec: JudgeSpec) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=judge_key(spec.name, "certificate"),
        name="reproducible",
        blocking=True,
        partitions_def=corpora_partitions,
        description="Every certificate recomputes bit for bit from the stored scores, and stands on what is stored now.",
    )
    def reproducible(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> dg.AssetCheckResult:
        differences = certification.verify_stored(
            JudgedCorpus(Corpus(data_root.store(), context.partition_key), spec.name)
        )
        return dg.AssetCheckResult(
            passed=not differences,
            severity=dg.AssetCheckSeverity.ERROR,
            description=differences[0]
            if differences
            else "every certificate was recomputed, byte for byte.",
        )

    return reproducible


def _certified(spec: JudgeSpec) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=judge_key(spec.name, "certificate"),
        name="certified",
        partitions_def=corpora_partitions,
        description="Something is certified on the reject side; the warning says which of tasks, success rate, ranking or guard stopped it.",
    )
    def certified(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> dg.AssetCheckResult:
        reasons = certification.why_nothing(
            JudgedCorpus(Corpus(data_root.store(), context.partition_key), spec.name)
        )
        return dg.AssetCheckResult(
            passed=not reasons,
            severity=dg.AssetCheckSeverity.WARN,
            description=" ".join(reasons) or "the reject side is certified at every budget.",
        )

    return certified


def _audit_verdict(spec: JudgeSpec) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=judge_key(spec.name, "audit"),
        name="audit_verdict",
        blocking=True,
        partitions_def=corpora_partitions,
        description="PASS; WARN where the audit cannot tell; ERROR where the realised error on TEST exceeds the budget beyond chance.",
    )
    def audit_verdict(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> dg.AssetCheckResult:
        audits, _ = load_audits(
            JudgedCorpus(Corpus(data_root.store(), context.partition_key), spec.name)
        )
        made = [audit for audit in audits if audit.covered_tasks]
        worst = next(
            (
                verdict
                for verdict in ("ERROR", "WARN")
                if verdict in {audit.verdict for audit in made}
            ),
            "PASS",
        )
        return dg.AssetCheckResult(
            passed=worst == "PASS" and bool(made),
            severity=_SEVERITIES[worst],
            description="; ".join(
                f"{audit.side} at {audit.alpha:g}: {audit.verdict}, {audit.reason}"
                for audit in made
            )
            # one sentence where every audit says the same: nothing was certified, or nothing has a score
            or " ".join(dict.fromkeys(audit.reason for audit in audits)),
        )

    return audit_verdict


def _test_ledger(spec: JudgeSpec) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=judge_key(spec.name, "audit"),
        name="test_ledger",
        blocking=True,
        partitions_def=corpora_partitions,
        description="TEST was read under a registration, and no configuration changed after a result was seen.",
    )
    def test_ledger(
        context: dg.AssetCheckExecutionContext, data_root: DataRoot
    ) -> dg.AssetCheckResult:
        from certify_assets.evaluation.ledger import ledger_entries, ledger_violations

        store = data_root.store()
        broken = ledger_violations(Corpus(store, context.partition_key), spec.name)
        reads = [
            entry
            for entry in ledger_entries(Corpus(store, context.partition_key))
            if entry.judge == spec.name and entry.kind != "result"
        ]
        kinds = {
            kind: sum(entry.kind == kind for entry in reads)
            for kind in ("first", "replay", "changed", "unregistered")
        }
        return dg.AssetCheckResult(
            passed=not broken,
            severity=dg.AssetCheckSeverity.ERROR,
            description="; ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
            + (f"; the read of {broken[0].time} is {broken[0].kind}" if broken else ""),
        )

    return test_ledger
