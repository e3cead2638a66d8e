"""The Dagster code location: ``dg dev``, or ``dagster dev -w workspace.yaml``."""

from __future__ import annotations

import dagster as dg

from certify_assets.defs.platform import platform_definitions
from certify_assets.defs.progress import progress_logger
from certify_assets.defs.project import this_project
from certify_assets.defs.resources import job_executor

defs = dg.Definitions.merge(
    platform_definitions(this_project()),
    dg.Definitions(
        executor=job_executor(),
        loggers={"console": dg.colored_console_logger, "progress": progress_logger},
    ),
)
# a caller resolves them next, and finds them resolved
defs.resolve_asset_graph()
