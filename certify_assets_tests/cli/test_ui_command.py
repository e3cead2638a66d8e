"""``certify ui``: two lines when it is ready, the rest in a log, gone at the first signal."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from certify_assets.storage.store import Store
from certify_assets.storage.tracking import Record, Tracker
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.paths import REPOSITORY

# two servers as `certify ui` runs them, one of which forks as `dagster dev` does
SERVERS = """
import sys
from pathlib import Path
from certify_assets.cli.output import show_line
from certify_assets.cli.ui import run_together
port, log = sys.argv[1:]
serve = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", port]
parent = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(600)"
run_together(
    [[sys.executable, "-c", parent, *serve], [sys.executable, "-c", "import time; time.sleep(600)"]],
    {}, log=Path(log), address=f"http://127.0.0.1:{port}",
    ready=lambda: print("ready", flush=True),
)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def begun(*arguments: str) -> subprocess.Popen[str]:
    # as a shell starts what is in the background: with SIGINT ignored
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )


def gone(port: int) -> bool:
    """Whether nothing answers any more, once what was stopped has had its time."""
    for _ in range(50):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_servers_end_with_their_children_at_the_first_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    port = free_port()
    process = begun("-c", SERVERS, str(port), str(tmp_path / "ui.log"))
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    urllib.request.urlopen(f"http://127.0.0.1:{port}").close()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out == "" and err == "stopping\n"
    assert gone(port) and "GET / HTTP" in (tmp_path / "ui.log").read_text("utf-8")


def test_a_port_in_use_and_a_server_that_ends_are_one_sentence(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    root = tmp_path / "root"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = call(f"ui --port {port} --root {root}")
        assert answer.code == 2 and f"port {port} of 127.0.0.1 is in use" in answer.err
    program = tmp_path / "dagster"
    program.write_text("#!/bin/sh\necho no code location; exit 7\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(
        "certify_assets.cli.launching.find_program",
        lambda name: str(program) if name == "dagster" else None,
    )
    # those of the process of the tests stay
    monkeypatch.setattr("certify_assets.cli.ui._SIGNALS", ())
    ended = call(f"ui --port {free_port()} --root {root}")
    assert ended.code == 1 and ended.out == ""
    assert "a server ended with code 7 (no code location)" in ended.err and "ui.log" in ended.err


@pytest.mark.slow
def test_mlflow_opens_on_the_records_of_a_moved_root_too(tmp_path: Path) -> None:
    def opened(root: str) -> str:
        tracker = Tracker.for_store(Store(str(tmp_path / root)))
        shown = tracker.experiment_page("http://127.0.0.1:5000")
        assert tracker.write(Record("a run", {})).startswith(f"{shown}/")
        return shown

    before = opened("root")
    shutil.move(tmp_path / "root", tmp_path / "moved")
    assert opened("moved") != before


@contextmanager
def real_servers(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """Run `certify ui`; its ports answer no more in the end."""
    port, other = free_port(), free_port()
    process = begun(
        *("-m", "certify_assets.cli", "ui", "--root", str(folder / "root")),
        *("--port", str(port), "--mlflow-port", str(other)),
    )
    yield process, port, other
    assert gone(port) and gone(other)


@pytest.mark.slow
def test_the_real_servers_print_two_lines(tmp_path: Path) -> None:
    with real_servers(tmp_path) as (process, port, other):
        assert process.stdout is not None
        assert process.stdout.readline() == f"Dagster  http://127.0.0.1:{port}\n"
        records = f"MLflow   http://127.0.0.1:{other}/#/experiments/"
        assert process.stdout.readline().startswith(records)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0 and out == "" and err == "starting ...\nstopping\n"


@pytest.mark.slow
def test_the_real_servers_end_with_a_command_that_was_killed(tmp_path: Path) -> None:
    with real_servers(tmp_path) as (process, *_):
        assert process.stdout is not None and process.stdout.readline().startswith("Dagster ")
        process.kill()
        process.communicate(timeout=60)
        ended = time.monotonic() + 60
        while (left := _processes_of(tmp_path)) and time.monotonic() < ended:
            time.sleep(0.2)
        assert left == []


def _processes_of(folder: Path) -> list[str]:
    """Command lines of this machine whose data root or records are below a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
            if str(folder).encode() in words:
                found.append(words.decode(errors="replace")[:200])
    return found
