"""Independent shards of one piece of work: in this process, in processes of this machine, or as tasks of a Ray cluster.

A shard's answer depends on the shard alone, so every engine gives the same bytes. What was finished before is the caller's to know: it asks for
what is missing only, and keeps each answer as it comes in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from certify_assets.errors import CertifyError, InputError, MissingToolError
from certify_assets.storage.workers import ignore_interrupts, in_processes

__all__ = ["ENGINES", "ENGINE_VARIABLE", "ONE_THREAD", "chosen_engine", "run_shards"]

ENGINES = ("inline", "processes", "ray")
ENGINE_VARIABLE = "CERTIFY_SHARDS"
#: as many shards at once as cores: threads of their own would only wait for one another
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

_Shard = TypeVar("_Shard")
_Answer = TypeVar("_Answer")
# tasks that a cluster has ahead of its cores: enough to keep them busy, few enough to keep their inputs out of memory
_AHEAD = 4
_PATIENCE_S = 10.0


def chosen_engine(workers: int = 1) -> str:
    """Return the engine where none is named: ``CERTIFY_SHARDS``, else processes where several workers are allowed.

    Raises
    ------
    InputError
        If the variable names none.
    """
    named = os.environ.get(ENGINE_VARIABLE, "")
    if named and named not in ENGINES:
        raise InputError(
            f"{ENGINE_VARIABLE} is {named!r}; give one of {', '.join(ENGINES)}, or leave it out."
        )
    return named or ("processes" if workers > 1 else "inline")


def run_shards(
    function: Callable[[_Shard], _Answer],
    shards: Sequence[_Shard],
    *,
    engine: str = "",
    workers: int = 1,
    prepare: Callable[[], None] = ignore_interrupts,
    fresh: bool = False,
) -> Iterator[tuple[int, _Answer]]:
    """Answer every shard.

    Parameters
    ----------
    function : callable
        Of a module, so that another process can import it; its answer depends on the shard alone.
    shards : sequence
        What it is called with. They and the answers travel between processes.
    engine : {"", "inline", "processes", "ray"}
        Empty for :func:`chosen_engine`. "ray" uses the cluster of this process, of ``RAY_ADDRESS``, or of this machine.
    workers : int
        Processes; a Ray cluster has its own number.
    prepare : callable
        Called in each process before its first shard; tasks of Ray have one thread each instead.
    fresh : bool
        Give every shard a process of its own, whose memory goes back at its end.

    Yields
    ------
    place : int
        In `shards`, in the order in which the answers come in.
    answer

    Raises
    ------
    InputError
        If there is no such engine, or no cluster.
    MissingToolError
        If Ray is not installed.
    CertifyError
        If a process ended without an answer; what the function raises comes as it is.
    """
    engine = engine or chosen_engine(workers)
    if engine not in ENGINES:
        raise InputError(
            f"there is no engine {engine!r} for shards; give one of {', '.join(ENGINES)}."
        )
    if engine == "ray":
        yield from _in_tasks(function, shards, fresh=fresh)
    elif engine == "processes":
        yield from in_processes(function, shards, workers=workers, prepare=prepare, fresh=fresh)
    else:
        yield from ((place, function(shard)) for place, shard in enumerate(shards))


def _in_tasks(
    function: Callable[[_Shard], _Answer], shards: Sequence[_Shard], *, fresh: bool
) -> Iterator[tuple[int, _Answer]]:
    if not shards:
        return
    with _cluster() as ray:
        task = ray.remote(
            num_cpus=1, max_calls=1 if fresh else 0, runtime_env={"env_vars": ONE_THREAD}
        )(function)
        most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting: dict[Any, int] = {}
        places = iter(range(len(shards)))
        try:
            while True:
                while len(waiting) < most and (place := next(places, None)) is not None:
                    waiting[task.remote(shards[place])] = place
                if not waiting:
                    return
                answered = ray.wait(list(waiting), num_returns=1)[0][0]
                yield waiting.pop(answered), _answer(ray, answered)
        finally:
            for left in waiting:
                ray.cancel(left)


def _answer(ray: Any, answered: Any) -> Any:
    """Return an answer; raise what the function raised, not what Ray wraps around it."""
    try:
        return ray.get(answered)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise CertifyError(
            f"a Ray task ended before it answered ({type(error).__name__}), perhaps for want of memory; what was finished is kept, call it again."
        ) from None


@contextmanager
def _cluster() -> Iterator[Any]:
    """Give Ray, connected; a connection that was there stays."""
    try:
        import ray
    except ImportError:
        raise MissingToolError(
            "shards on Ray need the package ray, which is not installed; install certify_assets[ray]."
        ) from None
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _reach(address)
        ray.init(address=address, logging_level="WARNING")
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({error}); start one with `ray start --head` or set RAY_ADDRESS."
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Ask whether somebody listens at an address; Ray itself would wait for minutes."""
    import socket

    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_PATIENCE_S).close()
