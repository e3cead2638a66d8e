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
)
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import HARVEST_JUDGES, JUDGES
from certify_assets.operations.recertification import to_recertify
from certify_assets.storage.store import Store

ONBOARD, DECIDE, RECERTIFY = "onboard_corpus", "decide_inbox", "recertify_deployed"
#: name of the job that the weekly schedule starts
WEEKLY = "refresh_all_certificates"
STUDY, TABLES = "research_study", "research_tables"
# there where a judge reads it
_COMPACT = "judges/compact_model"


def _pipelines(project: Project) -> list[Any]:
    """Return the jobs of one corpus: onboarding, deciding, recertifying, and the weekly one."""
    # not all that there is: a project that has the component has assets of its own
    platform = project.folder("corpora", "judges", "operations", "research")
    operations, decided = project.folder("operations"), ("incoming_runs", "decisions")
    # generating the embedded runs and the studies are asked for by themselves
    asked_for = dg.AssetSelection.groups(
        *(RESEARCH_GROUP, OPERATIONS_GROUP, LM_GROUP),
        *(TRANSFER_GROUP, HARVEST_GROUP, ENDPOINT_GROUP, BASELINE_GROUP),
    )
    paid = [
        key
        for name, spec in project.judges.items()
        if spec.hosted
        for key in project.keys(f"judges/{name}", "model", "scores")
    ]
    return [
        dg.define_asset_job(
            ONBOARD,
            selection=platform - asked_for,
            description="Import, split, check, train, score, certify, audit and draw one corpus "
            "with the judges that need seconds.",
        ),
        dg.define_asset_job(
            DECIDE,
            selection=project.select("operations", *decided, "batch_certificates", "review_queue"),
            description="Import the inbox of one corpus as a batch, decide it by the deployed "
            "judge, and write the review queue.",
        ),
        dg.define_asset_job(
            RECERTIFY,
            # the labels and the queue too: what is decided has a job of its own
            selection=operations - project.select("operations", *decided),
            description="Close the batches of one corpus that labels settle, run the monitor of "
            "its deployed judge, recertify where enough is new, and draw the history.",
        ),
        dg.define_asset_job(
            WEEKLY,
            selection=platform
            - dg.AssetSelection.assets(*paid)
            - project.select("operations", *decided)
            - dg.AssetSelection.groups(RESEARCH_GROUP)
            - project.folder(_COMPACT),
            description="Certify every judge of one corpus again, and recertify the deployed one. "
            "The weekly schedule skips steps that are up to date. Launched by hand, the job "
            "trains language models: hours on two cores.",
        ),
    ]


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
        "Train, score, certify, audit and draw with two judges for comparison, seconds each: "
        "structure (combined is the mean of it and lexical) and lexical_weighted.",
    ),
    (
        "transfer_judges",
        lambda spec: spec.group == "transfer",
        "Train judges on the SFT splits of the other corpora, score, certify, audit and draw. "
        "Skipped where no other corpus is split.",
    ),
    (
        "lexical_harvest",
        lambda spec: _harvests(spec, language=False),
        "Self-train the lexical judge on the runs that its certificate decides: seconds for each "
        "round.",
    ),
    (
        "lm_harvest",
        lambda spec: _harvests(spec, language=True),
        "Self-train the language-model judge on the runs that its certificate decides: minutes "
        "for each round on two cores.",
    ),
    (
        # they cost money, so they run when asked for and never with the rest
        "score_endpoint_judges",
        lambda spec: spec.hosted,
        "Register, score, compare, certify, audit and draw with every endpoint judge. Costs money.",
    ),
)
JUDGE_JOBS = tuple(name for name, _, _ in _OF_JUDGES)


def platform_jobs(project: Project) -> list[Any]:
    """Return the jobs, of judges where there are such judges, and those of a study."""
    jobs = _pipelines(project) + (_study(project) if project.studied else [])
    for job, asked, description in _OF_JUDGES:
        if names := [f"judges/{name}" for name, spec in project.judges.items() if asked(spec)]:
            # it reads the data root in seconds, so it is in every job that changes a judge
            selection = project.folder(*names) | project.select("corpora", "comparison")
            if job == "train_lm_judges":
                selection = selection | project.folder(_COMPACT)
            jobs.append(dg.define_asset_job(job, selection=selection, description=description))
    return jobs


def _study(project: Project) -> list[Any]:
    # judges of the structure of a run have no stage yet: benchmarks/judges.py compares them
    judges = [name for name in JUDGES if name not in {*HARVEST_JUDGES, "structure", "combined"}]
    folders = [f"judges/{name}" for name in judges]
    tables = project.select("research", "main_table", "certifiability", "simulation", "report")
    # pages and monitors of judges are no part of it
    pages = [key for folder in folders for key in project.keys(folder, "report", "monitor")]
    return [
        dg.define_asset_job(
            STUDY,
            selection=(project.folder("corpora", "research", *folders) | project.folder(_COMPACT))
            - project.select("corpora", "report")
            - tables
            - dg.AssetSelection.assets(*pages),
            description="Make what the study needs of one corpus. `certify research study` runs it "
            "on every corpus, in three parts, and skips steps that are up to date.",
        ),
        dg.define_asset_job(
            TABLES,
            selection=tables,
            description="Make the tables over all corpora, and the page.",
        ),
    ]


def weekly_schedule(project: Project) -> dg.ScheduleDefinition:
    """Return the schedule that certifies again, one run a corpus."""

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
        corpora = context.instance.get_dynamic_partitions(CORPORA)
        if not corpora:
            yield dg.SkipReason(
                "no corpus is registered; `certify corpus import` or `certify demo` adds one."
            )
        for corpus in sorted(corpora):
            if obstacle := Corpus(data_root.view(), corpus).obstacle:
                context.log.info(f"{corpus} is not scheduled: {obstacle}")
                continue
            selected = _selection(project, context, data_root.view(), corpus)
            # the time, so that a repeated tick runs once
            key = f"{corpus}:{context.scheduled_execution_time.isoformat()}"
            yield dg.RunRequest(run_key=key, partition_key=corpus, asset_selection=selected)

    return weekly_recertification


def _selection(
    project: Project, context: dg.ScheduleEvaluationContext, store: Store, corpus: str
) -> list[dg.AssetKey]:
    parts, left_alone = to_recertify(Corpus(store, corpus))
    for judge, reason in left_alone.items():
        context.log.info(f"{corpus}, {judge} is left out: {reason}")
    job = context.repository_def.get_job(WEEKLY).asset_layer
    wanted = {
        key for judge, names in parts.items() for key in project.keys(f"judges/{judge}", *names)
    }
    groups = (CORPORA_GROUP, RESULTS_GROUP, OPERATIONS_GROUP)
    return sorted(
        found
        for found in job.executable_asset_keys
        if found in wanted or job.asset_graph.get(found).group_name in groups
    )
