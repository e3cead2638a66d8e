"""The deployment of a corpus: its record, what decides by it, or why nothing does."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from certify_assets.certificates import Certificate
from certify_assets.certificates.procedures import AVERAGE
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.deliveries import relabelled
from certify_assets.errors import CertifyError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import PROCEDURES
from certify_assets.operations.audit import load_audits
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.batches import Refusal
from certify_assets.operations.certifier import deciding_sides, load_certificates
from certify_assets.operations.ledger import ledger_violations
from certify_assets.operations.recertification_record import (
    load_recertification,
    recertification_certificates,
)
from certify_assets.operations.spending import Spending, read_spending
from certify_assets.storage.events import Head, Payload
from certify_assets.storage.moment import remembered
from certify_assets.words import WORDS

SCHEMA: Final = "certify_assets/deployment/1"


class Deployed(Payload):
    """A judge was deployed: it decides the new runs of a corpus, under certificates.

    Its objects are, by their keys, all files that the decisions depend on, and the certificates
    that decide.
    """

    kind = "deployed"
    number: int  # among the deployments of the corpus, from 1
    corpus: str
    judge: str
    alpha: Mapping[str, float]  # budget of each side that is decided
    recertification: int = 0  # whose certificates decide; 0 for those on CAL
    certificates: tuple[str, ...]  # SHA-256 of those that decide, at most one a side
    fingerprint: Mapping[str, str]  # hashes that the decisions depend on, and the grid
    sampling: SamplingPlan
    findings: tuple[Mapping[str, str], ...] = ()  # code and message of what the user should know

    @property
    def budgets(self) -> str:
        """The budgets in words."""
        return ", ".join(
            f"{WORDS[side]} at {100 * alpha:g} %" for side, alpha in self.alpha.items()
        )

    @property
    def adapter_sha256(self) -> str:
        """Hash of the judge as it was deployed."""
        return self.fingerprint["adapter_sha256"]

    @property
    def scorer(self) -> tuple[str, str]:
        """Judge and adapter: scores of one scorer compare."""
        return self.judge, self.adapter_sha256

    @property
    def version(self) -> str:
        """Hash of the number and of all that it names."""
        return sha256_bytes(canonical_json([self.number, dict(self.objects)]))

    def judge_on(self, corpus: Corpus) -> JudgedCorpus:
        """Return the judge as it was deployed, with its corpus."""
        return JudgedCorpus(corpus, self.judge).pinned(self.objects)


class TrackedDeployment(Payload):
    """MLflow was told of a deployment: model, version, alias and run, or the error."""

    kind = "tracked"
    number: int  # of the deployment
    answer: Mapping[str, str]


class DeploymentRecord(Deployed):
    """A deployment with what its event adds, and what MLflow answered."""

    time: str  # UTC, ISO 8601
    ledger: Head
    mlflow: Mapping[str, str] | None = None  # None before it is asked

    def is_again(self, made: Deployed) -> bool:
        """Whether another deployment names the same, whatever its number."""
        names = Deployed.model_fields.keys() - {"number"}
        return all(getattr(self, name) == getattr(made, name) for name in names)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the deployment."""
        document = {"schema": SCHEMA, **self.model_dump(mode="json")}
        # more people read it than may know which tasks nobody reads
        del document["sampling"]["seed"]
        return document


class Alarm(Payload):
    """A monitor raised an alarm, which stays even if its labels change."""

    kind = "alarm"
    judge: str
    side: str
    alpha: float
    certificate_sha256: str
    at: int  # number of tasks after which it was raised
    e_value: float
    interval: tuple[float, float]  # for the error, when it was recorded

    @property
    def subject(self) -> str:
        """Certificate that it is about, which has one alarm."""
        return self.certificate_sha256


@remembered
def load_deployment(corpus: Corpus) -> DeploymentRecord | None:
    """Return the current deployment, the last one; None where there is none."""
    found = read_deployments(corpus)
    return found[-1] if found else None


@remembered
def read_deployments(corpus: Corpus) -> list[DeploymentRecord]:
    """Return every deployment of a corpus, the oldest first."""
    # no decision depends on what MLflow answers
    told = {
        entry.content.number: entry.content.answer
        for entry in corpus.events(TrackedDeployment, watched=False)
    }
    return [
        DeploymentRecord(
            **dict(entry.content),
            time=entry.time,
            ledger=entry.head,
            mlflow=told.get(entry.content.number),
        )
        for entry in corpus.events(Deployed)
    ]


