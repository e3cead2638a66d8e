"""The deployment of a judge: under which certificates it decides new runs, how many tasks people read, and the checks before that.

``operations/<corpus>/deployment.json`` is the deployment of now, and a line of ``deployments.jsonl``, which keeps every one that was. The
certificates that decide are kept beside, under their hashes, so that a decision can be followed to them for good.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import (
    CertifyError,
    GateClosedError,
    InputError,
    IntegrityError,
    StaleCertificateError,
)
from certify_assets.evaluation.certification import certificate_of, load_certificates
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import GRID, PROCEDURES, SIDES
from certify_assets.operations.deployment_record import (
    SCHEMA,
    Deployment,
    append_deployment,
    load_deployment,
    own_key,
    plan_before,
    read_deployments,
)
from certify_assets.operations.layout import deployment_key
from certify_assets.operations.monitoring import monitored_certificates
from certify_assets.operations.registry import register_deployment
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.operations.standing import Refusal, alarm_fault, audit_fault, journal_fault
from certify_assets.storage.snapshot import remembered
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

__all__ = [
    "SCHEMA",
    "Deployment",
    "Standing",
    "certificate_key",
    "deploy",
    "deployed_certificates",
    "load_deployment",
    "plan_before",
    "read_certificates",
    "read_deployments",
    "redeploy",
    "standing",
    "why_refused",
]

_RECERTIFIED = re.compile(
    r"operations/(?P<corpus>[^/]+)/recertifications/(?P<number>[0-9]+)/certificates\.json"
)


class Standing(NamedTuple):
    """What is deployed now: the deployment, the certificates that decide, and why nothing is decided, where that is so."""

    deployment: Deployment | None
    certificates: tuple[Certificate, ...]
    refusal: Refusal | None


@remembered
def deployed_certificates(corpus: Corpus) -> list[Certificate]:
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
    deployment = load_deployment(corpus)
    if deployment is None:
        raise InputError(
            f"no judge is deployed on {corpus}; deploy one with `certify ops deploy {corpus} JUDGE`."
        )
    return _certificates_of(corpus.store, deployment)


def why_refused(corpus: Corpus) -> Refusal | None:
    """Return why nothing may be decided for a corpus now; None where something may."""
    return standing(corpus).refusal


@remembered
def standing(corpus: Corpus) -> Standing:
    """Return what is deployed on a corpus and whether it decides; what is wrong with it is the refusal, never an exception."""
    deployment = None
    try:
        deployment = load_deployment(corpus)
        if deployment is None:
            text = f"no judge is deployed on {corpus}; deploy one with `certify ops deploy {corpus} JUDGE`."
            return Standing(None, (), Refusal("not_deployed", text))
        certificates = tuple(_certificates_of(corpus.store, deployment))
    except CertifyError as error:
        return Standing(deployment, (), Refusal("stale_certificate", str(error)))
    if not any(item.certified for item in certificates):
        text = f"the deployment of {deployment.judge} on {corpus} names no certificate that certifies anything; deploy again."
        return Standing(deployment, certificates, Refusal("no_certificate", text))
    return Standing(deployment, certificates, _fault(corpus.store, deployment, certificates))


def deploy(
    judge: JudgedCorpus,
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
    _ = judge.spec
    key = certificates_key or own_key(judge.corpus.name, judge.name)
    chosen = _choose(read_certificates(judge, key), alpha, f"{judge} on {judge.corpus}")
    made = Deployment(
        corpus=judge.corpus.name,
        judge=judge.name,
        alpha={item.side: item.alpha for item in chosen},
        certificates_key=key,
        certificates=tuple(item.sha256 for item in chosen),
        fingerprint=_fingerprint(judge),
        sampling=sampling or plan_before(judge.corpus),
        number=0,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        findings=tuple(_findings(judge, chosen)),
    )
    from certify_assets.operations.label_alarm import label_alarm

    if fault := _fault(judge.store, made, chosen) or label_alarm(judge, key, chosen):
        raise GateClosedError(f"{judge} is not deployed on {judge.corpus}: {fault.sentence}")
    for item in chosen:
        judge.store.write_bytes(certificate_key(judge.corpus.name, item.sha256), item.to_json())
    made = append_deployment(judge.store, made)
    judge.store.write_json(deployment_key(judge.corpus.name), made.to_dict())
    if track:
        made = replace(made, mlflow=register_deployment(judge.store, made.to_dict(), chosen))
        judge.store.write_json(deployment_key(judge.corpus.name), made.to_dict())
    return made


def redeploy(corpus: Corpus, number: int, *, track: bool = True) -> Deployment:
    """Deploy again what was deployed under a number, past the same checks.

    Raises
    ------
    InputError
        If there is no such deployment.
    StaleCertificateError
        If its certificates are no longer those stored.
    """
    earlier = next((item for item in read_deployments(corpus) if item.number == number), None)
    if earlier is None:
        raise InputError(
            f"{corpus} has no deployment number {number}; `certify ops status {corpus}` shows those that were."
        )
    _certificates_of(corpus.store, earlier)
    return deploy(
        JudgedCorpus(corpus, earlier.judge),
        alpha=earlier.alpha,
        sampling=earlier.sampling,
        certificates_key=earlier.certificates_key,
        track=track,
    )


def certificate_key(corpus: str, sha256: str) -> str:
    """Return where a certificate that decided is kept: the file's own hash is its name."""
    return f"operations/{corpus}/certificates/{sha256}.json"


