"""Checks of what is made over all corpora."""

import dagster as dg

from certify_assets.defs.names import key
from certify_assets.defs.resources import DataRoot
from certify_assets.defs.study.whole import study_run_passed
from certify_assets.research.certifiability import doubts

__all__ = ["study_checks"]


@dg.asset_check(
    asset=key("research/certifiability"),
    description="At least seven corpora, as the paper has, none that carries the fit by itself, A₀ of the untrained judge; the warning says what it rests on.",
)
def certifiability_model_honest(data_root: DataRoot) -> dg.AssetCheckResult:
    """Read the stored model's own doubts."""
    found = doubts(data_root.store())
    return dg.AssetCheckResult(
        passed=not found,
        severity=dg.AssetCheckSeverity.WARN,
        description=" ".join(found)
        or "seven corpora or more, no single one carries the fit, and A₀ is that of the untrained judge on all.",
    )


def study_checks() -> list[dg.AssetChecksDefinition]:
    """Return every check of this domain."""
    return [certifiability_model_honest, study_run_passed]
