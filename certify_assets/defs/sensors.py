"""Sensors: new runs in the incoming folder or of declared corpora, inboxes, reviewed labels."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import getdoc
from typing import Any

import dagster as dg

from certify_assets.corpora.config import CorpusConfig
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.inbox import (
    Arrival,
    adopt,
    declare,
    record_version,
    scan_declared,
    scan_inbox,
    scan_incoming,
)
from certify_assets.defs.jobs import DECIDE, ONBOARD, RECERTIFY
from certify_assets.defs.names import (
    CORPORA,
    INBOX,
    SOURCE,
    corpora_partitions,
    observation,
    source_version,
)
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot
from certify_assets.errors import CertifyError
from certify_assets.operations.certifier import judges_with_certificates, own_key
from certify_assets.operations.outcomes import known_head
from certify_assets.storage.store import Store

# gives the key of the run that is requested for what arrived, and what was observed
_Accept = Callable[[Arrival], tuple[str, dg.AssetObservation]]
# not a run for every label of the page
_PATIENCE = 300
_ENDED = {
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
}


def _sensor(job: str, seconds: int = 60) -> Callable[[Callable[..., Any]], dg.SensorDefinition]:
    """Return `dagster.sensor` for a function whose docstring describes it."""
    return lambda function: dg.sensor(
        # by its name: a component's definitions are merged with those that hold the job
        job_name=job,
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=getdoc(function),
    )(function)


def _seen(context: dg.SensorEvaluationContext) -> dict[str, str]:
    found: dict[str, str] = json.loads(context.cursor or "{}")
    return found


def _result(
    seen: Mapping[str, str],
    requests: Mapping[str, str],
    reason: str,
    events: Sequence[dg.AssetObservation] = (),
) -> dg.SensorResult:
    """Return what a tick requests, by the key of the run the corpus; the reason where nothing."""
    runs = [dg.RunRequest(run_key=key, partition_key=name) for key, name in requests.items()]
    return dg.SensorResult(
        run_requests=runs,
        skip_reason=None if runs else reason,
        dynamic_partitions_requests=[corpora_partitions.build_add_request([*requests.values()])]
        if runs
        else None,
        asset_events=events,
        cursor=json.dumps(seen, sort_keys=True),
    )


def platform_sensors(project: Project) -> list[dg.SensorDefinition]:
    """Return the sensors of folders, versions, inboxes and labels."""

    @_sensor(ONBOARD)
    def new_runs(context: dg.SensorEvaluationContext, data_root: DataRoot) -> dg.SensorResult:
        """Watch incoming/<corpus>/ of the data root.

        Files that are complete and new add the partition and start the whole pipeline.
        """
        store = data_root.view()
        folder = store.folder.locate("incoming")
        accept = _registers(project, store, lambda corpus: adopt(store, folder, corpus))
        return _request_runs(context, *scan_incoming(store, folder), accept)

    @_sensor(ONBOARD)
    def new_versions(context: dg.SensorEvaluationContext, data_root: DataRoot) -> dg.SensorResult:
        """Watch the versions of corpora that have certificates.

        A new version from `certify corpus import --add` or `--replace` starts the whole pipeline.
        """
        store, seen = data_root.view(), _seen(context)
        requests: dict[str, str] = {}
        for name in sorted(context.instance.get_dynamic_partitions(CORPORA)):
            corpus = Corpus(store, name)
            versions = corpus.deliveries.read()
            if not versions or versions[-1].trajectories_sha256 == seen.get(name):
                continue
            if _is_running(context.instance, name):
                # that run may be what delivered it, or certify it
                context.log.info(f"{_name(name)} waits: a run of it is not finished")
                continue
            new = seen[name] = versions[-1].trajectories_sha256
            if not corpus.obstacle and _certified_earlier(corpus, new):
                requests[f"version:{name}:{new}"] = name
        return _result(seen, requests, "no version that certificates wait for")

    @_sensor(DECIDE)
    def new_inbox(context: dg.SensorEvaluationContext, data_root: DataRoot) -> dg.SensorResult:
        """Watch inbox/<corpus>/ of the data root.

        Files that are complete and new are imported as a batch and decided.
        """

        def accept(arrival: Arrival) -> tuple[str, dg.AssetObservation]:
            # runs that a batch holds are known, so content that comes back needs no run of its own
            key = f"inbox:{arrival.corpus}:{arrival.version}"
            return key, observation(project.key(INBOX), arrival.corpus, arrival.version)

        return _request_runs(
            context, *scan_inbox(data_root.view()), accept, "nothing new in an inbox"
        )

    @_sensor(RECERTIFY, _PATIENCE)
    def reviewed_labels(
        context: dg.SensorEvaluationContext, data_root: DataRoot
    ) -> dg.SensorResult:
        """Watch the labels of every corpus.

        New labels close batches and start monitor and recertification, once for each set.
        """
        store, seen = data_root.view(), _seen(context)
        requests = dict[str, str]()
        for name in sorted(context.instance.get_dynamic_partitions(CORPORA)):
            labels = known_head(Corpus(store, name)).sha256
            if labels and seen.get(name) != labels:
                seen[name] = labels
                requests[f"labels:{name}:{labels}"] = name
        return _result(seen, requests, "no new label")

    return [new_runs, new_versions, new_inbox, reviewed_labels]


def declared_corpora_sensor(
    project: Project, name: str, configs: Sequence[CorpusConfig]
) -> dg.SensorDefinition:
    """Return the sensor of declared corpora: it registers them and requests runs on changes."""
    declared: Mapping[str, CorpusConfig] = {config.name: config for config in configs}

    @dg.sensor(
        name=name,
        job_name=ONBOARD,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Register {', '.join(declared)} as declared, add the partitions, and start "
        "the whole pipeline where files or settings changed.",
    )
    def sense(context: dg.SensorEvaluationContext, data_root: DataRoot) -> dg.SensorResult:
        store = data_root.view()
        accept = _registers(project, store, lambda corpus: declare(store, declared[corpus]))
        return _request_runs(context, *scan_declared(store, declared.values()), accept)

    return sense


def _is_running(instance: dg.DagsterInstance, corpus: str) -> bool:
    statuses = [status for status in dg.DagsterRunStatus if status not in _ENDED]
    unfinished = dg.RunsFilter(tags={"dagster/partition": corpus}, statuses=statuses)
    return instance.get_runs_count(unfinished) > 0


def _certified_earlier(corpus: Corpus, trajectories_sha256: str) -> bool:
    """Whether a judge has certificates, and none of this version of the corpus."""
    found = [
        corpus.store.read_json(own_key(corpus.name, name))["certificates"]
        for name in judges_with_certificates(corpus)
    ]
    made = {item["provenance"].get("trajectories_sha256") for part in found for item in part}
    return bool(made) and trajectories_sha256 not in made


def _registers(project: Project, store: Store, register: Callable[[str], CorpusConfig]) -> _Accept:
    """Return what registers a corpus and its files, in one step."""

    def accept(arrival: Arrival) -> tuple[str, dg.AssetObservation]:
        corpus = arrival.corpus
        with store.now().step():
            register(corpus)
            number = record_version(store, arrival)
            version = source_version(Corpus(store, corpus))
        return f"{corpus}:{number}:{arrival.version}", observation(
            project.key(SOURCE), corpus, version
        )

    return accept


def _request_runs(
    context: dg.SensorEvaluationContext,
    arrivals: Iterable[Arrival],
    waiting: dict[str, str],
    accept: _Accept,
    nothing: str = "no new runs",
) -> dg.SensorResult:
    """Accept what arrived and request its runs; a corpus that cannot be accepted waits."""
    seen, requests, observed = _seen(context), dict[str, str](), list[dg.AssetObservation]()
    for arrival in arrivals:
        if seen.get(arrival.corpus) == arrival.version:
            continue
        try:
            key, event = accept(arrival)
        except (CertifyError, OSError, ValueError) as error:
            waiting[arrival.corpus] = str(error)
            continue
        seen[arrival.corpus] = arrival.version
        observed.append(event)
        requests[key] = arrival.corpus
    reasons = [f"{_name(corpus)}: {reason}" for corpus, reason in waiting.items()]
    for reason in reasons:
        context.log.info(reason)
    return _result(seen, requests, "; ".join([nothing, *reasons]), observed)


def _name(entry: str) -> str:
    """Return the name of a folder, safe for a log: names are untrusted."""
    return entry if entry.isprintable() else ascii(entry)
