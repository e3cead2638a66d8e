"""The bootstrap tail: exact, by the saddlepoint and drawn, against each other and by hand."""

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.certificates.bootstrap import (
    ErrorLattice,
    bootstrap_tails,
    error_lattice,
    exact_tail,
    saddlepoint_tails,
)
from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.taskboot import exceedances
from certify_assets_tests.certificates.reference import counts_of, exact_tails

LEVEL = 0.05 / 40
BUDGETS = (Fraction(1, 10), Fraction(1, 5), Fraction(1, 8), Fraction(3, 25))
DRAWS = 4_000
#: a Monte-Carlo share leaves its bound with this probability
FAILURE = 1e-10

TABLES = st.tuples(
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 8, 16]),
    st.integers(20, 120),
    st.floats(0.005, 0.4),
    st.floats(0.02, 0.9),
)


def clustered(table: tuple[int, int, int, float, float]) -> TaskCounts:
    """Beta-binomial errors at three thresholds; size 0 stands for unequal sizes."""
    seed, size, tasks, mean, rho = table
    rng = np.random.default_rng(seed)
    covered = np.full((3, tasks), size) if size else 1 + rng.poisson(7, (3, tasks))
    rates = rng.beta(mean * (1 - rho) / rho, (1 - mean) * (1 - rho) / rho, (3, tasks))
    return counts_of(covered, rng.binomial(covered, rates))


def tails(
    counts: TaskCounts, budget: Fraction = BUDGETS[0]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tails of every threshold: exact, by the saddlepoint, and those of a certificate."""
    lattice, tasks = error_lattice(counts, *budget.as_integer_ratio()), counts.tasks
    return (
        exact_tails(lattice, tasks),
        saddlepoint_tails(lattice, tasks),
        bootstrap_tails(lattice, LEVEL, tasks),
    )


def convolved_tail(values: np.ndarray) -> float:
    """P(S > 0) by repeated convolution of exact fractions."""
    law, share = {0: Fraction(1)}, Fraction(1, values.size)
    for _ in values:
        step: dict[int, Fraction] = {}
        for total, mass in law.items():
            for value in values.tolist():
                step[total + value] = step.get(total + value, Fraction(0)) + mass * share
        law = step
    return float(sum(mass for total, mass in law.items() if total > 0))


def test_one_wholly_wrong_task_of_eight() -> None:
    binomial = sum(comb(50, j) * 0.02**j * 0.98 ** (50 - j) for j in range(6, 51))
    exact, near, auto = tails(counts_of([8] * 50, [8] + [0] * 49))
    assert binomial == pytest.approx(0.00048, abs=5e-6)
    assert exact[0] == pytest.approx(binomial, rel=1e-11)
    assert near[0] == pytest.approx(binomial, rel=0.01)
    assert auto[0] == exact[0] < LEVEL


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=6),
    st.sampled_from(BUDGETS),
)
@settings(max_examples=60, deadline=None)
def test_exact_tail_equals_exact_convolution(
    pairs: list[tuple[int, int]], budget: Fraction
) -> None:
    counts = counts_of([max(pair) for pair in pairs], [min(pair) for pair in pairs])
    values = budget.denominator * counts.errors[0] - budget.numerator * counts.covered[0]
    truth = convolved_tail(values)
    assert tails(counts, budget)[0][0] == pytest.approx(truth, rel=1e-10, abs=1e-14)


def test_exact_tail_is_accurate_far_out() -> None:
    # more than thirty of a hundred must be high: 7j − 3(100 − j) > 0
    truth = sum(comb(100, j) * 0.01**j * 0.99 ** (100 - j) for j in range(31, 101))
    assert truth < 1e-30
    found = exact_tail(ErrorLattice(np.array([-3, 7]), np.array([99, 1]), np.array([0, 2])), 100)
    assert found == pytest.approx(truth, rel=1e-9)


def montecarlo_error(exact: np.ndarray) -> np.ndarray:
    """Bernstein's bound on |share − p|."""
    log = math.log(2 / FAILURE)
    return np.asarray(np.sqrt(2 * exact * (1 - exact) * log / DRAWS) + 2 * log / (3 * DRAWS))


def saddlepoint_error(counts: TaskCounts, budget: Fraction, exact: np.ndarray) -> np.ndarray:
    """About twice what 18,000 random tables showed: .15 of the smaller tail where 16 tasks err
    above the budget, .12 where fewer do.

    Near 1 the lattice of a few wholly wrong tasks adds 1e-4.
    """
    above = (budget.denominator * counts.errors > budget.numerator * counts.covered).sum(axis=1)
    smaller = np.where(exact < 0.5, 0.15 * exact, 0.15 * (1 - exact) + 1e-4)
    return np.where(above >= 16, smaller, 0.12)


@given(TABLES, st.sampled_from(BUDGETS))
@settings(max_examples=80, deadline=None)
def test_engines_agree_over_random_tables(
    table: tuple[int, int, int, float, float], budget: Fraction
) -> None:
    counts = clustered(table)
    exact, near, auto = tails(counts, budget)
    share = exceedances(counts, budget, DRAWS, table[0]) / DRAWS
    assert (np.abs(share - exact) <= montecarlo_error(exact)).all()
    assert (np.abs(near - exact) <= saddlepoint_error(counts, budget, exact)).all()
    assert np.array_equal(exact <= LEVEL, auto <= LEVEL)
    close = (exact > LEVEL / 2) & (exact < LEVEL * 2)
    assert np.array_equal(exact[close], auto[close])


@given(st.integers(0, 2**32), st.sampled_from([10, 20]), st.integers(30, 400), st.integers(-1, 1))
@settings(max_examples=60, deadline=None)
def test_engines_agree_where_the_formula_cancels(
    seed: int, size: int, tasks: int, off: int
) -> None:
    # the observed error is α, or α and one error more or less: 2(tx − K) is tiny, and the plain
    # formula subtracts 1/w from 1/u
    rng = np.random.default_rng(seed)
    wrong = rng.choice(size * tasks, size * tasks // 10 + off, replace=False) // size
    counts = counts_of(np.full(tasks, size), np.bincount(wrong, minlength=tasks))
    exact, near, _ = tails(counts)
    share = exceedances(counts, BUDGETS[0], DRAWS, seed) / DRAWS
    assert 0.2 < exact[0] < 0.75
    assert abs(near[0] - exact[0]) <= 0.005
    assert abs(share[0] - exact[0]) <= montecarlo_error(exact)[0]


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
def test_degenerate_tables(covered: list[int], errors: list[int], tail: float) -> None:
    assert [found[0] for found in tails(counts_of(covered, errors))] == [tail] * 3
