"""Monte-Carlo sums against their plain twin: exact integers for any values, shapes and pieces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.certificates import compiled, taskboot
from certify_assets.certificates.taskboot import drawn_sums_in_numpy, resample_sums
from certify_assets_tests.certificates import reference


def same(values: np.ndarray, draws: int, seed: int) -> bool:
    return np.array_equal(
        resample_sums(values, draws, seed),
        reference.task_sums(values, draws, np.uint64(seed), 0),
    )


@given(st.integers(1, 600), st.integers(1, 90), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_sums_equal_those_of_the_twin(tasks: int, columns: int, bits: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(-(2**bits), 2**bits, (tasks, columns)) // 3
    assert same(values, 7, seed)
    key = np.uint64(seed)
    found = compiled.drawn_sums(values, 7, key)
    assert found.tobytes() == drawn_sums_in_numpy(values, 7, key).tobytes()


def test_drawn_tasks_are_uniform() -> None:
    drawn = resample_sums(np.eye(20, dtype=np.int64), 4000, 1).sum(axis=0)
    expected = 4000.0
    # 19 degrees of freedom: 43.8 is the .999 quantile
    assert ((drawn - expected) ** 2 / expected).sum() < 43.8


@pytest.mark.parametrize("places", [1, 700, 5_000, 1 << 20])
def test_resamples_do_not_depend_on_pieces(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taskboot, "_PLACES", places)
    assert same(np.random.default_rng(0).integers(-50, 50, (700, 4)), 100, 11)


def test_sums_beyond_float32_are_exact_and_empty_tables_have_none() -> None:
    assert (resample_sums(np.full((3, 1), 2**40 + 1), 4, 0) == 3 * (2**40 + 1)).all()
    assert resample_sums(np.zeros((0, 3), np.int64), 5, 0).tolist() == [[0, 0, 0]] * 5
