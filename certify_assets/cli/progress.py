"""Progress on stderr: bars with the time left in a terminal, few lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from certify_assets.cli.output import console, printable, say
from certify_assets.work import (
    Advance,
    ProgressLines,
    WorkStage,
    open_stages,
    told_when_idle,
    under_way,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from certify_assets.work import Report

#: seconds after which a command that says nothing is missed, and how much later each time
PATIENCE_S: Final = 5.0
_LATER: Final = 3
#: seconds after which a terminal shows bars, and how often they are drawn
BARS_AFTER_S: Final = 2.0
DRAWN_EVERY_S: Final = 0.2
#: commands that show their progress themselves, serve, or ask
_OWN: Final = ("run", "demo", "ui", "research", "review serve", "corpus rm")
# says with words what it tries
_WORDY: Final = ("plan",)


@contextmanager
def progress() -> Iterator[Report]:
    """Give what a long step reports to: a bar a stage in a terminal, lines of a log elsewhere."""
    if not console(stderr=True).is_terminal:
        yield ProgressLines(say)
        return
    with ExitStack() as shown:
        stages: dict[str, WorkStage] = {}

        def report(advance: Advance) -> None:
            if advance.stage not in stages:
                stage = WorkStage(advance.stage, advance.total)
                stages[advance.stage] = shown.enter_context(under_way(stage))
            stage = stages[advance.stage]
            stage.done, stage.total = advance.done, advance.total
            stage.note = "" if advance.loss is None else f", loss {advance.loss:.4f}"

        yield report


class _Bars:
    """Bars of the stages that are under way, drawn by a thread; gone when there is none."""

    def __init__(self) -> None:
        self._over, self._lock = threading.Event(), threading.Lock()
        self._progress: Progress | None = None
        self._tasks: dict[WorkStage, TaskID] = {}

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Draw while the block lasts."""
        thread = threading.Thread(target=self._draw_on, daemon=True)
        thread.start()
        try:
            with told_when_idle(self._idle):
                yield
        finally:
            self._over.set()
            thread.join()
            self._idle()

    @property
    def visible(self) -> bool:
        """Whether there is a bar to see."""
        return self._progress is not None

    def _draw_on(self) -> None:
        pause = BARS_AFTER_S
        while not self._over.wait(pause):
            pause = DRAWN_EVERY_S
            with self._lock:
                if stages := open_stages():
                    self._draw(stages)

    def _draw(self, stages: tuple[WorkStage, ...]) -> None:
        bars = self._progress or self._started()
        for gone in set(self._tasks) - set(stages):
            bars.remove_task(self._tasks.pop(gone))
        for stage in stages:
            if stage.look is not None:
                stage.look(stage)
            if stage not in self._tasks:
                self._tasks[stage] = bars.add_task("", total=None, amount="")
            bars.update(
                self._tasks[stage],
                completed=stage.done,
                total=stage.total or None,
                description=f"{printable(stage.name)}{stage.note}",
                amount=_amount(stage),
            )
        bars.refresh()

    def _started(self) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console(stderr=True),
            transient=True,
            auto_refresh=False,
            # what a command prints goes where it is redirected to
            redirect_stdout=False,
        )
        self._progress.start()
        return self._progress

    def _idle(self) -> None:
        """Clear the bars, so that what the command prints next has the terminal for itself."""
        with self._lock:
            if self._progress is not None:
                self._progress.stop()
            self._progress = None
            self._tasks.clear()


def _amount(stage: WorkStage) -> str:
    if stage.in_bytes:
        return f"{stage.done / 1e6:.0f}/{stage.total / 1e6:.0f} MB"
    return f"{stage.done}/{stage.total}"


@contextmanager
def heartbeat(words: str, *, patience: float) -> Iterator[None]:
    """Show in a terminal what a command is at, with the time left; say elsewhere that it is."""
    if any(f"{words} ".startswith(f"{name} ") for name in _OWN):
        yield
        return
    bars, done, started = _Bars(), threading.Event(), time.monotonic()

    def beat() -> None:
        pause = patience
        while not done.wait(pause):
            if not bars.visible:
                say(f"{words}: at work for {time.monotonic() - started:.0f} s")
            pause *= _LATER

    with ExitStack() as shown:
        if sys.stderr.isatty():
            shown.enter_context(bars.drawing())
        if words not in _WORDY:
            thread = threading.Thread(target=beat, daemon=True)
            thread.start()
            shown.callback(thread.join)
            shown.callback(done.set)
        yield
