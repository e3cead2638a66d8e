"""The Dagster code location: ``dg dev``, or ``dagster dev -w workspace.yaml``."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from certify_assets.components import with_declared
from certify_assets.defs.corpora.assets import corpus_assets
from certify_assets.defs.corpora.checks import corpus_checks
from certify_assets.defs.executors import job_executor
from certify_assets.defs.judges.arms import arm_assets, arm_checks, arms_job
from certify_assets.defs.judges.assets import judge_assets
from certify_assets.defs.judges.checks import judge_checks
from certify_assets.defs.judges.compact import compact_assets, compact_checks
from certify_assets.defs.judges.harvest import harvest_assets, harvest_checks
from certify_assets.defs.judges.monitor import monitor_assets, monitor_checks
from certify_assets.defs.operations.assets import operation_assets
from certify_assets.defs.operations.checks import operation_checks
from certify_assets.defs.operations.jobs import (
    endpoint_jobs,
    language_harvest_job,
    lexical_harvest_job,
    lm_judges_job,
    onboard_job,
    refresh_job,
    transfer_judges_job,
)
from certify_assets.defs.operations.recertify import (
    recertify_assets,
    recertify_checks,
    recertify_job,
    reviewed_labels_sensor,
)
from certify_assets.defs.operations.review import review_assets, review_checks
from certify_assets.defs.operations.schedules import weekly_recertification
from certify_assets.defs.operations.sensors import new_inbox_sensor, new_runs_sensor
from certify_assets.defs.resources import resources
from certify_assets.defs.study.assets import study_assets
from certify_assets.defs.study.checks import study_checks
from certify_assets.defs.study.comparison import comparison_assets, comparison_checks
from certify_assets.defs.study.full import study_tables_job
from certify_assets.defs.study.simulation import simulation_assets, simulation_checks
from certify_assets.defs.study.whole import study_job
from certify_assets.judges.specs import judge_problems


def _definitions() -> dg.Definitions:
    for problem in judge_problems():
        # the other judges load all the same
        dg.get_dagster_logger("certify_assets").warning(f"{problem} It is left out.")
    made = dg.Definitions(
        assets=[
            *corpus_assets(),
            *compact_assets(),
            *judge_assets(),
            *arm_assets(),
            *monitor_assets(),
            *harvest_assets(),
            *study_assets(),
            *simulation_assets(),
            *comparison_assets(),
            *operation_assets(),
            *review_assets(),
            *recertify_assets(),
        ],
        asset_checks=[
            *corpus_checks(),
            *compact_checks(),
            *judge_checks(),
            *arm_checks(),
            *monitor_checks(),
            *harvest_checks(),
            *study_checks(),
            *simulation_checks(),
            *comparison_checks(),
            *operation_checks(),
            *review_checks(),
            *recertify_checks(),
        ],
        jobs=[
            onboard_job,
            lm_judges_job,
            arms_job,
            transfer_judges_job,
            lexical_harvest_job,
            language_harvest_job,
            *endpoint_jobs(),
            recertify_job,
            refresh_job(),
            study_job,
            study_tables_job,
        ],
        schedules=[weekly_recertification],
        sensors=[new_runs_sensor, new_inbox_sensor, reviewed_labels_sensor],
        resources=resources(),
        executor=job_executor(),
    )
    # what is declared in YAML below defs/, as `dg scaffold defs` writes it
    return with_declared(made, Path(__file__).parent / "defs")


defs = _definitions()
