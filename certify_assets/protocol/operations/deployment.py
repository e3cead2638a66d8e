"""The deployment of a judge: under which certificates it decides new runs, how many tasks people read, and the checks before that.

``operations/<corpus>/deployment.json`` is the deployment of now, and a line of ``deployments.jsonl``, which keeps every one that was. The
certificates that decide are kept beside, under their hashes, so that a decision can be followed to them for good.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from certify_assets.errors import CertifyError, ForgedCertificateError, GateClosedError, InputError, IntegrityError, StaleCertificateError
from certify_assets.files import canonical_json, parse_json
from certify_assets.protocol.certification import certificate_of, load_certificates
from certify_assets.protocol.judge_specs import GRID, PROCEDURES, SIDES, judge_spec
from certify_assets.protocol.judging import columns
from certify_assets.protocol.monitoring import monitored_certificates
from certify_assets.protocol.operations.layout import deployment_key, deployments_key
from certify_assets.protocol.operations.registry import register_deployment
from certify_assets.protocol.operations.sampling import SamplingPlan
from certify_assets.protocol.operations.standing import Refusal, alarm_fault, audit_fault
from certify_assets.protocol.parity_gate import parity_provenance
from certify_assets.protocol.scoring import calibration_scores
from certify_assets.protocol.store import Store

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

__all__ = [
    "SCHEMA",
    "Deployment",
    "certificate_key",
    "deploy",
    "deployed_certificates",
    "load_deployment",
    "plan_before",
    "read_certificates",
    "read_deployments",
    "redeploy",
    "why_refused",
]

SCHEMA: Final = "certify_assets/deployment/1"
_CHAIN = ("adapter_sha256", "renderer_sha256", "manifest_sha256")


@dataclass(frozen=True)
class Deployment:
    """Which judge decides the new runs of a corpus.

    Parameters
    ----------
    corpus, judge : str
    alpha : mapping of str to float
        Budget of each side that is decided.
    certificates_key : str
        Where the certificates are stored.
    certificates : tuple of str
        SHA-256 of those that decide, at most one a side.
    fingerprint : mapping of str to str
        What they stand on: hashes of adapter, renderer, prompt, split manifest, scores and trajectories, and the grid.
    sampling : SamplingPlan
    number : int
        From 1; the line of the journal.
    time : str
        UTC, ISO 8601.
    findings : tuple of dict
        code and message of what the user should know.
    mlflow : mapping or None
        Model, version, alias and run, or why MLflow has no record; None before it was asked.
    """

    corpus: str
    judge: str
    alpha: Mapping[str, float]
    certificates_key: str
    certificates: tuple[str, ...]
    fingerprint: Mapping[str, str]
    sampling: SamplingPlan
    number: int
    time: str
    findings: tuple[Mapping[str, str], ...] = ()
    mlflow: Mapping[str, str] | None = None

    @property
    def own(self) -> bool:
        """Whether the certificates are the judge's own, not those of a recertification."""
        return self.certificates_key == _own_key(self.corpus, self.judge)

    def to_dict(self) -> dict[str, Any]:
        """Return the deployment as a JSON object."""
        return {"schema": SCHEMA, **asdict(self), "certificates": list(self.certificates), "findings": list(self.findings)}

    @classmethod
    def from_dict(cls, document: Any, where: str) -> Deployment:
        """Read a deployment.

        Raises
        ------
        IntegrityError
            If it is none; the sentence names the file.
        """
        try:
            values = dict(document)
            if values.pop("schema") != SCHEMA:
                raise ValueError(f"it is not {SCHEMA}")
            plan = SamplingPlan(**values.pop("sampling"))
            lists = {name: tuple(values.pop(name, ())) for name in ("certificates", "findings")}
            return cls(**values, **lists, sampling=plan)
        except (TypeError, ValueError, KeyError, InputError) as error:
            raise IntegrityError(f"{where} is not a deployment ({error}); deploy the judge again.") from None


