"""Violation and coverage with known truth; the larger tier is marked slow. Monte-Carlo errors stand
beside each bound.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.research.designs import study_designs
from certify_assets.research.simulation import Rates, simulate
from certify_assets_tests.populations import fooled

#: mean certified coverage of the reference runs at α = .1: (tasks, ρ) → TaskBoot; of the paper's
#: table for naive Clopper–Pearson
TASKBOOT = {
    (20, 0.1): 0.669, (20, 0.5): 0.607, (20, 0.8): 0.568,
    (50, 0.1): 0.690, (50, 0.5): 0.615, (50, 0.8): 0.577,
    (100, 0.1): 0.697, (100, 0.5): 0.628, (100, 0.8): 0.578,
    (500, 0.1): 0.712, (500, 0.5): 0.640, (500, 0.8): 0.594,
}  # fmt: skip
NAIVE = {
    (20, 0.1): 0.65, (20, 0.5): 0.53, (20, 0.8): 0.47,
    (50, 0.1): 0.69, (50, 0.5): 0.61, (50, 0.8): 0.57,
    (100, 0.1): 0.70, (100, 0.5): 0.62, (100, 0.8): 0.58,
    (500, 0.1): 0.71, (500, 0.5): 0.64, (500, 0.8): 0.60,
}  # fmt: skip
DEFF = {
    (20, 0.1): 0.144,
    (50, 0.1): 0.663,
    (50, 0.5): 0.011,
    (50, 0.8): 0.0,
    (100, 0.1): 0.681,
    (100, 0.5): 0.576,
    (100, 0.8): 0.204,
}
ONE = {(100, 0.1): 0.299, (100, 0.5): 0.061, (100, 0.8): 0.024}
HOEFFDING = {(500, 0.1): 0.657, (500, 0.5): 0.567, (500, 0.8): 0.004}


def run(tasks: int, rho: float, trials: int, procedures: Sequence[str]) -> dict[str, Rates]:
    study = simulate(
        study_designs(["paper"], tasks=[tasks], rhos=[rho]), procedures=procedures, trials=trials
    )
    return {rates.procedure: rates for rates in study.cells[0].procedures}


def check(cell: Rates, reference: float) -> None:
    # the reference coverage has a standard error of about .01 of its own
    assert abs(cell.coverage - reference) <= 3.5 * np.hypot(cell.coverage_se, 0.01)


@pytest.mark.parametrize(("tasks", "rho"), [(20, 0.5), (20, 0.8), (50, 0.1), (50, 0.8)])
def test_taskboot_and_naive_reproduce_reference_cells(tasks: int, rho: float) -> None:
    found = run(tasks, rho, 60, ["taskboot", "naive"])
    for procedure, reference in (("taskboot", TASKBOOT), ("naive", NAIVE)):
        cell = found[procedure]
        check(cell, reference[tasks, rho])
        # 60 trials at a true rate of .013 give at most 4 violations with probability .998
        assert cell.violation <= 4 / 60


@pytest.mark.statistics
@pytest.mark.parametrize(("tasks", "rho"), sorted(TASKBOOT))
def test_every_cell_of_the_reference_table(tasks: int, rho: float) -> None:
    references = {
        "taskboot": TASKBOOT,
        "naive": NAIVE,
        "deff": DEFF,
        "one_per_task": ONE,
        "task_hoeffding": HOEFFDING,
    }
    named = [procedure for procedure, cells in references.items() if (tasks, rho) in cells]
    for procedure, cell in run(tasks, rho, 300, named).items():
        # at twenty tasks DEFF certifies in few trials, so that 300 of them scatter beyond .03: that
        # cell alone is held to its own error
        scattered = (procedure, tasks, rho) == ("deff", 20, 0.1)
        bound = 3 * np.sqrt(2) * cell.coverage_se if scattered else 0.03
        assert abs(cell.coverage - references[procedure][tasks, rho]) <= bound, cell
        # standard error of a rate of .05 over 300 trials: .013
        assert cell.violation <= 0.04


def certifying(tasks: int, share: float, trials: int) -> dict[str, float]:
    """Share of the trials that certify, which is a violation whenever ``share`` exceeds α."""
    hits = {"none": 0, "floor": 0}
    for trial in range(trials):
        table = observe(*fooled(tasks, share, np.random.default_rng([trial, tasks])))
        for guard in hits:
            hits[guard] += (
                evaluate(table, Settings(procedure="guarded_taskboot", guard=guard)).chosen
                is not None
            )
    return {guard: count / trials for guard, count in hits.items()}


def test_taskboot_is_fooled_and_the_guard_is_not() -> None:
    # reference: TaskBoot .45 at fifty tasks and a true error of .15; standard error over 120 trials
    # .045
    found = certifying(50, 0.15, 120)
    assert found["none"] > 0.15
    assert found["floor"] <= 0.05


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("tasks", "share", "reference"),
    [
        (20, 0.15, 0.52),
        (30, 0.15, 0.45),
        (50, 0.15, 0.30),
        (84, 0.15, 0.135),
        (20, 0.11, 0.68),
        (84, 0.11, 0.25),
    ],
)
def test_fooled_designs(tasks: int, share: float, reference: float) -> None:
    # 200 trials: standard error at most .035 for the bootstrap, .016 at a rate of .05
    found = certifying(tasks, share, 200)
    assert found["none"] == pytest.approx(reference, abs=0.15)
    assert found["floor"] <= 0.08
