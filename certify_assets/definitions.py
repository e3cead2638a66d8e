"""The Dagster code location: ``dg dev``, or ``dagster dev -w workspace.yaml``."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from certify_assets.defs import without_collector

# a tenth of the time to load is the collector's, which walks all that was imported before
with without_collector():
    from certify_assets.components import Corpora, with_declared
    from certify_assets.defs.progress import progress_logger
    from certify_assets.defs.resources import job_executor
    from certify_assets.defs.setup import setup


def _definitions() -> dg.Definitions:
    chosen = setup()
    component = Corpora(
        key_prefix=list(chosen.prefix) or None,
        owners=list(chosen.owners),
        judges=None if chosen.judges is None else list(chosen.judges),
    )
    platform = dg.Definitions.merge(
        component.platform(),
        dg.Definitions(
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
