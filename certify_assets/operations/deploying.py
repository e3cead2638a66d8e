"""Deploying a judge: the checks before it, its record in the data root and in MLflow's registry."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from certify_assets.certificates import Certificate
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import GateClosedError, InputError
from certify_assets.files import canonical_json
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import SIDES
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.certified_before import (
    certified_judges,
    certified_splits,
    relabelling_finding,
)
from certify_assets.operations.certifier import certificate_of, deciding, judges_with_certificates
from certify_assets.operations.deployment import (
    Deployed,
    DeploymentRecord,
    TrackedDeployment,
    certificates_of,
    deployment_fault,
    deployment_of,
    judge_fingerprint,
    kept_certificates,
    load_deployment,
    may_decide,
    plan_before,
    read_certificates,
    read_deployments,
    strictest_certificates,
)
from certify_assets.operations.judge_figures import judge_summary
from certify_assets.operations.monitoring import label_alarm
from certify_assets.operations.recertification_record import (
    OVERRULED,
    CertifiedSide,
    RecertificationRecord,
    load_recertification,
)
from certify_assets.storage.events import head_text
from certify_assets.storage.tracking import Record, Tracker, without_credentials
from certify_assets.words import WORDS

#: share of the drawn tasks that may be open or tied in a recertification that decides
MOST_OPEN: Final = 0.5
#: alias of the model version that decides
ALIAS: Final = "deployed"
#: finding of a deployment of runs that were first certified under another split
RESPLIT_ACCEPTED: Final = "resplit_accepted"
#: finding of a deployment whose changed labels a user accepted
RELABELLING_ACCEPTED: Final = "relabelling_accepted"
#: finding of a deployment of a judge that unpaid certificates chose
CHOSEN: Final = "chosen_among_judges"


def deploy(
    judge: JudgedCorpus,
    *,
    alpha: Mapping[str, float] | float | None = None,
    sampling: SamplingPlan | None = None,
    recertification: int = 0,
    accepted: Collection[str] = (),
    track: bool = True,
) -> DeploymentRecord:
    """Deploy a judge whose certificates hold, whose audit did not fail and that has no alarm.

    Parameters
    ----------
    judge : JudgedCorpus
    alpha : Mapping or float, optional
        Budgets; by default the strictest that certify.
    sampling : SamplingPlan, optional
        By default that of the last deployment.
    recertification : int, optional
        Whose certificates decide; by default those on CAL.
    accepted : Collection of str, optional
        What a user accepts. RESPLIT_ACCEPTED: the runs were first certified under another split.
        CHOSEN: certificates chose the judge without a smaller δ. RELABELLING_ACCEPTED: labels or
        runs were changed after a certificate was seen.
    track : bool, optional
        Whether the deployment is recorded in MLflow.
    """
    corpus = judge.corpus
    with corpus.writing():
        _ = judge.spec
        issued = read_certificates(judge, recertification)
        chosen = _choose(issued, alpha, f"{judge} on {corpus}")
        findings = _findings(judge, recertification, chosen, accepted)
        put, last = corpus.store.objects.put, load_deployment(corpus)
        certificates = {f"certificates/{item.side}": put(item.to_json()) for item in chosen}
        made = Deployed(
            number=len(read_deployments(corpus)) + 1,
            corpus=corpus.name,
            judge=judge.name,
            alpha={item.side: item.alpha for item in chosen},
            recertification=recertification,
            certificates=tuple(certificates.values()),
            fingerprint=judge_fingerprint(judge),
            sampling=sampling or plan_before(corpus),
            findings=tuple(findings),
            objects=judge.files() | certificates,
        )
        fault = deployment_fault(corpus, made, chosen)
        if fault := fault or label_alarm(judge, recertification, chosen):
            raise GateClosedError(f"{judge} is not deployed on {corpus}: {fault.sentence}")
        # a call before this one may have been killed, or MLflow did not answer it
        if last is not None and last.is_again(made):
            made = last
        else:
            corpus.append(made)
        # MLflow is told what is stored, not what may still be refused
        if track:
            corpus.store.once_committed(partial(register, corpus, made.number))
    # it decides from now on, whatever becomes of a step that goes on
    corpus.store.commit()
    return read_deployments(corpus)[-1]


def redeploy(corpus: Corpus, number: int, *, track: bool = True) -> DeploymentRecord:
    """Deploy again what was deployed under a number, after the same checks."""
    earlier = next((item for item in read_deployments(corpus) if item.number == number), None)
    if earlier is None:
        numbers = ", ".join(str(item.number) for item in read_deployments(corpus))
        raise InputError(
            f"{corpus} has no deployment number {number}. "
            + (f"Its deployments: {numbers}." if numbers else "Nothing was deployed on it yet.")
        )
    certificates_of(corpus, earlier)
    judge = earlier.judge_on(corpus)
    return deploy(
        judge,
        alpha=earlier.alpha,
        sampling=earlier.sampling,
        recertification=earlier.recertification,
        track=track,
        accepted=accepted_before(earlier, judge, earlier.recertification),
    )


def promote(
    corpus: Corpus, document: RecertificationRecord, *, accepted: Collection[str] = ()
) -> DeploymentRecord:
    """Deploy a recertification at the current budgets; return the deployment if it is in use."""
    judge, last = JudgedCorpus(corpus, document.judge), load_deployment(corpus)
    now = deployment_of(judge)
    if now is not None and now.recertification == document.number:
        register(corpus, now.number)
        return now
    budgets = None if now is None else now.alpha
    sides = [
        side
        for side in document.sides
        if side.certified
        and may_decide(corpus, side.promise)
        and (budgets is None or budgets.get(side.side) == side.alpha)
    ]
    if not sides:
        raise GateClosedError(
            f"recertification {document.number} of {corpus} certifies nothing at the budgets in "
            "use, or only on average, which needs deploy_average. The current deployment stays."
        )
    require_sound(document, sides)
    if now is not None and now.adapter_sha256 == document.adapter_sha256:
        judge = now.judge_on(corpus)
    before = set() if last is None else accepted_before(last, judge, document.number)
    return deploy(
        judge,
        alpha=None if budgets is None else {side.side: side.alpha for side in sides},
        recertification=document.number,
        accepted=before.union(accepted),
    )


def accepted_before(record: Deployed, judge: JudgedCorpus, recertification: int) -> set[str]:
    """Return what a user accepted with a deployment, as `deploy` takes it for certificates."""
    found = {item["code"] for item in record.findings}
    if record.judge != judge.name:
        found.discard(CHOSEN)
    # a later change of labels is another one
    if any(item not in record.findings for item in _changed_labels(judge, recertification)):
        found.discard(RELABELLING_ACCEPTED)
    return found


def _changed_labels(judge: JudgedCorpus, recertification: int) -> list[dict[str, str]]:
    """Return the findings on labels and runs that were changed after a certificate was seen."""
    found = [{"code": code, "message": text} for code, text in relabelling_finding(judge).items()]
    if recertification:
        findings = load_recertification(judge.corpus, recertification).findings
        found += [dict(item) for item in findings if item["code"] == OVERRULED]
    return found


def require_sound(document: RecertificationRecord, sides: Sequence[CertifiedSide]) -> None:
    """Refuse a recertification whose drawn tasks are open, or that the audit sample contradicts."""
    name = f"recertification {document.number} of {document.corpus} is not deployed"
    if document.open_share > MOST_OPEN:
        raise GateClosedError(
            f"{name}: {100 * document.open_share:.0f} % of the drawn tasks are open or tied, and "
            "the others may be the easy ones. Label the rest of the audit sample, then recertify."
        )
    for side in sides:
        if side.audit_sample and side.audit_sample.get("verdict") == "ERROR":
            raise GateClosedError(
                f"{name}: {WORDS[side.side]} at {side.alpha:g} fails on the audit sample "
                f"({side.audit_sample['reason']}) The new runs are unlike those of CAL."
            )


def _choose(
    certificates: Sequence[Certificate], alpha: Mapping[str, float] | float | None, whose: str
) -> list[Certificate]:
    if alpha is None:
        found = strictest_certificates(certificates)
    else:
        wanted = alpha if isinstance(alpha, Mapping) else dict.fromkeys(SIDES, alpha)
        found = [
            certificate_of(deciding(certificates), side=side, alpha=budget, procedure=None)
            for side, budget in wanted.items()
        ]
    chosen = [item for item in found if item.certified]
    # budgets that were named one by one must all be certified
    lacking = [item for item in found if not item.certified and isinstance(alpha, Mapping)]
    for item in lacking:
        raise GateClosedError(
            f"{whose} is not deployed: {WORDS[item.side]} is not certified at {item.alpha:g}. "
            "Give another budget."
        )
    if not chosen:
        at = "" if alpha is None else f" at {alpha}"
        raise GateClosedError(
            f"{whose} is not deployed: nothing is certified{at}, or only on average, which needs "
            "deploy_average. Its page says more."
        )
    return sorted(chosen, key=lambda item: SIDES.index(item.side))


def _unpaid_choice(judge: JudgedCorpus) -> str:
    """Say among which judges this one may have been chosen without a smaller δ; else empty."""
    corpus = judge.corpus
    certified = certified_judges(corpus)
    rivals = {*certified.judges, *judges_with_certificates(corpus)}
    paid = corpus.config.judges_compared
    if judge.name == certified.named or len(rivals) <= paid:
        return ""
    return (
        f"{len(rivals)} judges have certificates on the calibration split of {corpus} "
        f"({', '.join(sorted(rivals))}), but δ was divided by {paid}. The judge named beforehand "
        f"is {certified.named}. If {judge} is chosen for its better certificate, its confidence is "
        "lower than stated."
    )


def _findings(
    judge: JudgedCorpus,
    recertification: int,
    chosen: Sequence[Certificate],
    accepted: Collection[str],
) -> list[dict[str, str]]:
    """Return what a user should know of a deployment; refuse what nobody accepted."""
    corpus, found = judge.corpus, dict[str, str]()
    splits, changed = certified_splits(corpus), _changed_labels(judge, recertification)
    resplit = (
        f"The runs of {corpus} were certified under {splits.number} splits, first as "
        f"{splits.first}. The best of several splits has less confidence than its certificate "
        "states, and an earlier TEST may have shown tasks that calibrate now."
    )
    choice = _unpaid_choice(judge)
    objections = (
        (
            RESPLIT_ACCEPTED,
            "" if splits.current_first else resplit,
            "Deploy under the first split, take new tasks, or accept this with --accept-resplit.",
        ),
        (
            CHOSEN,
            choice,
            "Deploy the named judge, or accept this with --accept-choice. When you import a "
            "corpus, name the judge (--set judge=NAME) or the number that you compare (--set "
            "judges_compared=N).",
        ),
        (
            RELABELLING_ACCEPTED,
            " ".join(item["message"] for item in changed),
            "If the change was made without knowing the judge's decisions, accept it with "
            "--accept-relabelled. Otherwise restore the earlier runs and labels.",
        ),
    )
    for code, said, remedy in objections:
        if said and code not in accepted:
            raise GateClosedError(f"{judge} is not deployed on {corpus}. {said} {remedy}")
        if said:
            found[code] = said if code == CHOSEN else "Accepted when it was deployed."
    if splits.number > 1:
        found["resplit"] = resplit
    if len(chosen) > 1:
        total = sum(item.delta for item in chosen)
        found["two_sides"] = (
            "Each side holds with its own δ; both together hold with "
            f"{100 * (1 - total):.4g} % confidence."
        )
    return [*changed, *({"code": code, "message": said} for code, said in found.items())]


def model_name(corpus: str) -> str:
    """Return the name of the registered model whose versions are the deployments on a corpus."""
    return f"certify-{corpus}"


def register(corpus: Corpus, number: int) -> None:
    """Record a deployment in MLflow where it is not, and what MLflow answered as an event."""
    # The registry is the record for other tools, the data root is the truth: a deployment holds
    # whatever MLflow does.
    record = read_deployments(corpus)[number - 1]
    if record.mlflow and "error" not in record.mlflow:
        return
    certificates = kept_certificates(corpus, record)
    judge = record.judge_on(corpus)
    try:
        answer = _registered(Tracker.for_store(corpus.store), judge, record, certificates)
    except Exception as error:
        # any exception of MLflow's backend
        first = without_credentials((str(error).splitlines() or [""])[0])[:300]
        answer = {"error": f"not recorded: {type(error).__name__}: {first}"}
    if answer != record.mlflow:
        corpus.append(TrackedDeployment(number=number, answer=answer))


def _registered(
    tracker: Tracker,
    judge: JudgedCorpus,
    record: DeploymentRecord,
    certificates: Sequence[Certificate],
) -> dict[str, str]:
    corpus = record.corpus
    tags = {
        "certify.corpus": corpus,
        "certify.judge": record.judge,
        "certify.deployment": str(record.number),
        "certify.ledger": head_text(record.ledger),
        "adapter_sha256": record.adapter_sha256,
        **{f"certificate_sha256.{item.side}": item.sha256 for item in certificates},
    }
    documents = {
        f"certificates/{item.side}.json": item.to_json().decode("utf-8") for item in certificates
    }
    where = {"dagster.asset": "operations/deployment", "dagster.partition": corpus}
    url = tracker.write(
        Record(
            name=f"deploy {judge} on {corpus}",
            tags={**where, **tags},
            summary=judge_summary(judge),
            params={f"alpha_{item.side}": item.alpha for item in certificates},
            metrics={
                f"coverage_{item.side}_at_{item.alpha:g}": item.coverage for item in certificates
            },
            documents={
                "deployment.json": canonical_json(record.to_dict()).decode("utf-8"),
                **documents,
            },
        )
    )
    run = url.rsplit("/", 1)[-1]
    version = _version(tracker.uri, judge, run, tags)
    return {"model": model_name(corpus), "version": version, "alias": ALIAS, "run": url}


def _version(uri: str, judge: JudgedCorpus, run: str, tags: Mapping[str, str]) -> str:
    """Register the files of a judge, as a logged model of a run; return the version."""
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    client, name = MlflowClient(tracking_uri=uri, registry_uri=uri), model_name(judge.corpus.name)
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(
            name,
            description="Judges that decide new runs; the alias deployed marks the one that does "
            "now.",
        )
    # a kill may have come after the version and before the event that names it
    known = [
        item
        for item in client.search_model_versions(f"name = '{name}'")
        if tags.items() <= item.tags.items()
    ]
    made = known[0] if known else None
    if made is None:
        experiment = client.get_run(run).info.experiment_id
        model = client.create_logged_model(experiment, name, source_run_id=run, tags=dict(tags))
        # a server's judge has no files, and a copy of it would not have its answers
        if not judge.spec.hosted:
            with judge.artifact_files() as folder:
                client.log_model_artifacts(model.model_id, str(folder))
        client.finalize_logged_model(model.model_id, "READY")
        made = client.create_model_version(
            name, model.artifact_location, run, dict(tags), model_id=model.model_id
        )
    version = str(made.version)
    client.set_registered_model_alias(name, ALIAS, version)
    return version
