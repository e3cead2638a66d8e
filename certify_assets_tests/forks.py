"""Processes that begin with the libraries imported: `Popen` and `run` of `subprocess`, by a fork.

A command spends seconds on importing libraries and a test starts many commands, so a server has
imported them and forks a process a command. Of the package it has imported nothing: a process
reads its own settings. The process is the test's own child, with its exit code and its CPU, and
as alone as any: what is killed, stopped or waited for is the process itself. Where no fork would
be the same (another Python, a setting that libraries read when imported), it is started as ever.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import json
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

__all__ = ["Popen", "run"]

#: what commands import; what they read of the environment they read when used
_LIBRARIES = (
    "dagster",
    "great_expectations",
    "matplotlib.pyplot",
    "mlflow",
    "mlflow.store.tracking.sqlalchemy_store",
    "numba",
    "pyarrow.parquet",
    "scipy.stats",
    "sklearn.ensemble",
)
#: and what scikit-learn sets of OpenMP when imported, in the tests as well
_LATE = ("AWS_", "CERTIFY_", "DAGSTER_", "KMP_", "MLFLOW_", "PYTEST_")
_LATE_TOO = (
    "COLUMNS",
    "HOME",
    "NO_COLOR",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPATH",
    "PYTHONWARNINGS",
)
#: before a test changes it
_ENVIRONMENT = dict(os.environ)
#: whether to fork at all: the server pays from a few commands on
enabled = False
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


class Popen(subprocess.Popen[Any]):
    """A process of `[sys.executable, "-m" | "-c" | script, …]`, which may be a fork."""

    def _execute_child(self, *given: Any) -> None:
        names = self._places()
        place = dict(zip(names, given, strict=True))
        words = [os.fspath(word) for word in place["args"]]
        environment = dict(os.environ if place["env"] is None else place["env"])
        if not _may_fork(words, environment, place):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        pipes = place["p2cread"], place["c2pwrite"], place["errwrite"]
        request = {
            "words": words[1:],
            "environment": environment,
            "folder": str(Path(place["cwd"] or os.curdir).resolve()),
            "session": place["start_new_session"],
        }
        self.pid = _server().fork(request, [n if fd == -1 else fd for n, fd in enumerate(pipes)])
        self._child_created = True
        ends = "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"
        self._close_pipe_fds(*(place[end] for end in ends))  # type: ignore[attr-defined]

    @staticmethod
    @functools.cache
    def _places() -> tuple[str, ...]:
        code = subprocess.Popen._execute_child.__code__  # type: ignore[attr-defined]
        return tuple(code.co_varnames[1 : code.co_argcount])


if TYPE_CHECKING:
    run = subprocess.run
else:
    # the same function, of these processes
    run = types.FunctionType(subprocess.run.__code__, {**vars(subprocess), "Popen": Popen})
    run.__kwdefaults__ = subprocess.run.__kwdefaults__


def _may_fork(words: list[str], environment: Mapping[str, str], place: Mapping[str, Any]) -> bool:
    """Whether a fork is the same process; not where Python or a library is to begin otherwise."""

    def early(settings: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in settings.items()
            if not name.startswith(_LATE) and name not in _LATE_TOO
        }

    return (
        enabled
        and sys.platform == "linux"
        and words[0] == sys.executable
        and (words[1] in ("-m", "-c") or words[1].endswith(".py"))
        and place["preexec_fn"] is None
        and not (place["pass_fds"] or place["shell"])
        and early(environment) == early(_ENVIRONMENT)
    )


class _Server:
    """The process that forks, as the tests see it: one for each of theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parent.parent,
            env=_ENVIRONMENT,
        )
        theirs.close()
        atexit.register(self.close)

    def fork(self, request: Mapping[str, object], descriptors: list[int]) -> int:
        """Return the id of a new child of this process, which has the descriptors as 0, 1 and 2."""
        data = json.dumps(request).encode()
        prctl = ctypes.CDLL(None).prctl
        # an orphan goes to the next subreaper above it: the fork's parent ends, and this process
        # becomes its parent, but parent of no other orphan before or after
        with self._lock:
            prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [len(data).to_bytes(4)], descriptors)
                self._socket.sendall(data)
                answer = self._socket.recv(4)
            finally:
                prctl(_SUBREAPER, 0, 0, 0, 0)
        assert answer, "the server of forks has ended"
        return int.from_bytes(answer)

    def close(self) -> None:
        """End the server; its children are the tests'."""
        self._socket.close()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    return _Server()


