"""The sensor that notices new runs."""

import json

import dagster as dg

from certify_assets.defs.operations.jobs import certify_corpus_job
from certify_assets.defs.partitions import corpora_partitions
from certify_assets.defs.resources import DataRoot
from certify_assets.errors import InputError
from certify_assets.protocol.incoming import adopt, scan_incoming

__all__ = ["new_runs_sensor"]


@dg.sensor(
    name="new_runs",
    job=certify_corpus_job,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Looks into incoming/<corpus>/ of the data root; files that are complete and new add the partition and start the whole line.",
)
def new_runs_sensor(context: dg.SensorEvaluationContext, data_root: DataRoot) -> dg.SensorResult | dg.SkipReason:
    """Ask for one run a corpus whose files changed since the last look; the cursor keeps what was seen."""
    store = data_root.store()
    folder = store.local_path("incoming")
    seen: dict[str, str] = json.loads(context.cursor or "{}")
    arrivals, waiting = scan_incoming(folder)
    requests = []
    for arrival in arrivals:
        if seen.get(arrival.corpus) == arrival.fingerprint:
            continue
        try:
            adopt(store, folder, arrival.corpus)
        except InputError as error:
            waiting[arrival.corpus] = str(error)
            continue
        seen[arrival.corpus] = arrival.fingerprint
        requests.append(dg.RunRequest(run_key=f"{arrival.corpus}:{arrival.fingerprint}", partition_key=arrival.corpus))
    for corpus, reason in waiting.items():
        context.log.info(f"{corpus} waits: {reason}")
    if not requests:
        reasons = "; ".join(f"{corpus}: {reason}" for corpus, reason in waiting.items())
        return dg.SkipReason(f"no new runs in {folder}" + (f" ({reasons})" if reasons else ""))
    return dg.SensorResult(
        run_requests=requests,
        dynamic_partitions_requests=[corpora_partitions.build_add_request([str(request.partition_key) for request in requests])],
        cursor=json.dumps(seen, sort_keys=True),
    )
