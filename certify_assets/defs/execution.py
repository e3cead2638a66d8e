"""Executing jobs in this process: one writer a corpus, progress on stderr, resuming failures."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from certify_assets._version import __version__
from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.jobs import JUDGE_JOBS, ONBOARD
from certify_assets.defs.names import (
    CORPORA,
    SOURCE,
    VERSION,
    config_version,
    observation,
    source_version,
    stored_version,
)
from certify_assets.defs.project import this_project
from certify_assets.defs.web_server import launch, web_server
from certify_assets.errors import CertifyError
from certify_assets.files import canonical_json, lock_file, sha256_bytes
from certify_assets.operations.labels import write_label_table
from certify_assets.storage.events import head_text
from certify_assets.storage.root import default_root
from certify_assets.storage.store import Store
from certify_assets.work import WorkStage, under_way

#: how a run is shown: not at all, as a bar in a terminal, with what checks warn of, or with a line
#: a step as well
Shown = Literal["nothing", "bar", "warnings", "lines"]
# by op, as a run configuration has it
OpsConfig = Mapping[str, Mapping[str, Mapping[str, int]]]
# the second is hidden from the list of runs by its prefix
_PARTITION, _INPUTS = "dagster/partition", ".dagster/certify_inputs"
_BLOCKED = 3
_STOPS = " stops the pipeline: "
_INTERRUPTED = ("KeyboardInterrupt", "DagsterExecutionInterruptedError")
_CHECK_FAILED = "DagsterAssetCheckFailedError"
# corpus-wide assets that the job of the language models makes again
_SHARED = {"judges/compact_model", "corpora/comparison"}


def job_named(name: str) -> dg.JobDefinition:
    """Return a job of the code location."""
    from certify_assets.definitions import defs

    return defs.resolve_job_def(name)


def add_partitions(names: Sequence[str]) -> None:
    """Add corpora as dynamic partitions of the instance in ``DAGSTER_HOME``."""
    with instance_with(names):
        pass


def remove_partitions(names: Sequence[str]) -> None:
    """Remove corpora from the partitions; what was materialized stays in the event log."""
    with dg.DagsterInstance.get() as instance:
        for name in names:
            instance.delete_dynamic_partition(CORPORA, name)


def run_corpus(corpus: str, *, shown: Shown, judges: Sequence[str] = ()) -> int:
    """Materialize a corpus with its judges; return 0, 3 if a check stopped it, else 1.

    With `judges` those alone: any other that is certified counts as one to choose among.
    """
    with one_run(corpus), instance_with([corpus]) as instance:
        server = web_server()
        for name, selection in _chains(judges).items():
            if server is None:
                result = execute(name, instance, corpus, selection, shown=shown, resume=True)
                done, events = result.success, result.all_events
            else:
                observe_sources(instance, corpus)
                done, events = launch(server, instance, name, corpus, selection, say=_say)
                say_not_passed(events, shown)
            if not done:
                return _report(events)
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"  {text}\n")


def execute(
    name: str,
    instance: dg.DagsterInstance,
    corpus: str = "",
    selection: Collection[dg.AssetKey] | None = None,
    *,
    config: OpsConfig | None = None,
    shown: Shown = "nothing",
    label: str = "",
    resume: bool = False,
) -> dg.JobExecutionResult:
    """Execute a job in this process on a corpus, or on none; `resume` continues its last run."""
    observe_sources(instance, corpus)
    job = job_named(name)
    if selection is not None:
        job = job.get_subset(asset_selection=set(selection))
    tags = {_PARTITION: corpus} if corpus else {}
    tags[_INPUTS] = _inputs(corpus, selection)
    parent = _unfinished(instance, name, tags) if resume else None
    steps = len(job.graph.nodes)
    if parent is not None:
        done = instance.get_run_stats(parent.run_id).steps_succeeded
        # one that resumed another had the steps that the other left
        left = len(parent.step_keys_to_execute or job.graph.nodes) - done
        if left <= 0:
            # killed between its last step and its end: Dagster resumes no run without a step to do
            parent = None
    if parent is not None:
        steps = left
        if shown != "nothing":
            _say(f"resuming a run that was stopped: {done} steps were finished")
    progress = {"steps": steps, "label": label, "lines": shown == "lines"}
    loggers = {"progress": {"config": progress}}
    # lines would break a bar
    bar: AbstractContextManager[Any] = (
        nullcontext() if shown == "lines" else under_way(WorkStage(corpus or name, steps))
    )
    with bar:
        result = dg.execute_job(
            dg.build_reconstructable_job(__name__, job_named.__name__, (name,)),
            instance=instance,
            run_config={"ops": config or {}, "loggers": loggers},
            tags=tags,
            asset_selection=sorted(selection) if selection is not None else None,
            reexecution_options=dg.ReexecutionOptions.from_failure(parent.run_id, instance)
            if parent is not None
            else None,
        )
    failed = [event for event in result.all_events if event.is_step_failure]
    errors = [event.step_failure_data.error for event in failed]
    if any(error is not None and error.cls_name in _INTERRUPTED for error in errors):
        # Dagster takes Ctrl-C for the failure of a step; nothing else is started after it
        raise KeyboardInterrupt
    say_not_passed(result.all_events, shown)
    return result


def say_not_passed(events: Sequence[dg.DagsterEvent], shown: Shown) -> None:
    """Say which checks did not pass; the answer of a command has the verdicts of audits."""
    for found in _evaluations(events) if shown in ("warnings", "lines") else ():
        # what stops the pipeline is said at its end
        stops = found.blocking and found.severity == dg.AssetCheckSeverity.ERROR
        if not (found.passed or stops or found.check_name == "audit_verdict"):
            _say(f"{found.asset_key.to_user_string()}, {found.check_name}: {found.description}")


def _evaluations(events: Sequence[dg.DagsterEvent]) -> list[Any]:
    evaluated = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    return [event.asset_check_evaluation_data for event in events if event.event_type == evaluated]


def observe_sources(instance: dg.DagsterInstance, corpus: str) -> None:
    """Report the data version of the source runs of a corpus, unless it was observed last."""
    if not corpus:
        return
    source, version = (
        this_project().key(SOURCE),
        source_version(Corpus(Store(default_root()), corpus)),
    )
    found = instance.fetch_observations(
        dg.AssetRecordsFilter(asset_key=source, asset_partitions=[corpus]), limit=1
    ).records
    seen = found[0].asset_observation if found else None
    if seen is None or seen.data_version != version:
        instance.report_runless_asset_event(observation(source, corpus, version))


def failures(events: Sequence[dg.DagsterEvent]) -> dict[str, str]:
    """Return why steps failed, by step: what a blocking check found, or what was raised."""
    said = {}
    for found in _evaluations(events):
        if not found.passed and found.severity == dg.AssetCheckSeverity.ERROR:
            where = f"{found.check_name} of {found.asset_key.to_user_string()}"
            said[where] = f"{where}{_STOPS}{found.description}."
    for event in events:
        if event.is_step_failure and event.step_key is not None:
            error = event.step_failure_data.error
            if error is None or _CHECK_FAILED not in (error.cls_name or ""):
                said[event.step_key] = _cause(error)
    return said


@contextmanager
def one_run(corpus: str) -> Iterator[None]:
    """Be the one command that runs the pipeline of a corpus here; refuse where another is."""
    # a kill frees it, so that the next command knows that a run which did not end is dead
    with (_locks() / f"{corpus}.lock").open("a") as stream:
        if not lock_file(stream.fileno(), wait=False):
            raise CertifyError(
                f"another command is at work on {corpus}. Wait until it ends, or stop it."
            )
        yield


@contextmanager
def instance_with(names: Sequence[str]) -> Iterator[dg.DagsterInstance]:
    """Open the instance with these corpora as partitions."""
    with ExitStack() as opened:
        # neither making the databases of an instance nor adding partitions is atomic
        with (_locks() / "instance.lock").open("a") as stream:
            lock_file(stream.fileno())
            instance = opened.enter_context(dg.DagsterInstance.get())
            # a process that was killed while it made them left tables out, and Dagster takes a
            # database that is there for a whole one; this makes what is missing
            instance.reindex()
            instance.add_dynamic_partitions(CORPORA, list(names))
        yield instance


def report(corpus: Corpus, assets: Sequence[str], command: str) -> None:
    """Report assets of a corpus, by name, as materialized by a command outside a run."""
    if "operations/reviewed_labels" in assets:
        # a command adds events, and the asset is the table that is resolved from them
        write_label_table(corpus)
    with instance_with([corpus.name]) as instance:
        for name in assets:
            version = stored_version(corpus.store, name, corpus.name)
            made = dg.AssetMaterialization(
                this_project().key(name),
                partition=corpus.name,
                tags={VERSION: version.value} if version else {},
                metadata={
                    "made_by": command,
                    "ledger": head_text(corpus.store.ledger(corpus.name)),
                },
            )
            instance.report_runless_asset_event(made)


def _locks() -> Path:
    home = os.environ.get("DAGSTER_HOME") or dg.DagsterInstance.get().root_directory
    folder = Path(home) / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _chains(judges: Sequence[str]) -> dict[str, set[dg.AssetKey] | None]:
    """Return, by job, the keys of the judges' chains and of what else the job makes for them."""
    if not judges:
        return {ONBOARD: None}
    from certify_assets.definitions import defs

    project = this_project()
    every = job_named(ONBOARD).asset_layer.executable_asset_keys
    onboarded = {item for item in every if project.judge_of(item) in ("", *judges)}
    if not any(map(project.judge_of, onboarded)):
        # there is nothing to compare before the jobs of the named judges, which compare them
        onboarded = {item for item in onboarded if project.name_of(item) not in _SHARED}
    found: dict[str, set[dg.AssetKey] | None] = {ONBOARD: onboarded}
    known = defs.get_repository_def().job_names
    for name in (name for name in JUDGE_JOBS if name in known):
        keys = job_named(name).asset_layer.executable_asset_keys
        chosen = {item for item in keys if project.judge_of(item) in judges}
        if chosen:
            found[name] = chosen | {item for item in keys if project.name_of(item) in _SHARED}
    return found


