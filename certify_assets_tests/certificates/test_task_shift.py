"""New tasks against those of CAL: exact tests by task, and a level that no number of looks exceeds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from certify_assets.certificates.shift import LIFE_LEVEL, compare_tasks, spent_level, sum_p_value

_Sample = tuple[NDArray[np.float64], list[str]]


def _sample(
    rng: np.random.Generator, tasks: int, attempts: int, *, mean: float = 0.0, between: float = 0.5
) -> _Sample:
    effect = mean + np.sqrt(between) * rng.normal(size=(tasks, 1))
    scores = effect + np.sqrt(1 - between) * rng.normal(size=(tasks, attempts))
    return scores.ravel(), [f"t{place}" for place in np.repeat(np.arange(tasks), attempts)]


def _p_values(cal: _Sample, new: _Sample) -> dict[str, float]:
    return {test.name: test.p_value for test in compare_tasks(cal, new, {"reject": 0.4})}


@pytest.mark.parametrize("seed", range(8))
def test_the_sum_has_the_tail_of_all_choices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # the new values are the largest: within two standard deviations nothing is enumerated
    every = np.sort(rng.integers(0, 6, 13) / 5)
    before, after = every[:9], every[9:]
    sums = np.array([every[list(places)].sum() for places in combinations(range(13), 4)])
    expected = min(1.0, 2 * float((sums >= after.sum() - 1e-9).mean()))
    assert sum_p_value(before, after) == pytest.approx(expected, rel=1e-9)
    assert sum_p_value(after, before) == pytest.approx(expected, rel=1e-9)
    assert sum_p_value(1 - before, 1 - after) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.integers(0, 400), max_size=60))
@settings(deadline=None)
def test_no_deliveries_spend_more_than_the_level(sizes: list[int]) -> None:
    total, levels = 0, []
    for size in sizes:
        levels.append(spent_level(total + size) - spent_level(total))
        total += size
    assert all(level >= 0 for level in levels) and sum(levels) < LIFE_LEVEL
    # as many small deliveries have what one of all their tasks has
    assert sum(levels) == pytest.approx(spent_level(total))


@pytest.mark.parametrize(("before", "after"), [(4, 4), (4, 1), (2, 6)])
def test_tasks_alike_are_found_at_the_level(before: int, after: int) -> None:
    rng, trials = np.random.default_rng(17), 400
    found: dict[str, list[float]] = {}
    for _ in range(trials):
        for name, value in _p_values(_sample(rng, 40, before), _sample(rng, 12, after)).items():
            found.setdefault(name, []).append(value)
    for name, values in found.items():
        rate = float(np.mean(np.array(values) <= 0.02))
        # three Monte-Carlo errors of a rate of .02 in 400 trials are .021
        assert rate <= 0.02 + 3 * np.sqrt(0.02 * 0.98 / trials), (name, rate)


def test_a_task_counts_once_and_the_order_of_runs_is_no_matter() -> None:
    rng = np.random.default_rng(2)
    cal, (scores, tasks) = _sample(rng, 30, 4), _sample(rng, 9, 4, mean=-1.0)
    found = _p_values(cal, (scores, tasks))
    mixed = rng.permutation(scores.size)
    assert _p_values(cal, (scores[mixed], [tasks[place] for place in mixed])) == found
    # the same runs five times are no more evidence
    assert _p_values(cal, (np.tile(scores, 5), tasks * 5)) == pytest.approx(found)
    # a run without a score is none
    more = (np.append(scores, [np.nan, np.nan]), [*tasks, "t0", "unscored"])
    assert _p_values(cal, more) == pytest.approx(found)


@pytest.mark.parametrize(("cal", "new"), [(30, 4), (9, 30), (30, 0)])
def test_too_few_tasks_are_not_compared(cal: int, new: int) -> None:
    rng = np.random.default_rng(1)
    assert compare_tasks(_sample(rng, cal, 2), _sample(rng, new, 2), {"reject": 0.0}) == []
