"""All definitions of the platform, for the code location of this package or a project's."""

from typing import Any

import dagster as dg

from certify_assets.defs.corpora import corpus_assets, corpus_checks
from certify_assets.defs.jobs import platform_jobs, weekly_schedule
from certify_assets.defs.judge_models import compact_model, compact_model_check
from certify_assets.defs.judges import judge_assets, judge_checks
from certify_assets.defs.operations import (
    operation_assets,
    operation_checks,
    recertify_assets,
    recertify_checks,
    review_assets,
    review_checks,
)
from certify_assets.defs.policies import automation_sensor
from certify_assets.defs.project import Project, judges_document
from certify_assets.defs.research import (
    comparison_assets,
    comparison_checks,
    research_checks,
    study_assets,
)
from certify_assets.defs.resources import resources
from certify_assets.defs.sensors import platform_sensors


def platform_definitions(project: Project) -> dg.Definitions:
    """Return assets, checks, jobs, schedules, sensors and resources of a code location."""
    for problem in judges_document().problems:
        # the other judges load all the same
        dg.get_dagster_logger("certify_assets").warning(f"{problem} It is left out.")
    assets: list[Any] = [
        *(*corpus_assets(project), *judge_assets(project)),
        *(*comparison_assets(project), *operation_assets(project)),
        *(*review_assets(project), *recertify_assets(project)),
    ]
    checks = [
        *(*corpus_checks(project), *judge_checks(project)),
        *(*comparison_checks(project), *operation_checks(project)),
        *(*review_checks(project), *recertify_checks(project)),
    ]
    if any(spec.reads_compact for spec in project.judges.values()):
        assets.append(compact_model(project))
        checks.append(compact_model_check(project))
    if project.studied:
        assets += study_assets(project)
        checks += research_checks(project)
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=platform_jobs(project),
        schedules=[weekly_schedule(project)],
        sensors=[*platform_sensors(project), automation_sensor(project)],
        resources=resources(),
    )
