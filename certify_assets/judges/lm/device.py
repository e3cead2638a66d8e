"""The device that language models share: where several steps run, each waits for its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_waiting: ContextVar[Callable[[], None] | None] = ContextVar("waiting", default=None)


@contextmanager
def taking_turns(wait: Callable[[], None]) -> Iterator[None]:
    """Call `wait` before each language model that is loaded inside."""
    token = _waiting.set(wait)
    try:
        yield
    finally:
        _waiting.reset(token)


def await_turn() -> None:
    """Wait until the device is free for this step; at once where nothing takes turns."""
    wait = _waiting.get()
    if wait is not None:
        wait()
