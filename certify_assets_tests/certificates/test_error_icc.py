"""The correlation of errors within tasks: its upper bounds, against a plain twin."""

import numpy as np
import pytest

from certify_assets.certificates import observe
from certify_assets.certificates.error_icc import error_icc, icc_upper
from certify_assets_tests.certificates.reference import icc_profile


def clustered(icc: float, mean: float, tasks: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(int(100 * icc))
    covered, scale = 1 + rng.poisson(7, tasks), 1 / icc - 1
    return covered, rng.binomial(covered, rng.beta(mean * scale, (1 - mean) * scale, tasks))


@pytest.mark.parametrize(("icc", "mean"), [(0.1, 0.1), (0.4, 0.3), (0.8, 0.05)])
def test_the_bounds_equal_their_twin(icc: float, mean: float) -> None:
    table = clustered(icc, mean)
    found = icc_upper(*table, confident=True)
    assert found == pytest.approx(icc_profile(*table, 1.353), abs=2e-4)
    # the twin maximises between the points of the coarse grid too, .025 apart
    coarse = icc_upper(*table, confident=False)
    assert coarse == pytest.approx(icc_profile(*table, 0.354), abs=0.02) and coarse < found


@pytest.mark.parametrize(
    ("covered", "errors"),
    [
        ([8, 8, 0], [0, 0, 0]),
        ([8, 8, 3], [8, 8, 3]),
        ([1, 1, 1], [0, 1, 0]),
        ([0, 0, 0], [0, 0, 0]),
    ],
)
@pytest.mark.parametrize("confident", [False, True])
def test_it_is_unbounded_where_the_data_say_nothing(
    covered: list[int], errors: list[int], confident: bool
) -> None:
    assert icc_upper(np.array(covered), np.array(errors), confident=confident) == 1.0


def test_the_larger_bound_of_two_thresholds_counts() -> None:
    # 40 tasks of three runs: no error up to score 0, then 12 scattered ones, then whole tasks
    tasks, scores = np.tile(np.arange(40), 3), np.repeat([0.0, 1.0, 2.0], 40)
    wrong = np.concatenate([np.zeros(40), np.arange(40) < 12, np.arange(40) < 6])
    table, grid = observe(scores, wrong, tasks), np.array([0.0, 1.0, 2.0])
    bounds = [
        icc_upper(
            *(np.bincount(tasks[kept], minlength=40) for kept in (inside, inside & (wrong == 1))),
            confident=True,
        )
        for inside in (scores <= 1, scores <= 2)
    ]
    assert error_icc(table, "reject", grid, confident=True) == max(bounds)
