"""A real vLLM on this machine's CPU for the tests that need one.

`tools/vllm_server.sh install` makes its venv.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from certify_assets.errors import CertifyError
from certify_assets.judges.endpoint.judge import EndpointJudge
from certify_assets.judges.endpoint.questions import ChatPrompt, auditor_prompt
from certify_assets.judges.endpoint.settings import Asking, Server
from certify_assets_tests.paths import REPOSITORY

_START_SECONDS = 600


def require_vllm() -> Path:
    """Return the venv of vLLM, or skip with the reason."""
    venv = Path(os.environ.get("CERTIFY_VLLM_VENV", REPOSITORY / ".vllm"))
    if not (venv / "bin" / "python").exists():
        pytest.skip(
            "no vLLM here; tools/vllm_server.sh install makes its venv (2.5 GB), "
            "CERTIFY_VLLM_VENV names another"
        )
    return venv


@contextmanager
def vllm_server(
    model: Path, name: str, log: Path, *, options: Sequence[str] = (), max_len: int = 1024
) -> Iterator[str]:
    """Serve a model folder under a name, its whole process group ended afterwards.

    Give the base URL.
    """
    venv = require_vllm()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "CERTIFY_VLLM_VENV": str(venv),
        "CERTIFY_VLLM_MAX_LEN": str(max_len),
    }
    command = [
        str(REPOSITORY / "tools" / "vllm_server.sh"),
        "serve",
        str(model),
        str(port),
        "--served-model-name",
        name,
        *options,
    ]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=environment, stdout=stream, stderr=stream, start_new_session=True
        )
        try:
            _until_ready(process, f"http://127.0.0.1:{port}/v1", name, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
    with pytest.raises(ProcessLookupError):
        _until_gone(process.pid)


def _until_ready(process: subprocess.Popen[bytes], url: str, name: str, log: Path) -> None:
    # /health also answers where the first request would end the engine: ready means that a request
    # was answered
    server = Server(url, name, attempts=1, timeout_seconds=60)
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        with suppress(CertifyError):
            EndpointJudge.connect(server, Asking(), ChatPrompt(auditor_prompt("logprob")))
            return
        time.sleep(0.5)
    pytest.fail(
        f"vLLM was not ready after {_START_SECONDS} s: {log.read_text(errors='replace')[-3000:]}"
    )


def _until_gone(group: int) -> None:
    for _ in range(100):
        os.killpg(group, 0)
        time.sleep(0.1)
