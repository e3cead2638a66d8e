"""Definitions of judges."""

import dagster as dg

from certify_assets.defs.judges.assets import judge_assets, monitor_assets
from certify_assets.defs.judges.checks import judge_checks, monitor_checks
from certify_assets.defs.judges.models import as_shipped, compact_model, task_disjoint
from certify_assets.defs.setup import judges


def judge_definitions() -> dg.Definitions:
    """Return assets and checks."""
    compact = any(spec.reads_compact for spec in judges().values())
    return dg.Definitions(
        assets=[
            *([compact_model] if compact else []),
            *judge_assets(),
            *monitor_assets(),
        ],
        asset_checks=[
            *([as_shipped, task_disjoint] if compact else []),
            *judge_checks(),
            *monitor_checks(),
        ],
    )
