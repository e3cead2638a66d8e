"""What Dagster keeps current by itself, and how old a promise may be."""

from datetime import timedelta

import dagster as dg

from certify_assets.defs.setup import setup
from certify_assets.operations.notifications import EXPIRY_DAYS

#: of pages, comparisons, monitors and histories: seconds each, and nothing is paid. A job draws
#: them first; what was never asked for is not begun.
KEPT_CURRENT = (
    (  # type: ignore[misc]
        dg.AutomationCondition.any_deps_updated() | dg.AutomationCondition.code_version_changed()
    ).since_last_handled()
    & ~dg.AutomationCondition.missing()
    # not that all passed: a judge that nobody asked for has checks that never ran
    & ~dg.AutomationCondition.any_deps_match(
        dg.AutomationCondition.any_checks_match(
            dg.AutomationCondition.check_failed(), blocking_only=True
        )
    ).with_label("any_deps_blocked")
    & ~dg.AutomationCondition.any_deps_in_progress()
    & ~dg.AutomationCondition.in_progress()
).with_label("kept_current")

#: an asset has one age for all its corpora; the check not_expired has that of each
EXPIRES = dg.FreshnessPolicy.time_window(
    fail_window=timedelta(days=EXPIRY_DAYS), warn_window=timedelta(days=0.8 * EXPIRY_DAYS)
)


def automation_sensor() -> dg.AutomationConditionSensorDefinition:
    """Return the sensor of what is kept current: it leaves a project's own assets alone."""
    prefix = setup().prefix
    folders = [[*prefix, name] for name in ("corpora", "judges", "operations", "research")]
    return dg.AutomationConditionSensorDefinition(
        "keep_current",
        target=dg.AssetSelection.key_prefixes(*folders),
        default_status=dg.DefaultSensorStatus.STOPPED,
        minimum_interval_seconds=60,
        description="Redraw pages, comparisons, monitors and histories where an input changed.",
    )
