"""Add corpora as partitions, and run the whole line for one, from the command line.

``python -m certify_assets.defs.launch add CORPUS…``, ``remove CORPUS…`` and ``run CORPUS [--quiet] [--judge NAME]…``. The ``certify`` command starts
this as a process of its own: nothing below the definitions imports them.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Any

import dagster as dg
from rich.console import Console

from certify_assets.defs.one_at_a_time import at_work_on, instance_with
from certify_assets.defs.partitions import CORPORA
from certify_assets.defs.resume import PROCESS_TAG, finished_assets, interrupted_run, this_process
from certify_assets.errors import CertifyError

__all__ = ["add", "remove", "run"]

_JOB, _LANGUAGE_JOB = "onboard_corpus", "train_lm_judges"
_BLOCKED = 3
_CHECK_FAILED = "DagsterAssetCheckFailedError"
_WORDS = {"STEP_SUCCESS": "done", "STEP_FAILURE": "FAILED", "STEP_SKIPPED": "skipped"}


def add(names: list[str]) -> None:
    """Add corpora as dynamic partitions of the instance in ``DAGSTER_HOME``."""
    with instance_with(CORPORA, names):
        pass


def remove(names: list[str]) -> None:
    """Remove corpora from the dynamic partitions; what was materialized stays in the event log."""
    with dg.DagsterInstance.get() as instance:
        for name in names:
            instance.delete_dynamic_partition(CORPORA, name)


def run(corpus: str, *, quiet: bool, judges: Sequence[str] = ()) -> int:
    """Materialize every asset of one corpus; return 0 where all of it succeeded, 3 where a blocking check stopped it, 1 where a step failed.

    With judges, language models among those of the job ``train_lm_judges``, their chains and the comparison are materialized on a corpus that is
    split already.
    """
    from certify_assets.definitions import defs

    name = _LANGUAGE_JOB if judges else _JOB
    job = defs.resolve_job_def(name)
    wanted = _chains(defs, judges) if judges else set(job.asset_layer.executable_asset_keys)
    with at_work_on(name, corpus), instance_with(CORPORA, [corpus]) as instance:
        interrupted = interrupted_run(instance, name, corpus)
        finished = finished_assets(instance, interrupted, defs) if interrupted else set()
        if finished and not quiet:
            sys.stderr.write(f"  going on after a kill: {len(finished)} assets were finished\n")
        selected = sorted(wanted - finished) if finished or judges else None
        run_id = str(uuid.uuid4())
        progress = _Progress(
            _steps((job.get_subset(asset_selection=set(selected)) if selected else job).graph),
            quiet=quiet,
        )
        instance.add_event_listener(run_id, progress.see)
        result = job.execute_in_process(
            # the instance keeps the log; the terminal gets progress, and the cause where a step fails
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            instance=instance,
            partition_key=corpus,
            raise_on_error=False,
            run_id=run_id,
            asset_selection=selected,
            tags={PROCESS_TAG: this_process()},
        )
        for event in result.all_events:
            # the instance sometimes tells its listeners nothing of the last step; the result has every event
            progress.count(event)
        progress.close()
    return 0 if result.success else _report(result)


def _chains(definitions: dg.Definitions, judges: Sequence[str]) -> set[dg.AssetKey]:
    """Keys of the judges' chains, of the model that they stand on, and of the comparison."""
    job = definitions.resolve_job_def(_LANGUAGE_JOB).asset_layer.executable_asset_keys
    others = {"compact_model", "comparison", "agent_disjoint"}
    return {key for key in job if key.path[1] in {*judges, *others}}


def _steps(graph: dg.GraphDefinition) -> int:
    """Number of steps of a graph: an asset of several ops has several."""
    return sum(
        _steps(node.definition) if isinstance(node.definition, dg.GraphDefinition) else 1
        for node in graph.nodes
    )


