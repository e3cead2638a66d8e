"""An MLflow server that is killed in the middle of a deployment, and comes back."""

from collections import Counter
from pathlib import Path

import pytest
import requests

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.deployment import Deployment, load_deployment
from certify_assets.operations.rollout import deploy, model_name
from certify_assets.storage.events import head_text
from certify_assets.storage.store import Store
from certify_assets.storage.tracking import mlflow_client
from certify_assets_tests.builders import judged
from certify_assets_tests.corpora.mlflow_server import kill_group, mlflow_process
from certify_assets_tests.services import free_port

#: requests of a deployment before which the server is killed
DEPLOYMENT = (3, 8)


@pytest.mark.slow
def test_deployments_hold(operated: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port, left, killed = free_port(), [0], []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    ask = requests.Session.request

    def asked(session: requests.Session, *given: object, **more: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            kill_group(server)
            killed.append(given)
        return ask(session, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(requests.Session, "request", asked)
    for before in DEPLOYMENT:
        with mlflow_process(tmp_path / "server", port) as (_, server):
            left[0] = before
            made = deploy(judged(operated))
            assert made.mlflow and made.mlflow["error"].startswith("not recorded: ")
            assert load_deployment(Corpus(operated, "c")) == made
            assert Deployment.of(Corpus(operated, "c")).refusal is None
    assert len(killed) == len(DEPLOYMENT)
    with mlflow_process(tmp_path / "server", port) as (address, server):
        last = deploy(judged(operated))
        assert last.mlflow and "error" not in last.mlflow and last.number == 1
        client = mlflow_client(address)
        versions = client.search_model_versions(f"name = '{model_name('c')}'")
        deployed = Counter(item.tags["certify.deployment"] for item in versions)
        assert deployed[str(last.number)] == 1 and max(deployed.values()) == 1
        assert {item.tags["certify.ledger"] for item in versions} == {head_text(last.ledger)}
