"""A real Dagster web server, or the whole of ``dagster dev``, on a data root; the process group is ended afterwards."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from certify_assets_tests.paths import REPOSITORY

__all__ = ["serving"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(environment: Mapping[str, str], log: Path, *, daemon: bool = False) -> Iterator[str]:
    """Start the web server, with the daemon that takes runs from the queue where asked; give its address."""
    port = _free_port()
    folder = Path(sys.executable).parent
    program = [str(folder / "dagster"), "dev"] if daemon else [str(folder / "dagster-webserver")]
    command = [*program, "-m", "certify_assets.definitions", "-p", str(port), "-h", "127.0.0.1"]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=REPOSITORY,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/server_info", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            _end(process)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(
        f"{url} did not answer within {seconds:g} s: {log.read_text(errors='replace')[-2000:]}"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=15)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