def _report(result: dg.ExecuteInProcessResult) -> int:
    """Say why a run failed: what its blocking checks found, and what its steps raised."""
    blocking = [
        found
        for found in result.get_asset_check_evaluations()
        if not found.passed and found.severity == dg.AssetCheckSeverity.ERROR
    ]
    for found in blocking:
        sys.stderr.write(
            f"{found.check_name} of {found.asset_key.to_user_string()} stops the line: {found.description}.\n"
        )
    failures = {
        event.step_key: event.step_failure_data.error
        for event in result.all_events
        if event.is_step_failure
    }
    others = {
        step: error
        for step, error in failures.items()
        if error is None or _CHECK_FAILED not in (error.cls_name or "")
    }
    for step, error in others.items():
        sys.stderr.write(f"{step}: {_cause(error)}\n")
    return _BLOCKED if blocking and not others else 1


class _Progress:
    """Turns a run's events into a bar in a terminal and one line a step elsewhere."""

    def __init__(self, steps: int, *, quiet: bool) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        self._started = time.monotonic()
        self._done, self._steps, self._quiet = 0, steps, quiet
        self._ended: set[str | None] = set()
        self._bar: Progress | None = None
        if sys.stderr.isatty() and not quiet:
            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("starting", total=steps)
            self._bar.start()

    def see(self, entry: dg.EventLogEntry) -> None:
        """Take notice of an event of the run."""
        if entry.dagster_event is not None:
            self.count(entry.dagster_event)

    def count(self, event: dg.DagsterEvent) -> None:
        """Show the end of a step, once."""
        if event.event_type_value in _WORDS and event.step_key not in self._ended:
            self._ended.add(event.step_key)
            self._done += 1
            self._show(str(event.step_key).replace("__", "/"), _WORDS[event.event_type_value])

    def _show(self, step: str, word: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=f"{step} {word}")
        elif not self._quiet:
            elapsed = time.monotonic() - self._started
            sys.stderr.write(f"  {self._done:2d}/{self._steps} {step} {word} ({elapsed:.1f} s)\n")
            sys.stderr.flush()

    def close(self) -> None:
        """End the bar."""
        if self._bar is not None:
            self._bar.stop()


def _cause(error: Any) -> str:
    """The innermost message of a failed step: the sentence that the library wrote."""
    while error.cause is not None:
        error = error.cause
    return " ".join(str(error.message).split()).removeprefix(
        f"certify_assets.errors.{error.cls_name}: "
    )


def _disk_problem(error: BaseException) -> str:
    """Return what the disk or a database file on it said, empty where the error is none of that kind."""
    inner = getattr(error, "orig", error)
    if isinstance(inner, OSError):
        return str(inner.strerror or inner)
    return str(inner) if isinstance(inner, sqlite3.Error) else ""


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and do it."""
    parser = argparse.ArgumentParser(prog="python -m certify_assets.defs.launch")
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="add corpora as partitions")
    adding.add_argument("names", nargs="+")
    removing = commands.add_parser("remove", help="remove corpora from the partitions")
    removing.add_argument("names", nargs="+")
    running = commands.add_parser("run", help="materialize every asset of a corpus")
    running.add_argument("corpus")
    running.add_argument("--quiet", action="store_true")
    running.add_argument(
        "--judge",
        action="append",
        default=[],
        help="language-model judges alone, on a corpus that is split",
    )
    parsed = parser.parse_args(arguments)
    if parsed.command != "run":
        (add if parsed.command == "add" else remove)(parsed.names)
        return 0
    try:
        return run(parsed.corpus, quiet=parsed.quiet, judges=parsed.judge)
    except CertifyError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Exception as error:
        reason = _disk_problem(error)
        if not reason:
            raise
        home = os.environ.get("DAGSTER_HOME", "the Dagster home")
        sys.stderr.write(
            f"{home} cannot be read or written ({reason}); see to its free space and permissions, and call again to go on.\n"
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())
