"""Violation and coverage with known truth; the larger tier is marked slow. Monte-Carlo errors stand beside each bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets_tests.certificates.designs import fooled, paper_process, paper_truth

#: mean certified coverage of the reference runs at α = .1: (tasks, ρ) → TaskBoot; of the paper's table for naive Clopper–Pearson
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
DEFF = {(20, 0.1): 0.144, (50, 0.1): 0.663, (50, 0.5): 0.011, (50, 0.8): 0.0, (100, 0.1): 0.681, (100, 0.5): 0.576, (100, 0.8): 0.204}
ONE = {(100, 0.1): 0.299, (100, 0.5): 0.061, (100, 0.8): 0.024}
HOEFFDING = {(500, 0.1): 0.657, (500, 0.5): 0.567, (500, 0.8): 0.004}


@dataclass(frozen=True)
class Cell:
    violation: float
    coverage: float
    error: float


def run(tasks: int, rho: float, trials: int, procedure: str) -> Cell:
    wrong, covered = 0, []
    settings = Settings(procedure=procedure)
    for trial in range(trials):
        found = evaluate(observe(*paper_process(tasks, rho, np.random.default_rng([trial, tasks, int(10 * rho)]))), settings)
        place = found.chosen
        covered.append(0.0 if place is None else float(found.counts.coverage[place]))
        wrong += place is not None and paper_truth(float(found.counts.thresholds[place]), rho) > 0.1
    return Cell(wrong / trials, float(np.mean(covered)), float(np.std(covered)) / trials**0.5)


def check(cell: Cell, reference: float) -> None:
    # the reference coverage has a standard error of about .01 of its own
    assert abs(cell.coverage - reference) <= 3.5 * np.hypot(cell.error, 0.01)


def test_truth_by_quadrature_equals_a_large_draw() -> None:
    sample = paper_process(40_000, 0.5, np.random.default_rng(0))
    for side, threshold in (("reject", 0.5), ("release", 1.0)):
        inside = sample.scores <= threshold if side == "reject" else sample.scores >= threshold
        wrong = sample.outcomes[inside] == (1 if side == "reject" else 0)
        assert wrong.mean() == pytest.approx(paper_truth(threshold, 0.5, side), abs=0.003)


@pytest.mark.parametrize(("tasks", "rho"), [(20, 0.5), (20, 0.8), (50, 0.1), (50, 0.8)])
def test_taskboot_and_naive_reproduce_reference_cells(tasks: int, rho: float) -> None:
    for procedure, reference in (("taskboot", TASKBOOT), ("naive", NAIVE)):
        cell = run(tasks, rho, 60, procedure)
        check(cell, reference[tasks, rho])
        # 60 trials at a true rate of .013 give at most 4 violations with probability .998
        assert cell.violation <= 4 / 60


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "rho"), sorted(TASKBOOT))
def test_every_cell_of_the_reference_table(tasks: int, rho: float) -> None:
    for procedure, reference in (
        ("taskboot", TASKBOOT),
        ("naive", NAIVE),
        ("deff", DEFF),
        ("one_per_task", ONE),
        ("task_hoeffding", HOEFFDING),
    ):
        if (tasks, rho) in reference:
            cell = run(tasks, rho, 300, procedure)
            assert abs(cell.coverage - reference[tasks, rho]) <= 0.03, (procedure, cell)
            # standard error of a rate of .05 over 300 trials: .013
            assert cell.violation <= 0.04


def rates(tasks: int, share: float, trials: int) -> dict[str, float]:
    """Share of the trials that certify anything, which is a violation whenever ``share`` exceeds α."""
    hits = {"none": 0, "kish": 0, "floor": 0}
    for trial in range(trials):
        table = observe(*fooled(tasks, share, np.random.default_rng([trial, tasks])))
        for guard in hits:
            hits[guard] += evaluate(table, Settings(guard=guard)).chosen is not None
    return {guard: count / trials for guard, count in hits.items()}


def test_taskboot_is_fooled_and_the_guard_is_not() -> None:
    # reference: TaskBoot .45 at fifty tasks and a true error of .15; standard error over 120 trials .045
    found = rates(50, 0.15, 120)
    assert found["none"] > 0.15
    assert found["floor"] <= 0.05 and found["kish"] <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tasks", "share", "reference"),
    [(20, 0.15, 0.52), (30, 0.15, 0.45), (50, 0.15, 0.30), (84, 0.15, 0.135), (20, 0.11, 0.68), (84, 0.11, 0.25)],
)
def test_fooled_designs(tasks: int, share: float, reference: float) -> None:
    # 400 trials: standard error at most .025 for the bootstrap, .011 at a rate of .05
    found = rates(tasks, share, 400)
    assert found["none"] == pytest.approx(reference, abs=0.15)
    assert found["floor"] <= 0.08
