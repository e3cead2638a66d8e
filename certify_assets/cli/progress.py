"""Progress on stderr: bars with the time left in a terminal, few lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from certify_assets.cli.output import console, printable, say
from certify_assets.storage.progress import Advance, ProgressLines, time_left
from certify_assets.work import WorkStage, open_stages, told_when_idle, under_way

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from certify_assets.storage.progress import Report

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
def steps(command: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give what counts the steps of a command that may be over before anybody waits."""
    done = 0
    with progress(patience=PATIENCE_S) as report:

        def advance(number: int = 1) -> None:
            nonlocal done
            done += number
            report(Advance(command, done, total))

        advance(0)
        yield advance


@contextmanager
def progress(*, patience: float = 0.0) -> Iterator[Report]:
    """Give what a long step reports to: a bar a stage in a terminal, lines of a log elsewhere."""
    if not console(stderr=True).is_terminal:
        yield ProgressLines(say, patience=patience)
        return
    with ExitStack() as shown:
        own = None if _Bars.drawn else _Bars(after=0.0)
        if own is not None:
            shown.enter_context(own.drawing())
        stages: dict[str, WorkStage] = {}

        def report(advance: Advance) -> None:
            if advance.stage not in stages:
                stages[advance.stage] = shown.enter_context(
                    under_way(WorkStage(advance.stage, advance.total, before=advance.done))
                )
            stage = stages[advance.stage]
            stage.done, stage.total = advance.done, advance.total
            stage.note = "" if advance.loss is None else f", loss {advance.loss:.4f}"

        yield report
        if own is not None:
            own.draw()


class _Bars:
    """Bars of the stages that are under way, drawn by a thread; gone when there is none."""

    # whether a terminal has them already
    drawn = False

    def __init__(self, *, after: float) -> None:
        self._from = time.monotonic() + after
        # stages within others have no bar until it is seen that they last
        self._young = after / 2
        self._over, self._lock = threading.Event(), threading.Lock()
        self._progress: Progress | None = None
        self._tasks: dict[WorkStage, TaskID] = {}
        # how far a stage was when it last moved, and when: between its steps the time counts down
        self._moved: dict[WorkStage, tuple[int, float]] = {}

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Draw while the block lasts."""
        thread = threading.Thread(target=self._draw_on, daemon=True)
        type(self).drawn = True
        thread.start()
        try:
            with told_when_idle(self._idle):
                yield
        finally:
            type(self).drawn = False
            self._over.set()
            thread.join()
            self._idle()

    @property
    def visible(self) -> bool:
        """Whether there is a bar to see."""
        return self._progress is not None

    def _draw_on(self) -> None:
        while not self._over.wait(DRAWN_EVERY_S):
            self.draw()

    def draw(self) -> None:
        """Draw the stages as they are now, if it is time."""
        with self._lock:
            if time.monotonic() >= self._from and (stages := open_stages()):
                self._draw(stages)

    def _draw(self, stages: tuple[WorkStage, ...]) -> None:
        bars = self._progress or self._started()
        for gone in set(self._tasks) - set(stages):
            bars.remove_task(self._tasks.pop(gone))
            self._moved.pop(gone, None)
        now = time.monotonic()
        for stage in stages:
            if stage is not stages[0] and now - stage.began < self._young:
                continue
            if stage.look is not None:
                stage.look(stage)
            if self._moved.get(stage, (-1, 0.0))[0] != stage.done:
                self._moved[stage] = stage.done, now
            moved = self._moved[stage][1]
            words = f"{printable(stage.name)}{stage.note}"
            if stage not in self._tasks:
                self._tasks[stage] = bars.add_task(words, total=None, amount="", left="")
            bars.update(
                self._tasks[stage],
                completed=stage.done,
                total=stage.total or None,
                description=words,
                amount=_amount(stage),
                left=time_left(
                    stage.done - stage.before,
                    stage.total - stage.done,
                    moved - stage.began,
                    now - moved,
                ),
            )
        bars.refresh()

    def _started(self) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[amount]}", markup=False),
            TextColumn("{task.fields[left]}", markup=False),
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
            self._moved.clear()


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
    with ExitStack() as shown:
        bars = _Bars(after=BARS_AFTER_S)
        if sys.stderr.isatty():
            shown.enter_context(bars.drawing())
        if words not in _WORDY:
            shown.enter_context(_said_at_work(words, patience, bars))
        yield


@contextmanager
def _said_at_work(words: str, patience: float, bars: _Bars) -> Iterator[None]:
    """Say on stderr, first after some seconds and then ever later, that a command is at work."""
    done, started = threading.Event(), time.monotonic()

    def beat() -> None:
        pause = patience
        while not done.wait(pause):
            if not bars.visible:
                say(f"{words}: at work for {time.monotonic() - started:.0f} s")
            pause *= _LATER

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
