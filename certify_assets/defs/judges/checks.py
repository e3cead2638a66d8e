"""Checks of every judge: the certificate recomputes, the audit holds, TEST was read once."""

from collections.abc import Callable

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import corpora_partitions, judge_key
from certify_assets.defs.resources import DataRoot
from certify_assets.defs.setup import judges
from certify_assets.evaluation import certification
from certify_assets.evaluation.audit import load_audits
from certify_assets.evaluation.unseen_agents import left_out_agents
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import HARVEST_JUDGES
from certify_assets.operations import monitoring
from certify_assets.reports import judge_page

Ask = Callable[[JudgedCorpus], dg.AssetCheckResult]
_ERROR, _WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


def judge_checks() -> list[dg.AssetChecksDefinition]:
    """Return the checks of every judge: the platform's, and those of the user's document."""
    named = judges()
    return [
        *(_check(name, *what) for name in named for what in _OF_EVERY_JUDGE),
        *(_check(name, *_STAYS_OUT) for name in HARVEST_JUDGES if name in named),
    ]


def monitor_checks() -> list[dg.AssetChecksDefinition]:
    """Return the check of every judge's monitor."""
    return [_check(name, *_NO_ALARM) for name in judges()]


def _check(
    judge: str,
    part: str,
    blocking: bool,
    ask: Ask,
    promise: str,
) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=judge_key(judge, part),
        name=ask.__name__,
        blocking=blocking,
        partitions_def=corpora_partitions,
        description=promise,
    )
    def check(context: dg.AssetCheckExecutionContext, data_root: DataRoot) -> dg.AssetCheckResult:
        return ask(JudgedCorpus(Corpus(data_root.view(), context.partition_key), judge))

    return check


def reproducible(judge: JudgedCorpus) -> dg.AssetCheckResult:
    """Recompute every certificate."""
    found = certification.verify_stored(judge)
    return dg.AssetCheckResult(
        passed=not found,
        severity=_ERROR,
        description=found[0] if found else "every certificate was recomputed, byte for byte.",
    )


def certified(judge: JudgedCorpus) -> dg.AssetCheckResult:
    """Say what is certified; that nothing is, is a result, that no answer can be read is not."""
    sides = certification.deciding_sides(certification.load_certificates(judge))
    reasons = certification.why_nothing(judge)
    return dg.AssetCheckResult(
        passed=judge.unread not in reasons,
        severity=_WARN,
        description=" ".join([sides.sentence, *reasons]),
        metadata={"certified": bool(sides.certified), "decided": sides.decided},
    )


def agent_shift(judge: JudgedCorpus) -> dg.AssetCheckResult:
    """Ask whether an agent that is left out is above the budget."""
    document = left_out_agents(judge)
    found = [item["message"] for item in document.findings]
    measured = any(row.tail is not None for rows in document.errors.values() for row in rows)
    said = "no agent that is left out is above the budget beyond chance."
    return dg.AssetCheckResult(
        passed=not found,
        severity=_WARN,
        description=" ".join(found) or (said if measured else "there is no agent to leave out."),
    )


def talked_to(judge: JudgedCorpus) -> dg.AssetCheckResult:
    """Read how far texts that claim success lift failed runs."""
    found, most = judge.canaries, judge.corpus.config.canary_lift
    if found is None or found.worst is None:
        return dg.AssetCheckResult(passed=True, description=judge_page.talked_to(judge))
    lift = found.worst[1]
    return dg.AssetCheckResult(
        passed=lift <= most,
        severity=_WARN,
        description=f"{found.sentence()} A warning above {most:g} (canary_lift of the corpus).",
        metadata={"lift": lift, "runs": found.runs, **dict(found.lifts)},
    )


