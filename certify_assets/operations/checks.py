"""Checks of operation: what must hold of deployments, decisions, labels and recertifications."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import DELTA
from certify_assets.operations.audit_sample import OPEN_SHARE
from certify_assets.operations.batch_audit import batch_audits
from certify_assets.operations.batch_drawing import waiting_runs
from certify_assets.operations.deployment import (
    behind,
    deployed_spending,
    load_deployment,
    open_deployment,
)
from certify_assets.operations.monitoring import load_monitor
from certify_assets.operations.notifications import certificate_age, read_notifications
from certify_assets.operations.recertification import NOTHING_DEPLOYED, plan_recertification

# shares from which a check warns or fails
_HALF, _LATE, _LITTLE = 0.5, 0.8, 0.1


class Verdict(NamedTuple):
    """PASS, WARN or ERROR, and the sentence."""

    status: str
    sentence: str
    #: of the page of the check
    metadata: Mapping[str, Any] = {}

    @property
    def passed(self) -> bool:
        """Whether it holds."""
        return self.status == "PASS"

    @classmethod
    def of(
        cls, passed: bool, sentence: str, *, otherwise: str = "ERROR", **metadata: Any
    ) -> Verdict:
        """Return PASS, or what it is otherwise."""
        return cls("PASS" if passed else otherwise, sentence, metadata)


def _readable(check: Callable[[Corpus], Verdict]) -> Callable[[Corpus], Verdict]:
    """Let a check be an ERROR where what it is of cannot be read."""

    @functools.wraps(check)
    def checked(corpus: Corpus) -> Verdict:
        try:
            return check(corpus)
        except CertifyError as error:
            return Verdict("ERROR", str(error))

    return checked


def deployment_stands(corpus: Corpus) -> Verdict:
    """PASS where a judge decides.

    WARN where no judge is deployed, the deployment has findings, or MLflow has no record of it.
    ERROR where certificates are stale, the audit failed or an alarm was raised.
    """
    from certify_assets.certificates import Sides

    now = open_deployment(corpus)
    if now.refusal is not None:
        status = "WARN" if now.refusal.code == "not_deployed" else "ERROR"
        return Verdict(status, str(now.refusal))
    made = now.record
    assert made is not None
    found = [item["message"] for item in made.findings if item["code"] != "two_sides"]
    if made.mlflow is not None and "error" in made.mlflow:
        found.append(f"MLflow: {made.mlflow['error']}")
    sentence = f"{made.judge} decides ({made.budgets}; deployment {made.number})."
    if now.certificates:
        sentence = f"{sentence} {Sides(now.certificates).sentence}"
    if later := behind(corpus, made):
        sentence = f"{sentence} {later[:1].upper()}{later[1:]}"
    return Verdict("WARN" if found else "PASS", " ".join([sentence, *found]))


@_readable
def batches_certified(corpus: Corpus) -> Verdict:
    """PASS where no batch is provisional.

    WARN while a batch waits for labels of its draw; ERROR where a stored draw was changed.
    """
    (audits, faults), later = batch_audits(corpus), waiting_runs(corpus)
    if faults:
        return Verdict("ERROR", " ".join(faults.values()))
    waiting = [item for item in audits if item.state == "provisional"]
    sentences = [item.sentence for item in waiting or audits[-1:]]
    sentences += [item.sentence() for item in later]
    if waiting:
        return Verdict("WARN", " ".join(sentences))
    return Verdict("PASS", " ".join(sentences) or "no batch is provisional.")


def no_alarm(corpus: Corpus) -> Verdict:
    """PASS; ERROR on an alarm.

    WARN where a judge is deployed and nothing is labelled, or too few tasks are decided to tell.
    """
    record = load_deployment(corpus)
    if record is None:
        return Verdict("PASS", NOTHING_DEPLOYED)
    found = load_monitor(JudgedCorpus(corpus, record.judge))
    status = {"alarm": "ERROR", "quiet": "PASS"}.get(found.status, "WARN")
    return Verdict(status, found.reason)


@_readable
def delta_left(corpus: Corpus) -> Verdict:
    """PASS; WARN where the next share of delta is under a tenth of the first.

    ERROR where what was spent cannot be read.
    """
    spending = deployed_spending(corpus)
    if spending.schedule is None:
        return Verdict("PASS", "nothing was spent: the next certificate declares the schedule.")
    share, first = spending.next_share(), spending.schedule.share(1)
    sentence = (
        f"{spending.later} later certificates and recertifications spent {spending.spent:.4g} of "
        f"δ = {spending.promised:.4g}, the first certificate {DELTA:g}. The next gets {share:.4g}."
    )
    return Verdict("WARN" if share < _LITTLE * first else "PASS", sentence)


@_readable
def audit_sample_complete(corpus: Corpus) -> Verdict:
    """PASS; WARN where more than 5 % of the drawn tasks that could count are open or tied.

    WARN too where no drawn task counts yet. ERROR above 50 %.
    """
    record = load_deployment(corpus)
    if record is None:
        return Verdict("PASS", NOTHING_DEPLOYED)
    plan = plan_recertification(record.judge_on(corpus))
    counted, share = plan.counted, plan.counted.open_share
    sentence = (
        f"{len(counted.tasks):,} of {counted.drawn:,} drawn tasks count, "
        f"{len(plan.new_tasks):,} of them new; {100 * share:.0f} % are open or tied"
    )
    if share > OPEN_SHARE:
        return Verdict(
            "ERROR" if share > _HALF else "WARN",
            f"{sentence}. Label them: which tasks are complete must not depend on outcomes.",
        )
    return Verdict("PASS" if counted.tasks else "WARN", f"{sentence}.")


@_readable
def not_expired(corpus: Corpus) -> Verdict:
    """PASS; WARN above 80 % of the age at which certificates expire; ERROR above that age."""
    record, days = load_deployment(corpus), read_notifications(corpus.store).certificate_days
    if record is None:
        return Verdict("PASS", NOTHING_DEPLOYED)
    age = certificate_age(record)
    sentence = (
        f"deployment {record.number} is {age.days} days old; certificates expire after {days:g}."
    )
    if age > timedelta(days=days):
        return Verdict("ERROR", sentence)
    return Verdict("WARN" if age > _LATE * timedelta(days=days) else "PASS", sentence)
