"""Processes that are killed with children at work, none of which may be left."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from certify_assets_tests.paths import REPOSITORY


def left_by_a_kill(
    command: Sequence[str],
    ready: Callable[[Sequence[str]], bool],
    *,
    seconds: float = 300,
    settle: float = 0,
    **environment: str,
) -> list[str]:
    """Kill a command once the command lines of its children say so; return those that live on.

    Children have a minute to end in, which each of them would spend at work.
    """
    # a file: nobody reads a pipe, which may fill up
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        family: dict[tuple[int, str], str] = {}

        def state() -> str:
            said.seek(0)
            return f"{list(family.values())}\n{said.read().decode('utf-8', 'replace')[-3000:]}"

        try:
            end = time.monotonic() + seconds
            while not ready(list((family := _descendants(process.pid)).values())):
                assert process.poll() is None and time.monotonic() < end, state()
                time.sleep(0.05)
            time.sleep(settle)
            family = _descendants(process.pid)
            assert ready(list(family.values())), state()
            process.kill()
            process.wait()
            end = time.monotonic() + 60
            while (left := _alive(family)) and time.monotonic() < end:
                time.sleep(0.1)
            return list(left.values())
        finally:
            process.kill()
            process.wait()
            for number, _ in _alive(family):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)


def _descendants(number: int) -> dict[tuple[int, str], str]:
    """Return the processes below one: their numbers and starts, and command lines."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        if found := _stat(int(place.name)):
            parents.setdefault(int(found[1]), []).append(int(place.name))
    below, found_below = [number], dict[tuple[int, str], str]()
    while below:
        for child in parents.get(below.pop(), []):
            below.append(child)
            with suppress(OSError):
                words = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
                found_below[child, _start(child)] = words.decode(errors="replace")
    return found_below


def _alive(family: dict[tuple[int, str], str]) -> dict[tuple[int, str], str]:
    """Return those of some processes that have not ended; another may have the number since."""
    return {
        key: words
        for key, words in family.items()
        if (found := _stat(key[0])) and found[0] != "Z" and found[19] == key[1]
    }


def _start(number: int) -> str:
    return found[19] if (found := _stat(number)) else ""


def _stat(number: int) -> list[str]:
    """Return what Linux says of a process, from its state on; empty where there is none."""
    with suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return []
