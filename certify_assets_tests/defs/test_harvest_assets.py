"""Rounds of CertHarvest as Dagster runs them: an open gate passes, a closed one is skipped."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from certify_assets.defs.judges import judge_assets, judge_checks
from certify_assets.storage.store import Store
from certify_assets_tests.defs.running import PROJECT, materialize
from certify_assets_tests.judges.harvest.test_loop import FIRST, made, prepared

CHAIN = [dg.AssetKey(["judges", FIRST, name]) for name in ("model", "scores", "certificate")]


def run(store: Store, selection: dg.AssetSelection) -> dg.ExecuteInProcessResult:
    assets = [*judge_assets(PROJECT), *judge_checks(PROJECT)]
    return materialize(assets, store, selection=selection, raise_on_error=False)


def events(result: dg.ExecuteInProcessResult, kind: str) -> list[Any]:
    return [event for event in result.all_events if event.event_type_value == kind]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = prepared(tmp_path_factory.mktemp("closed"), tasks=40)
    made(store, "lexical")
    return store


@pytest.mark.slow
def test_a_closed_gate_is_a_skipped_node_with_its_reason(small: Store) -> None:
    result = run(small, dg.AssetSelection.assets(*CHAIN).without_checks())
    failures = [
        event.event_specific_data.error.to_string() for event in events(result, "STEP_FAILURE")
    ]
    assert result.success, failures[0][:300] + failures[0][-1500:]
    assert not events(result, "ASSET_MATERIALIZATION")
    assert f"judges__{FIRST}__scores" in {
        event.step_key for event in events(result, "STEP_SKIPPED")
    }
    (seen,) = events(result, "ASSET_OBSERVATION")
    assert (
        "too few CAL tasks: 8 of 20 needed"
        in seen.asset_observation_data.asset_observation.metadata["gate_closed"].value
    )


@pytest.mark.slow
def test_an_open_gate_goes_through_to_the_certificate(tmp_path: Path) -> None:
    store = prepared(tmp_path, tasks=160)
    made(store, "lexical")
    result = run(
        store,
        dg.AssetSelection.assets(*CHAIN).without_checks()
        | dg.AssetSelection.checks_for_assets(CHAIN[0]),
    )
    failures = [
        event.event_specific_data.error.to_string() for event in events(result, "STEP_FAILURE")
    ]
    assert result.success, failures[0][:300] + failures[0][-1500:]
    assert [event.asset_key for event in events(result, "ASSET_MATERIALIZATION")] == CHAIN
    assert [
        check.passed
        for check in result.get_asset_check_evaluations()
        if check.check_name == "pseudo_labels_stay_out"
    ] == [True]
