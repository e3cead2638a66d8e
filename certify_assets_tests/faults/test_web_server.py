"""``certify run`` where a Dagster web server answers at ``CERTIFY_DAGSTER_URL``."""

import logging
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import dagster as dg
import pytest
from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError

from certify_assets.defs.web_server import VARIABLE, launch, web_server
from certify_assets.errors import InputError, StepFailedError
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.faults.servers import serving
from certify_assets_tests.paths import REPOSITORY
from certify_assets_tests.services import free_port


def test_an_address_is_a_url_and_one_that_answers_nothing_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "localhost:3000")
    with pytest.raises(InputError, match="give a URL"):
        web_server()
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{free_port()}")
    with caplog.at_level(logging.WARNING):
        assert web_server() is None
    assert "The run is executed here" in caplog.text


def test_a_refusal_and_another_dagster_home_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "http://localhost:3000")
    client = Mock(spec=DagsterGraphQLClient)
    client.submit_job_execution.side_effect = ["a run", DagsterGraphQLClientError("Type", "why")]
    with dg.DagsterInstance.ephemeral() as instance:
        with pytest.raises(InputError, match="another Dagster home"):
            launch(client, instance, "job", "c", None, say=print)
        with pytest.raises(StepFailedError, match="did not launch job: why"):
            launch(client, instance, "job", "c", None, say=print)


@pytest.mark.slow
def test_the_web_server_launches_the_run_and_the_command_says_what_stopped_it(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    for name in ("c", "leaking"):
        runs = write_runs(tmp_path / f"{name}.jsonl", tasks=60, attempts=2)
        if name == "leaking":
            text = runs.read_text("utf-8")
            runs.write_text(
                text.replace('"observation": ""', '"observation": "{\\"reward\\": 1}"'), "utf-8"
            )
        register_runs(store, name, runs, rl=False)
    environment = platform_environment(root)
    home = Path(environment["DAGSTER_HOME"])
    home.mkdir(parents=True)
    shutil.copy(REPOSITORY / "certify_assets/dagster.yaml", home)

    def run(name: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "certify_assets.cli", "run", name],
            env={**environment, VARIABLE: address},
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        return done.returncode, done.stderr

    with serving(environment, tmp_path / "log", daemon=True) as address:
        code, said = run("c")
        assert code == 0 and f"was launched by {address}" in said
        code, said = run("leaking")
        assert code == 3 and "no_leak_field of corpora/trajectories stops the pipeline" in said
    assert store.exists("judges/lexical/c/certificates.json")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        runs = instance.get_runs(filters=dg.RunsFilter(job_name="onboard_corpus"))
    assert {run.tags["dagster/partition"] for run in runs} == {"c", "leaking"}
    assert all(run.remote_job_origin is not None for run in runs)
