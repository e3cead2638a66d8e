"""The monitor as Dagster runs it: nothing to read, quiet labels, and an alarm."""

from pathlib import Path

import dagster as dg
import numpy as np
import pandas as pd
import pytest

from certify_assets.defs.judges.assets import monitor_assets
from certify_assets.defs.judges.checks import monitor_checks
from certify_assets.operations import certifier
from certify_assets.operations.deployment import strictest_certificates
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.defs.running import materialize

KEY = dg.AssetKey(["judges", "lexical", "monitor"])


@pytest.fixture
def store(operated: Store) -> Store:
    return operated


def run(store: Store, **options: bool) -> dg.ExecuteInProcessResult:
    assets = [*monitor_assets(), *monitor_checks()]
    return materialize(assets, store, selection=dg.AssetSelection.assets(KEY), **options)


def put(store: Store, name: str, error: float, first: int) -> None:
    threshold = strictest_certificates(certifier.load_certificates(judged(store)))[0].threshold
    rng = np.random.default_rng(0)
    tasks = [f"new-{first + row // 4}" for row in range(240)]
    frame = pd.DataFrame(
        {
            "task_id": tasks,
            "score": threshold,
            "outcome": (rng.random(240) < error).astype(int),
            "audit_sample": True,
        }
    )
    path = Path(store.root) / "monitoring/c/lexical" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False)


@pytest.mark.slow
def test_the_check_fails_with_an_alarm_alone(store: Store) -> None:
    seen = []
    for step in (
        lambda: None,
        lambda: put(store, "1.csv", 0.0, 0),
        lambda: put(store, "2.csv", 0.7, 100),
    ):
        step()
        result = run(store)
        check = result.get_asset_check_evaluations()[0]
        metadata = result.asset_materializations_for_node("judges__lexical__monitor")[0].metadata
        assert len(metadata["verdict"].value) < 1000 and Path(metadata["page"].value).is_file()
        assert metadata["reason"].value == check.description
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