def load_deployment(store: Store, corpus: str) -> Deployment | None:
    """Return the deployment of now; None where nothing was deployed.

    Raises
    ------
    IntegrityError
        If it is not what the journal of deployments says.
    """
    key = deployment_key(corpus)
    if not store.exists(key):
        return None
    found = Deployment.from_dict(store.read_json(key), store.locate(key))
    journal = read_deployments(store, corpus)
    # what MLflow said came after the line was written
    if journal and replace(found, mlflow=None) not in journal:
        raise IntegrityError(f"{store.locate(key)} is not line {found.number} of the journal of deployments: it was altered; deploy again.")
    return found


def read_deployments(store: Store, corpus: str) -> list[Deployment]:
    """Return every deployment of a corpus, the oldest first."""
    key = deployments_key(corpus)
    return _parsed(store.read_bytes(key), store.locate(key)) if store.exists(key) else []


def deployed_certificates(store: Store, corpus: str) -> list[Certificate]:
    """Return the certificates that decide, at most one a side, recomputed now.

    Raises
    ------
    InputError
        If nothing is deployed.
    StaleCertificateError
        If judge, adapter, prompt, renderer, manifest, grid or data are others than those of the deployment.
    ForgedCertificateError
        If a certificate does not recompute.
    """
    deployment = load_deployment(store, corpus)
    if deployment is None:
        raise InputError(f"no judge is deployed on {corpus}; deploy one with `certify deploy {corpus} JUDGE`.")
    return _certificates_of(store, deployment)


def why_refused(store: Store, corpus: str) -> Refusal | None:
    """Return why nothing may be decided for a corpus now; None where something may."""
    try:
        deployment = load_deployment(store, corpus)
        if deployment is None:
            text = f"no judge is deployed on {corpus}; deploy one with `certify deploy {corpus} JUDGE`."
            return Refusal("not_deployed", text)
        certificates = _certificates_of(store, deployment)
    except CertifyError as error:
        return Refusal("stale_certificate", str(error))
    if not any(item.certified for item in certificates):
        return Refusal("no_certificate", f"the deployment of {deployment.judge} on {corpus} names no certificate that certifies anything.")
    return _fault(store, deployment, certificates)


def deploy(
    store: Store,
    corpus: str,
    judge: str,
    *,
    alpha: Mapping[str, float] | float | None = None,
    sampling: SamplingPlan | None = None,
    certificates_key: str | None = None,
    track: bool = True,
) -> Deployment:
    """Deploy a judge, where it may be: certificates that hold, something certified, an audit that did not fail, no alarm.

    Parameters
    ----------
    store, corpus, judge
    alpha : mapping of str to float, float or None
        Budget of each side, or one for those that certify at it; by default the strictest that certifies.
    sampling : SamplingPlan, optional
        How many tasks people read; by default that of the deployment before, at first .05 and .05 under a seed drawn now.
    certificates_key : str, optional
        Where a recertification stored its certificates; by default the judge's own.
    track : bool
        Whether MLflow is asked to record it. What goes wrong there is written into the document.

    Raises
    ------
    GateClosedError
        If nothing is certified at the budget, the audit failed, or an alarm was raised.
    StaleCertificateError, ForgedCertificateError
        As `deployed_certificates`.
    """
    judge_spec(judge, store.root)
    key = certificates_key or _own_key(corpus, judge)
    chosen = _choose(read_certificates(store, corpus, judge, key), alpha, f"{judge} on {corpus}")
    made = Deployment(
        corpus=corpus,
        judge=judge,
        alpha={item.side: item.alpha for item in chosen},
        certificates_key=key,
        certificates=tuple(item.sha256 for item in chosen),
        fingerprint=_fingerprint(store, corpus, judge),
        sampling=sampling or plan_before(store, corpus),
        number=0,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        findings=tuple(_findings(store, corpus, judge, chosen)),
    )
    if fault := _fault(store, made, chosen):
        raise GateClosedError(f"{judge} is not deployed on {corpus}: {fault.sentence}")
    for item in chosen:
        store.write_bytes(certificate_key(corpus, item.sha256), item.to_json())
    made = _appended(store, made)
    store.write_json(deployment_key(corpus), made.to_dict())
    if track:
        made = replace(made, mlflow=register_deployment(store, made.to_dict(), chosen))
        store.write_json(deployment_key(corpus), made.to_dict())
    return made


