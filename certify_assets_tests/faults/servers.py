"""Real servers: Dagster's, or the whole of ``dagster dev``, on a data root, and any by its command."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from certify_assets_tests.paths import REPOSITORY
from certify_assets_tests.services import end_group, free_port

__all__ = ["running", "serving"]


@contextmanager
def serving(environment: Mapping[str, str], log: Path, *, daemon: bool = False) -> Iterator[str]:
    """Start the web server, with the daemon that takes runs from the queue where asked; give its address."""
    port = free_port()
    folder = Path(sys.executable).parent
    program = [str(folder / "dagster"), "dev"] if daemon else [str(folder / "dagster-webserver")]
    command = [*program, "-m", "certify_assets.definitions", "-p", str(port), "-h", "127.0.0.1"]
    address = f"http://127.0.0.1:{port}"
    with running(command, environment, log, f"{address}/server_info"):
        yield address


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], log: Path, ready: str
) -> Iterator[None]:
    """Run a server from when an address of it answers; end its process group afterwards."""
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
            _wait_for(ready, process, log)
            yield
        finally:
            end_group(process)


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
