"""A real vLLM on this machine's CPU for the tests that need one.

`tools/vllm_server.sh install` makes its venv.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from certify_assets.errors import CertifyError
from certify_assets.judges.endpoint.judge import connected
from certify_assets_tests.judges.endpoint.faulty_server import judge_of
from certify_assets_tests.paths import REPOSITORY
from certify_assets_tests.services import end_group, free_port

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
def vllm_server(model: Path, name: str, log: Path) -> Iterator[str]:
    """Serve a model folder under a name while the block lasts; give the base URL."""
    venv, port = require_vllm(), str(free_port())
    url = f"http://127.0.0.1:{port}/v1"
    environment = {"CERTIFY_VLLM_VENV": str(venv), "CERTIFY_VLLM_MAX_LEN": "1024"}
    command = [REPOSITORY / "tools/vllm_server.sh", "serve", model, port]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*map(str, command), "--served-model-name", name, "--max-logprobs", "600"],
            env={**os.environ, **environment},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            _until_ready(process, url, name, log)
            yield url
        finally:
            end_group(process)


def _until_ready(process: subprocess.Popen[bytes], url: str, name: str, log: Path) -> None:
    # /health also answers where the first request would end the engine: ready means that a request
    # was answered
    entry = judge_of(url, model=name, attempts=1, timeout_seconds=60.0)
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        with suppress(CertifyError):
            connected(entry)
            return
        time.sleep(0.5)
    pytest.fail(
        f"vLLM was not ready after {_START_SECONDS} s: {log.read_text(errors='replace')[-3000:]}"
    )
