"""Checks of every judge: the certificate recomputes, the audit holds, TEST was read once."""

import dagster as dg

from certify_assets.defs.checks import asked_together
from certify_assets.defs.project import Project
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import HARVEST_JUDGES
from certify_assets.operations import certifier, monitoring
from certify_assets.operations.audit import load_audits
from certify_assets.operations.checks import Verdict
from certify_assets.reports import judge_page
from certify_assets.words import WORDS


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
