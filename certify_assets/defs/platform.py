"""All definitions of the platform, for the code location of this package or a project's."""

from typing import Any

import dagster as dg

from certify_assets.defs.checks import asked_together
from certify_assets.defs.corpora.assets import corpus_assets
from certify_assets.defs.corpora.checks import corpus_checks
from certify_assets.defs.jobs import platform_jobs, weekly_recertification
from certify_assets.defs.judges.assets import judge_assets, monitor_assets
from certify_assets.defs.judges.checks import judge_checks, monitor_checks
from certify_assets.defs.judges.models import as_shipped, compact_model, task_disjoint
from certify_assets.defs.operations import sensors
from certify_assets.defs.operations.assets import operation_assets, recertify_assets, review_assets
from certify_assets.defs.operations.checks import operation_checks, recertify_checks, review_checks
from certify_assets.defs.policies import automation_sensor
from certify_assets.defs.research.assets import comparison_assets, study_assets
from certify_assets.defs.research.checks import comparison_checks, research_checks
from certify_assets.defs.resources import resources
from certify_assets.defs.setup import judges, judges_document, setup


def platform_definitions() -> dg.Definitions:
    """Return assets, checks, jobs, schedules, sensors and resources under the settled setup."""
    for problem in judges_document().problems:
        # the other judges load all the same
        dg.get_dagster_logger("certify_assets").warning(f"{problem} It is left out.")
    assets: list[Any] = [
        *(*corpus_assets(), *judge_assets(), *monitor_assets(), *comparison_assets()),
        *(*operation_assets(), *review_assets(), *recertify_assets()),
    ]
    checks = [
        *(*corpus_checks(), *judge_checks(), *monitor_checks(), *comparison_checks()),
        *(*operation_checks(), *review_checks(), *recertify_checks()),
    ]
    if any(spec.reads_compact for spec in judges().values()):
        assets.append(compact_model)
        checks += asked_together([as_shipped, task_disjoint])
    # the study is of every judge
    studied = setup().judges is None
    return dg.Definitions(
        assets=[*assets, *(study_assets() if studied else [])],
        asset_checks=[*checks, *(research_checks() if studied else [])],
        jobs=platform_jobs(studied=studied),
        schedules=[weekly_recertification],
        sensors=[
            sensors.new_runs_sensor,
            sensors.new_versions_sensor,
            sensors.new_inbox_sensor,
            sensors.reviewed_labels_sensor,
            automation_sensor(),
        ],
        resources=resources(),
    )
