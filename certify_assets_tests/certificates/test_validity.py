"""Violation and coverage with known truth. Monte-Carlo errors stand beside each bound."""

import numpy as np
import pytest

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.research.designs import study_designs
from certify_assets.research.simulation import simulate
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


REFERENCES = {
    "taskboot": TASKBOOT,
    "naive": NAIVE,
    "deff": DEFF,
    "one_per_task": ONE,
    "task_hoeffding": HOEFFDING,
}
QUICK = [(20, 0.5), (20, 0.8), (50, 0.1), (50, 0.8)]


@pytest.mark.parametrize(
    ("tasks", "rho", "trials"),
    [
        *((tasks, rho, 60) for tasks, rho in QUICK),
        *(pytest.param(*cell, 300, marks=pytest.mark.statistics) for cell in sorted(TASKBOOT)),
    ],
)
def test_cells_of_the_reference_table(tasks: int, rho: float, trials: int) -> None:
    full = trials == 300
    named = [name for name, cells in REFERENCES.items() if (tasks, rho) in cells]
    designs = study_designs(["paper"], tasks=[tasks], rhos=[rho])
    study = simulate(designs, procedures=named if full else named[:2], trials=trials)
    for found in study.cells[0].procedures:
        # the reference coverage has a standard error of about .01 of its own
        bound = 3.5 * np.hypot(found.coverage_se, 0.01)
        # at twenty tasks DEFF certifies in few trials, so that 300 of them scatter beyond .03
        if full and (found.procedure, tasks) != ("deff", 20):
            bound = 0.03
        reference = REFERENCES[found.procedure][tasks, rho]
        assert abs(found.coverage - reference) <= bound, found
        # standard error of a rate of .05 over 300 trials: .013; 60 trials at a true rate of .013
        # give at most 4 violations with probability .998
        assert found.violation <= (0.04 if full else 4 / 60)


@pytest.mark.parametrize(
    ("tasks", "share", "reference", "trials"),
    [
        (50, 0.15, 0.30, 120),
        *(
            pytest.param(*design, 200, marks=pytest.mark.statistics)
            for design in [
                (20, 0.15, 0.52),
                (30, 0.15, 0.45),
                (50, 0.15, 0.30),
                (84, 0.15, 0.135),
                (20, 0.11, 0.68),
                (84, 0.11, 0.25),
            ]
        ),
    ],
)
def test_taskboot_is_fooled_and_the_guard_is_not(
    tasks: int, share: float, reference: float, trials: int
) -> None:
    hits = {"taskboot": 0, "guarded_taskboot": 0}
    for trial in range(trials):
        table = observe(*fooled(tasks, share, [trial, tasks]))
        for name in hits:
            # each certificate is a violation: every threshold has an error above α
            hits[name] += evaluate(table, Settings(procedure=name)).chosen is not None
    # standard error over 200 trials: at most .035 for the bootstrap, .016 at a rate of .05
    assert hits["taskboot"] / trials == pytest.approx(reference, abs=0.15)
    assert hits["guarded_taskboot"] / trials <= (0.08 if trials == 200 else 0.05)
