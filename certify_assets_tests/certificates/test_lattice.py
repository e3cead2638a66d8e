from collections.abc import Callable
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.certificates.bootstrap import (
    ErrorLattice,
    as_fraction,
    bootstrap_tails,
    error_lattice,
    exact_tail,
)
from certify_assets.errors import InputError
from certify_assets_tests.certificates.reference import exact_tails, near_tails

LEVEL = 0.05 / 40
Tails = Callable[[ErrorLattice], np.ndarray]


def clustered(seed: int, size: int, thresholds: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Beta-binomial errors; size 0 draws unequal sizes."""
    rng = np.random.default_rng([seed, size])
    tasks = int(rng.choice([20, 50, 100]))
    rho, mean = rng.choice([0.1, 0.5, 0.8]), rng.uniform(0.005, 0.09)
    covered = (
        np.full((thresholds, tasks), size) if size else 1 + rng.poisson(7, (thresholds, tasks))
    )
    rates = rng.beta(mean * (1 - rho) / rho, (1 - mean) * (1 - rho) / rho, (thresholds, tasks))
    return covered.astype(np.int32), rng.binomial(covered, rates).astype(np.int32)


def convolved_tail(values: np.ndarray, draws: int) -> float:
    """P(S > 0) by repeated convolution of exact fractions."""
    law = {0: Fraction(1)}
    share = Fraction(1, values.size)
    for _ in range(draws):
        step: dict[int, Fraction] = {}
        for total, mass in law.items():
            for value in values.tolist():
                step[total + value] = step.get(total + value, Fraction(0)) + mass * share
        law = step
    return float(sum(mass for total, mass in law.items() if total > 0))


def test_one_wholly_wrong_task_of_eight() -> None:
    covered = np.full((1, 50), 8, np.int32)
    errors = np.zeros((1, 50), np.int32)
    errors[0, 0] = 8
    binomial = sum(comb(50, j) * 0.02**j * 0.98 ** (50 - j) for j in range(6, 51))
    lattice = error_lattice(covered, errors, Fraction(1, 10))
    assert binomial == pytest.approx(0.00048, abs=5e-6)
    assert exact_tails(lattice)[0] == pytest.approx(binomial, rel=1e-11)
    assert near_tails(lattice)[0] == pytest.approx(binomial, rel=0.01)
    assert bootstrap_tails(lattice, LEVEL)[0] < LEVEL


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=6),
    st.sampled_from([0.1, 0.2, 0.25, 0.5]),
)
@settings(max_examples=60, deadline=None)
def test_exact_tail_equals_exact_convolution(pairs: list[tuple[int, int]], alpha: float) -> None:
    covered = np.array([[max(n, k) for n, k in pairs]], np.int32)
    errors = np.array([[min(n, k) for n, k in pairs]], np.int32)
    budget = as_fraction(alpha)
    lattice = error_lattice(covered, errors, budget)
    values = budget.denominator * errors[0].astype(int) - budget.numerator * covered[0].astype(int)
    truth = convolved_tail(values, values.size)
    assert exact_tails(lattice)[0] == pytest.approx(truth, rel=1e-10, abs=1e-14)


def test_exact_tail_is_accurate_far_out() -> None:
    # more than thirty of a hundred must be high: 7j − 3(100 − j) > 0
    truth = sum(comb(100, j) * 0.01**j * 0.99 ** (100 - j) for j in range(31, 101))
    assert truth < 1e-30
    found = exact_tail(np.array([-3, 7]), np.array([99, 1]), 100)
    assert found == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("size", [0, 1, 8, 16])
def test_auto_decides_as_the_exact_tail_does(size: int) -> None:
    for seed in range(40):
        covered, errors = clustered(seed, size, thresholds=10)
        for budget in (Fraction(1, 10), Fraction(1, 5)):
            lattice = error_lattice(covered, errors, budget)
            exact, auto = exact_tails(lattice), bootstrap_tails(lattice, LEVEL)
            assert np.array_equal(exact <= LEVEL, auto <= LEVEL)
            close = (exact > LEVEL / 2) & (exact < LEVEL * 2)
            assert np.array_equal(exact[close], auto[close])


def _auto(lattice: ErrorLattice) -> np.ndarray:
    return bootstrap_tails(lattice, LEVEL)


@pytest.mark.parametrize("tails", [exact_tails, near_tails, _auto])
def test_near_the_mean_the_tail_is_about_a_half(tails: Tails) -> None:
    for tasks in (40, 1000):
        # one error in ten on average, so the sum has mean exactly zero
        covered, errors = np.full((1, tasks), 10, np.int32), np.zeros((1, tasks), np.int32)
        errors[0, : tasks // 2] = 2
        tail = tails(error_lattice(covered, errors, Fraction(1, 10)))[0]
        assert 0.4 < tail < 0.5


@pytest.mark.parametrize("tails", [exact_tails, near_tails, _auto])
@pytest.mark.parametrize(
    ("covered", "errors", "tail"),
    [
        ([3, 4, 0], [0, 0, 0], 0.0),
        ([0, 0, 0], [0, 0, 0], 0.0),
        ([10, 10, 10], [1, 1, 1], 0.0),
        ([3, 4, 1], [3, 4, 1], 1.0),
        ([8], [8], 1.0),
    ],
)
def test_degenerate_tables(
    covered: list[int], errors: list[int], tail: float, tails: Tails
) -> None:
    table = (np.array([row], np.int32) for row in (covered, errors))
    assert tails(error_lattice(*table, Fraction(1, 10)))[0] == tail


def test_huge_tasks_and_long_decimals() -> None:
    covered = np.array([[2_000_000, 5, 900_000, 7]], np.int32)
    errors = np.array([[10, 1, 3, 0]], np.int32)
    lattice = error_lattice(covered, errors, as_fraction(0.1234))
    assert bootstrap_tails(lattice, LEVEL)[0] == pytest.approx(near_tails(lattice)[0])
    with pytest.raises(InputError, match="fewer decimals"):
        exact_tails(lattice)


@pytest.mark.parametrize("alpha", [0, 1, -0.1, float("nan"), "0.1", None, 0.12345])
def test_alpha_is_checked(alpha: object) -> None:
    with pytest.raises(InputError, match="alpha is"):
        as_fraction(alpha)  # type: ignore[arg-type]


def test_alpha_is_the_decimal_that_was_written() -> None:
    assert as_fraction(0.1) == Fraction(1, 10)
    assert as_fraction(0.3) == Fraction(3, 10)
    assert as_fraction(0.0001) == Fraction(1, 10_000)
