"""When a corpus in operation is recertified, and how it stands: what the assets, their checks and the weekly schedule ask."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, GateClosedError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import judges
from certify_assets.operations import monitoring
from certify_assets.operations.audit_sample import OPEN_SHARE
from certify_assets.operations.batch_checks import Verdict
from certify_assets.operations.deployment_record import load_deployment, own_key
from certify_assets.operations.events import certificate_age
from certify_assets.operations.in_use import deployed_document
from certify_assets.operations.notify_config import read_notifications
from certify_assets.operations.recertification import plan_recertification, recertify
from certify_assets.operations.recertified import promote
from certify_assets.operations.spending import read_spending

__all__ = [
    "NOTHING_DEPLOYED",
    "audit_sample_complete",
    "delta_left",
    "deployed_judge",
    "no_alarm",
    "not_expired",
    "recertification_metrics",
    "recertify_deployed",
    "to_recertify",
]

NOTHING_DEPLOYED: Final = "no judge is deployed, so there is nothing to monitor or to recertify."
#: what is made anew of a judge whose scores still stand
_CERTIFYING: Final = ("certificate", "audit", "page", "monitor")
_CHAIN: Final = ("adapter", "scores", *_CERTIFYING)
_HALF, _LATE = 0.5, 0.8
_LITTLE = 0.1


def deployed_judge(corpus: Corpus) -> str | None:
    """Return the judge that decides a corpus; None where there is none."""
    document = deployed_document(corpus)
    return None if document is None else str(document["judge"])


def recertify_deployed(
    corpus: Corpus, *, deploy: bool = False
) -> tuple[dict[str, Any] | None, str]:
    """Recertify the deployed judge where it is due, and deploy what came of it where that is asked for and may be.

    Returns
    -------
    document : dict or None
        None where nothing was due.
    said : str
    """
    judge = deployed_judge(corpus)
    if judge is None:
        return None, NOTHING_DEPLOYED
    document, said = recertify(JudgedCorpus(corpus, judge))
    now = deployed_document(corpus)
    if (
        document is None
        or not deploy
        or (now is not None and now["certificates_key"] == document["certificates_key"])
    ):
        return document, said
    try:
        return document, f"{said} Deployment {promote(corpus, document).number} decides now."
    except GateClosedError as error:
        return document, f"{said} {error}"


def recertification_metrics(document: Mapping[str, Any]) -> dict[str, float]:
    """Return coverage of every side and budget, tasks, open share and δ as numbers with a name: at most twelve."""
    metrics = {
        f"{side['side']}_coverage_at_{side['alpha']:g}": float(side["coverage"])
        for side in document["sides"]
    }
    audit = float(document["tasks"]["audit_sample"])
    return {
        **metrics,
        "audit_tasks": audit,
        "open_share": float(document["open_share"]),
        "delta": document["delta"],
        "spent": document["spent"],
    }


def no_alarm(corpus: Corpus) -> Verdict:
    """Say how the monitor of the deployed judge stands."""
    judge = deployed_judge(corpus)
    if judge is None:
        return Verdict("WARN", NOTHING_DEPLOYED)
    document = monitoring.load_monitor(JudgedCorpus(corpus, judge))
    return Verdict(
        {"alarm": "ERROR", "quiet": "PASS"}.get(document["status"], "WARN"), document["reason"]
    )


def delta_left(corpus: Corpus) -> Verdict:
    """Say what is left to spend."""
    try:
        spending = read_spending(corpus)
    except CertifyError as error:
        return Verdict("ERROR", str(error))
    if spending.schedule is None:
        return Verdict(
            "PASS", "nothing was spent: the first recertification declares the schedule."
        )
    share, first = spending.next_share(), spending.schedule.share(1)
    told = f"{len(spending.claims)} recertifications spent {spending.spent:.4g} of {spending.promised:.4g}; the next gets {share:.4g}."
    if not share > 0:
        return Verdict("ERROR", f"{told} Declare another schedule, with the reason.")
    return Verdict("WARN" if share < _LITTLE * first else "PASS", told)


def audit_sample_complete(corpus: Corpus) -> Verdict:
    """Say how many of the drawn tasks are still open."""
    judge = deployed_judge(corpus)
    if judge is None:
        return Verdict("WARN", NOTHING_DEPLOYED)
    try:
        plan = plan_recertification(JudgedCorpus(corpus, judge))
    except CertifyError as error:
        return Verdict("ERROR", str(error))
    counted = plan.counted
    share = counted.open_share
    told = f"{len(counted.tasks)} of {counted.drawn} drawn tasks count, {len(plan.new_tasks)} of them new; {100 * share:.0f} % are open or tied"
    if share > OPEN_SHARE:
        return Verdict(
            "ERROR" if share > _HALF else "WARN",
            f"{told}: whether a task gets complete must not depend on its outcomes.",
        )
    return Verdict("PASS" if counted.tasks else "WARN", f"{told}.")


def not_expired(corpus: Corpus) -> Verdict:
    """Say how old the deployed certificates are."""
    try:
        deployment = load_deployment(corpus)
        days = read_notifications(corpus.store).certificate_days
    except CertifyError as error:
        return Verdict("ERROR", str(error))
    if deployment is None:
        return Verdict("WARN", NOTHING_DEPLOYED)
    age = certificate_age(corpus.store, deployment)
    told = f"deployment {deployment.number} is {age.days} days old; certificates expire after {days:g}."
    if age > timedelta(days=days):
        return Verdict("ERROR", told)
    return Verdict("WARN" if age > _LATE * timedelta(days=days) else "PASS", told)


def to_recertify(corpus: Corpus) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return which parts of which judges' chains a weekly run makes anew, and which judges it leaves alone, with the reason.

    Returns
    -------
    parts : dict of str to tuple of str
        The whole chain of judges that need seconds; of every other judge that is there the certificate and what follows it, and the whole chain only
        where its scores are of something else than what is stored now.
    left_alone : dict of str to str
    """
    parts: dict[str, tuple[str, ...]] = {}
    left_alone: dict[str, str] = {}
    for name, spec in judges(corpus.store.root).items():
        if spec.quick:
            parts[name] = _CHAIN
        elif corpus.store.exists(own_key(corpus.name, name)):
            stale = _stale(JudgedCorpus.of(corpus, spec))
            if stale and spec.hosted:
                left_alone[name] = f"scoring it costs money, so nobody does it unasked: {stale}"
            else:
                parts[name] = (
                    (*_CHAIN, *(("arms_audit",) if spec.arms else ())) if stale else _CERTIFYING
                )
    return parts, left_alone


def _stale(judge: JudgedCorpus) -> str:
    try:
        judge.require_scores()
    except CertifyError as error:
        return str(error)
    return ""
