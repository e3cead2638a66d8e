"""A process that is killed at one of its writes, as a machine that fails leaves it."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

from certify_assets.storage.store import Store
from certify_assets_tests.paths import REPOSITORY

_OPENED = """
import sys
from certify_assets.corpora.corpus import Corpus
from certify_assets_tests.killing import DoomedStore
store = DoomedStore(sys.argv[1], sys.argv[2], {after})
"""


@dataclass(frozen=True)
class DoomedStore(Store):
    """A data root whose process is killed where it writes a file whose key ends in `last`."""

    last: str = ""
    #: kill it once the file is there, not before
    after: bool = False

    def write_bytes(self, key: str, data: bytes) -> str:
        """Write, or die."""
        if not key.endswith(self.last):
            return super().write_bytes(key, data)
        if self.after:
            super().write_bytes(key, data)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("the process lives")


def run_killed(block: str, root: str, last: str, *arguments: str, after: bool = False) -> None:
    """Run a block with `store` in a process that must die at the write of a file.

    The arguments are in `sys.argv` from place 3 on.
    """
    command = [sys.executable, "-c", _OPENED.format(after=after) + block, root, last, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
