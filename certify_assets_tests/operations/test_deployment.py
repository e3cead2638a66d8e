from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import parquet_bytes
from certify_assets.errors import (
    ForgedCertificateError,
    GateClosedError,
    InputError,
    StaleCertificateError,
)
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import ALPHAS
from certify_assets.operations import certifier
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.deploying import ALIAS, deploy, model_name, redeploy
from certify_assets.operations.deployment import (
    kept_certificates,
    load_deployment,
    open_deployment,
    read_deployments,
)
from certify_assets.operations.ledger import record_read
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.operations_builders import (
    fail_audit,
    other_scores,
    pin_present_files,
    place_wrong_labels,
    raise_alarm,
)


def judge_of(store: Store) -> JudgedCorpus:
    return judged(store)


def put(store: Store, **options: Any) -> Any:
    return deploy(judge_of(store), track=False, **options)


def reissue(store: Store) -> None:
    """Certify again as if two judges had been tried: other certificates of the same scores."""
    key = "judges/lexical/c/adapter.json"
    store.write_json(key, store.read_json(key) | {"candidates": 2, "selection_rule": "by hand"})
    certifier.certify_judge(judge_of(store))


def test_the_strictest_budget_that_certifies_is_deployed_and_its_certificates_are_kept(
    operated: Store,
) -> None:
    made = put(operated, sampling=SamplingPlan(0.1, 7))
    certificates = open_deployment(Corpus(operated, "c")).certificates
    assert load_deployment(Corpus(operated, "c")) == made and made.number == 1
    assert (
        made.alpha == {item.side: item.alpha for item in certificates}
        and made.alpha["reject"] == ALPHAS[0]
    )
    assert made.certificates == tuple(item.sha256 for item in certificates)
    assert kept_certificates(Corpus(operated, "c"), made) == tuple(certificates)
    assert operated.now().holds(**made.ledger)
    names = {"adapter", "renderer", "manifest", "scores", "trajectories", "prompt"}
    assert set(made.fingerprint) == {
        *(f"{name}_sha256" for name in names),
        "grid",
    } and made.sampling == SamplingPlan(0.1, 7)
    assert open_deployment(Corpus(operated, "c")).refusal is None


def test_a_way_back_is_deploying_the_earlier_one_again(operated: Store) -> None:
    first = put(operated)
    second = put(operated, alpha=0.2)
    assert second.alpha == {"reject": 0.2} and second.sampling == first.sampling, (
        "the seed of the draw stays"
    )
    again = redeploy(Corpus(operated, "c"), 1, track=False)
    assert (
        again == first.model_copy(update={"number": 3, "time": again.time, "ledger": again.ledger})
        and load_deployment(Corpus(operated, "c")) == again
    )
    assert [item.number for item in read_deployments(Corpus(operated, "c"))] == [1, 2, 3]
    with pytest.raises(InputError, match="no deployment number 9"):
        redeploy(Corpus(operated, "c"), 9)
    reissue(operated)
    other_trajectories(operated)
    back = redeploy(Corpus(operated, "c"), 2, track=False)
    assert (back.objects, back.certificates) == (second.objects, second.certificates)
    assert open_deployment(Corpus(operated, "c")).refusal is None, "by what it was made of"
    other_scores(operated)
    pin_present_files(operated)
    with pytest.raises(StaleCertificateError, match="deployment 5 of c cannot decide"):
        redeploy(Corpus(operated, "c"), 5)


def test_a_budget_at_which_nothing_is_certified_is_refused(operated: Store) -> None:
    with pytest.raises(GateClosedError, match=r"auto-pass is not certified at 0\.1"):
        put(operated, alpha={"release": 0.1})
    with pytest.raises(
        InputError,
        match=r"no such certificate of auto-fail at α = 0\.3\. Budgets with a certificate: 0\.1 "
        r"and 0\.2\.",
    ):
        put(operated, alpha=0.3)
    assert (
        load_deployment(Corpus(operated, "c")) is None
        and open_deployment(Corpus(operated, "c")).refusal.code == "not_deployed"
    )


def forge(store: Store) -> None:
    key = "judges/lexical/c/certificates.json"
    document = store.read_json(key)
    for item in document["certificates"]:
        item["coverage"] = 0.9 if item["certified"] else 0.0
        item["digest"] = sha256_bytes(
            canonical_json({name: value for name, value in item.items() if name != "digest"})
        )
    store.write_json(key, document)


def other_adapter(store: Store) -> None:
    key = "judges/lexical/c/adapter.json"
    store.write_json(key, store.read_json(key) | {"adapter_sha256": "0" * 64})


def other_trajectories(store: Store) -> None:
    frame = Corpus(store, "c").trajectories
    frame.loc[0, "instruction"] = "Do something else"
    store.write_bytes("corpora/c/trajectories.parquet", parquet_bytes(frame))


def no_audit(store: Store) -> None:
    store.delete("judges/lexical/c/audits.json")


def altered_audit(store: Store) -> None:
    key = "judges/lexical/c/audits.json"
    document = store.read_json(key)
    document["audits"][0]["realized_error"] = 0.0
    store.write_json(key, document)


def changed_read(store: Store) -> None:
    registration = certifier.load_certificates(judge_of(store))[0].provenance["registration"]
    record_read(
        Corpus(store, "c"),
        judge="lexical",
        registration=registration,
        configuration={"scores": "others"},
        run_id="r",
    )


