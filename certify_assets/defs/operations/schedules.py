"""The weekly recertification."""

from collections.abc import Iterator

import dagster as dg

from certify_assets.defs.operations.jobs import certify_corpus_job
from certify_assets.defs.partitions import CORPORA

__all__ = ["weekly_recertification"]


@dg.schedule(
    name="weekly_recertification",
    job=certify_corpus_job,
    cron_schedule="0 6 * * 1",
    execution_timezone="UTC",
    description="Every Monday at 06:00 UTC: recompute every corpus's certificates from the runs that are there.",
)
def weekly_recertification(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Ask for one run a corpus; the run key is the scheduled time, so that a tick evaluated twice runs once."""
    corpora = context.instance.get_dynamic_partitions(CORPORA)
    if not corpora:
        yield dg.SkipReason("no corpus is registered; `certify corpus import` or `certify demo` adds one.")
    for corpus in sorted(corpora):
        yield dg.RunRequest(run_key=f"{corpus}:{context.scheduled_execution_time.isoformat()}", partition_key=corpus)
