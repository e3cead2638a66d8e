"""``certify ui``: Dagster and MLflow in the background of one line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click

from certify_assets.cli.options import store_option
from certify_assets.cli.output import say, show_line
from certify_assets.errors import InputError, MissingToolError, StepFailedError
from certify_assets.processes import with_parent
from certify_assets.storage.store import Store

# dagster dev ends its code servers within seconds, or not at all
_PATIENCE_S = 4.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=3000, help="Port of the Dagster UI.")
@click.option(
    "--mlflow-port", type=click.IntRange(1, 65535), default=5000, help="Port of the MLflow UI."
)
@click.option(
    "--host", default="127.0.0.1", help="Address to listen on; neither UI asks for a password."
)
@store_option
def ui(port: int, mlflow_port: int, host: str, store: Store) -> None:
    """Start the Dagster UI, and MLflow next to it; stop both with Ctrl-C.

    Prints both addresses once the servers are ready. Their output goes to ui.log in the Dagster
    home.
    """
    from certify_assets.cli.launching import dagster_environment, find_program
    from certify_assets.storage.tracking import Tracker, make_database

    dagster, mlflow = find_program("dagster"), find_program("mlflow")
    if dagster is None:
        raise MissingToolError(
            "the program dagster is not installed in this environment. Install dagster-webserver."
        )
    environment = {
        **dagster_environment(store),
        "MLFLOW_UI_URL": f"http://{host}:{mlflow_port}",
        # only its pages are wanted here; its job runner keeps seven processes awake
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    address, log = f"http://{host}:{port}", Path(environment["DAGSTER_HOME"]) / "ui.log"
    commands = [[dagster, "dev", "-m", "certify_assets.definitions", "-h", host, "-p", str(port)]]
    lines, tracker = [f"Dagster  {address}"], Tracker.for_store(store)
    if not tracker.uri.startswith("sqlite:"):
        mlflow = None
    require_free(host, port, "--port")
    if mlflow is not None:
        require_free(host, mlflow_port, "--mlflow-port")
    say("starting ...")
    if mlflow is not None:
        make_database(Path(tracker.uri.removeprefix("sqlite:///")))
        place = ["--host", host, "--port", str(mlflow_port), "--workers", "1"]
        commands.append([mlflow, "server", "--backend-store-uri", tracker.uri, *place])
        lines.append(f"MLflow   {tracker.experiment_page(environment['MLFLOW_UI_URL'])}")

    def ready() -> None:
        show_line("\n".join(lines))
        # a pipe would have it at the end
        sys.stdout.flush()

    run_together(commands, environment, log=log, address=address, ready=ready)


def require_free(host: str, port: int, option: str) -> None:
    """Refuse a port on which another server answers: its pages would pass for ours."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return
    raise InputError(
        f"port {port} of {host} is in use, perhaps by another `certify ui`; stop that one or give "
        f"another {option}."
    )


def run_together(
    commands: Sequence[Sequence[str]],
    environment: Mapping[str, str],
    *,
    log: Path,
    address: str,
    ready: Callable[[], None],
) -> None:
    """Run servers, their output in a log, until one ends or a signal comes; then end them all."""
    processes: list[subprocess.Popen[bytes]] = []
    for number in _SIGNALS:
        # SIGINT is ignored where a shell started this in the background
        signal.signal(number, signal.default_int_handler)
    with log.open("wb") as noise, suppress(KeyboardInterrupt):
        try:
            for command in commands:
                processes.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        start_new_session=True,
                        stdout=noise,
                        stderr=noise,
                        # a kill leaves the command no time to stop its servers
                        preexec_fn=with_parent(signal.SIGTERM),
                    )
                )
            while not _answers(address):
                _require_alive(processes, log)
                time.sleep(0.2)
            ready()
            while True:
                _require_alive(processes, log)
                time.sleep(0.2)
        finally:
            # a second signal while these end would leave them behind
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            say("stopping")
            _end(processes)


def _answers(address: str) -> bool:
    try:
        # a proxy of the environment knows nothing of this machine's ports
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


def _require_alive(processes: Sequence[subprocess.Popen[bytes]], log: Path) -> None:
    for process in processes:
        if (code := process.poll()) is not None:
            said = log.read_text("utf-8", "replace").split("\n")
            last = next((line.strip() for line in reversed(said) if line.strip()), "no output")
            raise StepFailedError(f"a server ended with code {code} ({last}); its log is {log}.")


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    # dagster dev leaves its code servers behind when it alone is stopped: the whole groups are
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        until = time.monotonic() + _PATIENCE_S
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.1, until - time.monotonic()))