def audit_verdict(judge: JudgedCorpus) -> dg.AssetCheckResult:
    """Take the worst verdict of the audits."""
    audits, _ = load_audits(judge)
    made = [audit for audit in audits if audit.covered_tasks]
    verdicts = {audit.verdict for audit in made}
    worst = next((verdict for verdict in ("ERROR", "WARN") if verdict in verdicts), "PASS")
    said = "; ".join(
        f"{audit.side} at {audit.alpha:g}: {audit.verdict}, {audit.reason}" for audit in made
    )
    return dg.AssetCheckResult(
        passed=worst == "PASS" and bool(made),
        severity=_ERROR if worst == "ERROR" else _WARN,
        # one sentence where every audit says the same: nothing was certified or has a score
        description=said or " ".join(dict.fromkeys(audit.reason for audit in audits)),
    )


def test_ledger(judge: JudgedCorpus) -> dg.AssetCheckResult:
    """Count the reads of TEST and find those that broke a rule."""
    from certify_assets.evaluation.ledger import (
        POOL_KIND,
        READ_KINDS,
        ledger_entries,
        ledger_violations,
    )

    broken = ledger_violations(judge.corpus, judge.name)
    kinds = [
        entry.kind
        for entry in ledger_entries(judge.corpus)
        if entry.judge == judge.name and entry.kind != "result"
    ]
    said = "; ".join(
        f"{kinds.count(kind)} {kind}" for kind in (*READ_KINDS, POOL_KIND) if kind in kinds
    )
    return dg.AssetCheckResult(
        passed=not broken,
        severity=_ERROR,
        description=said
        + (f"; the read of {broken[0].time} is {broken[0].kind}" if broken else ""),
    )


def pseudo_labels_stay_out(judge: JudgedCorpus) -> dg.AssetCheckResult:
    """Compare the harvest with the tasks of CAL and TEST."""
    from certify_assets.judges.families.harvest import harvest_violations

    found = harvest_violations(judge)
    return dg.AssetCheckResult(
        passed=not found,
        severity=_ERROR,
        description=found[0] if found else "no pseudo-label is of a task that certifies or audits.",
    )


def no_alarm(judge: JudgedCorpus) -> dg.AssetCheckResult:
    """Read the stored monitor; without labels there is no alarm."""
    document = monitoring.load_monitor(judge)
    return dg.AssetCheckResult(
        passed=document.status != "alarm", severity=_ERROR, description=document.reason
    )


# part, whether it stops what comes after, what is asked, the promise
_OF_EVERY_JUDGE: tuple[tuple[str, bool, Ask, str], ...] = (
    (
        "certificate",
        True,
        reproducible,
        "Every certificate recomputes bit for bit from the stored scores, and depends on what is "
        "stored now.",
    ),
    (
        "certificate",
        False,
        certified,
        "Something is certified on a side, and what both decide in all; says of each side and "
        "budget without a certificate which of tasks, success rate, ranking or guard stopped it.",
    ),
    (
        "certificate",
        False,
        agent_shift,
        "No agent of CAL, left out of certificate and training, is above the budget beyond chance; "
        "the certificate itself covers new tasks, not new agents.",
    ),
    (
        "certificate",
        False,
        talked_to,
        "No text that claims success lifts more failed runs over the median success than "
        "canary_lift of the corpus allows.",
    ),
    (
        "audit",
        True,
        audit_verdict,
        "PASS; WARN where the audit cannot tell; ERROR where the realised error on TEST exceeds "
        "the budget beyond chance.",
    ),
    (
        "audit",
        True,
        test_ledger,
        "TEST was read under a registration, and no configuration changed after a result was seen.",
    ),
)
_STAYS_OUT = (
    "model",
    True,
    pseudo_labels_stay_out,
    "No harvested run is of a task of CAL or TEST, and the harvest is the one that the model was "
    "trained on.",
)
_NO_ALARM = (
    "monitor",
    False,
    no_alarm,
    "PASS; ERROR on an alarm; WARN where there is nothing to monitor, or too few tasks are "
    "covered for silence to mean much.",
)
