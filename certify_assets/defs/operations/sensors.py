"""Sensors: new runs in the incoming folder or of declared corpora, inboxes, reviewed labels."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

import dagster as dg

from certify_assets.corpora.arrivals import adopt, declare, record_version
from certify_assets.corpora.config import CorpusConfig
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.landing import (
    Arrival,
    place_of,
    scan_declared,
    scan_inbox,
    scan_incoming,
)
from certify_assets.defs.external import (
    INBOX,
    SAMPLE,
    SOURCE,
    observation,
    sample_version,
    source_version,
)
from certify_assets.defs.names import CORPORA, corpora_partitions
from certify_assets.defs.operations.jobs import decide_job, onboard_job, recertify_job
from certify_assets.defs.resources import DataRoot
from certify_assets.errors import CertifyError
from certify_assets.operations.labels import labels_head
from certify_assets.operations.layout import own_key
from certify_assets.storage.store import Store

# not a run for every label of the page
_PATIENCE = 300
_ENDED = {
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
}


@dg.sensor(
    name="new_runs",
    job=onboard_job,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Watch incoming/<corpus>/ of the data root; files that are complete and new add "
    "the partition and start the whole pipeline.",
)
def new_runs_sensor(
    context: dg.SensorEvaluationContext, data_root: DataRoot
) -> dg.SensorResult | dg.SkipReason:
    """Request one run a corpus whose files changed; the cursor keeps what was seen."""
    store = data_root.view()
    folder = place_of(store, "incoming")
    arrivals, waiting = scan_incoming(store, folder)
    return _request_runs(
        context, store, arrivals, waiting, lambda corpus: adopt(store, folder, corpus)
    )


@dg.sensor(
    name="new_versions",
    job=onboard_job,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Watch the versions of corpora that have certificates; one that `certify corpus "
    "import --add` or --replace delivered starts the whole pipeline.",
)
def new_versions_sensor(
    context: dg.SensorEvaluationContext, data_root: DataRoot
) -> dg.SensorResult | dg.SkipReason:
    """Request one run a corpus whose certificates are of another version than the stored runs."""
    store = data_root.view()
    seen: dict[str, str] = json.loads(context.cursor or "{}")
    new: dict[str, str] = {}
    requests = []
    for name in sorted(context.instance.get_dynamic_partitions(CORPORA)):
        corpus = Corpus(store, name)
        versions = corpus.deliveries.read()
        if not versions or versions[-1].trajectories_sha256 == seen.get(name):
            continue
        if _is_running(context.instance, name):
            # that run may be what delivered it, or certify it
            context.log.info(f"{_name(name)} waits: a run of it is not finished")
            continue
        new[name] = versions[-1].trajectories_sha256
        if corpus.obstacle or not _certified_earlier(corpus, new[name]):
            continue
        requests.append(dg.RunRequest(run_key=f"version:{name}:{new[name]}", partition_key=name))
    if not requests:
        context.update_cursor(json.dumps(seen | new, sort_keys=True))
        return dg.SkipReason("no version that certificates wait for")
    return dg.SensorResult(run_requests=requests, cursor=json.dumps(seen | new, sort_keys=True))


def _is_running(instance: dg.DagsterInstance, corpus: str) -> bool:
    statuses = [status for status in dg.DagsterRunStatus if status not in _ENDED]
    unfinished = dg.RunsFilter(tags={"dagster/partition": corpus}, statuses=statuses)
    return instance.get_runs_count(unfinished) > 0


def _certified_earlier(corpus: Corpus, trajectories_sha256: str) -> bool:
    """Whether a judge has certificates, and none of this version of the corpus."""
    found = [
        corpus.store.read_json(own_key(corpus.name, name))["certificates"]
        for name in corpus.store.names("judges")
        if corpus.store.exists(own_key(corpus.name, name))
    ]
    made = {item["provenance"].get("trajectories_sha256") for part in found for item in part}
    return bool(made) and trajectories_sha256 not in made


def declared_corpora_sensor(name: str, configs: Sequence[CorpusConfig]) -> dg.SensorDefinition:
    """Return the sensor of declared corpora: it registers them and requests runs on changes."""
    declared: Mapping[str, CorpusConfig] = {config.name: config for config in configs}

    @dg.sensor(
        name=name,
        # by its name: a component's definitions are merged with those that hold the job
        job_name=onboard_job.name,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Register {', '.join(declared)} as declared, add the partitions, and start "
        "the whole pipeline where files or settings changed.",
    )
    def sense(
        context: dg.SensorEvaluationContext, data_root: DataRoot
    ) -> dg.SensorResult | dg.SkipReason:
        store = data_root.view()
        arrivals, waiting = scan_declared(store, declared.values())
        return _request_runs(
            context, store, arrivals, waiting, lambda corpus: declare(store, declared[corpus])
        )

    return sense


@dg.sensor(
    name="new_inbox",
    job=decide_job,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Watch inbox/<corpus>/ of the data root; files that are complete and new are "
    "imported as a batch and decided.",
)
def new_inbox_sensor(
    context: dg.SensorEvaluationContext, data_root: DataRoot
) -> dg.SensorResult | dg.SkipReason:
    """Request one run a corpus whose inbox changed since the last tick."""
    store = data_root.view()
    seen: dict[str, str] = json.loads(context.cursor or "{}")
    arrivals, waiting = scan_inbox(store)
    new = [arrival for arrival in arrivals if seen.get(arrival.corpus) != arrival.version]
    for corpus, reason in waiting.items():
        context.log.info(f"{_name(corpus)} waits: {reason}")
    if not new:
        return dg.SkipReason(
            "nothing new in an inbox"
            + "".join(f"; {_name(corpus)}: {reason}" for corpus, reason in waiting.items())
        )
    return dg.SensorResult(
        # runs that a batch holds are known, so content that comes back needs no run of its own
        run_requests=[
            dg.RunRequest(run_key=f"inbox:{item.corpus}:{item.version}", partition_key=item.corpus)
            for item in new
        ],
        dynamic_partitions_requests=[
            corpora_partitions.build_add_request([item.corpus for item in new])
        ],
        asset_events=[observation(INBOX, item.corpus, item.version) for item in new],
        cursor=json.dumps(seen | {item.corpus: item.version for item in new}, sort_keys=True),
    )


def _request_runs(
    context: dg.SensorEvaluationContext,
    store: Store,
    arrivals: Iterable[Arrival],
    waiting: dict[str, str],
    register: Callable[[str], CorpusConfig],
) -> dg.SensorResult | dg.SkipReason:
    """Register what arrived and request its runs; a corpus that cannot be registered waits."""
    seen: dict[str, str] = json.loads(context.cursor or "{}")
    requests, observed = [], []
    for arrival in arrivals:
        if seen.get(arrival.corpus) == arrival.version:
            continue
        try:
            corpus = arrival.corpus
            with store.now().step(corpus):
                register(arrival.corpus)
                number = record_version(store, arrival)
                version = source_version(Corpus(store, corpus))
        except (CertifyError, OSError, ValueError) as error:
            waiting[arrival.corpus] = str(error)
            continue
        seen[arrival.corpus] = arrival.version
        observed.append(observation(SOURCE, corpus, version))
        requests.append(
            dg.RunRequest(
                run_key=f"{arrival.corpus}:{number}:{arrival.version}", partition_key=arrival.corpus
            )
        )
    for corpus, reason in waiting.items():
        context.log.info(f"{_name(corpus)} waits: {reason}")
    if not requests:
        return dg.SkipReason(
            "no new runs"
            + "".join(f"; {_name(corpus)}: {reason}" for corpus, reason in waiting.items())
        )
    return dg.SensorResult(
        run_requests=requests,
        dynamic_partitions_requests=[
            corpora_partitions.build_add_request(
                [str(request.partition_key) for request in requests]
            )
        ],
        asset_events=observed,
        cursor=json.dumps(seen, sort_keys=True),
    )


def _name(entry: str) -> str:
    """Return the name of a folder, safe for a log: names are untrusted."""
    return entry if entry.isprintable() else ascii(entry)


@dg.sensor(
    name="reviewed_labels",
    job=recertify_job,
    minimum_interval_seconds=_PATIENCE,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Watch the labels of every corpus; new ones go to monitor and recertification, "
    "each set of labels once.",
)
def reviewed_labels_sensor(
    context: dg.SensorEvaluationContext, data_root: DataRoot
) -> dg.SensorResult | dg.SkipReason:
    """Request one run for each corpus that has new labels.

    The audit samples, which nobody reviews here, are observed: what depends on them is kept
    current.
    """
    store = data_root.view()
    seen: dict[str, str] = json.loads(context.cursor or "{}")
    corpora = sorted(context.instance.get_dynamic_partitions(CORPORA))
    new, events = dict[str, str](), list[dg.AssetObservation]()
    for corpus in corpora:
        opened = Corpus(store, corpus)
        (_, labels), sample = labels_head(opened), sample_version(opened)
        if labels and seen.get(corpus) != labels:
            new[corpus] = labels
        # no corpus has a name with a slash
        if sample and seen.get(f"{SAMPLE}/{corpus}") != sample:
            events.append(observation(SAMPLE, corpus, sample))
            seen[f"{SAMPLE}/{corpus}"] = sample
    if not new:
        labelled = any(corpus in seen for corpus in corpora)
        skipped = "no new label since the last tick" if labelled else "no label yet"
        cursor = json.dumps(seen, sort_keys=True)
        if not events:
            context.update_cursor(cursor)
            return dg.SkipReason(skipped)
        return dg.SensorResult(skip_reason=skipped, asset_events=events, cursor=cursor)
    return dg.SensorResult(
        asset_events=events,
        run_requests=[
            dg.RunRequest(run_key=f"labels:{corpus}:{sha256}", partition_key=corpus)
            for corpus, sha256 in new.items()
        ],
        cursor=json.dumps(seen | new, sort_keys=True),
    )