FAULTS: list[tuple[Callable[[Store], None], str, type[Exception], str]] = [
    (other_adapter, "stale_certificate", StaleCertificateError, "another adapter"),
    (other_scores, "stale_certificate", StaleCertificateError, "another scores"),
    (other_trajectories, "stale_certificate", StaleCertificateError, "another trajectories"),
    (no_audit, "failed_audit", GateClosedError, "never audited on TEST"),
    (altered_audit, "failed_audit", GateClosedError, "cannot be read"),
    (changed_read, "failed_audit", GateClosedError, "against its registration"),
    (fail_audit, "failed_audit", GateClosedError, "failed, auto-fail at 0.1"),
    (raise_alarm, "alarm", GateClosedError, "raised an alarm for auto-fail"),
]


@pytest.mark.parametrize(
    ("fault", "code", "error", "words"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS]
)
def test_what_does_not_stand_is_neither_deployed_nor_decides(
    operated: Store, fault: Callable[[Store], None], code: str, error: type[Exception], words: str
) -> None:
    put(operated)
    fault(operated)
    pin_present_files(operated)
    refusal = open_deployment(Corpus(operated, "c")).refusal
    assert refusal is not None and refusal.code == code and words in refusal.sentence
    with pytest.raises(error, match=words):
        put(operated)
    assert [item.number for item in read_deployments(Corpus(operated, "c"))] == [1, 2]


def test_forged_certificates_are_not_deployed(operated: Store) -> None:
    forge(operated)
    with pytest.raises(ForgedCertificateError, match=r"coverage is 0\.9"):
        put(operated)


def test_a_judge_taken_as_the_best_of_several_is_refused_or_said_to_be(operated: Store) -> None:
    assert "chosen_among_judges" not in {finding["code"] for finding in put(operated).findings}
    for name in operated.names("judges/lexical/c"):
        if operated.now().current(key := f"judges/lexical/c/{name}"):
            operated.write_bytes(
                key.replace("lexical", "lexical_weighted"), operated.read_bytes(key)
            )
    with pytest.raises(GateClosedError, match=r"2 judges have certificates .*--accept-choice"):
        put(operated)
    assert len(read_deployments(Corpus(operated, "c"))) == 1
    made = put(operated, accepted=["chosen_among_judges"])
    (finding,) = [item for item in made.findings if item["code"] == "chosen_among_judges"]
    assert finding["message"].startswith("2 judges have certificates on the calibration split of c")
    # what was accepted once is accepted when it is deployed again
    assert redeploy(Corpus(operated, "c"), made.number, track=False) == made


def test_labels_that_speak_against_every_budget_stop_each(operated: Store) -> None:
    made = put(operated, alpha=0.2)
    assert made.alpha == {"reject": 0.2} and open_deployment(Corpus(operated, "c")).refusal is None
    place_wrong_labels(operated)
    for alpha in (0.1, 0.2):
        with pytest.raises(
            GateClosedError, match="the present labels raise an alarm for auto-fail"
        ):
            put(operated, alpha=alpha)


# of the registry's own queries, where it is given SQLAlchemy 2.1
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
def test_mlflow_gets_a_version_with_alias_certificates_and_hashes(
    operated: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    first, second = (
        deploy(judge_of(operated)),
        deploy(judge_of(operated), alpha=0.2),
    )
    assert load_deployment(Corpus(operated, "c")) == second and first.mlflow and second.mlflow
    assert "error" not in first.mlflow, first.mlflow
    assert (first.mlflow["version"], second.mlflow["version"]) == ("1", "2")
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{operated.local_path('mlflow/mlflow.db')}"
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    version = client.get_model_version_by_alias(model_name("c"), ALIAS)
    assert (
        version.version in (2, "2")
        and version.tags["certificate_sha256.reject"] == second.certificates[0]
    )
    parent = client.get_run(client.get_run(version.run_id).data.tags["mlflow.parentRunId"])
    assert parent.data.tags["certify.judge"] == "lexical"
    assert version.tags["adapter_sha256"] == second.fingerprint["adapter_sha256"]
    names = {item.path for item in client.list_artifacts(version.run_id)}
    assert names == {"certificates", "deployment.json"}
    experiment = client.get_run(version.run_id).info.experiment_id
    models = client.search_logged_models([experiment])
    assert {item.status for item in models} == {"READY"}
    (model,) = (item for item in models if item.source_run_id == version.run_id)
    files = {item.path for item in client.list_logged_model_artifacts(model.model_id)}
    assert files == {"judge.json", "weights.safetensors"}
    assert version.source == model.artifact_location
    (recorded,) = operated.local_path("mlflow/artifacts").glob(
        f"{version.run_id}/artifacts/deployment.json"
    )
    assert set(json.loads(recorded.read_bytes())["sampling"]) == {"audit_rate"}, (
        "the seed stays in the data root"
    )
    kept = operated.local_path("mlflow/artifacts").glob(
        f"{version.run_id}/artifacts/certificates/reject.json"
    )
    assert [sha256_bytes(path.read_bytes()) for path in kept] == [second.certificates[0]]


def test_a_deployment_holds_without_mlflow_and_says_so(
    operated: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret-in-a-url@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    made = deploy(judge_of(operated))
    assert (
        made.mlflow
        and made.mlflow["error"].startswith("not recorded: ")
        and "secret" not in made.mlflow["error"]
        and load_deployment(Corpus(operated, "c")) == made
    )
    assert open_deployment(Corpus(operated, "c")).refusal is None
