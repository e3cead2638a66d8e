"""The share of runs that a threshold decides, in CAL and in new runs."""

import numpy as np
import pytest
from numpy.typing import NDArray

from certify_assets.certificates.shift import decided_shift

_Runs = tuple[NDArray[np.float64], NDArray[np.int64]]


def _runs(rng: np.random.Generator, tasks: int, sizes: str, mean: float = 0.0) -> _Runs:
    """Draw scores that are alike within a task."""
    number = 1 + rng.poisson(7, tasks) if sizes == "poisson" else np.full(tasks, 4)
    task = np.repeat(np.arange(tasks), number)
    effect = rng.normal(mean, 0.9, tasks)[task]
    return effect + rng.normal(0.0, 0.4, task.size), task


def _rate(mean: float, trials: int, *, tasks: int, new: int, sizes: str, quantile: float) -> float:
    rng, found = np.random.default_rng(11), 0
    for _ in range(trials):
        (scores, task), (others, other) = (_runs(rng, tasks, sizes), _runs(rng, new, sizes, mean))
        threshold = np.quantile(scores, quantile)
        shift = decided_shift((scores <= threshold, task), (others <= threshold, other))
        assert shift is not None
        found += shift.p_value <= 0.01
    return found / trials


@pytest.mark.parametrize(
    ("tasks", "new", "sizes", "quantile"),
    [(40, 10, "equal", 0.3), (100, 15, "poisson", 0.5), (60, 200, "poisson", 0.1)],
)
def test_runs_of_the_same_tasks_are_found_as_seldom_as_promised(
    tasks: int, new: int, sizes: str, quantile: float
) -> None:
    rate = _rate(0.0, 400, tasks=tasks, new=new, sizes=sizes, quantile=quantile)
    assert rate <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / 400), rate


def test_other_runs_are_found() -> None:
    assert _rate(-1.2, 50, tasks=100, new=40, sizes="poisson", quantile=0.5) > 0.9


def test_few_tasks_say_nothing_and_equal_shares_say_no_difference() -> None:
    some = np.ones(40, dtype=bool), np.repeat(np.arange(10), 4)
    few = np.ones(36, dtype=bool), np.repeat(np.arange(9), 4)
    assert decided_shift(some, few) is None and decided_shift(few, some) is None
    same = decided_shift(some, some)
    assert same is not None and (same.calibration, same.batch, same.p_value) == (1.0, 1.0, 1.0)


def test_the_value_is_that_of_all_choices_where_they_can_be_counted() -> None:
    # 10 tasks of one run each decided, 10 not: one of 184,756 choices, and its mirror, is as far
    runs = np.repeat([True, False], 10)
    shift = decided_shift((runs[:10], np.arange(10)), (runs[10:], np.arange(10)))
    assert shift is not None and shift.p_value == pytest.approx(1 / 5000)
    assert (shift.calibration, shift.batch) == (1.0, 0.0)
