"""An MLflow server that is killed in the middle of a record, and comes back."""

from collections import Counter
from pathlib import Path

import pytest
import requests

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.deployment import Deployment
from certify_assets.operations.deployment_record import load_deployment
from certify_assets.operations.rollout import deploy, model_name
from certify_assets.storage import tracking
from certify_assets.storage.mlflow_server import mlflow_client
from certify_assets.storage.store import Store
from certify_assets.storage.tracking import EXPERIMENT, Record, waiting_records, write_or_keep
from certify_assets_tests.builders import judged
from certify_assets_tests.corpora.mlflow_server import kill_group, mlflow_process
from certify_assets_tests.services import free_port

#: requests before which the server is killed: of a record, and of a deployment
RECORD, DEPLOYMENT = (1, 2, 4), (3, 8)


@pytest.mark.slow
def test_records_are_sent_once_and_deployments_hold(
    operated: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, left, killed = free_port(), [0], []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    # asked again at once: a server that failed is left alone for two minutes
    monkeypatch.setattr(tracking, "_PAUSE_SECONDS", 0.0)
    ask = requests.Session.request

    def asked(session: requests.Session, *given: object, **more: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            kill_group(server)
            killed.append(given)
        return ask(session, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(requests.Session, "request", asked)
    for number, before in enumerate(RECORD):
        with mlflow_process(tmp_path / "server", port) as (_, server):
            # it has the records that the one before did not take
            write_or_keep(operated, _record(f"between {number}"), experiment=EXPERIMENT)
            assert waiting_records(operated) == []
            left[0] = before
            write_or_keep(operated, _record(f"record {number}"), experiment=EXPERIMENT)
            assert len(waiting_records(operated)) == 1
    for before in DEPLOYMENT:
        with mlflow_process(tmp_path / "server", port) as (_, server):
            left[0] = before
            made = deploy(judged(operated))
            assert made.mlflow and made.mlflow["error"].startswith("not recorded: ")
            assert load_deployment(Corpus(operated, "c")) == made
            assert Deployment.of(Corpus(operated, "c")).refusal is None
    assert len(killed) == len(RECORD) + len(DEPLOYMENT)
    with mlflow_process(tmp_path / "server", port) as (address, server):
        write_or_keep(operated, _record("last"), experiment=EXPERIMENT)
        last = deploy(judged(operated))
        assert last.mlflow and "error" not in last.mlflow and last.number == len(DEPLOYMENT) + 1
        client = mlflow_client(address)
        found = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
        names = Counter(run.info.run_name for run in found if run.info.status == "FINISHED")
        wanted = [f"{kind} {place}" for kind in ("record", "between") for place in range(3)]
        assert {name: names[name] for name in [*wanted, "last"]} == dict.fromkeys(
            [*wanted, "last"], 1
        )
        versions = client.search_model_versions(f"name = '{model_name('c')}'")
        deployed = Counter(item.tags["certify.deployment"] for item in versions)
        assert deployed[str(last.number)] == 1 and max(deployed.values()) == 1
    print(f"{len(killed)} deaths of MLflow: {len(wanted) + 1} records, none lost, none twice")


def _record(name: str) -> Record:
    return Record(
        name,
        {"certify.corpus": "c"},
        params={"alpha": 0.1},
        metrics={"coverage": 0.5},
        documents={"document.json": "{}"},
    )
