"""Processes that this package starts end with it, also where it is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Final

#: of Linux: a signal for a process whose parent ends
_PR_SET_PDEATHSIG: Final = 1


def own_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with_parent() -> None:
    """End this process, which `multiprocessing` started, as soon as its parent has ended.

    A pipe says so, which the system closes with the parent, however it ends and on every system.
    """
    # not the death signal of Linux: that one comes when the thread that started the process ends,
    # and a pool outlives the thread of its first question
    import threading
    from multiprocessing import parent_process

    if (parent := parent_process()) is None:
        return
    name, following = "certify-parent", {thread.name for thread in threading.enumerate()}
    if name not in following:
        threading.Thread(target=_follow, args=(parent.sentinel,), name=name, daemon=True).start()


def _follow(sentinel: int) -> None:
    from multiprocessing.connection import wait

    wait([sentinel])
    # nobody is left who could use what this process would still write
    os.kill(os.getpid(), signal.SIGKILL)


def with_parent(number: int = signal.SIGKILL) -> Callable[[], None] | None:
    """Return the `preexec_fn` of a program that gets a signal when its parent ends.

    The parent is the thread that starts the program, which has to wait for it. None where the
    system has no such signal: there the program outlives a parent that is killed.
    """
    if sys.platform != "linux":
        return None
    import ctypes

    # found here: between fork and exec nothing may be imported, since another thread may hold the
    # lock of an import
    ask, parent = ctypes.CDLL(None).prctl, os.getpid()
    wanted = ctypes.c_ulong(number)

    def prepare() -> None:
        ask(_PR_SET_PDEATHSIG, wanted)
        # the parent may have ended before the signal was asked for
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare
