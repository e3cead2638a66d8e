"""All definitions of the platform, for the code location of this package or a project's."""

import dagster as dg

from certify_assets.defs.corpora.definitions import corpora_definitions
from certify_assets.defs.judges.definitions import judge_definitions
from certify_assets.defs.operations.definitions import operation_definitions
from certify_assets.defs.research.definitions import research_definitions
from certify_assets.defs.resources import resources
from certify_assets.defs.setup import judges_document


def platform_definitions() -> dg.Definitions:
    """Return assets, checks, jobs, schedules, sensors and resources under the settled setup."""
    for problem in judges_document().configured.problems:
        # the other judges load all the same
        dg.get_dagster_logger("certify_assets").warning(f"{problem} It is left out.")
    return dg.Definitions.merge(
        corpora_definitions(),
        judge_definitions(),
        operation_definitions(),
        research_definitions(),
        dg.Definitions(resources=resources()),
    )
