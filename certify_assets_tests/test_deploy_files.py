"""The example files of deploy/: Dagster takes each, they agree with one another and with the code, and the page names every switch."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from certify_assets.cli.launching import dagster_environment
from certify_assets.defs import resources as executors
from certify_assets.storage.shards import ENGINE_VARIABLE, ENGINES
from certify_assets.storage.store import Store
from certify_assets_tests.paths import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
PAGE = (DEPLOY / "README.md").read_text("utf-8")
EXAMPLES = ("one machine", "postgres", "ray")
VARIABLES = {
    "DAGSTER_POSTGRES_URL": "postgresql+psycopg2://u:p@127.0.0.1:1/d",
    "RAY_DASHBOARD": "http://127.0.0.1:1",
}


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path_of(name).read_text("utf-8"))
    return found


def path_of(name: str) -> Path:
    packaged = REPOSITORY / "certify_assets" / "dagster.yaml"
    return packaged if name == "one machine" else DEPLOY / "dagster" / f"{name}.yaml"


def manifests() -> list[dict[str, Any]]:
    files = ("raycluster.yaml", "platform.yaml")
    return [
        found
        for name in files
        for found in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text("utf-8"))
    ]


def test_the_file_of_one_machine_is_the_one_that_commands_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    dagster_environment(Store(str(tmp_path)))
    written = (tmp_path / "dagster" / "dagster.yaml").read_bytes()
    assert written == path_of("one machine").read_bytes()


def test_the_examples_differ_from_it_in_storage_and_launcher_alone() -> None:
    packaged = example("one machine")
    for name in ("postgres", "ray"):
        found = {**example(name), "concurrency": None, "run_monitoring": None}
        others = {**packaged, "concurrency": None, "run_monitoring": None}
        assert {key: value for key, value in found.items() if key in others} == others
        assert set(found) - set(others) <= {"storage", "run_launcher"}
        limits = example(name)["concurrency"]["runs"]["tag_concurrency_limits"]
        assert limits == packaged["concurrency"]["runs"]["tag_concurrency_limits"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_example_tells_anybody_or_covers_the_first_page(name: str) -> None:
    found = example(name)
    assert found["telemetry"]["enabled"] is False and found["nux"]["enabled"] is False
    assert found["concurrency"]["pools"] == {"default_limit": 1, "granularity": "op"}


@pytest.mark.parametrize(
    "name",
    [
        "one machine",
        pytest.param("postgres", marks=pytest.mark.slow),
        pytest.param("ray", marks=pytest.mark.slow),
    ],
)
def test_dagster_takes_the_example(name: str, tmp_path: Path) -> None:
    if name != "one machine":
        pytest.importorskip(
            "dagster_postgres",
            reason="dagster-postgres is not installed; pip install certify_assets[postgres]",
        )
    if name == "ray":
        pytest.importorskip(
            "dagster_ray", reason="dagster-ray is not installed; pip install certify_assets[ray]"
        )
    shutil.copy(path_of(name), tmp_path / "dagster.yaml")
    # the classes and their settings are checked, nothing is connected
    code = (
        "from dagster._core.instance.ref import InstanceRef\n"
        f"ref = InstanceRef.from_dir({str(tmp_path)!r})\n"
        "print(type(ref.run_coordinator).__name__, type(ref.run_launcher).__name__ if ref.run_launcher else '')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **VARIABLES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [
        "QueuedRunCoordinator",
        "RayRunLauncher" if name == "ray" else "DefaultRunLauncher",
    ]


def test_no_password_is_handed_to_ray_by_name() -> None:
    handed = set(example("ray")["run_launcher"]["config"]["ray"]["env_vars"]) | set(
        executors._HANDED_ON
    )
    assert set(executors._HANDED_ON) == handed, "a step gets what its run gets"
    assert not {name for name in handed if re.search("URL|PASSWORD|KEY|TOKEN", name)} - {
        "MLFLOW_UI_URL"
    }
    assert "MLFLOW_TRACKING_URI" not in handed


def test_the_page_names_every_switch_and_value() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \| .* \|$", PAGE, flags=re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows[executors.EXECUTOR_VARIABLE])) == set(executors._NAMES)
    assert set(re.findall(r"`(\w+)`", rows[ENGINE_VARIABLE])) == set(ENGINES)


def test_service_files_start_programs_that_are_installed() -> None:
    programs = set()
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        settings = dict(re.findall(r"^(\w+)=(.*)$", path.read_text("utf-8"), flags=re.MULTILINE))
        assert settings["EnvironmentFile"] == "/etc/certify/certify.env"
        assert settings["User"] == "certify"
        program = Path(settings["ExecStart"].split()[0])
        assert program.parent == Path("/opt/certify/.venv/bin")
        programs.add(program.name)
        if "webserver" in program.name:
            assert "-h 127.0.0.1" in settings["ExecStart"], "the webserver asks for no password"
    assert programs == {"dagster-webserver", "dagster-daemon"}


def test_manifests_have_one_data_root_and_the_pinned_ray() -> None:
    pins = dict(
        re.findall(
            r"^([\w-]+)==(\S+)$",
            (REPOSITORY / "constraints.txt").read_text("utf-8"),
            flags=re.MULTILINE,
        )
    )
    cluster, claim, platform = manifests()
    assert cluster["kind"] == "RayCluster" and cluster["spec"]["rayVersion"] == pins["ray"]
    pods = [
        group["template"]["spec"]
        for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"])
    ]
    pods.append(platform["spec"]["template"]["spec"])
    for pod in pods:
        assert {
            "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]},
            "name": "root",
        } in pod["volumes"]
        for container in pod["containers"]:
            assert {"name": "root", "mountPath": "/var/lib/certify"} in container["volumeMounts"]
            assert container["image"] == "IMAGE"
            assert container["envFrom"] == [{"secretRef": {"name": "certify-urls"}}]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"] and platform["spec"]["replicas"] == 1
