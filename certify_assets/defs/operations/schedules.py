"""The weekly recertification."""

from collections.abc import Iterator

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import CORPORA, CORPORA_GROUP, RESULTS_GROUP, judge_key, key
from certify_assets.defs.operations.jobs import WEEKLY
from certify_assets.defs.resources import DataRoot
from certify_assets.operations.recertification import to_recertify
from certify_assets.storage.store import Store

_OPERATION = (
    "batch_certificates",
    "review_queue",
    "reviewed_labels",
    "monitor",
    "recertification",
    "automatic_deployment",
    "history",
)


@dg.schedule(
    name="weekly_recertification",
    job_name=WEEKLY,
    cron_schedule="0 6 * * 1",
    execution_timezone="UTC",
    description="Every Monday at 06:00 (UTC), certify every stored judge "
    "again, without scoring what is up to date, and recertify the deployed one.",
)
def weekly_recertification(
    context: dg.ScheduleEvaluationContext, data_root: DataRoot
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Request one run a corpus; the run key is the time, so that a repeated tick runs once."""
    corpora = context.instance.get_dynamic_partitions(CORPORA)
    if not corpora:
        yield dg.SkipReason(
            "no corpus is registered; `certify corpus import` or `certify demo` adds one."
        )
    for corpus in sorted(corpora):
        if obstacle := Corpus(data_root.view(), corpus).obstacle:
            context.log.info(f"{corpus} is not scheduled: {obstacle}")
            continue
        selected = _selection(context, data_root.view(), corpus)
        key = f"{corpus}:{context.scheduled_execution_time.isoformat()}"
        yield dg.RunRequest(run_key=key, partition_key=corpus, asset_selection=selected)


def _selection(
    context: dg.ScheduleEvaluationContext, store: Store, corpus: str
) -> list[dg.AssetKey]:
    parts, left_alone = to_recertify(Corpus(store, corpus))
    for judge, reason in left_alone.items():
        context.log.info(f"{corpus}, {judge} is left alone: {reason}")
    job = context.repository_def.get_job(WEEKLY).asset_layer
    wanted = {judge_key(judge, part) for judge, names in parts.items() for part in names} | {
        key(f"operations/{name}") for name in _OPERATION
    }
    return sorted(
        found
        for found in job.executable_asset_keys
        if found in wanted
        or job.asset_graph.get(found).group_name in (CORPORA_GROUP, RESULTS_GROUP)
    )
