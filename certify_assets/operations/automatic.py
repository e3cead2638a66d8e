"""Automatic deployment: what the policy of a corpus makes of new certificates."""

# The first deployment is a user's, and so are another judge, another budget and another side: what
# is deployed here is the judge that decides already, at its budgets, under certificates that were
# never deployed before, so that what a user rolled back stays rolled back. All guard rails of a
# deployment by hand hold, and more: no alarm of the certificates in use is open, since an alarm
# chooses the date by labels; and the audit sample alone does not speak against the new ones.

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from certify_assets.certificates import Certificate, audit_certificate
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import (
    CertifyError,
    ChangedInputError,
    GateClosedError,
    StaleCertificateError,
)
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns
from certify_assets.operations.audit_sample import count_audit_tasks
from certify_assets.operations.certifier import deciding
from certify_assets.operations.deploying import accepted_before, deploy, register, require_sound
from certify_assets.operations.deployment import (
    DeploymentRecord,
    judge_fingerprint,
    load_deployment,
    read_certificates,
    read_deployments,
)
from certify_assets.operations.monitor_record import open_alarm
from certify_assets.operations.recertification import score_rows
from certify_assets.operations.recertification_record import RecertificationRecord, recertifications
from certify_assets.storage.events import Payload


class AutomaticDeployment(Payload):
    """What the policy made of the newest certificates of the deployed judge."""

    kind = "deployed by policy"
    corpus: str
    judge: str
    policy: str
    certificates: tuple[str, ...] = ()  # SHA-256 of the newest ones, at the budgets that decide
    deployed: int = 0  # number of the deployment that they decide under; 0 where they do not
    reason: str = ""  # why they do not

    @property
    def refused(self) -> bool:
        """Whether the policy asks for a deployment that a guard rail or an error prevented."""
        return self.policy != "never" and not self.deployed


def deploy_by_policy(corpus: Corpus) -> AutomaticDeployment | None:
    """Deploy the newest certificates where policy and guard rails let it; None if none decide."""
    now = load_deployment(corpus)
    if now is None:
        return None
    if now.policy and now.mlflow is None:
        # a kill came before MLflow was told
        register(corpus, now.number)
    with corpus.writing():
        asked = AutomaticDeployment(
            corpus=corpus.name, judge=now.judge, policy=corpus.config.auto_deploy
        )
        made = _decided(corpus, now, JudgedCorpus(corpus, now.judge), asked)
        if made.deployed in (0, now.number):
            # the judge that decides may have newer certificates than the one that is stored
            again = _decided(corpus, now, now.judge_on(corpus), asked)
            made = made if again.deployed in (0, now.number) else again
        if made != last_automatic(corpus):
            corpus.store.append(corpus.name, made)
    return made


def last_automatic(corpus: Corpus) -> AutomaticDeployment | None:
    """Return what the policy made of certificates the last time; None where it never did."""
    found = corpus.store.last(corpus.name, AutomaticDeployment)
    return found and found.content


def _decided(
    corpus: Corpus, now: DeploymentRecord, judge: JudgedCorpus, made: AutomaticDeployment
) -> AutomaticDeployment:
    """Deploy the newest certificates of a judge, or say why not."""
    try:
        record = _newest_recertification(judge)
        number = 0 if record is None else record.number
        found = [
            item
            for item in deciding(read_certificates(judge, number))
            if item.certified and now.alpha.get(item.side) == item.alpha
        ]
        made = made.model_copy(update={"certificates": tuple(item.sha256 for item in found)})
        if found and {*made.certificates} <= {*now.certificates}:
            return made.model_copy(update={"deployed": now.number})
        _require_allowed(corpus, now, made, found)
        if record is not None:
            require_sound(
                record,
                [side for side in record.sides if side.certificate_sha256 in made.certificates],
            )
        elif judge_fingerprint(judge) != dict(now.fingerprint):
            _require_audit_sample(judge, now, found)
        deployed = deploy(
            judge,
            alpha={item.side: item.alpha for item in found},
            recertification=number,
            policy=made.policy,
            accepted=accepted_before(now, judge, number),
        )
    except ChangedInputError:
        raise
    except CertifyError as error:
        return made.model_copy(update={"reason": str(error)})
    return made.model_copy(update={"deployed": deployed.number})


def _newest_recertification(judge: JudgedCorpus) -> RecertificationRecord | None:
    """Return the last recertification of a judge as it is; None where it has those on CAL alone."""
    adapter = judge_fingerprint(judge)["adapter_sha256"]
    for record in reversed(recertifications(judge.corpus)):
        if (record.judge, record.adapter_sha256) == (judge.name, adapter):
            # those of CAL as it was before a delivery are stale
            with suppress(StaleCertificateError):
                read_certificates(judge, record.number)
                return record
    return None


def _require_allowed(
    corpus: Corpus, now: DeploymentRecord, made: AutomaticDeployment, found: Sequence[Certificate]
) -> None:
    """Refuse what a user has to decide: other sides, what was rolled back, an open alarm."""
    if now.batch_only:
        raise GateClosedError(
            f"{now.judge} was deployed for certificates of batches alone. Deploy it by hand: "
            f"`certify ops deploy {corpus} {now.judge}`."
        )
    if not found:
        raise GateClosedError("the newest certificates certify nothing at the deployed budgets.")
    hashes = {*made.certificates}
    earlier = [item for item in read_deployments(corpus) if hashes <= {*item.certificates}]
    if earlier:
        raise GateClosedError(
            f"deployment {earlier[-1].number} had these certificates, and deployment {now.number} "
            "replaced it: what was taken back is not deployed again unasked."
        )
    if made.policy == "never":
        raise GateClosedError(
            "new certificates wait: auto_deploy of the corpus is never. Deploy them by hand: "
            "`certify ops deploy`, or `certify ops recertify --deploy`."
        )
    if lost := now.alpha.keys() - {item.side for item in found}:
        raise GateClosedError(
            f"the {' and '.join(sorted(lost))} side decides now, and the newest certificates "
            "certify nothing there. Deploy by hand to let its runs go to reviewers."
        )
    if raised := open_alarm(corpus, now.certificates):
        raise GateClosedError(
            f"an alarm is open for the {raised.content.side} side of deployment {now.number} "
            f"({raised.time}). Find out why, then deploy by hand: `certify ops deploy {corpus} "
            f"{now.judge}`."
        )


def _require_audit_sample(
    judge: JudgedCorpus, now: DeploymentRecord, certificates: Sequence[Certificate]
) -> None:
    """Audit a judge that was trained again on the labelled tasks that were drawn before."""
    if judge.spec.hosted:
        raise GateClosedError(
            f"{judge} was trained or scored again, and scoring the audit sample by it costs money. "
            "Deploy it by hand."
        )
    counted = count_audit_tasks(judge.corpus, adapter_sha256=now.adapter_sha256, plan=now.sampling)
    if counted.rows.empty:
        return
    table = score_rows(judge, counted.rows.assign(refused=True))
    for item in certificates:
        audit = audit_certificate(item, *columns(table))
        if audit.verdict == "ERROR":
            raise GateClosedError(
                f"on the audit sample of earlier batches the new {item.side} side at "
                f"{item.alpha:g} fails ({audit.reason})"
            )
