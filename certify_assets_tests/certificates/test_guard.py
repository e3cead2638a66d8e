import math

import numpy as np
import pytest
from scipy.stats import betabinom

from certify_assets.certificates.guard import (
    apply_guard,
    concentrated,
    error_free_log_probability,
    factor_needed,
)
from certify_assets_tests.certificates.reference import counts_of


@pytest.mark.parametrize(("alpha", "needed"), [(0.1, 49), (0.2, 23)])
def test_so_many_tasks_are_needed(alpha: float, needed: int) -> None:
    for tasks in (needed - 1, needed):
        counts = counts_of([8] * tasks, [0] * tasks)
        assert apply_guard(counts, 1.0, alpha=alpha, delta=0.05).passed[0] == (tasks == needed)


@pytest.mark.parametrize("icc", [0.0, 0.2, 0.9])
def test_floor_is_the_beta_binomial_probability_of_no_error(icc: float) -> None:
    covered = np.array([1, 3, 8, 0, 8], np.int32)
    if icc:
        size = (1 - icc) / icc
        truth = sum(betabinom.logpmf(0, n, 0.1 * size, 0.9 * size) for n in covered if n)
    else:
        truth = covered.sum() * math.log(0.9)
    found = error_free_log_probability(np.bincount(covered), 0.1, icc)
    assert found == pytest.approx(truth)


def test_a_declared_ratio_supposes_wrong_tasks_that_large() -> None:
    counts = counts_of([[2] * 80, [8] * 80], np.zeros((2, 80)))
    plain, larger = (
        apply_guard(counts, 1.0, alpha=0.1, delta=0.05, size_ratio=ratio) for ratio in (1.0, 4.0)
    )
    assert plain.passed.all() and not larger.passed.any()


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


@pytest.mark.parametrize("row", [[100] + [5] * 60, [400] * 3 + [1] * 100, [50] * 4])
def test_so_many_copies_pass(row: list[int]) -> None:
    factor = factor_needed(counts_of(row, [0] * len(row)), 0, 0.1, 0.05)
    assert factor > 1 and not is_concentrated(row * int(np.ceil(factor)))
    assert factor_needed(counts_of([8] * 30, [0] * 30), 0, 0.1, 0.05) == 1.0
