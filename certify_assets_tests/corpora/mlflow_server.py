"""A real MLflow server, and runs logged there through MLflow's own API."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from certify_assets_tests.corpora.traces import Run
from certify_assets_tests.services import free_port

if TYPE_CHECKING:
    from mlflow.entities.trace_location import MlflowExperimentLocation


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Run ``mlflow server`` on SQLite while the block lasts; yield its address."""
    with mlflow_process(folder, free_port()) as (address, _):
        yield address


@contextmanager
def mlflow_process(folder: Path, port: int) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Run the server on a port; yield its process too, the first of its group."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--default-artifact-root", str(folder / "artifacts")]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            start_new_session=True,
        )
        try:
            _wait(address, server)
            yield address, server
        finally:
            kill_group(server)


def kill_group(server: "subprocess.Popen[bytes]") -> None:
    """End a server at once: it starts processes, and waits for them longer than a test should."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def _wait(address: str, server: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError("the MLflow server did not come up")


@contextmanager
def tracking_to(address: str) -> Iterator[None]:
    import mlflow

    mlflow.set_tracking_uri(address)
    try:
        yield
    finally:
        # MLflow keeps the address in the environment too, where later tests would find it
        mlflow.set_tracking_uri(cast(str, None))


def log_runs(address: str, experiment: str, runs: Sequence[Run]) -> list[str]:
    """Log runs with their labels as human feedback; return the ids of their traces."""
    import mlflow
    from mlflow import MlflowClient
    from mlflow.entities import AssessmentSource
    from mlflow.entities.trace_location import MlflowExperimentLocation

    human = AssessmentSource(source_type="HUMAN", source_id="reviewer@example.org")
    judge = AssessmentSource(source_type="LLM_JUDGE", source_id="some-model")
    ids: list[str] = []
    with tracking_to(address), warnings.catch_warnings():
        # a warning that is an error here makes MLflow record nothing
        warnings.simplefilter("ignore")
        # `set_experiment` would be of the whole process, and later tests have other servers
        made = MlflowClient().create_experiment(experiment)
        for run in runs:
            ids.append(_log(run, MlflowExperimentLocation(made)))
        mlflow.flush_trace_async_logging()
        for run, trace_id in zip(runs, ids, strict=True):
            if run.outcome is not None:
                mlflow.log_feedback(
                    trace_id=trace_id, name="correct", value=bool(run.outcome), source=human
                )
            # what a model thinks of it is no label of a person, and is of the same name
            mlflow.log_feedback(trace_id=trace_id, name="correct", value="unsure", source=judge)
            mlflow.log_expectation(trace_id=trace_id, name="expected", value={"a": 1})
    return ids


def _log(run: Run, place: "MlflowExperimentLocation") -> str:
    import mlflow
    from mlflow.entities import SpanType

    with mlflow.start_span("support", span_type=SpanType.AGENT, trace_destination=place) as root:
        root.set_inputs({"messages": [one for one in run.messages[:2] if one["role"] == "user"]})
        about = {"task_id": run.task, "attempt": str(run.attempt), "agent": run.agent}
        mlflow.update_current_trace(tags=about)
        for given, said, answers in run.calls():
            with mlflow.start_span("model", span_type=SpanType.CHAT_MODEL) as call:
                call.set_inputs({"messages": given, "model": "m"})
                call.set_outputs({"choices": [{"index": 0, "message": said}]})
            calls = {
                one["id"]: one["function"]["arguments"] for one in said.get("tool_calls") or ()
            }
            for answer in answers:
                name = answer.get("name") or "tool"
                with mlflow.start_span(name, span_type=SpanType.TOOL) as tool:
                    tool.set_inputs(calls.get(answer.get("tool_call_id"), {}))
                    tool.set_outputs(answer["content"])
        root.set_outputs({"messages": list(run.messages)})
        return str(root.trace_id)