def deployed_spending(corpus: Corpus) -> Spending:
    """Return what the deployed judge spent; what all judges did where none is deployed."""
    spending, now = read_spending(corpus), load_deployment(corpus)
    return spending if now is None else spending.of(now.judge)


def plan_before(corpus: Corpus) -> SamplingPlan:
    """Return the sampling of the last deployment; at first .05 under a new secret seed."""
    now = load_deployment(corpus)
    return SamplingPlan(seed=secrets.randbits(62)) if now is None else now.sampling


@dataclass(frozen=True, eq=False)
class Deployment:
    """The deployment of a corpus, opened and verified for one operation."""

    corpus: Corpus
    record: DeploymentRecord | None = None  # None where there is none, or none that can be read
    certificates: tuple[Certificate, ...] = ()  # those that decide, at most one a side
    refusal: Refusal | None = None  # why nothing may be decided; None where the judge decides

    @property
    def judge(self) -> JudgedCorpus | None:
        """The judge as it was deployed; None where there is none."""
        return None if self.record is None else self.record.judge_on(self.corpus)

    def refused(self, refusal: Refusal) -> Deployment:
        """Return the same deployment, deciding nothing; an earlier refusal stays."""
        return self if self.refusal is not None else replace(self, refusal=refusal)


@remembered
def open_deployment(corpus: Corpus) -> Deployment:
    """Open the deployment of a corpus; a fault becomes its refusal, never an exception."""
    record = None
    try:
        record = load_deployment(corpus)
        if record is None:
            text = (
                f"no judge is deployed on {corpus}. Deploy one with `certify ops deploy {corpus} "
                "JUDGE`."
            )
            return Deployment(corpus, refusal=Refusal("not_deployed", text))
        certificates = certificates_of(corpus, record)
    except CertifyError as error:
        return Deployment(corpus, record, refusal=Refusal("stale_certificate", str(error)))
    return Deployment(corpus, record, certificates, deployment_fault(corpus, record, certificates))


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
        f"{len(other):,} runs of {splits}, such as {other[0]!r}, have other labels than when "
        f"{judge} was certified on {corpus}. Certify and audit it again, then deploy it with "
        "--accept-relabelled."
    )


def behind(corpus: Corpus, record: Deployed) -> str:
    """Say what is stored of corpus and judge that came after a deployment; empty where nothing."""
    try:
        said = list(_later(corpus, record))
    except CertifyError as error:
        # it decides by what it was made of, whatever is stored now
        return f"What is stored now cannot be read: {error}"
    return " ".join([*said, "Deploy again to use it."]) if said else ""


def _later(corpus: Corpus, record: Deployed) -> Iterator[str]:
    numbers = {item.trajectories_sha256: item.number for item in corpus.deliveries.read()}
    then = numbers.get(record.fingerprint["trajectories_sha256"], 0)
    now, judge = max(numbers.values(), default=0), JudgedCorpus(corpus, record.judge)
    if then < now:
        yield f"The deployment decides by version {then} of the corpus; version {now} is stored."
    if judge.is_trained and judge.stored_artifact.adapter_sha256 != record.adapter_sha256:
        yield f"{judge} was trained again."


def deployment_of(judge: JudgedCorpus) -> DeploymentRecord | None:
    """Return the deployment of a judge; None where another one or none is deployed."""
    record = load_deployment(judge.corpus)
    return None if record is None or record.judge != judge.name else record


def certified_judge(judge: JudgedCorpus) -> JudgedCorpus:
    """Return a judge as it was deployed, where it is deployed, else as it is stored."""
    record = deployment_of(judge)
    return judge if record is None else record.judge_on(judge.corpus)


def certificates_in_use(judge: JudgedCorpus) -> Sequence[Certificate] | None:
    """Return the certificates of a deployed judge; None where they do not decide."""
    record = deployment_of(judge)
    try:
        return None if record is None else certificates_of(judge.corpus.current, record)
    except StaleCertificateError:
        # it decides nothing any more, which must not stop the run that certifies the judge again
        return None


def strictest_certificates(certificates: Sequence[Certificate]) -> list[Certificate]:
    """Return of each side the certified one of the deployed procedure with the strictest budget."""
    return list(deciding_sides(certificates).certified)


def labels_before(corpus: Corpus, recertification: int) -> int:
    """Return the number of the label up to which tasks may be in certificates."""
    # those of a recertification may contain the tasks that were complete when it was made
    return load_recertification(corpus, recertification).labels.sequence if recertification else 0


