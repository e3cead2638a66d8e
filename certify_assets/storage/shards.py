"""Independent shards of one task: in this process, in processes, or on a Ray cluster."""

# A shard's answer depends on the shard alone, so every engine gives the same bytes. The caller
# keeps each answer as it comes in, and after a kill asks for the missing ones only.

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from certify_assets.errors import CertifyError, InputError, MissingToolError
from certify_assets.processes import end_with_parent

ENGINES = ("inline", "processes", "ray")
ENGINE_VARIABLE = "CERTIFY_SHARDS"
#: as many shards at once as cores: threads of their own would only wait for one another
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

_Shard = TypeVar("_Shard")
_Answer = TypeVar("_Answer")
# tasks that a cluster has ahead of its cores: enough to keep them busy, few enough to keep their
# inputs out of memory
_AHEAD = 4
_PATIENCE_S = 10.0
_GPU_PATIENCE_S = 1800.0


def chosen_engine(workers: int = 1) -> str:
    """Return ``CERTIFY_SHARDS``, else processes where several workers are allowed."""
    named = os.environ.get(ENGINE_VARIABLE, "")
    if named and named not in ENGINES:
        raise InputError(
            f"{ENGINE_VARIABLE} is {named!r}; give one of {', '.join(ENGINES)}, or leave it out."
        )
    return named or ("processes" if workers > 1 else "inline")


def own_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ignore_interrupts() -> None:
    """Leave a keyboard interrupt, which reaches every process, to the waiting parent."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_shards(
    function: Callable[[_Shard], _Answer],
    shards: Sequence[_Shard],
    *,
    engine: str = "",
    workers: int = 1,
    prepare: Callable[[], None] = ignore_interrupts,
    fresh: bool = False,
    gpus: float = 0,
) -> Iterator[tuple[int, _Answer]]:
    """Yield the place of every shard and its answer, in the order in which answers come in."""
    # function: of a module, so that another process can import it; its errors are raised unwrapped
    # engine: "" for `chosen_engine`; "ray" uses the cluster of this process, of RAY_ADDRESS, or of
    # this machine, which has its own number of workers
    # prepare: called in each process before its first shard; Ray tasks have one thread each instead
    # fresh: every shard has its own process, whose memory is freed at its end
    # gpus: what a Ray task asks for; other engines share the devices that this process sees
    engine = engine or chosen_engine(workers)
    if engine not in ENGINES:
        raise InputError(
            f"there is no engine {engine!r} for shards; give one of {', '.join(ENGINES)}."
        )
    if not shards:
        return
    if engine == "ray":
        yield from _in_tasks(function, shards, fresh=fresh, gpus=gpus)
    elif engine == "processes":
        yield from _in_processes(function, shards, workers, prepare, fresh=fresh)
    else:
        yield from ((place, function(shard)) for place, shard in enumerate(shards))


def _in_processes(
    function: Callable[[_Shard], _Answer],
    shards: Sequence[_Shard],
    workers: int,
    prepare: Callable[[], None],
    *,
    fresh: bool,
) -> Iterator[tuple[int, _Answer]]:
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # a fork would copy threads of libraries in whatever state they are
    pool = ProcessPoolExecutor(
        min(workers, len(shards)),
        mp_context=get_context("spawn"),
        initializer=_begin,
        initargs=(prepare,),
        max_tasks_per_child=1 if fresh else None,
    )
    try:
        waiting = {pool.submit(function, shard): place for place, shard in enumerate(shards)}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    except BrokenProcessPool:
        raise CertifyError(
            "a worker process ended before it answered, perhaps for want of memory; use fewer "
            "workers (--workers 1)."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(prepare: Callable[[], None]) -> None:
    # what a killed parent asked for would compute on, next to a successor that asks again
    end_with_parent()
    prepare()


def _in_tasks(
    function: Callable[[_Shard], _Answer], shards: Sequence[_Shard], *, fresh: bool, gpus: float
) -> Iterator[tuple[int, _Answer]]:
    with _cluster() as ray:
        # a worker answers many shards with what it loaded for the first, as an actor would; Ray by
        # itself ends one that has a GPU after each
        task = ray.remote(
            num_cpus=1,
            num_gpus=gpus,
            max_calls=1 if fresh else 0,
            runtime_env={"env_vars": ONE_THREAD},
        )(function)
        most = _AHEAD * max(1, int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1)))
        # for the first answer: without a free GPU Ray would wait for ever
        patience = _GPU_PATIENCE_S if gpus else None
        waiting: dict[Any, int] = {}
        places = iter(range(len(shards)))
        try:
            while True:
                while len(waiting) < most and (place := next(places, None)) is not None:
                    waiting[task.remote(shards[place])] = place
                if not waiting:
                    return
                answered, _ = ray.wait(list(waiting), num_returns=1, timeout=patience)
                if not answered:
                    raise CertifyError(
                        f"no GPU of the Ray cluster was free for a shard within {patience:.0f} s; "
                        "a step that leads shards holds one itself, so add another or set "
                        f"{ENGINE_VARIABLE}=inline."
                    )
                patience = None
                yield waiting.pop(answered[0]), _answer(ray, answered[0])
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
            f"a Ray task ended before it answered ({type(error).__name__}), perhaps for want of "
            "memory; what was finished is kept, call it again."
        ) from None


@contextmanager
def _cluster() -> Iterator[Any]:
    """Give Ray, connected; a connection that was there stays."""
    try:
        import ray
    except ImportError:
        raise MissingToolError(
            "shards on Ray need the package ray, which is not installed; install "
            "certify_assets[ray]."
        ) from None
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS") or "auto"
    try:
        # Ray itself would wait for minutes for an address that does not answer
        host, _, port = address.rpartition("://")[2].rpartition(":")
        if host and port.isdecimal():
            socket.create_connection((host, int(port)), timeout=_PATIENCE_S).close()
        ray.init(address=address, logging_level="WARNING")
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({error}); start one with `ray start --head` "
            "or set RAY_ADDRESS."
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()
