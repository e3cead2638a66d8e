"""Progress of a run: a bar in a terminal, one line a step elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from rich.progress import Progress

# Dagster makes a logger for a run and another for its steps: both have one bar
_handlers: dict[str, _Handler] = {}
_ENDS = ("PIPELINE_SUCCESS", "PIPELINE_FAILURE", "PIPELINE_CANCELED")
_WORDS = {"STEP_SUCCESS": "done", "STEP_FAILURE": "FAILED", "STEP_SKIPPED": "skipped"}


@dg.logger(
    {"steps": int, "label": dg.Field(str, default_value=""), "lines": dg.Field(bool, False)},
    description="Print the end of each step on stderr, and nothing else.",
)
def progress_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """Return the logger that a command's run gets instead of the console's."""
    config, run = context.logger_config, str(context.run_id)
    logger = logging.Logger(f"progress {run}", logging.DEBUG)
    if run not in _handlers:
        _handlers[run] = _Handler(run, config["steps"], config["label"], lines=config["lines"])
    logger.addHandler(_handlers[run])
    return logger


class _Handler(logging.Handler):
    def __init__(self, run: str, steps: int, label: str, *, lines: bool) -> None:
        super().__init__()
        self._run, self._started = run, time.monotonic()
        self._done, self._steps, self._label, self._lines = 0, steps, label, lines
        self._bar: Progress | None = None
        if sys.stderr.isatty() and not lines:
            self._start_bar()

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(f"{self._label}starting", total=self._steps)
        self._bar.start()

    def emit(self, record: logging.LogRecord) -> None:
        event: dg.DagsterEvent | None = getattr(record, "dagster_meta", {}).get("dagster_event")
        if event is None:
            # what a step itself logs: how far a training has come
            if self._lines and self._bar is None and record.levelno == logging.INFO:
                sys.stderr.write(f"  {self._label}{_text(record)}\n")
            return
        if event.event_type_value in _WORDS:
            self._done += 1
            self._show(str(event.step_key).replace("__", "/"), _WORDS[event.event_type_value])
        elif event.event_type_value in _ENDS:
            if self._bar is not None:
                self._bar.stop()
            _handlers.pop(self._run, None)

    def _show(self, step: str, word: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=f"{self._label}{step} {word}")
            return
        elapsed = time.monotonic() - self._started
        sys.stderr.write(
            f"  {self._done:2d}/{self._steps} {self._label}{step} {word} ({elapsed:.1f} s)\n"
        )
        sys.stderr.flush()


def _text(record: logging.LogRecord) -> str:
    return str(getattr(record, "dagster_meta", {}).get("orig_message", record.getMessage()))
