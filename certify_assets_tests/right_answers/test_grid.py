"""The thresholds that were tested are those that are recorded and paid for."""

from pathlib import Path

import pytest

from certify_assets import Workspace
from certify_assets.corpora.corpus import Corpus
from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    # nothing answers there, and no deployment waits for it
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


def test_a_deployment_records_the_grid_of_its_certificate(call: Call, operated: Store) -> None:
    made = call(f"ops deploy c lexical --root {operated.root} --json").json
    certificates = Workspace.open(operated.root).corpus("c").judge("lexical").certificates
    (grid,) = {
        item.settings["grid"] for item in certificates if item.sha256 in made["certificates"]
    }
    assert made["fingerprint"]["grid"] == str(grid) == "160"


@pytest.mark.parametrize(("grid", "delta"), [(160, 0.05), (40, 0.01)])
def test_only_another_grid_is_another_test(
    call: Call, operated: Store, grid: int, delta: float
) -> None:
    path = Path(Corpus(operated, "c").config.paths[0])
    again = f"corpus import {path} --name c --replace --set grid={grid} --root {operated.root}"
    assert call(again).code == 0
    made = Workspace.open(operated.root).corpus("c").judge("lexical").certify()
    assert {item.delta for item in made} == {delta}
