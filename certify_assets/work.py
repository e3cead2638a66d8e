"""The work at hand and how far it has come: for a display that looks at it, and for logs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
    # what else there is to say of its state, and what it said last
    note: str = ""
    said: str = ""
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


# a stage has its first and its last line, at most 25 between, ten seconds apart or more
_LINES = 25
_APART_S = 10.0


@dataclass(frozen=True, slots=True)
class Advance:
    """How far a stage has come."""

    stage: str
    done: int
    total: int
    loss: float | None = None


Report = Callable[[Advance], None]


def silent(_: Advance) -> None:
    """Say nothing."""


def reported(report: Report, stage: str) -> Callable[[int, int], None]:
    """Return what the scorer calls with rows done and rows in all."""
    return lambda done, total: report(Advance(stage, done, total))


@dataclass
class ProgressLines:
    """Turns reports of progress into lines of a log, with the time that is left."""

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _stage: str = field(default="", init=False)
    _first: tuple[int, float] = field(default=(0, 0.0), init=False)
    _shown: tuple[int, float] = field(default=(-1, -math.inf), init=False)

    def __call__(self, advance: Advance) -> None:
        """Log an advance, unless the last line is too recent."""
        now = self.clock()
        if advance.stage != self._stage:
            self._stage, self._first = advance.stage, (advance.done, now)
            self._shown = -1, -math.inf
        part = advance.done * _LINES // max(1, advance.total)
        if advance.done < advance.total and (
            part <= self._shown[0] or now - self._shown[1] < _APART_S
        ):
            return
        self._shown = part, now
        loss = "" if advance.loss is None else f", loss {advance.loss:.4f}"
        self.say(
            f"{advance.stage}: {advance.done:,} of {advance.total:,}{loss}"
            f"{self._left(advance, now)}"
        )

    def _left(self, advance: Advance, now: float) -> str:
        # counted from what this run has seen: what an earlier one had done took none of its time
        before, started = self._first
        done, rest = advance.done - before, advance.total - advance.done
        if done <= 0 or rest <= 0:
            return ""
        left = (now - started) / done * rest
        return f", {left:.0f} s left" if left < 120 else f", {left / 60:.0f} min left"
