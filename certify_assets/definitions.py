"""The Dagster code location: ``dg dev``, or ``dagster dev -w workspace.yaml``."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from certify_assets.defs import without_collector

# a tenth of the time to load is the collector's, which walks all that was imported before
with without_collector():
    from certify_assets.components import with_declared
    from certify_assets.defs.corpora.definitions import corpora_definitions
    from certify_assets.defs.judges.definitions import judge_definitions
    from certify_assets.defs.operations.definitions import operation_definitions
    from certify_assets.defs.progress import progress_logger
    from certify_assets.defs.research.definitions import research_definitions
    from certify_assets.defs.resources import job_executor, resources
    from certify_assets.judges.specs import judge_problems


def _definitions() -> dg.Definitions:
    for problem in judge_problems():
        # the other judges load all the same
        dg.get_dagster_logger("certify_assets").warning(f"{problem} It is left out.")
    platform = dg.Definitions.merge(
        corpora_definitions(),
        judge_definitions(),
        operation_definitions(),
        research_definitions(),
        dg.Definitions(
            resources=resources(),
            executor=job_executor(),
            loggers={"console": dg.colored_console_logger, "progress": progress_logger},
        ),
    )
    # what is declared in YAML below defs/, as `dg scaffold defs` writes it
    return with_declared(platform, Path(__file__).parent / "defs")


with without_collector():
    defs = _definitions()
    # a caller resolves them next, and finds them resolved
    defs.resolve_asset_graph()
