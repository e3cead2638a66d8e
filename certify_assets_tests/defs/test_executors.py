"""One variable names the executor; runs and steps as Ray jobs, kept in a PostgreSQL server."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from certify_assets.defs.resources import EXECUTOR_VARIABLE, job_executor
from certify_assets.errors import InputError, MissingToolError
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.killing import left_by_a_kill
from certify_assets_tests.paths import REPOSITORY
from certify_assets_tests.services import end_group, postgres_server, ray_cluster

LINE = ("corpora/trajectories", "corpora/split_manifest")
CODE = """
import dagster as dg
from certify_assets.defs.corpora import corpus_assets
from certify_assets.defs.project import Project
from certify_assets.defs.resources import job_executor
from certify_assets.defs.resources import MlflowTracker, resources

defs = dg.Definitions(
    assets=corpus_assets(Project.of()),
    jobs=[
        dg.define_asset_job(
            "line",
            selection=dg.AssetSelection.assets(
                ["corpora", "trajectories"], ["corpora", "split_manifest"]
            ),
        )
    ],
    resources={**resources(), "mlflow": MlflowTracker(enabled=False)},
    executor=job_executor(),
)
"""
# runs by status, materialized assets, and whether each step was handed to Ray
LOOK = """
import json, sys
import dagster as dg
with dg.DagsterInstance.get() as instance:
    records = instance.get_run_records()
    logs = [
        entry.dagster_event
        for record in records
        for entry in instance.all_logs(record.dagster_run.run_id)
        if entry.dagster_event
    ]
    handed_on = [event for event in logs if event.event_type_value == "STEP_WORKER_STARTING"]
    print(json.dumps({
        "storage": type(instance.run_storage).__name__,
        "runs": [[one.dagster_run.job_name, one.dagster_run.status.value] for one in records],
        "assets": [
            event.asset_key.to_user_string() for event in logs if event.is_step_materialization
        ],
        "steps": sorted(event.step_key for event in logs if event.event_type_value == "STEP_START"),
        "ray_steps": sorted(event.step_key for event in handed_on),
        "engine": [str(event.message)[:300] for event in logs if event.is_engine_event],
        "errors": [
            event.step_failure_data.error.to_string()[-1500:]
            for event in logs
            if event.is_step_failure
        ],
    }))
"""


def test_one_variable_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {}
    for value in ("", "in_process", "multiprocess"):
        monkeypatch.setenv(EXECUTOR_VARIABLE, value)
        names[value] = job_executor().name
    assert names == {"": "in_process", "in_process": "in_process", "multiprocess": "two_processes"}
    monkeypatch.setenv(EXECUTOR_VARIABLE, "celery")
    with pytest.raises(
        InputError, match="CERTIFY_EXECUTOR is 'celery'; give one of in_process, multiprocess, ray"
    ):
        job_executor()
    monkeypatch.setenv(EXECUTOR_VARIABLE, "ray")
    monkeypatch.setitem(sys.modules, "dagster_ray", None)
    with pytest.raises(MissingToolError, match=r"install certify_assets\[ray\]"):
        job_executor()


STILL = """
import time
from pathlib import Path
import dagster as dg
from certify_assets.defs.resources import DataRoot, job_executor, resources

@dg.asset
def stands_still(data_root: DataRoot) -> None:
    Path(__file__).with_name("begun").touch()
    time.sleep(600)

defs = dg.Definitions(
    assets=[stands_still],
    jobs=[dg.define_asset_job("still")],
    resources=resources(),
    executor=job_executor(),
)

def still():
    return defs.resolve_job_def("still")
"""
BEGIN = """
import dagster as dg
from standing import still
with dg.DagsterInstance.get() as instance:
    dg.execute_job(dg.reconstructable(still), instance=instance)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="children are looked for in /proc")
def test_a_step_of_a_process_of_its_own_ends_with_a_run_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "standing.py").write_text(STILL, "utf-8")
    environment = platform_environment(tmp_path / "root")
    Path(environment["DAGSTER_HOME"]).mkdir(parents=True)
    (Path(environment["DAGSTER_HOME"]) / "dagster.yaml").write_text("telemetry: {enabled: false}")
    environment["PYTHONPATH"] = f"{REPOSITORY}{os.pathsep}{tmp_path}"
    left = left_by_a_kill(
        [sys.executable, "-c", BEGIN],
        lambda children: (tmp_path / "begun").exists() and "spawn_main" in "".join(children),
        **{**environment, EXECUTOR_VARIABLE: "multiprocess"},
    )
    assert left == []


