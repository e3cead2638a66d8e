"""How steps run: what is kept current by itself, and one at a time on a device."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict

import dagster as dg

from certify_assets.defs.project import Project
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.spec import JudgeSpec
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


def automation_sensor(project: Project) -> dg.AutomationConditionSensorDefinition:
    """Return the sensor of what is kept current: it leaves a project's own assets alone."""
    return dg.AutomationConditionSensorDefinition(
        "keep_current",
        target=project.folder("corpora", "judges", "operations", "research"),
        default_status=dg.DefaultSensorStatus.STOPPED,
        minimum_interval_seconds=60,
        description="Redraw pages, comparisons, monitors and histories where an input changed.",
    )


#: one op of it at a time, as dagster.yaml sets: two trainings on one device are slower than one
#: after the other
POOL = "gpu"


class OnDevice(TypedDict, total=False):
    """Arguments of an op that is in the pool from its start."""

    pool: str
    op_tags: dict[str, Any]


def on_device(model: str) -> OnDevice:
    """Return what puts an op that uses this model into the pool.

    Of Ray it asks for a GPU, except for models that two cores train.
    """
    small = known_model(model).small
    machine = {"num_cpus": 2} if small else {"num_cpus": 4, "num_gpus": 1}
    return {"pool": POOL, "op_tags": {"dagster-ray/config": machine}}


def pool_of(spec: JudgeSpec) -> OnDevice:
    """Return what puts an op of a judge into the pool, if it uses a language model."""
    return on_device(spec.model) if spec.uses_language_model else {}


def on_device_of_any_judge(project: Project) -> OnDevice:
    """Return the same for an op whose judge is known only when it runs.

    It is in the pool where a judge needs a GPU, and waits for no training where none does.
    """
    models = [spec.model for spec in project.judges.values() if spec.uses_language_model]
    large = next((model for model in models if not known_model(model).small), None)
    return on_device(large) if large else {}
