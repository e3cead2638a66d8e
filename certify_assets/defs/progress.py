"""Progress of a run on stderr: one line a step, and what the step itself says."""

from __future__ import annotations

import functools
import logging
import sys
import time

import dagster as dg

_WORDS = {"STEP_SUCCESS": "done", "STEP_FAILURE": "FAILED", "STEP_SKIPPED": "skipped"}


@dg.logger(
    {"steps": int, "label": dg.Field(str, default_value="")},
    description="Print the end of each step on stderr, and what steps say.",
)
def progress_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """Return the logger that a command's run gets instead of the console's."""
    config, run = context.logger_config, str(context.run_id)
    logger = logging.Logger(f"progress {run}", logging.DEBUG)
    logger.addHandler(_handler(run, config["steps"], config["label"]))
    return logger


class _Handler(logging.Handler):
    def __init__(self, steps: int, label: str) -> None:
        super().__init__()
        self._started, self._done, self._steps, self._label = time.monotonic(), 0, steps, label

    def emit(self, record: logging.LogRecord) -> None:
        about = getattr(record, "dagster_meta", {})
        event: dg.DagsterEvent | None = about.get("dagster_event")
        if event is None and record.levelno == logging.INFO:
            said = about.get("orig_message", record.getMessage())
            sys.stderr.write(f"  {self._label}{said}\n")
        elif event is not None and event.event_type_value in _WORDS:
            self._done += 1
            step = str(event.step_key).replace("__", "/")
            elapsed = time.monotonic() - self._started
            sys.stderr.write(
                f"  {self._done:2d}/{self._steps} {self._label}{step} "
                f"{_WORDS[event.event_type_value]} ({elapsed:.1f} s)\n"
            )
        sys.stderr.flush()


@functools.lru_cache(maxsize=1)
def _handler(run: str, steps: int, label: str) -> _Handler:
    # Dagster makes a logger for a run and another for its steps: both have one handler
    del run
    return _Handler(steps, label)