class Platform:
    """A data root with one registered corpus, and a Dagster home with one of the example files."""

    def __init__(self, folder: Path, example: str, **environment: str) -> None:
        self.store = Store(str(folder / "root"))
        register_runs(
            self.store, "c", write_runs(folder / "c.jsonl", tasks=40, attempts=3), rl=True
        )
        self.environment = {
            **platform_environment(folder / "root"),
            "PYTHONPATH": str(REPOSITORY),
            **environment,
        }
        home = Path(self.environment["DAGSTER_HOME"])
        home.mkdir(parents=True)
        shutil.copy(REPOSITORY / "deploy" / "dagster" / example, home / "dagster.yaml")
        code = "from certify_assets.defs.execution import add_partitions; add_partitions(['c'])"
        self.call("-c", code)

    def call(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            env={**self.environment, **environment},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def seen(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = json.loads(self.call("-c", LOOK).splitlines()[-1])
        return found


@pytest.fixture(scope="module")
def _databases() -> Iterator[dict[str, str]]:
    pytest.importorskip(
        "dagster_postgres",
        reason="dagster-postgres is not installed; pip install certify_assets[postgres]",
    )
    with postgres_server("dagster", "mlflow", "ray") as urls:
        yield urls


@pytest.mark.slow
def test_dagster_and_mlflow_are_kept_in_postgres(
    _databases: dict[str, str], tmp_path: Path
) -> None:
    import sqlalchemy as sa

    platform = Platform(
        tmp_path,
        "postgres.yaml",
        DAGSTER_POSTGRES_URL=_databases["dagster"],
        MLFLOW_TRACKING_URI=_databases["mlflow"],
    )
    line = "-m dagster asset materialize -m certify_assets.definitions --partition c"
    platform.call(*line.split(), "--select", "+key:judges/lexical/model")
    seen = platform.seen()
    assert seen["storage"] == "PostgresRunStorage"
    assert {"corpora/trajectories", "judges/lexical/model"} <= set(seen["assets"])
    assert seen["runs"][0][1] == "SUCCESS"

    engine = sa.create_engine(_databases["mlflow"])
    with engine.connect() as connection:
        query = "select r.status, t.value from runs r join tags t using (run_uuid)"
        found = connection.execute(sa.text(f"{query} where t.key = 'dagster.asset'")).all()
    engine.dispose()
    assert [tuple(row) for row in found] == [("FINISHED", "judges/lexical/model")]
    assert not list(Path(platform.environment["DAGSTER_HOME"]).rglob("*.db")), (
        "nothing is kept in SQLite beside it"
    )


@pytest.mark.slow
def test_a_run_and_each_of_its_steps_are_ray_jobs(
    _databases: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip(
        "dagster_ray", reason="dagster-ray is not installed; pip install certify_assets[ray]"
    )
    location = tmp_path / "line.py"
    location.write_text(CODE, "utf-8")
    with ray_cluster(DAGSTER_POSTGRES_URL=_databases["ray"]) as cluster:
        platform = Platform(
            tmp_path,
            "ray.yaml",
            DAGSTER_POSTGRES_URL=_databases["ray"],
            RAY_DASHBOARD=cluster.dashboard,
            RAY_ADDRESS=cluster.dashboard,
            CERTIFY_EXECUTOR="ray",
        )
        daemon = [sys.executable, "-m", "dagster._daemon", "run", "-f", str(location)]
        log = tmp_path / "daemon.log"
        with log.open("wb") as stream:
            started = subprocess.Popen(
                daemon,
                env=platform.environment,
                cwd=REPOSITORY,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        try:
            launch = f"-m dagster job launch -f {location} -j line --tags"
            platform.call(*launch.split(), json.dumps({"dagster/partition": "c"}))
            until = time.monotonic() + 240
            while (seen := platform.seen())["runs"][0][1] not in ("SUCCESS", "FAILURE"):
                assert time.monotonic() < until, log.read_text(errors="replace")[-3000:]
                time.sleep(3)
        finally:
            end_group(started)
    assert seen["runs"] == [["line", "SUCCESS"]], seen["errors"]
    assert sorted(seen["assets"]) == sorted(LINE) and seen["ray_steps"] == seen["steps"], (
        "every step was a Ray job"
    )
    assert any("Creating Ray run job" in text for text in seen["engine"]), "the run was one, too"
