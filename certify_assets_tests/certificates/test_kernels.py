import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.certificates import compiled, kernels, wealth
from certify_assets_tests.certificates import reference


def random_counts(
    seed: int, thresholds: int = 5, tasks: int = 30, size: int = 9
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    covered = rng.integers(0, size, (thresholds, tasks)).astype(np.int32)
    return covered, rng.binomial(covered, rng.beta(0.3, 2.0, (thresholds, tasks))).astype(np.int32)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60))
@settings(max_examples=40, deadline=None)
def test_group_order(keys: list[int]) -> None:
    for buckets in (13, 1 << 16, 1_300_000):
        array = np.array(keys, dtype=np.int64) * (buckets // 13)
        found = kernels.group_order(array, buckets)
        assert np.array_equal(found, np.argsort(array, kind="stable"))


@given(st.integers(0, 10_000), st.sampled_from([7, 20_000, 70_000]))
@settings(max_examples=40, deadline=None)
def test_count_rows(seed: int, tasks: int) -> None:
    rng = np.random.default_rng(seed)
    codes, wrong = rng.integers(0, tasks, 50).astype(np.int32), rng.integers(0, 2, 50) == 1
    ends = np.sort(rng.integers(0, 51, 6))
    for fast, plain in zip(
        kernels.count_rows(codes, wrong, ends, tasks),
        reference.count_rows(codes, wrong, ends, tasks),
        strict=True,
    ):
        assert np.array_equal(fast, plain)


@pytest.mark.parametrize(
    ("size", "tasks"), [(2, 30), (9, 30), (9, 30_000), (9, 70_000), (999, 70_000), (60_000, 30)]
)
def test_lattice_histogram(size: int, tasks: int) -> None:
    for seed in range(10):
        covered, errors = random_counts(seed, size=size, tasks=tasks)
        for numerator, denominator in ((1, 10), (1234, 10_000)):
            fast = kernels.lattice_histogram(covered, errors, numerator, denominator)
            plain = reference.lattice_histogram(covered, errors, numerator, denominator)
            assert all(np.array_equal(left, right) for left, right in zip(fast, plain, strict=True))


@given(st.integers(0, 10_000), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_wealth_of_batches_has_the_bytes_of_its_twin(seed: int, runs: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(runs)[: rng.integers(1, runs + 1)].astype(np.int64)
    errors = (rng.random(drawn.size) < rng.random()).astype(np.int64)
    weights, risks = rng.random(runs) + 1e-3, rng.random(runs)
    asked = (errors, drawn, weights, risks, int(rng.integers(1, 8)), 0.1 + 10 * rng.random())
    compiled_bytes = compiled.weighted_wealth(*asked).tobytes()
    assert compiled_bytes == wealth.wealth_in_numpy(*asked).tobytes()


def test_without_any_cache_folder_kernels_compile_in_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = numba.njit

    def njit(*functions: object, **options: object) -> object:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return plain(*functions, **options)

    monkeypatch.setattr(numba, "njit", njit)
    double = compiled._compiled(_double)
    assert double(4) == 8


def _double(value: int) -> int:
    return 2 * value
