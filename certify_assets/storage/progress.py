"""Progress of long steps, in one form for trainers and scorers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

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


def counted(report: Report, stage: str) -> Callable[[int, int], None]:
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
            self._stage, self._first, self._shown = (
                advance.stage,
                (advance.done, now),
                (-1, -math.inf),
            )
        part = advance.done * _LINES // max(1, advance.total)
        if advance.done < advance.total and (
            part <= self._shown[0] or now - self._shown[1] < _APART_S
        ):
            return
        self._shown = part, now
        loss = "" if advance.loss is None else f", loss {advance.loss:.4f}"
        self.say(
            f"{advance.stage}: {advance.done} of {advance.total}{loss}{self._left(advance, now)}"
        )

    def _left(self, advance: Advance, now: float) -> str:
        # counted from what this run has seen: what an earlier one had done took none of its time
        before, started = self._first
        done, rest = advance.done - before, advance.total - advance.done
        if done <= 0 or rest <= 0:
            return ""
        left = (now - started) / done * rest
        return f", {left:.0f} s left" if left < 120 else f", {left / 60:.0f} min left"