def redeploy(store: Store, corpus: str, number: int, *, track: bool = True) -> Deployment:
    """Deploy again what was deployed under a number, past the same checks.

    Raises
    ------
    InputError
        If there is no such deployment.
    StaleCertificateError
        If its certificates are no longer those stored.
    """
    earlier = next((item for item in read_deployments(store, corpus) if item.number == number), None)
    if earlier is None:
        raise InputError(f"{corpus} has no deployment number {number}; `certify deploy {corpus}` shows those that were.")
    _certificates_of(store, earlier)
    return deploy(
        store,
        corpus,
        earlier.judge,
        alpha=earlier.alpha,
        sampling=earlier.sampling,
        certificates_key=earlier.certificates_key,
        track=track,
    )


def certificate_key(corpus: str, sha256: str) -> str:
    """Return where a certificate that decided is kept: the file's own hash is its name."""
    return f"operations/{corpus}/certificates/{sha256}.json"


def plan_before(store: Store, corpus: str) -> SamplingPlan:
    """Return the sampling of the deployment before; at first .05 and .05, under a seed that nobody knows yet."""
    journal = read_deployments(store, corpus)
    return journal[-1].sampling if journal else SamplingPlan(seed=secrets.randbelow(2**31))


def read_certificates(store: Store, corpus: str, judge: str, key: str) -> list[Certificate]:
    """Return certificates, recomputed, after checking that they stand on what is stored now.

    Those of a recertification lie beside the labelled score table that they were issued on, ``scores.parquet``.
    """
    if key == _own_key(corpus, judge):
        return load_certificates(store, corpus, judge)
    from certify_assets.certificates import Certificate, verify_certificate

    now = {**calibration_scores(store, corpus, judge)[1], **parity_provenance(store, corpus, judge)}
    found = [Certificate.from_dict(item) for item in store.read_json(key)["certificates"]]
    table = store.read_table(f"{key.rsplit('/', 1)[0]}/scores.parquet")
    for item in found:
        if stale := next((name for name in _CHAIN if item.provenance.get(name) != now[name]), None):
            raise StaleCertificateError(
                f"the certificates in {key} belong to another {stale.removesuffix('_sha256')} than the stored one; recertify {corpus}."
            )
        if (difference := verify_certificate(item, *columns(table))) is not None:
            raise ForgedCertificateError(f"a certificate in {key} does not recompute: {difference}")
    return found


def _own_key(corpus: str, judge: str) -> str:
    return f"judges/{judge}/{corpus}/certificates.json"


def _certificates_of(store: Store, deployment: Deployment) -> list[Certificate]:
    corpus, judge = deployment.corpus, deployment.judge
    now = _fingerprint(store, corpus, judge)
    names = sorted({*now, *deployment.fingerprint})
    if stale := next((name for name in names if now.get(name) != deployment.fingerprint.get(name)), None):
        raise StaleCertificateError(
            f"{judge} was deployed on {corpus} with another {stale.removesuffix('_sha256')} than the stored one; certify and audit it, then deploy it again."
        )
    found = {item.sha256: item for item in read_certificates(store, corpus, judge, deployment.certificates_key)}
    if missing := next((sha256 for sha256 in deployment.certificates if sha256 not in found), None):
        raise StaleCertificateError(
            f"the certificate {missing[:12]} that was deployed on {corpus} is not among those in {deployment.certificates_key}; deploy {judge} again."
        )
    chosen = [found[sha256] for sha256 in deployment.certificates]
    if {item.side: item.alpha for item in chosen} != dict(deployment.alpha) or len(chosen) != len(deployment.alpha):
        raise IntegrityError(f"the deployment on {corpus} names other sides or budgets than its certificates have; deploy {judge} again.")
    return chosen


