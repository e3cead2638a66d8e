"""Jobs: the pipeline of a corpus, judges that are asked for by themselves, the study, the week."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import (
    BASELINE_GROUP,
    CORPORA,
    CORPORA_GROUP,
    ENDPOINT_GROUP,
    HARVEST_GROUP,
    LM_GROUP,
    OPERATIONS_GROUP,
    RESEARCH_GROUP,
    RESULTS_GROUP,
    TRANSFER_GROUP,
    chains,
    folder_of,
    judge_key,
    key,
)
from certify_assets.defs.resources import DataRoot
from certify_assets.defs.setup import judges
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import HARVEST_JUDGES, JUDGES
from certify_assets.operations.recertification import to_recertify
from certify_assets.storage.store import Store

#: name of the job that the weekly schedule starts
WEEKLY = "refresh_all_certificates"
# not all that there is: a project that has the component has assets of its own
_PLATFORM = (
    folder_of("corpora") | folder_of("judges") | folder_of("operations") | folder_of("research")
)
_COMPACT = folder_of("judges/compact_model")


def _assets(folder: str, *names: str) -> dg.AssetSelection:
    return dg.AssetSelection.assets(*(key(f"{folder}/{name}") for name in names))


# generating the embedded runs and the studies are asked for by themselves
onboard_job = dg.define_asset_job(
    "onboard_corpus",
    selection=(
        _PLATFORM
        - dg.AssetSelection.groups(
            *(RESEARCH_GROUP, OPERATIONS_GROUP, LM_GROUP),
            *(TRANSFER_GROUP, HARVEST_GROUP, ENDPOINT_GROUP, BASELINE_GROUP),
        )
    )
    | _assets("operations", "automatic_deployment"),
    description="Import, split, check, train, score, certify, audit and draw one corpus with the "
    "judges that need seconds; deploy what the corpus's policy lets decide.",
)

decide_job = dg.define_asset_job(
    "decide_inbox",
    selection=_assets(
        "operations", "incoming_runs", "decisions", "batch_certificates", "review_queue"
    ),
    description="Import the inbox of one corpus as a batch, decide it by the deployed judge, and "
    "write the review queue.",
)

recertify_job = dg.define_asset_job(
    "recertify_deployed",
    # the labels and the queue too: what is decided has a job of its own
    selection=folder_of("operations") - _assets("operations", "incoming_runs", "decisions"),
    description="Run the monitor of one corpus's deployed judge on its labels, recertify where "
    "enough is new, and draw the history.",
)


def refresh_job() -> Any:
    """Return the job of the weekly schedule, which selects from it what each corpus needs."""
    paid = [
        judge_key(name, part)
        for name, spec in judges().items()
        if spec.hosted
        for part in ("model", "scores")
    ]
    return dg.define_asset_job(
        WEEKLY,
        selection=_PLATFORM
        - dg.AssetSelection.assets(*paid)
        - _assets("operations", "incoming_runs", "decisions")
        - dg.AssetSelection.groups(RESEARCH_GROUP)
        - _COMPACT,
        description="Certify every judge of one corpus again, and recertify the deployed one. The "
        "weekly schedule leaves out what is up to date; launched as it is, it trains "
        "language models, hours on two cores.",
    )


def _harvests(spec: JudgeSpec, *, language: bool) -> bool:
    return spec.name in HARVEST_JUDGES and spec.uses_language_model == language


# name, judges, what becomes of a corpus that is split already
_OF_JUDGES: tuple[tuple[str, Callable[[JudgeSpec], bool], str], ...] = (
    (
        "train_lm_judges",
        lambda spec: spec.group == "lm",
        "Train, score, certify, audit and draw with the language-model judges: minutes on two "
        "cores.",
    ),
    (
        "baseline_judges",
        lambda spec: spec.group == "baseline",
        "Train, score, certify, audit and draw with the judges that others are compared with, "
        "seconds each: structure, of which combined is the mean with lexical, and "
        "lexical_weighted.",
    ),
    (
        "transfer_judges",
        lambda spec: spec.group == "transfer",
        "Train judges on the SFT splits of the other corpora, score, certify, audit and draw; "
        "skipped where no other is split.",
    ),
    (
        "lexical_harvest",
        lambda spec: _harvests(spec, language=False),
        "Self-train the lexical judge on what its certificate lets through, round by round: "
        "seconds a round.",
    ),
    (
        "lm_harvest",
        lambda spec: _harvests(spec, language=True),
        "Self-train the language-model judge on what its certificate lets through, round by "
        "round: minutes a round on two cores.",
    ),
    (
        # they cost money, so they run when asked for and never with the rest
        "score_endpoint_judges",
        lambda spec: spec.hosted,
        "Register, score, compare, certify, audit and draw with every endpoint judge: costs money.",
    ),
)
JUDGE_JOBS = tuple(name for name, _, _ in _OF_JUDGES)


def platform_jobs(*, studied: bool) -> list[Any]:
    """Return the jobs, of judges where there are such judges, and those of a study."""
    jobs = [onboard_job, decide_job, recertify_job, refresh_job()]
    jobs += [study_job, tables_job] if studied else []
    for job, asked, description in _OF_JUDGES:
        if names := [name for name, spec in judges().items() if asked(spec)]:
            # it reads the data root in seconds, so it is in every job that changes a judge
            selection = chains(*names) | _assets("corpora", "comparison")
            if job == "train_lm_judges":
                selection = selection | _COMPACT
            jobs.append(dg.define_asset_job(job, selection=selection, description=description))
    return jobs


# judges of the structure of a run have no stage yet: benchmarks/judges.py compares them
_JUDGES = [name for name in JUDGES if name not in {*HARVEST_JUDGES, "structure", "combined"}]
_TABLES = ("main_table", "certifiability", "simulation", "report")

# pages and monitors of judges are no part of it
study_job = dg.define_asset_job(
    "research_study",
    selection=(folder_of("corpora") | folder_of("research") | chains(*_JUDGES) | _COMPACT)
    - dg.AssetSelection.assets(
        key("corpora/report"),
        *(key(f"research/{name}") for name in _TABLES),
        *(judge_key(name, part) for name in _JUDGES for part in ("report", "monitor")),
    ),
    description="Make what the study needs of one corpus. `certify research study` runs it on "
    "every corpus, in three parts, without what is up to date.",
)

tables_job = dg.define_asset_job(
    "research_tables",
    selection=_assets("research", *_TABLES),
    description="Make the tables over all corpora, and the page.",
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
    wanted = {judge_key(judge, part) for judge, names in parts.items() for part in names}
    groups = (CORPORA_GROUP, RESULTS_GROUP, OPERATIONS_GROUP)
    return sorted(
        found
        for found in job.executable_asset_keys
        if found in wanted or job.asset_graph.get(found).group_name in groups
    )
