"""The synthetic study as an asset: document, metadata and checks."""

from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.defs.checks import asked_together
from certify_assets.defs.research.assets import study_assets
from certify_assets.defs.research.checks import matches_the_paper, validity_within_delta
from certify_assets.research import simulation_study as study
from certify_assets.research.designs import EXCESSES, FAILURES, study_designs
from certify_assets.research.simulation import Simulation, simulate
from certify_assets.storage.store import Store
from certify_assets_tests.defs.running import PROJECT, materialize


@pytest.mark.statistics
def test_document_metadata_and_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    designs = [
        *study_designs(("paper", "heavy_tails"), tasks=[20], rhos=[0.5]),
        *study_designs(FAILURES, tasks=[20], excess=EXCESSES),
    ]
    monkeypatch.setattr(study, "kept_designs", lambda: designs)
    (simulated,) = (made for made in study_assets(PROJECT) if made.key.path[-1] == "simulation")
    result = materialize(
        [simulated, *asked_together(PROJECT, [validity_within_delta, matches_the_paper])],
        tmp_path,
        None,
        ops={"research__simulation": {"trials": 4}},
        raise_on_error=False,
    )
    assert result.success
    metadata = result.asset_materializations_for_node("research__simulation")[0].metadata
    document = Store(str(tmp_path)).read_json(study.SIMULATION_KEY)
    assert len(document["cells"]) == 2 + 10
    assert isinstance(metadata["worst_violation_fooled_taskboot"].value, float)
    checks = {event.check_name: event for event in result.get_asset_check_evaluations()}
    assert checks["validity_within_delta"].passed
    assert set(checks) == {"validity_within_delta", "matches_the_paper"}
    assert checks["matches_the_paper"].description


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    designs = [
        *study_designs(["paper", "low_base_rate"], tasks=[20], rhos=[0.5, 0.8]),
        *study_designs(FAILURES, tasks=[20], excess=EXCESSES),
    ]
    return simulate(designs, trials=8)


def _changed(simulation: Simulation, place: int, procedure: str, **changes: float) -> Simulation:
    cell = simulation.cells[place]
    rates = tuple(
        replace(one, **changes) if one.procedure == procedure else one  # type: ignore[arg-type]
        for one in cell.procedures
    )
    cells = list(simulation.cells)
    cells[place] = replace(cell, procedures=rates)
    return simulation.replace(cells=tuple(cells))


def test_what_is_proved_above_delta_is_told_from_what_is_seen(simulation: Simulation) -> None:
    seen = _changed(simulation, 0, "pseudo_task", violation=0.08, violation_lower=0.01)
    proved = _changed(simulation, 0, "pseudo_task", violation=0.3, violation_lower=0.2)
    assert [len(study.beyond_delta(one)) for one in (simulation, seen, proved)] == [0, 0, 1]
    assert len(study.beyond_delta(seen, proved=False)) == 1


def test_figures_far_from_the_paper_are_named_but_for_one(simulation: Simulation) -> None:
    near = simulation
    for place, cell in enumerate(simulation.cells):
        for one in cell.procedures:
            if one.paper is not None:
                coverage = one.coverage if one.paper["coverage"] is None else one.paper["coverage"]
                near = _changed(
                    near,
                    place,
                    one.procedure,
                    coverage=coverage,
                    violation=one.paper["violation_conditional"] or 0.0,
                )
    assert study.far_from_the_paper(near) == []
    ((cell, rates, text),) = study.far_from_the_paper(_changed(near, 0, "taskboot", coverage=0.5))
    assert (cell.title, rates.procedure) == ("paper G=20 ρ=0.5", "taskboot")
    assert "printed 0.61" in text and not study.is_exception(cell, rates)
    assert study.is_exception(replace(cell, tasks=100, rho=0.8), replace(rates, procedure="deff"))
