"""Progress on stderr: bars with the time left in a terminal, few lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from certify_assets.cli.output import console, say
from certify_assets.storage.progress import Advance, ProgressLines

if TYPE_CHECKING:
    from rich.progress import TaskID

    from certify_assets.storage.progress import Report

#: seconds after which a command that says nothing is missed, and how much later each time
PATIENCE_S: Final = 5.0
_LATER: Final = 3
#: commands that show their progress themselves, serve, or ask
_OWN: Final = ("run", "demo", "ui", "research", "plan", "review serve", "corpus rm")


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
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield ProgressLines(say, patience=patience)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=screen, transient=True) as bars:
        shown: dict[str, TaskID] = {}

        def report(advance: Advance) -> None:
            if advance.stage not in shown:
                shown[advance.stage] = bars.add_task(advance.stage, total=advance.total)
            loss = "" if advance.loss is None else f", loss {advance.loss:.4f}"
            bars.update(
                shown[advance.stage],
                completed=advance.done,
                total=advance.total,
                description=f"{advance.stage}{loss}",
            )

        yield report


@contextmanager
def heartbeat(words: str, *, patience: float) -> Iterator[None]:
    """Say on stderr, first after some seconds and then ever later, that a command is at work."""
    if any(f"{words} ".startswith(f"{name} ") for name in _OWN):
        yield
        return
    done, started = threading.Event(), time.monotonic()

    def beat() -> None:
        pause = patience
        while not done.wait(pause):
            say(f"{words}: at work for {time.monotonic() - started:.0f} s")
            pause *= _LATER

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
