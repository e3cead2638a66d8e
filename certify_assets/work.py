"""The work at hand and how far it has come, for a display that looks at it now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeVar

_T = TypeVar("_T")


@dataclass(eq=False)
class WorkStage:
    """A part of the work."""

    name: str
    total: int
    done: int = 0
    in_bytes: bool = False
    # what else there is to say of its state
    note: str = ""
    # brings total and done up to date, where they cost something: called by the display only
    look: Callable[[WorkStage], None] | None = None


# of this process, the innermost last: a display runs in a thread of its own, where no context
# variable of the worker is seen
_STAGES: Final[list[WorkStage]] = []
_IDLE: Final[list[Callable[[], None]]] = []


def open_stages() -> tuple[WorkStage, ...]:
    """Return the stages that are under way, the outermost first."""
    return tuple(_STAGES)


@contextmanager
def told_when_idle(tell: Callable[[], None]) -> Iterator[None]:
    """Call a function whenever no stage is under way any more, before the work continues."""
    _IDLE.append(tell)
    try:
        yield
    finally:
        _IDLE.remove(tell)


@contextmanager
def under_way(stage: WorkStage) -> Iterator[WorkStage]:
    """Have a stage shown while the block lasts, if the work is watched."""
    _STAGES.append(stage)
    try:
        yield stage
    finally:
        _STAGES.remove(stage)
        if not _STAGES:
            for tell in tuple(_IDLE):
                tell()


def counted(name: str, items: Iterable[_T], total: int | None = None) -> Iterator[_T]:
    """Go through items as a stage; `total` is their number, where they do not know it."""
    number = len(items) if isinstance(items, Sized) else 0
    with under_way(WorkStage(name, number if total is None else total)) as stage:
        for item in items:
            yield item
            stage.done += 1


@contextmanager
def reading(path: Path, stream: IO[Any]) -> Iterator[None]:
    """Have the bytes of an open file shown that are read."""

    def look(stage: WorkStage) -> None:
        stage.done = read_so_far(stream)

    size = path.stat().st_size
    with under_way(WorkStage(f"reading {path.name}", size, in_bytes=True, look=look)):
        yield


def read_so_far(stream: IO[Any]) -> int:
    """Return how far a file on disk is read, also while another thread reads it; 0 if closed."""
    buffered: Any = getattr(stream, "buffer", stream)
    with suppress(OSError, ValueError):
        # of the file itself: the buffer's own position waits for a read that is under way
        return int(getattr(buffered, "raw", buffered).tell())
    return 0
