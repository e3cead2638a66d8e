"""Definitions of the comparison and the study."""

import dagster as dg

from certify_assets.defs.research.assets import comparison_assets, study_assets
from certify_assets.defs.research.checks import comparison_checks, research_checks
from certify_assets.defs.research.jobs import study_job, tables_job
from certify_assets.defs.setup import setup


def research_definitions() -> dg.Definitions:
    """Return assets, checks and jobs; the comparison alone where not every judge has assets."""
    if setup().judges is not None:
        return dg.Definitions(assets=comparison_assets(), asset_checks=comparison_checks())
    return dg.Definitions(
        assets=[*comparison_assets(), *study_assets()],
        asset_checks=[*comparison_checks(), *research_checks()],
        jobs=[study_job, tables_job],
    )
