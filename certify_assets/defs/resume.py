"""Going on after a kill: which assets an interrupted run of the command finished, checks included."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import dagster as dg

from certify_assets.errors import CertifyError

__all__ = ["PROCESS_TAG", "finished_assets", "interrupted_run", "this_process"]

PROCESS_TAG = "certify/process"


def this_process() -> str:
    """Return what names this process for good: host, number, and the moment of its start, because numbers come again."""
    return _identity(os.getpid())


def interrupted_run(instance: dg.DagsterInstance, job: str, corpus: str) -> dg.DagsterRun | None:
    """Return the corpus's last run if the process that made it was killed in the middle of it; mark it as failed.

    Raises
    ------
    CertifyError
        If that process is still at work on it.
    """
    runs = instance.get_runs(
        filters=dg.RunsFilter(job_name=job, tags={"dagster/partition": corpus}), limit=1
    )
    if not runs or runs[0].is_finished or PROCESS_TAG not in runs[0].tags:
        return None
    host, number, _ = runs[0].tags[PROCESS_TAG].split(":")
    if host == socket.gethostname() and _identity(int(number)) == runs[0].tags[PROCESS_TAG]:
        raise CertifyError(
            f"process {number} is at work on {corpus} (run {runs[0].run_id[:8]}); wait for its end, or end it first."
        )
    # or its place in a pool would be taken for good
    instance.event_log_storage.free_concurrency_slots_for_run(runs[0].run_id)
    instance.report_run_failed(
        runs[0], message="The process was killed; the next run goes on from what it finished."
    )
    return runs[0]


def finished_assets(
    instance: dg.DagsterInstance, run: dg.DagsterRun, definitions: dg.Definitions
) -> set[dg.AssetKey]:
    """Return the assets that a run materialized and whose every check it evaluated without an error, with all that is upstream."""
    graph = definitions.resolve_asset_graph()
    made: set[dg.AssetKey] = set()
    sound: set[dg.AssetCheckKey] = set()
    for entry in instance.all_logs(run.run_id):
        event = entry.dagster_event
        if event is not None and event.is_step_materialization and event.asset_key is not None:
            made.add(event.asset_key)
        elif event is not None and event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            evaluation = event.asset_check_evaluation_data
            if evaluation.passed or evaluation.severity == dg.AssetCheckSeverity.WARN:
                sound.add(evaluation.asset_check_key)
    checked = {
        key
        for key in made
        if all(check in sound for check in graph.asset_check_keys if check.asset_key == key)
    }
    for checks in definitions.asset_checks or ():
        # what one evaluation checks together is checked together again
        together = (
            {key.asset_key for key in checks.check_keys}
            if isinstance(checks, dg.AssetChecksDefinition)
            else set()
        )
        if not together <= checked:
            checked -= together
    # the generation of the embedded runs is no part of the job, and nothing waits for it
    in_job = set(graph.materializable_asset_keys) - {dg.AssetKey(["corpora", "miniwob_runs"])}
    finished: set[dg.AssetKey] = set()
    for key in graph.toposorted_asset_keys:
        if key in checked and (graph.get(key).parent_keys & in_job) <= finished:
            finished.add(key)
    return finished


def _identity(number: int) -> str:
    """Host, process number and its start; without a start where no such process is there."""
    try:
        # the 22nd field, counted behind the program's name, which may itself hold spaces and brackets
        started = (
            Path(f"/proc/{number}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rsplit(")", 1)[1]
            .split()[19]
        )
    except OSError:
        started = "alive" if _is_alive(number) else ""
    return f"{socket.gethostname()}:{number}:{started}"


def _is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # where there is no /proc (macOS), a process of that number is taken for the one that was meant
    return True
