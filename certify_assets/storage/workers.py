"""Independent pieces of work in processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from certify_assets.errors import CertifyError

__all__ = ["ignore_interrupts", "in_processes"]

_Job = TypeVar("_Job")
_Answer = TypeVar("_Answer")


def ignore_interrupts() -> None:
    """Leave an interrupt from the keyboard, which reaches every process, to the one that waits for the answers."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def in_processes(
    function: Callable[[_Job], _Answer],
    jobs: Sequence[_Job],
    *,
    workers: int,
    prepare: Callable[[], None] = ignore_interrupts,
    fresh: bool = False,
) -> Iterator[tuple[int, _Answer]]:
    """Answer jobs in processes.

    Parameters
    ----------
    function : callable
        Of a module, so that another process can import it.
    jobs : sequence
        What it is called with; small, as each travels to a process.
    workers : int
        Processes, at least 1.
    prepare : callable
        Called in each process before its first job.
    fresh : bool
        Give every job a process of its own, whose memory goes back at its end.

    Yields
    ------
    place : int
        In `jobs`, in the order in which the answers come in.
    answer

    Raises
    ------
    CertifyError
        If a process ended without an answer; what the function raises comes as it is.
    """
    if not jobs:
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # a fork would copy threads of libraries in whatever state they are
    pool = ProcessPoolExecutor(
        min(workers, len(jobs)),
        mp_context=get_context("spawn"),
        initializer=prepare,
        max_tasks_per_child=1 if fresh else None,
    )
    try:
        waiting = {pool.submit(function, job): place for place, job in enumerate(jobs)}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    except BrokenProcessPool:
        raise CertifyError(
            "a worker process ended before it answered, perhaps for want of memory; use fewer workers (--workers 1)."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
