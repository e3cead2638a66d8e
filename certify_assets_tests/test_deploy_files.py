"""The example files of deploy/: Dagster takes each, and none opens or hands on what it should not."""

import os
import re
import shutil
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from certify_assets.cli.launching import dagster_environment
from certify_assets.defs import resources as executors
from certify_assets.storage.store import Store
from certify_assets_tests.paths import REPOSITORY
from certify_assets_tests.services import end_group, free_port

DEPLOY = REPOSITORY / "deploy"
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


def test_the_file_of_one_machine_is_the_one_that_commands_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    dagster_environment(Store(str(tmp_path)))
    written = (tmp_path / "dagster" / "dagster.yaml").read_bytes()
    assert written == path_of("one machine").read_bytes()


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


def test_an_image_gets_nothing_but_what_pip_builds_from(tmp_path: Path) -> None:
    """What `COPY . .` takes of a working copy with labels, seeds, keys and environments in it."""
    hidden = (
        ".certify/reviews/mine/labels.jsonl",
        ".git/config",
        ".venv/bin/python",
        ".ci/run",
        "labels.csv",
        "incoming/mine/runs.jsonl",
        "signing.key",
        ".env",
        "certify_assets/__pycache__/files.pyc",
        "certify_assets/.certify/batches/draw.json",
        "certify_assets/cli/signing.key",
        "certify_assets_tests/conftest.py",
    )
    for name in (*hidden, "certify_assets/cli/main.py", "setup.cfg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert _copied(tmp_path) == {"certify_assets/cli/main.py", "setup.cfg"}
    real = {name.partition("/")[0] for name in _copied(REPOSITORY)}
    files = {"LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.cfg", "setup.py"}
    assert real == {"certify_assets", *files}


def _copied(root: Path) -> set[str]:
    """Files of a build's context that .dockerignore leaves: of each, the last pattern that matches it or a folder of it decides."""
    patterns = [
        line
        for line in (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    ]

    def ignored(name: str) -> bool:
        found = False
        folders = [name, *(str(parent) for parent in Path(name).parents)][:-1]
        for pattern in patterns:
            wanted = pattern.removeprefix("!")
            loose = wanted.removeprefix("**/")
            if any(
                fnmatch(folder if loose == wanted else Path(folder).name, loose)
                for folder in folders
                if "/" not in folder or wanted != "*"
            ):
                found = not pattern.startswith("!")
        return found

    found = set()
    for folder, folders, names in os.walk(root):
        # nothing below them is let in again
        folders[:] = [name for name in folders if name not in (".git", ".venv", ".certify")]
        paths = [str((Path(folder) / name).relative_to(root)) for name in names]
        found |= {path for path in paths if not ignored(path)}
    return found


def test_compose_opens_nothing_to_the_outside_and_has_no_password() -> None:
    text = (DEPLOY / "compose/compose.yaml").read_text("utf-8")
    for service in yaml.safe_load(text)["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert set(re.findall(r"POSTGRES_PASSWORD: (.*)", text)) == {
        '"${POSTGRES_PASSWORD:?is the password of the databases}"'
    }


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["daemon", "webserver"])
def test_a_service_may_do_little_else(name: str) -> None:
    asked = ["systemd-analyze", "security", "--offline=true"]
    unit = str(DEPLOY / f"systemd/certify-{name}.service")
    said = subprocess.run([*asked, unit], capture_output=True, text=True, check=True).stdout
    exposure = re.search(r"exposure level for .*: (\d+\.\d)", said)
    assert exposure is not None and float(exposure[1]) < 2.0


@pytest.mark.slow
def test_the_code_server_serves_the_definitions(tmp_path: Path) -> None:
    """The command of the image, its probe, and a workspace with nothing but its address."""
    text = (DEPLOY / "compose/compose.yaml").read_text("utf-8")
    port, services = str(free_port()), yaml.safe_load(text)["services"]
    place = {"4000": port, "0.0.0.0": "127.0.0.1"}
    serve = [place.get(word, word) for word in services["code"]["command"]]
    probe = [place.get(word, word) for word in services["code"]["healthcheck"]["test"][1:]]
    programs = Path(sys.executable).parent
    home, log = tmp_path / "home", tmp_path / "log"
    home.mkdir()
    environment = {
        **os.environ,
        "CERTIFY_ROOT": str(tmp_path / "root"),
        "DAGSTER_HOME": str(home),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    workspace = (DEPLOY / "compose/workspace.yaml").read_text("utf-8")
    for old, new in {"host: code": "host: 127.0.0.1", "port: 4000": f"port: {port}"}.items():
        workspace = workspace.replace(old, new)
    (tmp_path / "workspace.yaml").write_text(workspace, encoding="utf-8")
    with log.open("wb") as stream:
        server = subprocess.Popen(
            serve,
            env=environment,
            cwd=tmp_path,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + 300
        while subprocess.run(probe, env=environment, capture_output=True, check=False).returncode:
            assert server.poll() is None and time.monotonic() < until, log.read_text("utf-8")[
                -2000:
            ]
        listed = subprocess.run(
            ["dagster", "job", "list", "-w", str(tmp_path / "workspace.yaml")],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert listed.returncode == 0, listed.stderr[-2000:]
        assert "baseline_judges" in listed.stdout
    finally:
        end_group(server)
