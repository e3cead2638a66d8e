import math

import numpy as np
import pytest
from scipy.stats import betabinom

from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.guard import apply_guard, error_icc_bound, floor_log_probability


def table(covered: list[list[int]], errors: list[list[int]]) -> TaskCounts:
    sizes = np.array(covered).max(axis=0).astype(np.int64)
    return TaskCounts(
        "reject",
        np.arange(float(len(covered))),
        np.array(covered, np.int32),
        np.array(errors, np.int32),
        sizes,
        sizes // 2,
    )


@pytest.mark.parametrize(("alpha", "needed"), [(0.1, 49), (0.2, 23)])
def test_so_many_tasks_are_needed(alpha: float, needed: int) -> None:
    for tasks, passes in ((needed - 1, False), (needed, True)):
        counts = table([[8] * tasks], [[0] * tasks])
        assert apply_guard(counts, guard="floor", alpha=alpha, delta=0.05).passed[0] == passes


@pytest.mark.parametrize("icc", [0.0, 0.2, 0.9])
def test_floor_is_the_beta_binomial_probability_of_no_error(icc: float) -> None:
    covered = np.array([1, 3, 8, 0, 8], np.int32)
    if icc:
        size = (1 - icc) / icc
        truth = sum(betabinom.logpmf(0, n, 0.1 * size, 0.9 * size) for n in covered if n)
    else:
        truth = covered.sum() * math.log(0.9)
    assert floor_log_probability(np.bincount(covered), 0.1, icc) == pytest.approx(truth)


def test_floor_at_full_correlation_counts_tasks() -> None:
    found = floor_log_probability(np.bincount([1, 30, 8, 0]), 0.1, 1.0)
    assert found == pytest.approx(3 * math.log(0.9))
    assert floor_log_probability(np.bincount([0, 0, 0]), 0.1, 1.0) == 0.0


@pytest.mark.parametrize(
    ("covered", "errors"),
    [
        ([8, 8, 0], [0, 0, 0]),
        ([8, 8, 3], [8, 8, 3]),
        ([1, 1, 1], [0, 1, 0]),
        ([0, 0, 0], [0, 0, 0]),
    ],
)
def test_correlation_is_unbounded_where_the_data_say_nothing(
    covered: list[int], errors: list[int]
) -> None:
    assert error_icc_bound(np.array(covered, np.int32), np.array(errors, np.int32)) == 1.0


def test_tasks_without_coverage_stay_out_of_the_fit() -> None:
    rng = np.random.default_rng(2)
    table = np.full(30, 8), rng.binomial(8, rng.beta(0.5, 2, 30))
    plain, padded = (
        error_icc_bound(*(np.pad(part, (0, more)).astype(np.int32) for part in table))
        for more in (0, 40)
    )
    assert plain == padded


def test_independent_errors_have_a_small_bound_and_the_bound_shrinks() -> None:
    rng = np.random.default_rng(5)
    uppers = []
    for tasks in (40, 400, 4000):
        covered = np.full(tasks, 8, np.int32)
        uppers.append(error_icc_bound(covered, rng.binomial(8, 0.1, tasks).astype(np.int32)))
    assert uppers[0] > uppers[1] > uppers[2] and uppers[2] < 0.02


def test_the_larger_bound_of_two_thresholds_counts() -> None:
    clean = [0] * 40
    mixed = [1] * 12 + [0] * 28
    whole = [8] * 6 + [0] * 34
    counts = table([[8] * 40] * 3, [clean, mixed, whole])
    guard = apply_guard(counts, guard="floor", alpha=0.1, delta=0.05)
    bounds = [error_icc_bound(counts.covered[place], counts.errors[place]) for place in (1, 2)]
    assert guard.icc == max(bounds) == 1.0 and not guard.passed[0]


def test_a_declared_ratio_supposes_wrong_tasks_that_large() -> None:
    counts = table([[2] * 80, [8] * 80], [[0] * 80, [0] * 80])
    plain, larger = (
        apply_guard(counts, guard="floor", alpha=0.1, delta=0.05, size_ratio=ratio)
        for ratio in (1.0, 4.0)
    )
    assert plain.passed.all() and not larger.passed.any()
