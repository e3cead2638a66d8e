"""Progress of a run on stderr: a bar in a terminal, or a line a step, and what the step says."""

from __future__ import annotations

import functools
import logging
import sys
import time

import dagster as dg

from certify_assets.work import WorkStage, open_stages

_WORDS = {"STEP_SUCCESS": "done", "STEP_FAILURE": "FAILED", "STEP_SKIPPED": "skipped"}


@dg.logger(
    {
        "steps": int,
        "label": dg.Field(str, default_value=""),
        "lines": dg.Field(bool, default_value=True),
    },
    description="Count the steps that ended, for a bar or as lines on stderr with what steps say.",
)
def progress_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """Return the logger that a command's run gets instead of the console's."""
    config, run = context.logger_config, str(context.run_id)
    logger = logging.Logger(f"progress {run}", logging.DEBUG)
    logger.addHandler(_handler(run, config["steps"], config["label"], config["lines"]))
    return logger


class _Handler(logging.Handler):
    def __init__(self, steps: int, label: str, lines: bool) -> None:
        super().__init__()
        self._started, self._done, self._steps = time.monotonic(), 0, steps
        self._label, self._lines = label, lines

    def emit(self, record: logging.LogRecord) -> None:
        about = getattr(record, "dagster_meta", {})
        event: dg.DagsterEvent | None = about.get("dagster_event")
        if event is None and record.levelno == logging.INFO:
            self._say(about.get("orig_message", record.getMessage()))
        elif event is not None and event.event_type_value in _WORDS:
            self._done += 1
            for stage in _run_stage():
                stage.done = self._done
            step = str(event.step_key).replace("__", "/")
            elapsed = time.monotonic() - self._started
            self._say(f"{step} {_WORDS[event.event_type_value]} ({elapsed:.1f} s)", counted=True)

    def _say(self, text: str, *, counted: bool = False) -> None:
        if self._lines:
            place = f"{self._done:2d}/{self._steps} " if counted else ""
            sys.stderr.write(f"  {place}{self._label}{text}\n")
            sys.stderr.flush()
        elif not counted:
            for stage in _run_stage():
                stage.said = text


def _run_stage() -> tuple[WorkStage, ...]:
    # the outermost stage is that of the run, the others are of its steps
    return open_stages()[:1]


@functools.lru_cache(maxsize=1)
def _handler(run: str, steps: int, label: str, lines: bool) -> _Handler:
    # Dagster makes a logger for a run and another for its steps: both have one handler
    del run
    return _Handler(steps, label, lines)
