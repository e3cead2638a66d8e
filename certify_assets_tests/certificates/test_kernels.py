import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.certificates import kernels


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60))
@settings(max_examples=40, deadline=None)
def test_group_order(keys: list[int]) -> None:
    for buckets in (13, 1 << 16, 1_300_000):
        array = np.array(keys, dtype=np.int64) * (buckets // 13)
        found = kernels.group_order(array, buckets)
        assert np.array_equal(found, np.argsort(array, kind="stable"))


@pytest.mark.parametrize(
    ("size", "tasks"), [(2, 30), (9, 30), (9, 70_000), (999, 70_000), (60_000, 30)]
)
@pytest.mark.parametrize(("numerator", "denominator"), [(1, 10), (1234, 10_000)])
def test_lattice_histogram(size: int, tasks: int, numerator: int, denominator: int) -> None:
    rng = np.random.default_rng(size)
    covered = rng.integers(0, size, (5, tasks)).astype(np.int32)
    errors = rng.binomial(covered, rng.beta(0.3, 2.0, covered.shape)).astype(np.int32)
    numerators = numerator + np.arange(5)
    for asked in (numerator, numerators):
        values, counts, offsets = kernels.lattice_histogram(covered, errors, asked, denominator)
        each = np.broadcast_to(asked, 5)
        for place, (n, k) in enumerate(zip(covered.astype(int), errors.astype(int), strict=True)):
            expected = np.unique(denominator * k - each[place] * n, return_counts=True)
            found = slice(offsets[place], offsets[place + 1])
            assert np.array_equal((values[found], counts[found]), expected)
