"""Progress of a run on stderr: one line a step, and what the step itself says."""

from __future__ import annotations

import logging
import sys
import time

import dagster as dg

# Dagster makes a logger for a run and another for its steps: both have one handler
_handlers: dict[str, _Handler] = {}
_ENDS = ("PIPELINE_SUCCESS", "PIPELINE_FAILURE", "PIPELINE_CANCELED")
_WORDS = {"STEP_SUCCESS": "done", "STEP_FAILURE": "FAILED", "STEP_SKIPPED": "skipped"}


@dg.logger(
    {"steps": int, "label": dg.Field(str, default_value="")},
    description="Print the end of each step on stderr, and what steps say.",
)
def progress_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """Return the logger that a command's run gets instead of the console's."""
    config, run = context.logger_config, str(context.run_id)
    logger = logging.Logger(f"progress {run}", logging.DEBUG)
    if run not in _handlers:
        _handlers[run] = _Handler(run, config["steps"], config["label"])
    logger.addHandler(_handlers[run])
    return logger


class _Handler(logging.Handler):
    def __init__(self, run: str, steps: int, label: str) -> None:
        super().__init__()
        self._run, self._started = run, time.monotonic()
        self._done, self._steps, self._label = 0, steps, label

    def emit(self, record: logging.LogRecord) -> None:
        event: dg.DagsterEvent | None = getattr(record, "dagster_meta", {}).get("dagster_event")
        if event is None:
            if record.levelno == logging.INFO:
                sys.stderr.write(f"  {self._label}{_text(record)}\n")
        elif event.event_type_value in _WORDS:
            self._done += 1
            step = str(event.step_key).replace("__", "/")
            elapsed = time.monotonic() - self._started
            sys.stderr.write(
                f"  {self._done:2d}/{self._steps} {self._label}{step} "
                f"{_WORDS[event.event_type_value]} ({elapsed:.1f} s)\n"
            )
        elif event.event_type_value in _ENDS:
            _handlers.pop(self._run, None)
        sys.stderr.flush()


def _text(record: logging.LogRecord) -> str:
    return str(getattr(record, "dagster_meta", {}).get("orig_message", record.getMessage()))
