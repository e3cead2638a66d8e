"""Automatic deployment: what the policy of a corpus makes of new certificates."""

# The first deployment is a user's, and so are another judge, another budget and another side: what
# is deployed here is the judge that decides already, at its budgets, under certificates that were
# never deployed before, so that what a user rolled back stays rolled back. All guard rails of a
# deployment by hand hold, and more: no alarm of the certificates in use is open, since an alarm
# chooses the date by labels; and the audit sample alone does not speak against the new ones.

from __future__ import annotations

from dataclasses import dataclass

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
from certify_assets.operations.certifier import deciding, own_key
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
from certify_assets.operations.rollout import accepted_before, deploy, register, require_sound
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


@dataclass(frozen=True, eq=False)
class _Candidate:
    """The newest certificates of a judge."""

    judge: JudgedCorpus
    key: str
    certificates: tuple[Certificate, ...]  # that certify at the budgets of the deployment
    record: RecertificationRecord | None  # None for those on CAL
    fresh: bool  # whether judge, scores or corpus are others than those that were deployed


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
        current = JudgedCorpus(corpus, now.judge)
        made = _decided(corpus, now, current, asked)
        if made.deployed in (0, now.number) and _is_other(current, now):
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
    try:
        found = _candidate(judge, now)
        hashes = tuple(item.sha256 for item in found.certificates)
        made = made.model_copy(update={"certificates": hashes})
        if hashes and set(hashes) <= set(now.certificates):
            return made.model_copy(update={"deployed": now.number})
        _require_new(corpus, now, made)
        _require_sides(now, found)
        _require_guards(corpus, now, found)
        deployed = deploy(
            found.judge,
            alpha={item.side: item.alpha for item in found.certificates},
            certificates_key=found.key,
            policy=made.policy,
            accepted=accepted_before(now, found.judge, found.key),
        )
    except ChangedInputError:
        raise
    except CertifyError as error:
        return made.model_copy(update={"reason": str(error)})
    return made.model_copy(update={"deployed": deployed.number})


def _require_new(corpus: Corpus, now: DeploymentRecord, made: AutomaticDeployment) -> None:
    if now.batch_only:
        raise GateClosedError(
            f"{now.judge} was deployed for certificates of batches alone; `certify ops deploy "
            f"{corpus} {now.judge}` lets others decide."
        )
    if not made.certificates:
        raise GateClosedError(
            "the newest certificates certify nothing at the budgets that decide; the deployment "
            "stays as it is."
        )
    hashes = set(made.certificates)
    earlier = [item for item in read_deployments(corpus) if hashes <= {*item.certificates}]
    if earlier:
        raise GateClosedError(
            f"deployment {earlier[-1].number} was under these certificates, and deployment "
            f"{now.number} replaced it: what was taken back is not deployed again unasked."
        )
    if made.policy == "never":
        raise GateClosedError(
            "new certificates wait: auto_deploy of the corpus is never; `certify ops deploy`, or "
            "`certify ops recertify --deploy`, lets them decide."
        )


def _require_sides(now: DeploymentRecord, found: _Candidate) -> None:
    """Refuse certificates of fewer sides than decide: which ones decide is a user's choice."""
    lost = now.alpha.keys() - {item.side for item in found.certificates}
    if lost:
        raise GateClosedError(
            f"the {' and '.join(sorted(lost))} side decides now, and the newest certificates "
            f"certify nothing there; deploy by hand to let its runs go to reviewers."
        )


def _is_other(judge: JudgedCorpus, now: DeploymentRecord) -> bool:
    """Whether a judge as it is stored is another one than was deployed."""
    try:
        return judge_fingerprint(judge) != dict(now.fingerprint)
    except CertifyError:
        # what the policy makes of it says what is wrong with it
        return True


def _candidate(judge: JudgedCorpus, now: DeploymentRecord) -> _Candidate:
    """Return the last recertification of the judge as it is stored, else what it has on CAL."""
    fingerprint = judge_fingerprint(judge)
    fresh = fingerprint != dict(now.fingerprint)
    for record in reversed(recertifications(judge.corpus)):
        if (record.judge, record.adapter_sha256) != (now.judge, fingerprint["adapter_sha256"]):
            continue
        try:
            certificates = read_certificates(judge, record.certificates_key)
        except StaleCertificateError:
            # of CAL as it was before a delivery
            continue
        found = _at_budgets(certificates, now)
        return _Candidate(judge, record.certificates_key, found, record, fresh)
    key = own_key(judge.corpus.name, judge.name)
    return _Candidate(judge, key, _at_budgets(read_certificates(judge, key), now), None, fresh)


def _at_budgets(certificates: list[Certificate], now: DeploymentRecord) -> tuple[Certificate, ...]:
    return tuple(
        item
        for side, alpha in now.alpha.items()
        for item in deciding(certificates)
        if (item.side, item.alpha) == (side, alpha) and item.certified
    )


def _require_guards(corpus: Corpus, now: DeploymentRecord, found: _Candidate) -> None:
    raised = open_alarm(corpus, now.certificates)
    if raised is not None:
        alarm = raised.content
        raise GateClosedError(
            f"an alarm is open: the monitor raised it for the {alarm.side} side at {alarm.alpha:g} "
            f"of deployment {now.number} ({raised.time}). Find out why, then deploy with "
            f"`certify ops deploy {corpus} {now.judge}`."
        )
    if found.record is not None:
        wanted = {item.sha256 for item in found.certificates}
        sides = [side for side in found.record.sides if side.certificate_sha256 in wanted]
        require_sound(found.record, sides)
    elif found.fresh:
        _require_audit_sample(found.judge, now, found.certificates)


def _require_audit_sample(
    judge: JudgedCorpus, now: DeploymentRecord, certificates: tuple[Certificate, ...]
) -> None:
    """Audit a judge that was trained again on the labelled tasks that were drawn before."""
    if judge.spec.hosted:
        raise GateClosedError(
            f"{judge} was trained or scored again, and to score the audit sample by it costs "
            "money; deploy it by hand."
        )
    counted = count_audit_tasks(
        judge.corpus,
        adapter_sha256=now.fingerprint["adapter_sha256"],
        plan=now.sampling,
    )
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