def _fingerprint(store: Store, corpus: str, judge: str) -> dict[str, str]:
    _, hashes, adapter = calibration_scores(store, corpus, judge)
    return {**hashes, "prompt_sha256": _prompt(store, corpus, judge, adapter), "grid": str(GRID)}


def _prompt(store: Store, corpus: str, judge: str, adapter: Mapping[str, Any]) -> str:
    """Return the hash of the question that a language model is asked; empty for a judge that is asked none."""
    key = f"judges/{judge}/{corpus}/adapter/judge.json"
    if "prompt_sha256" in adapter or not store.exists(key):
        return str(adapter.get("prompt_sha256", ""))
    return str(store.read_json(key).get("encoder_sha256", ""))


def _choose(certificates: Sequence[Certificate], alpha: Mapping[str, float] | float | None, whose: str) -> list[Certificate]:
    if alpha is None:
        chosen = monitored_certificates(certificates)
    else:
        wanted = dict(alpha) if isinstance(alpha, Mapping) else dict.fromkeys(SIDES, float(alpha))
        found = [certificate_of(list(certificates), side=side, alpha=budget, procedure=PROCEDURES[0]) for side, budget in wanted.items()]
        chosen = [item for item in found if item.certified]
        if isinstance(alpha, Mapping) and (none := next((item for item in found if not item.certified), None)):
            raise GateClosedError(f"{whose} is not deployed: its {none.side} side is not certified at {none.alpha:g}; give another budget.")
    if not chosen:
        raise GateClosedError(
            f"{whose} is not deployed: nothing is certified{'' if alpha is None else ' at that budget'}; see its page for why."
        )
    return sorted(chosen, key=lambda item: SIDES.index(item.side))


def _fault(store: Store, deployment: Deployment, certificates: Sequence[Certificate]) -> Refusal | None:
    folders = (f"judges/{deployment.judge}/{deployment.corpus}", deployment.certificates_key.rsplit("/", 1)[0])
    return audit_fault(store, deployment.corpus, deployment.judge, certificates, own=deployment.own) or alarm_fault(
        store, certificates, folders
    )


def _findings(store: Store, corpus: str, judge: str, chosen: Sequence[Certificate]) -> list[dict[str, str]]:
    found = []
    rivals = [name for name in store.names("judges") if store.exists(_own_key(corpus, name))]
    if len(rivals) > min(item.candidates for item in chosen):
        text = (
            f"{len(rivals)} judges have certificates on CAL of {corpus}, and those of {judge} pay for {chosen[0].candidates}: if it was taken because "
            "its certificate is the best of them, the confidence is overstated; choose by RL, or certify at δ over their number."
        )
        found.append({"code": "chosen_among_judges", "message": text})
    if len(chosen) > 1:
        total = sum(item.delta for item in chosen)
        text = f"Each side holds with its own δ; that both hold, with confidence 1−{total:g}."
        found.append({"code": "two_sides", "message": text})
    return found


def _appended(store: Store, deployment: Deployment) -> Deployment:
    """Write the line of a deployment under its number."""
    made = deployment

    def line(old: bytes) -> str:
        nonlocal made
        made = replace(deployment, number=len(old.splitlines()) + 1)
        return canonical_json(made.to_dict()).decode("utf-8").rstrip("\n")

    store.append_line(deployments_key(deployment.corpus), line)
    return made


def _parsed(data: bytes, where: str) -> list[Deployment]:
    # a last line without its end is the trace of a kill: nothing was deployed by it
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    try:
        documents = [parse_json(line.decode("utf-8")) for line in lines]
    except ValueError as error:
        raise IntegrityError(f"{where} holds a line that is not JSON ({error}); restore it from a backup.") from None
    return [Deployment.from_dict(document, where) for document in documents]
