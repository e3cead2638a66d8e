"""The page of a synthetic study: what it shows, marks and says, and that it is one file."""

from dataclasses import replace

import pytest

from certify_assets.research.designs import check_truth, failure_designs, study_designs
from certify_assets.research.pages.simulation_page import (
    HeatMap,
    render_simulation,
    short_rate,
    study_markdown,
    violation_map,
)
from certify_assets.research.simulation import Simulation, simulate
from certify_assets.research.simulation_study import (
    beyond_delta,
    far_from_the_paper,
    is_exception,
    study_metrics,
)
from certify_assets_tests.pages import assert_stands_alone

PROCEDURES = (
    "naive", "deff", "one_per_task", "task_hoeffding", "taskboot", "guarded_taskboot", "pseudo_task",
)  # fmt: skip


@pytest.fixture(scope="module")
def study() -> Simulation:
    designs = [
        *study_designs(["paper", "low_base_rate"], tasks=[20], rhos=[0.5, 0.8]),
        *failure_designs(tasks=[20]),
    ]
    return simulate(designs, procedures=PROCEDURES, trials=8)


def _changed(study: Simulation, place: int, procedure: str, **changes: float) -> Simulation:
    cell = study.cells[place]
    rates = tuple(
        replace(one, **changes) if one.procedure == procedure else one for one in cell.procedures
    )  # type: ignore[arg-type]
    return replace(
        study,
        cells=(*study.cells[:place], replace(cell, procedures=rates), *study.cells[place + 1 :]),
    )


def _marks(shown: HeatMap) -> set[str]:
    return {cell.mark for _, cells in shown.rows for cell in cells if cell is not None}


@pytest.mark.slow
def test_the_page_is_one_file_and_the_same_for_the_same_study(study: Simulation) -> None:
    truth = check_truth(study_designs(["paper"], tasks=[20], rhos=[0.5]), tasks=2_000)
    page = render_simulation(study, truth)
    assert page == render_simulation(study, truth)
    assert_stands_alone(page)
    assert page.count('<table class="map"') == 4
    assert "True error 1.02 α" in page
    assert "True error 1.5 α" in page
    assert "12 thresholds" in page and "Too few trials to say" in page, (
        "8 trials without a violation leave it open"
    )
    assert "Within δ" in render_simulation(replace(study, trials=300), truth)


def test_marks_tell_proved_from_seen(study: Simulation) -> None:
    plain = [cell for cell in study.cells if not cell.fooled]
    clean = violation_map(plain, ["pseudo_task"], 0.05)
    assert _marks(clean) == {""} and "0 of the values exceed 0.05" in clean.caption
    seen = _changed(study, 0, "pseudo_task", violation=0.08, violation_lower=0.01)
    proved = _changed(study, 0, "pseudo_task", violation=0.3, violation_lower=0.2)
    assert _marks(violation_map(seen.cells[:1], ["pseudo_task"], 0.05)) == {"△"}
    assert _marks(violation_map(proved.cells[:1], ["pseudo_task"], 0.05)) == {"▲"}
    assert [len(beyond_delta(one)) for one in (study, seen, proved)] == [0, 0, 1]
    assert len(beyond_delta(seen, proved=False)) == 1
    assert "Not within δ" in render_simulation(proved, [])
    assert proved.cells[0].title in render_simulation(proved, [])
    assert short_rate(1.0) == "1.000" and short_rate(0.05) == ".050" and short_rate(None) == "–"


def test_figures_far_from_the_paper_are_named_but_for_one(study: Simulation) -> None:
    near = study
    for place, cell in enumerate(study.cells):
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
    assert far_from_the_paper(near) == []
    ((cell, rates, text),) = far_from_the_paper(_changed(near, 0, "taskboot", coverage=0.5))
    assert (cell.title, rates.procedure, is_exception(cell, rates)) == (
        "paper G=20 ρ=0.5",
        "taskboot",
        False,
    )
    assert "printed 0.61" in text
    assert is_exception(replace(cell, tasks=100, rho=0.8), replace(rates, procedure="deff"))


def test_the_block_of_the_asset_is_short_and_its_numbers_are_floats(study: Simulation) -> None:
    text = study_markdown(study, [])
    assert len(text) < 1000
    assert text.count("\n|") == 2 + len(PROCEDURES)
    assert "guarded_taskboot" in text
    metrics = study_metrics(study, [])
    assert all(isinstance(value, float) for value in metrics.values())
    worst = max(
        one.violation
        for cell in study.cells
        if cell.fooled
        for one in cell.procedures
        if one.procedure == "taskboot"
    )
    assert metrics["worst_violation_fooled_taskboot"] == worst > 0.3


def test_a_study_of_fooled_tasks_alone_has_no_verdict() -> None:
    only = simulate(study_designs(["fooled"], tasks=[20]), procedures=["taskboot"], trials=3)
    page = render_simulation(only, [])
    assert "No verdict" in page
    assert "Next to the paper" not in page
    assert "Where TaskBoot fails" in page
