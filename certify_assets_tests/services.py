"""Real servers that tests start on this machine and end with all their children: a small Ray cluster, a PostgreSQL server, an S3 server."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from certify_assets_tests.paths import REPOSITORY

__all__ = [
    "RayCluster",
    "end_group",
    "free_port",
    "object_store",
    "postgres_server",
    "ray_cluster",
]

_START_S, _STOP_S = 90, 30


@dataclass(frozen=True)
class RayCluster:
    """Where a cluster answers: tasks at `address`, submitted jobs at `dashboard`."""

    address: str
    dashboard: str


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def ray_cluster(**environment: str) -> Iterator[RayCluster]:
    """`ray start --head` with two cores and 200 MB of shared memory; skips where Ray is not installed."""
    pytest.importorskip("ray", reason="ray is not installed; pip install certify_assets[ray]")
    port, web = free_port(), free_port()
    # sockets have short paths
    folder = tempfile.mkdtemp(prefix="ray")
    options = (
        f"start --head --block --disable-usage-stats --temp-dir={folder} --port={port} --num-cpus=2 "
        f"--object-store-memory={200 * 10**6} --node-ip-address=127.0.0.1 --include-dashboard=true "
        f"--dashboard-host=127.0.0.1 --dashboard-port={web} --ray-client-server-port={free_port()} "
        f"--dashboard-agent-listen-port={free_port()}"
    )
    command = [str(Path(sys.executable).with_name("ray")), *options.split()]
    inherited = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONWARNINGS": "default",
    }
    # Ray jobs of Dagster call its program by name
    inherited["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    log = Path(folder) / "start.log"
    with log.open("wb") as stream:
        started = subprocess.Popen(
            command,
            env={**inherited, **environment},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        _wait_for(started, lambda: "Ray runtime started" in log.read_text(errors="replace"), log)
        yield RayCluster(f"127.0.0.1:{port}", f"http://127.0.0.1:{web}")
    finally:
        end_group(started)
        shutil.rmtree(folder, ignore_errors=True)


class Databases(dict[str, str]):
    """The URL of each database of a server, and how to restart it."""

    restart: Callable[[], None]


@contextmanager
def postgres_server(*databases: str) -> Iterator[Databases]:
    """A PostgreSQL server on a port of its own; gives the URL of each database, and skips where no server is installed."""
    programs = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name)
    )
    if not programs:
        pytest.skip("no PostgreSQL server here; Debian: apt-get install postgresql")
    owner, password, port = _owner(), secrets.token_hex(16), free_port()
    folder = Path(tempfile.mkdtemp(prefix="postgres"))
    (folder / "password").write_text(password, encoding="ascii")
    if owner is not None:
        shutil.chown(folder, owner)
        shutil.chown(folder / "password", owner)
    run: dict[str, Any] = {
        "user": owner,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "cwd": folder,
    }
    try:
        options = f"-D {folder}/data -U certify -A scram-sha-256 -N --pwfile={folder}/password"
        make: list[str | Path] = [programs[-1] / "initdb", *options.split()]
        subprocess.run(make, check=True, **run)
        options = f"-D {folder}/data -h 127.0.0.1 -p {port} -k {folder} -c fsync=off"
        serve: list[str | Path] = [programs[-1] / "postgres", *options.split()]
        asked: list[str | Path] = [
            programs[-1] / "pg_isready",
            "-q",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
        ]

        def start() -> subprocess.Popen[bytes]:
            process = subprocess.Popen(serve, start_new_session=True, **run)
            _wait_for(process, lambda: subprocess.run(asked, check=False).returncode == 0)
            return process

        def restart() -> None:
            end_group(started.pop(), signal.SIGINT)
            started.append(start())

        started = [start()]
        try:
            for name in databases:
                options = f"-h 127.0.0.1 -p {port} -U certify {name}"
                create = [programs[-1] / "createdb", *options.split()]
                subprocess.run(create, env={"PGPASSWORD": password}, check=True)
            found = Databases(
                {
                    name: f"postgresql+psycopg2://certify:{password}@127.0.0.1:{port}/{name}"
                    for name in databases
                }
            )
            found.restart = restart
            yield found
        finally:
            # PostgreSQL ends at once, and in order, by this signal
            end_group(started.pop(), signal.SIGINT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _owner() -> str | None:
    """Who runs the server: it refuses root."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    pytest.skip("the PostgreSQL server does not run as root, and there is no user postgres here")


def _wait_for(
    process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path | None = None
) -> None:
    until = time.monotonic() + _START_S
    while not ready():
        told = log.read_text(errors="replace")[-2000:] if log is not None else ""
        # a machine on which the server itself does not come up says nothing of what would use it
        if process.poll() is not None:
            pytest.skip(
                f"the server does not start here, it ended with {process.returncode}: {told[-500:]}"
            )
        if time.monotonic() > until:
            pytest.skip(f"the server did not start here within {_START_S} s: {told[-500:]}")
        time.sleep(0.2)


def end_group(process: subprocess.Popen[bytes], first: int = signal.SIGTERM) -> None:
    """Ask the server to end; then end its whole group, which is its own."""
    for number in (first, signal.SIGKILL):
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """An S3 server with the bucket certify; gives the environment of its clients, and skips where it is not installed."""
    for name in ("s3fs", "moto"):
        pytest.importorskip(
            name, reason=f"{name} is not installed; pip install certify_assets[dev]"
        )
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    started = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def made() -> bool:
        request = urllib.request.Request(f"{address}/certify", method="PUT")
        with suppress(urllib.error.URLError):
            return urllib.request.urlopen(request).status == 200
        return False

    try:
        _wait_for(started, made)
        yield {
            "AWS_ACCESS_KEY_ID": "certify",
            "AWS_SECRET_ACCESS_KEY": secrets.token_hex(16),
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": address,
        }
    finally:
        end_group(started)
