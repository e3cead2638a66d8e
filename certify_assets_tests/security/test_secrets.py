"""Secrets of the environment reach no log, no metadata, no MLflow run and no stored document; MLflow is down on the way."""

import json
from pathlib import Path

import dagster as dg
import pytest

from certify_assets_tests.defs.running import observed
from certify_assets_tests.faults.small import prepare, results, run

SECRETS = {
    "OPENAI_API_KEY": "sk-secret-of-openai-0001",
    "AWS_SECRET_ACCESS_KEY": "secret-of-aws-0002",
    "MLFLOW_TRACKING_PASSWORD": "secret-of-mlflow-0003",
    "MY_JUDGE_KEY": "secret-of-a-judge-0004",
    "DAGSTER_PG_PASSWORD": "secret-of-postgres-0005",
}
PASSWORD = "secret-in-a-url-0006"
DOWN = {
    "MLFLOW_TRACKING_URI": f"http://me:{PASSWORD}@127.0.0.1:9",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}


@pytest.mark.slow
def test_no_secret_is_written_anywhere_and_a_run_without_mlflow_is_whole(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = prepare(root)
    judge = {
        "name": "mine",
        "url": "http://127.0.0.1:9/v1",
        "model": "m",
        "key_variable": "MY_JUDGE_KEY",
    }
    store.folder.write("judges.yaml", json.dumps({"judges": [judge]}).encode())
    done = run(root, {**SECRETS, **DOWN})
    assert done.returncode == 0, done.stderr
    written = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert len(written) > 30 and len(results(root)) > 20
    for secret in (*SECRETS.values(), PASSWORD):
        assert secret not in done.stdout + done.stderr
        found = [
            path for path, data in written.items() if secret.encode() in data or secret in str(path)
        ]
        assert found == [], secret
    with dg.DagsterInstance.from_config(str(root / "dagster")) as instance:
        told = str(observed(instance, "judges/lexical/certificate")["mlflow_run"].value)
    assert told.startswith("not recorded: ")