def _inputs(corpus: str, selection: Collection[dg.AssetKey] | None) -> str:
    """Hash of what makes a run continuable: under another one its finished steps say nothing."""
    selected = sorted(found.to_user_string() for found in selection or ())
    settings = config_version(Corpus(Store(default_root()), corpus)) if corpus else ""
    facts = [__version__, settings, selected]
    return sha256_bytes(canonical_json(facts))[:32]


def _unfinished(
    instance: dg.DagsterInstance, name: str, tags: dict[str, str]
) -> dg.DagsterRun | None:
    """Return the corpus's last run if it failed, or if its process was killed; mark it failed."""
    where = {_PARTITION: tags[_PARTITION]} if _PARTITION in tags else {}
    runs = instance.get_runs(filters=dg.RunsFilter(job_name=name, tags=where), limit=1)
    if not runs or runs[0].is_success or _INPUTS not in runs[0].tags:
        return None
    run = runs[0]
    if not run.is_finished and run.remote_job_origin is not None:
        # the UI executes a command's run again, and its next step waits for this command
        return None
    if not run.is_finished:
        # a command holds the corpus to its end, so the one that made the run is gone; its place
        # in a pool would be taken for good
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        instance.report_run_failed(
            run, message="The process was killed; the next run continues what it finished."
        )
    again = instance.get_run_by_id(run.run_id)
    return again if run.tags[_INPUTS] == tags[_INPUTS] else None


def _report(events: Sequence[dg.DagsterEvent]) -> int:
    """Print why a run failed; return its exit code."""
    found = failures(events)
    blocked = [text for text in found.values() if _STOPS in text]
    for step, text in found.items():
        sys.stderr.write(f"{text}\n" if text in blocked else f"{step}: {text}\n")
    return _BLOCKED if found and len(blocked) == len(found) else 1


def _cause(error: Any) -> str:
    """The innermost message of a failed step: the sentence that the library wrote."""
    if error is None:
        return "no reason was recorded."
    while error.cause is not None:
        error = error.cause
    return " ".join(str(error.message).split()).removeprefix(
        f"certify_assets.errors.{error.cls_name}: "
    )