def read_certificates(judge: JudgedCorpus, key: str) -> list[Certificate]:
    """Return certificates, recomputed, after checking that they stand on what is stored now.

    Those of a recertification lie beside the labelled score table that they were issued on, ``scores.parquet``.
    """
    if key == own_key(judge.corpus.name, judge.name):
        return load_certificates(judge)
    from certify_assets.operations.recertified import load_recertified

    place = _RECERTIFIED.fullmatch(key)
    if place is None or place["corpus"] != judge.corpus.name:
        raise IntegrityError(
            f"the deployment on {judge.corpus} names {key!r}, which holds no certificates of this corpus; deploy {judge} again."
        )
    return load_recertified(judge.corpus, int(place["number"]))


def _certificates_of(store: Store, deployment: Deployment) -> list[Certificate]:
    corpus, judge = deployment.corpus, deployment.judge
    now = _fingerprint(JudgedCorpus(Corpus(store, corpus), judge))
    names = sorted({*now, *deployment.fingerprint})
    if stale := next(
        (name for name in names if now.get(name) != deployment.fingerprint.get(name)), None
    ):
        raise StaleCertificateError(
            f"{judge} was deployed on {corpus} with another {stale.removesuffix('_sha256')} than the stored one; certify and audit it, then deploy it again."
        )
    found = {
        item.sha256: item
        for item in read_certificates(
            JudgedCorpus(Corpus(store, corpus), judge), deployment.certificates_key
        )
    }
    if missing := next((sha256 for sha256 in deployment.certificates if sha256 not in found), None):
        raise StaleCertificateError(
            f"the certificate {missing[:12]} that was deployed on {corpus} is not among those in {deployment.certificates_key}; deploy {judge} again."
        )
    chosen = [found[sha256] for sha256 in deployment.certificates]
    if {item.side: item.alpha for item in chosen} != dict(deployment.alpha) or len(chosen) != len(
        deployment.alpha
    ):
        raise IntegrityError(
            f"the deployment on {corpus} names other sides or budgets than its certificates have; deploy {judge} again."
        )
    return chosen


def _fingerprint(judge: JudgedCorpus) -> dict[str, str]:
    _, hashes, record = judge.calibration
    if judge.family.fingerprint(judge, record) != record.adapter_sha256:
        raise StaleCertificateError(
            f"the files of the adapter of {judge} on {judge.corpus} are not those of its document; "
            f"restore them, or materialize judges/{judge}/model again."
        )
    prompt = judge.family.prompt_sha256(judge, record)
    return {**hashes, "prompt_sha256": prompt, "grid": str(GRID)}


def _choose(
    certificates: Sequence[Certificate], alpha: Mapping[str, float] | float | None, whose: str
) -> list[Certificate]:
    if alpha is None:
        chosen = monitored_certificates(certificates)
    else:
        wanted = dict(alpha) if isinstance(alpha, Mapping) else dict.fromkeys(SIDES, float(alpha))
        found = [
            certificate_of(list(certificates), side=side, alpha=budget, procedure=PROCEDURES[0])
            for side, budget in wanted.items()
        ]
        chosen = [item for item in found if item.certified]
        if isinstance(alpha, Mapping) and (
            none := next((item for item in found if not item.certified), None)
        ):
            raise GateClosedError(
                f"{whose} is not deployed: its {none.side} side is not certified at {none.alpha:g}; give another budget."
            )
    if not chosen:
        raise GateClosedError(
            f"{whose} is not deployed: nothing is certified{'' if alpha is None else ' at that budget'}; see its page for why."
        )
    return sorted(chosen, key=lambda item: SIDES.index(item.side))


def _fault(
    store: Store, deployment: Deployment, certificates: Sequence[Certificate]
) -> Refusal | None:
    folders = (
        f"judges/{deployment.judge}/{deployment.corpus}",
        deployment.certificates_key.rsplit("/", 1)[0],
    )
    corpus, judge = deployment.corpus, deployment.judge
    return (
        audit_fault(JudgedCorpus(Corpus(store, corpus), judge), certificates, own=deployment.own)
        or alarm_fault(store, certificates, folders)
        or journal_fault(Corpus(store, corpus), certificates)
    )


def _findings(judge: JudgedCorpus, chosen: Sequence[Certificate]) -> list[dict[str, str]]:
    found = []
    rivals = [
        name
        for name in judge.store.names("judges")
        if judge.store.exists(own_key(judge.corpus.name, name))
    ]
    if len(rivals) > min(item.candidates for item in chosen):
        text = (
            f"{len(rivals)} judges have certificates on CAL of {judge.corpus}, and those of {judge} pay for {chosen[0].candidates}: if it was taken because "
            "its certificate is the best of them, the confidence is overstated; choose by RL, or certify at δ over their number."
        )
        found.append({"code": "chosen_among_judges", "message": text})
    if len(chosen) > 1:
        total = sum(item.delta for item in chosen)
        text = f"Each side holds with its own δ; that both hold, with confidence 1−{total:g}."
        found.append({"code": "two_sides", "message": text})
    return found