def read_certificates(judge: JudgedCorpus, recertification: int) -> list[Certificate]:
    """Return the certificates that may decide, of a recertification or those on CAL, recomputed."""
    found = (
        recertification_certificates(judge.corpus, recertification)
        if recertification
        else load_certificates(judge)
    )
    return [item for item in found if may_decide(judge.corpus, item.promise)]


def may_decide(corpus: Corpus, promise: str) -> bool:
    """Whether certificates of a promise are deployed: `average` where the corpus says so."""
    return promise != AVERAGE or corpus.current.config.deploy_average


def certificates_of(corpus: Corpus, record: Deployed) -> tuple[Certificate, ...]:
    """Return the certificates that decide, which were recomputed when they were deployed.

    Raises
    ------
    StaleCertificateError
        If one of them, or something that they depend on, is not what it was then.
    """
    judge = record.judge_on(corpus)
    try:
        # objects never change, but the program that reads them may
        now, then = judge_fingerprint(judge), record.fingerprint
        stale = next(
            (name for name in sorted({*now, *then}) if now.get(name) != then.get(name)), ""
        )
        if stale:
            raise StaleCertificateError(
                f"its {stale.removesuffix('_sha256')} changed after it was deployed."
            )
        return kept_certificates(corpus, record)
    except CertifyError as error:
        raise StaleCertificateError(
            f"deployment {record.number} of {corpus} cannot decide: {error} Deploy {judge} again."
        ) from None


def kept_certificates(corpus: Corpus, record: Deployed) -> tuple[Certificate, ...]:
    """Return the certificates of a deployment as they were when they were deployed."""
    objects = corpus.store.objects
    return tuple(Certificate.from_json(objects.get(sha256)) for sha256 in record.certificates)


@remembered
def judge_fingerprint(judge: JudgedCorpus) -> dict[str, str]:
    """Return the hashes that the decisions of a judge depend on."""
    _, hashes, record = judge.calibration
    if judge.maker.fingerprint(judge, record) != record.adapter_sha256:
        raise StaleCertificateError(
            f"the adapter files of {judge} on {judge.corpus} do not fit their document. Restore "
            f"them, or materialize judges/{judge}/model again."
        )
    prompt = judge.maker.prompt_sha256(judge, record)
    grid = judge.corpus.config.thresholds(PROCEDURES[0])
    return {**hashes, "prompt_sha256": prompt, "grid": str(grid)}


def deployment_fault(
    corpus: Corpus, record: Deployed, certificates: Sequence[Certificate]
) -> Refusal | None:
    """Return why labels, audit, monitor or alarms speak against a deployment."""
    judge = record.judge_on(corpus)
    try:
        if corrected := corrected_labels(judge):
            return Refusal("corrected_labels", corrected)
    except CertifyError as error:
        # where the labels of now cannot be read, nobody knows whether they were corrected
        return Refusal("stale_certificate", str(error))
    if fault := _audit_fault(judge, certificates, own=not record.recertification):
        return Refusal("failed_audit", fault)
    hashes = {item.sha256 for item in certificates}
    alarms = corpus.events(Alarm)
    raised = next((one for one in alarms if one.content.certificate_sha256 in hashes), None)
    if raised is None:
        return None
    alarm = raised.content
    return Refusal(
        "alarm",
        f"the monitor raised an alarm for {WORDS[alarm.side]} at {alarm.alpha:g} after "
        f"{alarm.at:,} tasks ({raised.time}). The error is above the budget. Recertify, or deploy "
        "another judge.",
    )


def _audit_fault(judge: JudgedCorpus, certificates: Sequence[Certificate], *, own: bool) -> str:
    """Return why the audit on TEST speaks against certificates; empty if it does not."""
    # Those on CAL must be audited by their hashes. Those of a recertification were issued after
    # TEST was read, so the audit of their side and budget counts.
    if not judge.store.exists(judge.key("audits.json")):
        return (
            f"the certificates of {judge} on {judge.corpus} were never audited on TEST. "
            f"Materialize judges/{judge}/audit."
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
            if audit.certificate_sha256 == item.sha256
            or (not own and (audit.side, audit.alpha) == (item.side, item.alpha))
        ]
        if not found:
            return (
                f"the {WORDS[item.side]} certificate of {judge} at {item.alpha:g} was not audited "
                f"on TEST. Materialize judges/{judge}/audit."
            )
        if failed := next((audit for audit in found if audit.verdict == "ERROR"), None):
            return (
                f"the audit of {judge} on {judge.corpus} failed, {WORDS[item.side]} at "
                f"{item.alpha:g}: {failed.reason}"
            )
    return ""
