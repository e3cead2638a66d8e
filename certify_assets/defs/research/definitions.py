"""Definitions of the comparison and the study."""

import dagster as dg

from certify_assets.defs.research.assets import comparison_assets, study_assets, table_assets
from certify_assets.defs.research.checks import comparison_checks, research_checks
from certify_assets.defs.research.jobs import study_job, tables_job


def research_definitions() -> dg.Definitions:
    """Return assets, checks and jobs."""
    return dg.Definitions(
        assets=[*comparison_assets(), *study_assets(), *table_assets()],
        asset_checks=[*comparison_checks(), *research_checks()],
        jobs=[study_job, tables_job],
    )
