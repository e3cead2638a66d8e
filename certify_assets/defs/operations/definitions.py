"""Definitions of operation: assets, checks, jobs, schedule and sensors."""

import dagster as dg

from certify_assets.defs.automation import automation_sensor
from certify_assets.defs.operations import jobs
from certify_assets.defs.operations.assets import operation_assets, recertify_assets, review_assets
from certify_assets.defs.operations.checks import operation_checks, recertify_checks, review_checks
from certify_assets.defs.operations.schedules import weekly_recertification
from certify_assets.defs.operations.sensors import (
    new_inbox_sensor,
    new_runs_sensor,
    new_versions_sensor,
    reviewed_labels_sensor,
)


def operation_definitions() -> dg.Definitions:
    """Return everything of operation."""
    return dg.Definitions(
        assets=[*operation_assets(), *review_assets(), *recertify_assets()],
        asset_checks=[*operation_checks(), *review_checks(), *recertify_checks()],
        jobs=[
            jobs.onboard_job,
            *jobs.judge_jobs(),
            jobs.decide_job,
            jobs.recertify_job,
            jobs.refresh_job(),
        ],
        schedules=[weekly_recertification],
        sensors=[
            new_runs_sensor,
            new_versions_sensor,
            new_inbox_sensor,
            reviewed_labels_sensor,
            automation_sensor(),
        ],
    )
