"""The deployment of a corpus as one operation sees it: what decides, or why nothing does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.deliveries import relabelled
from certify_assets.errors import CertifyError, InputError, IntegrityError, StaleCertificateError
from certify_assets.evaluation.audit import load_audits
from certify_assets.evaluation.certification import deciding_sides, load_certificates
from certify_assets.evaluation.ledger import ledger_violations
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import PROCEDURES
from certify_assets.operations.alarms import read_alarms
from certify_assets.operations.batch_record import BatchRecord, Refusal
from certify_assets.operations.decisions import decide_batch
from certify_assets.operations.deployment_record import Deployed, DeploymentRecord, load_deployment
from certify_assets.operations.layout import own_key, recertification_number
from certify_assets.operations.monitor_record import MonitorRecord
from certify_assets.operations.recertification_record import (
    load_recertification,
    recertification_certificates,
)
from certify_assets.storage.progress import Report, silent
from certify_assets.storage.snapshot import Snapshot, remembered

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate


@dataclass(frozen=True, eq=False)
class Deployment:
    """The deployment of a corpus, opened and verified for one operation."""

    corpus: Corpus
    record: DeploymentRecord | None = None  # None where there is none, or none that can be read
    certificates: tuple[Certificate, ...] = ()  # those that decide, at most one a side, recomputed
    refusal: Refusal | None = None  # why nothing may be decided; None where the judge decides

    @classmethod
    def of(cls, corpus: Corpus) -> Deployment:
        """Open the deployment of a corpus; a fault becomes its refusal, never an exception."""
        return _opened(corpus)

    @property
    def store(self) -> Snapshot:
        """Data root, as the corpus sees it."""
        return self.corpus.store

    @property
    def judge(self) -> JudgedCorpus | None:
        """The judge as it was deployed; None where there is none."""
        return None if self.record is None else self.record.judge_on(self.corpus)

    def refused(self, refusal: Refusal) -> Deployment:
        """Return the same deployment, deciding nothing; an earlier refusal stays."""
        return self if self.refusal is not None else replace(self, refusal=refusal)

    def decide(
        self,
        batch: str,
        *,
        report: Report = silent,
        reopened: Callable[[], Deployment] | None = None,
    ) -> BatchRecord:
        """Decide an imported batch and store its decisions.

        `reopened` gives the deployment as it is once the batch is scored, by default `of`.
        """
        return decide_batch(self, batch, report, reopened or partial(Deployment.of, self.corpus))


def _not_deployed(corpus: Corpus) -> str:
    return f"no judge is deployed on {corpus}; deploy one with `certify ops deploy {corpus} JUDGE`."


@remembered
def _opened(corpus: Corpus) -> Deployment:
    record = None
    try:
        record = load_deployment(corpus)
        if record is None:
            return Deployment(corpus, refusal=Refusal("not_deployed", _not_deployed(corpus)))
        certificates = tuple(certificates_of(corpus, record))
    except CertifyError as error:
        return Deployment(corpus, record, refusal=Refusal("stale_certificate", str(error)))
    if record.batch_only:
        refused = no_batch_certified(corpus)
        return Deployment(
            corpus, record, refusal=Refusal("no_certificate", refused) if refused else None
        )
    if not any(item.certified for item in certificates):
        text = (
            f"the deployment of {record.judge} on {corpus} names no certificate that certifies "
            "anything; deploy again."
        )
        return Deployment(corpus, record, certificates, Refusal("no_certificate", text))
    fault = deployment_fault(corpus, record, certificates)
    return Deployment(corpus, record, certificates, fault)


def no_batch_certified(corpus: Corpus) -> str:
    """Say why no batch gets a certificate of its own; empty where batches do."""
    config = corpus.current.config
    if config.new_agents == "batch_certificate":
        return ""
    return (
        f"no batch of {corpus} is certified, since its new_agents is {config.new_agents}; "
        "import it with --set new_agents=batch_certificate, or deploy a certified judge."
    )


def corrected_labels(judge: JudgedCorpus) -> str:
    """Say which labels that certify a deployed judge a later delivery corrected; else empty."""
    corpus = judge.corpus.current
    if corpus.trajectories_sha256 == judge.corpus.trajectories_sha256:
        return ""
    then, certified = judge.corpus.runs, judge.calibration[0]["trajectory_id"]
    other = relabelled(then[then["trajectory_id"].isin(certified)], corpus.runs)
    if not other:
        return ""
    splits = " and ".join(split.upper() for split in judge.calibration_splits)
    return (
        f"{len(other)} runs of {splits}, for example {other[0]!r}, have other labels now than when "
        f"{judge} was certified on {corpus}; certify and audit it, then deploy it with "
        "--accept-relabelled."
    )


def behind(corpus: Corpus, record: Deployed) -> str:
    """Say what is stored of corpus and judge that came after a deployment; empty where nothing."""
    try:
        said = list(_later(corpus, record))
    except CertifyError as error:
        # it decides by what it was made of, whatever is stored now
        return f"what is stored now cannot be read: {error}"
    return f"{'; '.join(said)}; deploy again to replace it." if said else ""


def _later(corpus: Corpus, record: Deployed) -> Iterator[str]:
    numbers = {item.trajectories_sha256: item.number for item in corpus.deliveries.read()}
    then = numbers.get(record.fingerprint["trajectories_sha256"], 0)
    now, judge = max(numbers.values(), default=0), JudgedCorpus(corpus, record.judge)
    if then < now:
        yield f"version {now} of the corpus is stored, and it decides by version {then}"
    adapter = record.fingerprint["adapter_sha256"]
    if judge.is_trained and judge.stored_artifact.adapter_sha256 != adapter:
        yield f"{judge} was trained again since"


def certified_judge(judge: JudgedCorpus) -> JudgedCorpus:
    """Return a judge as it was deployed, where it is deployed, else as it is stored."""
    record = load_deployment(judge.corpus)
    return judge if record is None or record.judge != judge.name else record.judge_on(judge.corpus)


@remembered
def deployed_certificates(corpus: Corpus) -> list[Certificate]:
    """Return the certificates that decide, at most one a side, recomputed."""
    record = load_deployment(corpus)
    if record is None:
        raise InputError(_not_deployed(corpus))
    return certificates_of(corpus, record)


def certificates_in_use(judge: JudgedCorpus) -> list[Certificate] | None:
    """Return the certificates of a deployed judge, recomputed; None where they do not decide."""
    record = load_deployment(judge.corpus)
    if record is None or record.judge != judge.name:
        return None
    try:
        return deployed_certificates(judge.corpus.current)
    except StaleCertificateError:
        # it decides nothing any more, which must not stop the run that certifies the judge again
        return None


def strictest_certificates(certificates: Sequence[Certificate]) -> list[Certificate]:
    """Return of each side the certified one of the deployed procedure with the strictest budget."""
    return list(deciding_sides(certificates).certified)


def labels_before(judge: JudgedCorpus, key: str) -> int:
    """Return the number of the label up to which tasks may be in stored certificates."""
    # those of a recertification may contain the tasks that were complete when it was made
    number = recertification_number(judge.corpus.name, key)
    return load_recertification(judge.corpus, number).labels.sequence if number else 0


def read_certificates(judge: JudgedCorpus, key: str) -> list[Certificate]:
    """Return the certificates stored under a key, recomputed on what is stored now."""
    if key == own_key(judge.corpus.name, judge.name):
        return load_certificates(judge)
    number = recertification_number(judge.corpus.name, key)
    if not number:
        raise IntegrityError(
            f"the deployment on {judge.corpus} names {key!r}, which holds no certificates of this "
            f"corpus; deploy {judge} again."
        )
    return recertification_certificates(judge.corpus, number)


def certificates_of(corpus: Corpus, record: Deployed) -> list[Certificate]:
    """Return the certificates of a deployment, recomputed on the judge as it was deployed."""
    judge = record.judge_on(corpus)
    try:
        now, then = judge_fingerprint(judge), record.fingerprint
        names = sorted({*now, *then})
        stale = next((name for name in names if now.get(name) != then.get(name)), None)
        if stale:
            raise StaleCertificateError(
                f"it was deployed with another {stale.removesuffix('_sha256')} than its files have."
            )
        # whatever a judge certifies, batches have certificates of their own
        issued = [] if record.batch_only else read_certificates(judge, record.certificates_key)
        found = {item.sha256: item for item in issued}
    except CertifyError as error:
        raise StaleCertificateError(
            f"deployment {record.number} of {corpus} cannot decide: {error} Deploy {judge} again."
        ) from None
    if missing := next((sha256 for sha256 in record.certificates if sha256 not in found), None):
        raise StaleCertificateError(
            f"the certificate {missing[:12]} that was deployed on {corpus} is not among those in "
            f"{record.certificates_key}; deploy {judge} again."
        )
    chosen = [found[sha256] for sha256 in record.certificates]
    budgets = {item.side: item.alpha for item in chosen}
    if budgets != dict(record.alpha) or len(chosen) != len(record.alpha):
        raise IntegrityError(
            f"the deployment on {corpus} names other sides or budgets than its certificates have; "
            f"deploy {judge} again."
        )
    return chosen


def kept_certificates(corpus: Corpus, record: Deployed) -> tuple[Certificate, ...]:
    """Return the certificates of a deployment as they were when they were deployed."""
    from certify_assets.certificates import Certificate

    objects = corpus.store.objects
    return tuple(Certificate.from_json(objects.get(sha256)) for sha256 in record.certificates)


@remembered
def judge_fingerprint(judge: JudgedCorpus) -> dict[str, str]:
    """Return the hashes that the decisions of a judge depend on."""
    _, hashes, record = judge.calibration
    if judge.family.fingerprint(judge, record) != record.adapter_sha256:
        raise StaleCertificateError(
            f"the files of the adapter of {judge} on {judge.corpus} are not those of its document; "
            f"restore them, or materialize judges/{judge}/model again."
        )
    prompt = judge.family.prompt_sha256(judge, record)
    grid = judge.corpus.config.thresholds(PROCEDURES[0])
    return {**hashes, "prompt_sha256": prompt, "grid": str(grid)}


def deployment_fault(
    corpus: Corpus, record: Deployed, certificates: Sequence[Certificate]
) -> Refusal | None:
    """Return what labels, audit, monitor or alarms have against a deployment."""
    judge = record.judge_on(corpus)
    try:
        if corrected := corrected_labels(judge):
            return Refusal("corrected_labels", corrected)
    except CertifyError as error:
        # where the labels of now cannot be read, nobody knows whether they were corrected
        return Refusal("stale_certificate", str(error))
    folders = (judge.key(), record.certificates_key.rpartition("/")[0])
    monitors = [f"{folder}/monitor.json" for folder in folders]
    if fault := _audit_fault(judge, certificates, own=record.own):
        return Refusal("failed_audit", fault)
    fault = _monitor_fault(corpus, certificates, monitors) or _alarm_fault(corpus, certificates)
    return Refusal("alarm", fault) if fault else None


def _audit_fault(judge: JudgedCorpus, certificates: Sequence[Certificate], *, own: bool) -> str:
    """Return what the audit on TEST has against certificates."""
    # Those on CAL must be audited by their hashes. Those of a recertification were issued after
    # TEST was read, so the audit of their side and budget counts.
    if not judge.store.exists(judge.key("audits.json")):
        return (
            f"the certificates of {judge} on {judge.corpus} were never read on TEST; materialize "
            f"judges/{judge}/audit."
        )
    registrations = {str(item.provenance.get("registration", "")) for item in certificates}
    try:
        audits, _ = load_audits(judge)
        broken = [
            entry
            for entry in ledger_violations(judge.corpus, judge.name)
            if entry.registration in registrations
        ]
    except CertifyError as error:
        return f"the audit of {judge} on {judge.corpus} cannot be read: {error}"
    if broken:
        return (
            f"TEST of {judge.corpus} was read by {judge} against its registration "
            f"({broken[0].kind}, {broken[0].time}); its audit proves nothing."
        )
    for item in certificates:
        found = [
            audit
            for audit in audits
            if (
                audit.certificate_sha256 == item.sha256
                if own
                else (audit.side, audit.alpha) == (item.side, item.alpha)
            )
        ]
        if not found:
            return (
                f"the {item.side} certificate of {judge} at {item.alpha:g} was not audited on "
                f"TEST; materialize judges/{judge}/audit."
            )
        if failed := next((audit for audit in found if audit.verdict == "ERROR"), None):
            return (
                f"the audit of {judge} on {judge.corpus} failed, {item.side} at {item.alpha:g}: "
                f"{failed.reason}"
            )
    return ""


def _monitor_fault(
    corpus: Corpus, certificates: Sequence[Certificate], monitors: Sequence[str]
) -> str:
    """Return the alarm of these certificates in the documents of monitors."""
    # A document counts as it is, also where labels came since: an alarm does not go away because
    # its document is old.
    hashes = {item.sha256 for item in certificates}
    for key in dict.fromkeys(monitors):
        if not corpus.store.exists(key):
            continue
        try:
            alarms = [
                entry
                for entry in MonitorRecord.load(corpus.store, key).monitors
                if entry.certificate_sha256 in hashes and entry.result.alarm
            ]
        except CertifyError:
            return (
                f"{corpus.store.locate(key)} is no monitor document, so an alarm may have been "
                "lost; materialize the monitor again."
            )
        if alarms:
            first = alarms[0]
            return (
                f"the monitor raised an alarm for the {first.side} side at {first.alpha:g} "
                f"after {first.result.first_alarm_at} tasks: the error is above the budget; "
                "recertify, or deploy another judge."
            )
    return ""


def _alarm_fault(corpus: Corpus, certificates: Sequence[Certificate]) -> str:
    hashes = {item.sha256 for item in certificates}
    raised = next(
        (alarm for alarm in read_alarms(corpus) if alarm.content.certificate_sha256 in hashes), None
    )
    if raised is None:
        return ""
    alarm = raised.content
    return (
        f"the monitor raised an alarm for the {alarm.side} side at {alarm.alpha:g} after "
        f"{alarm.at} tasks ({raised.time}): the error is above the budget; recertify, or deploy "
        "another judge."
    )
