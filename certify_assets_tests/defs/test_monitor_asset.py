"""The monitor as Dagster runs it: nothing to read, quiet labels, and an alarm."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from certify_assets.defs.judges import judge_assets, judge_checks
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.storage.store import Store
from certify_assets_tests.defs.running import PROJECT, materialize
from certify_assets_tests.recertification_builders import (
    deploy_by_hand,
    drawn_tasks,
    label_rows,
    write_batch,
)

KEY = dg.AssetKey(["judges", "lexical", "monitor"])


PLAN = SamplingPlan(0.5, 7)
TASKS = drawn_tasks(PLAN, "c", 160)


@pytest.fixture
def store(operated: Store) -> Store:
    deploy_by_hand(operated, "c", PLAN)
    return operated


def run(store: Store, **options: Any) -> dg.ExecuteInProcessResult:
    assets = [*judge_assets(PROJECT), *judge_checks(PROJECT)]
    return materialize(assets, store, selection=dg.AssetSelection.assets(KEY), **options)


def put(store: Store, batch: str, error: float, tasks: list[str]) -> None:
    label_rows(store, "c", write_batch(store, "c", batch, PLAN, tasks=tasks, error=error))


@pytest.mark.slow
def test_the_check_fails_with_an_alarm_alone(store: Store) -> None:
    seen = []
    for step in (
        lambda: None,
        lambda: put(store, "0001-a", 0.0, TASKS[:80]),
        lambda: put(store, "0002-b", 1.0, TASKS[80:]),
    ):
        step()
        result = run(store)
        check = result.get_asset_check_evaluations()[0]
        metadata = result.asset_materializations_for_node("judges__lexical__monitor")[0].metadata
        assert len(metadata["verdict"].value) < 1000 and Path(metadata["page"].value).is_file()
        assert metadata["reason"].value.lower() == check.description.lower()
        seen.append(
            (check.check_name, check.passed, check.severity.value if not check.passed else None)
        )
        floats = sum(isinstance(value, dg.FloatMetadataValue) for value in metadata.values())
        assert floats <= 12 and (floats >= 4 or len(seen) == 1)
    assert seen == [
        ("no_alarm", True, None),
        ("no_alarm", True, None),
        ("no_alarm", False, "ERROR"),
    ]