def _serve(requests: socket.socket) -> list[str]:
    """Fork until the tests end; return the words of a command in the process that runs it."""
    # the keyboard's interrupt is for the commands
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    filters, settings = list(warnings.filters), dict(os.environ)
    for name in _LIBRARIES:
        importlib.import_module(name)
    made = {name: value for name, value in os.environ.items() if name not in settings}
    gc.collect()
    gc.freeze()
    while True:
        size, descriptors, *_ = socket.recv_fds(requests, 4, 3)
        if not size:
            os._exit(0)
        request = json.loads(requests.recv(int.from_bytes(size), socket.MSG_WAITALL))
        told, telling = os.pipe()
        if between := os.fork():
            number = os.read(told, 4)
            os.waitpid(between, 0)
            requests.sendall(number)
            for descriptor in (told, telling, *descriptors):
                os.close(descriptor)
            continue
        if os.fork():
            os._exit(0)
        if request["session"]:
            os.setsid()
        os.write(telling, os.getpid().to_bytes(4))
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        for descriptor in (told, telling, requests.detach(), *descriptors):
            os.close(descriptor)
        request["environment"] = made | request["environment"]
        return _begin(request, filters)


def _begin(request: Mapping[str, Any], filters: list[Any]) -> list[str]:
    """Make a fork what an interpreter that began with these words would be."""
    import numpy as np

    words, environment = request["words"], request["environment"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # those of the server know of another file whether it can be sought, or is a terminal
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        stream = open(  # noqa: SIM115
            number,
            "w" if number else "r",
            buffering=1 if number == 2 else -1,
            encoding=old.encoding,
            errors=old.errors,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(request["folder"])
    before = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ.clear()
    os.environ.update(environment)
    now = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    first = {"-m": request["folder"], "-c": ""}
    beside = str(Path(words[0]).resolve().parent)
    sys.path[:] = [first.get(words[0], beside), *now, *sys.path[1 + len(before) :]]
    importlib.invalidate_caches()
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    # those of the environment come after what libraries have added, before what Python has
    added = [item for item in warnings.filters if item not in filters]
    sys.warnoptions[:] = [item for item in environment.get("PYTHONWARNINGS", "").split(",") if item]
    warnings.filters[:] = filters
    warnings._processoptions(sys.warnoptions)  # type: ignore[attr-defined]
    warnings.filters[:0] = added
    # Great Expectations begins to log them as it is imported
    logging.captureWarnings(capture=False)
    np.random.seed()
    # a folder of a test may have modules of these names
    for name in [name for name in sys.modules if name.split(".")[0] == "certify_assets_tests"]:
        del sys.modules[name]
    sys.orig_argv[:] = [sys.executable, *words]
    return words


def _run(words: list[str]) -> None:
    """Run a command to the end of the process."""
    main = types.ModuleType("__main__")
    # the second name is that by which processes of multiprocessing send its objects
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    try:
        if words[0] == "-m":
            sys.argv[:] = words[1:]
            runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
        elif words[0] == "-c":
            sys.argv[:] = ["-c", *words[2:]]
            exec(words[1], main.__dict__)
        else:
            sys.argv[:] = words
            main.__file__ = words[0]
            exec(compile(Path(words[0]).read_bytes(), words[0], "exec"), main.__dict__)
        code = 0
    except SystemExit as end:
        if not isinstance(end.code or 0, int):
            raise
        code = int(end.code or 0)
    # what Python does at its end, but for taking apart all that was imported
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    _run(_serve(socket.socket(fileno=int(sys.argv[1]))))
