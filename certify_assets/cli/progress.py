"""Progress on stderr: bars with the time left in a terminal, few lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

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
    from rich.console import RenderableType
    from rich.live import Live

    from certify_assets.work import Report

#: seconds after which a command that says nothing is missed, and how much later each time
PATIENCE_S: Final = 5.0
_LATER: Final = 3
#: seconds after which a terminal shows bars, and how often they are drawn
BARS_AFTER_S: Final = 2.0
DRAWN_EVERY_S: Final = 0.2
#: commands that show their progress themselves, serve, or ask
_OWN: Final = ("ui", "research", "review serve", "corpus rm")
#: commands of which a log has the line of each corpus, and that say nothing else before they end
_IN_A_LINE: Final = ("run", "demo")


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


def _bars(terminal: IO[str]) -> Live:
    """Return a display of the stages that are under way, empty where there is none."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
    from rich.text import Text

    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    tasks: dict[WorkStage, TaskID] = {}

    def drawn() -> RenderableType:
        stages = open_stages()
        for gone in set(tasks) - set(stages):
            bars.remove_task(tasks.pop(gone))
        for stage in stages:
            if stage.look is not None:
                stage.look(stage)
            if stage not in tasks:
                tasks[stage] = bars.add_task("", total=None, amount="")
            bars.update(
                tasks[stage],
                completed=stage.done,
                total=stage.total or None,
                description=f"{printable(stage.name)}{stage.note}",
                amount=_amount(stage),
            )
        said = (printable(stage.said) for stage in stages if stage.said)
        lines = (Text(line, no_wrap=True, overflow="ellipsis") for line in said)
        return Group(bars.make_tasks_table(bars.tasks), *lines) if tasks else Group()

    return Live(
        get_renderable=drawn,
        console=console(file=terminal),
        transient=True,
        refresh_per_second=1 / DRAWN_EVERY_S,
        # what a command prints goes where it is redirected to
        redirect_stdout=False,
    )


def _amount(stage: WorkStage) -> str:
    if stage.in_bytes:
        return f"{stage.done / 1e6:.0f}/{stage.total / 1e6:.0f} MB"
    return f"{stage.done:,}/{stage.total:,}"


def _draw(terminal: IO[str], over: threading.Event) -> None:
    """Draw the bars until the command is over; short work draws nothing."""
    if over.wait(BARS_AFTER_S):
        return
    # what the command prints next has the terminal for itself
    with _bars(terminal) as bars, told_when_idle(bars.refresh):
        over.wait()


def _beat(words: str, patience: float, over: threading.Event) -> None:
    """Say now and then that a command is at work, until it is over."""
    started = time.monotonic()
    while not over.wait(patience):
        say(f"{words}: at work for {time.monotonic() - started:.0f} s")
        patience *= _LATER


@contextmanager
def heartbeat(words: str, *, patience: float) -> Iterator[None]:
    """Show in a terminal what a command is at, with the time left; say elsewhere that it is."""
    in_terminal = sys.stderr.isatty()
    silent = _OWN if in_terminal else (*_OWN, *_IN_A_LINE)
    if any(f"{words} ".startswith(f"{name} ") for name in silent):
        yield
        return
    over = threading.Event()
    with ExitStack() as opened:
        if in_terminal:
            # Dagster leads stderr into a file of its own while a run is at work
            copy = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding)
            watch: tuple[Any, ...] = (_draw, opened.enter_context(copy), over)
        else:
            watch = (_beat, words, patience, over)
        thread = threading.Thread(target=watch[0], args=watch[1:], daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
