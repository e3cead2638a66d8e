"""The guard, and the correlation of errors within tasks that it supposes."""

import math

import numpy as np
import pytest
from scipy.stats import betabinom

from certify_assets.certificates.error_icc import icc_upper
from certify_assets.certificates.guard import apply_guard, concentrated, error_free_log_probability
from certify_assets_tests.certificates.reference import counts_of, icc_profile


@pytest.mark.parametrize(("alpha", "needed"), [(0.1, 49), (0.2, 23)])
def test_so_many_tasks_are_needed(alpha: float, needed: int) -> None:
    for tasks in (needed - 1, needed):
        counts = counts_of([8] * tasks, [0] * tasks)
        assert apply_guard(counts, 1.0, alpha=alpha, delta=0.05)[0] == (tasks == needed)


@pytest.mark.parametrize("icc", [0.0, 0.2, 0.9])
def test_floor_is_the_beta_binomial_probability_of_no_error(icc: float) -> None:
    covered = np.array([1, 3, 8, 0, 8], np.int32)
    if icc:
        size = (1 - icc) / icc
        truth = sum(betabinom.logpmf(0, n, 0.1 * size, 0.9 * size) for n in covered if n)
    else:
        truth = covered.sum() * math.log(0.9)
    found = error_free_log_probability(covered[None], 0.1, icc)
    assert found == pytest.approx([truth])


def test_a_declared_ratio_supposes_wrong_tasks_that_large() -> None:
    counts = counts_of([[2] * 80, [8] * 80], np.zeros((2, 80)))
    plain, larger = (
        apply_guard(counts, 1.0, alpha=0.1, delta=0.05, size_ratio=ratio) for ratio in (1.0, 4.0)
    )
    assert plain.all() and not larger.any()


def is_concentrated(row: list[int], alpha: float = 0.1, delta: float = 0.05) -> bool:
    return bool(concentrated(counts_of(row, [0] * len(row)), alpha, delta)[0])


@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.1, 0.5])
@pytest.mark.parametrize("delta", [0.2, 0.05 / 1000])
@pytest.mark.parametrize("tasks", [20, 57, 200])
def test_twenty_equal_tasks_are_never_refused(alpha: float, delta: float, tasks: int) -> None:
    assert not is_concentrated([8] * tasks, alpha, delta)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_one_task_of_more_than_twice_alpha_is_refused(alpha: float) -> None:
    for share, refused in ((2 * alpha - 0.01, False), (2 * alpha + 0.01, True)):
        large = round(1000 * share / (1 - share))
        assert is_concentrated([large, *[1] * 1000], alpha) is refused


def test_even_odds_by_hand() -> None:
    # five tasks hold W of all: (1 - .1/W)^5 is above one half where W exceeds .1/(1 - .5^(1/5)) =
    # .7725
    for light, refused in ((590, False), (587, True)):
        share = 2000 / (2000 + light)
        assert ((1 - 0.1 / share) ** 5 > 0.5) is refused
        assert is_concentrated([400] * 5 + [1] * light) is refused


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
