"""The kernels against their plain twins: exact integers for any values, shapes and pieces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.certificates import compiled, kernels
from certify_assets_tests.certificates import reference


@pytest.mark.parametrize(("size", "tasks"), [(2, 30), (9, 70_000), (60_000, 30)])
def test_lattice_histogram(size: int, tasks: int) -> None:
    rng = np.random.default_rng(size)
    covered = rng.integers(0, size, (5, tasks)).astype(np.int32)
    errors = rng.binomial(covered, rng.beta(0.3, 2.0, covered.shape)).astype(np.int32)
    each = 1234 + np.arange(5)
    values, counts, offsets = kernels.lattice_histogram(covered, errors, each, 10_000)
    for place, (n, k) in enumerate(zip(covered.astype(int), errors.astype(int), strict=True)):
        expected = np.unique(10_000 * k - each[place] * n, return_counts=True)
        found = slice(offsets[place], offsets[place + 1])
        assert np.array_equal((values[found], counts[found]), expected)


def same(values: np.ndarray, draws: int, seed: int) -> bool:
    return np.array_equal(
        kernels.resample_sums(values, draws, seed),
        reference.task_sums(values, draws, np.uint64(seed), 0),
    )


@given(st.integers(1, 600), st.integers(1, 90), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_sums_equal_those_of_the_twin(tasks: int, columns: int, bits: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(-(2**bits), 2**bits, (tasks, columns)) // 3
    assert same(values, 7, seed)
    key = np.uint64(seed)
    found = compiled.drawn_sums(values, 7, key)
    assert found.tobytes() == kernels.drawn_sums_in_numpy(values, 7, key).tobytes()
