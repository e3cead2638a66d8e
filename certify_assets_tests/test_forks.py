"""A forked process is what an interpreter of its own would be."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certify_assets_tests import forks

pytestmark = pytest.mark.slow

_TOLD = """
import json, os, random, signal, sys, warnings
warnings.warn("said once")
told = {
    "argv": sys.argv, "path": sys.path[:3], "given": sys.warnoptions, "read": sys.stdin.read(),
    "setting": os.environ.get("CERTIFY_ROOT"), "folder": os.getcwd(), "parent": os.getppid(),
    "alone": os.getsid(0) == os.getpid(), "open": sorted(map(int, os.listdir("/proc/self/fd")))[:3],
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    "package": [name for name in sys.modules if name.startswith("certify_assets")],
    "main": __name__, "terminal": [sys.stdin.isatty(), sys.stdout.isatty()],
}
print(json.dumps(told))
print("aside", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("form", ["-c", "-m", "script"])
@pytest.mark.parametrize("settings", [{}, {"PYTHONWARNINGS": "ignore", "CERTIFY_ROOT": "there"}])
def test_a_fork_begins_and_ends_as_an_interpreter(
    form: str, settings: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "told.py"
    script.write_text(_TOLD, "utf-8")
    command = {"-c": ["-c", _TOLD], "-m": ["-m", "told"], "script": [str(script)]}[form]
    both: list[Callable[..., Any]] = [subprocess.run, forks.run]
    ends = [
        start(
            [sys.executable, *command, "7"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path), **settings},
            start_new_session=bool(settings),
            input="typed",
            capture_output=True,
            text=True,
        )
        for start in both
    ]
    told = [(end.returncode, end.stderr, json.loads(end.stdout)) for end in ends]
    assert told[0] == told[1]
    assert told[0][0] == 7 and told[0][2]["parent"] == os.getpid()
    assert told[0][2]["package"] == []


def test_a_fork_begins_with_the_libraries_and_other_settings_begin_an_interpreter() -> None:
    command = [sys.executable, "-c", "import sys; print('mlflow' in sys.modules)"]
    # a library that another test imported may have set a variable
    begun = dict(forks._ENVIRONMENT)
    other = {**begun, "OMP_NUM_THREADS": "3"}
    assert forks.run(command, env=begun, stdout=subprocess.PIPE).stdout == b"True\n"
    assert forks.run(command, stdout=subprocess.PIPE, env=other).stdout == b"False\n"


def _of_children() -> float:
    now = os.times()
    return now.children_user + now.children_system


def test_the_fork_itself_is_killed_waited_for_and_paid() -> None:
    before = _of_children()
    code = "import time\nwhile time.process_time() < 1: pass\nprint('done', flush=True)\ntime.sleep(99)"
    victim = forks.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
    )
    assert victim.stdout is not None and victim.stdout.readline() == b"done\n"
    assert victim.poll() is None and os.getpgid(victim.pid) == victim.pid
    os.killpg(victim.pid, signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL and not Path(f"/proc/{victim.pid}").exists()
    victim.stdout.close()
    assert _of_children() - before > 0.9


def test_an_orphan_of_a_fork_is_not_the_tests() -> None:
    code = "import os, time\nif os.fork():\n    os._exit(0)\nprint(os.getpid(), flush=True)\ntime.sleep(99)"
    with forks.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        orphan = int(process.stdout.readline())
        assert process.wait() == 0
        status = Path(f"/proc/{orphan}/status")
        assert f"PPid:\t{os.getpid()}\n" not in status.read_text("utf-8")
        os.kill(orphan, signal.SIGKILL)
        until = time.monotonic() + 60
        while status.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert not status.exists()
