import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from certify_assets.certificates.auroc import (
    Ranking,
    auroc,
    name_codes,
    percentile_interval,
    task_resamples,
)

ROWS = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1)), min_size=2, max_size=30)


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_equals_the_count_over_pairs(rows: list[tuple[int, int]]) -> None:
    wins = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a, x in rows
        for b, y in rows
        if x == 1 and y == 0
    ]
    area = auroc([score for score, _ in rows], [outcome for _, outcome in rows])
    assert math.isnan(area) if not wins else area == pytest.approx(np.mean(wins))


def test_unscored_rows_are_left_out() -> None:
    assert auroc([1.0, float("nan"), 0.0], [1, 0, 0]) == 1.0
    assert math.isnan(auroc([], []))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 5))
def test_pairs_of_one_group_are_counted_as_by_hand(seed: int, rows: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    scores, outcomes = rng.integers(0, 5, rows) / 2, rng.integers(0, 2, rows)
    owner, weights = name_codes(rng.integers(0, groups, rows)), rng.integers(0, 3, rows)
    won, pairs = Ranking.of(scores, outcomes, owner).pair_counts(weights[None].astype(float))
    wins = [
        0.5 * (scores[one] > scores[other]) + 0.5 * (scores[one] >= scores[other])
        for one in np.repeat(np.arange(rows), weights * outcomes)
        for other in np.repeat(np.arange(rows), weights * (1 - outcomes))
        if owner[one] == owner[other]
    ]
    assert (won[0], pairs[0]) == (sum(wins), len(wins))


def test_what_cannot_be_measured_is_none() -> None:
    nothing = Ranking.of([], []).estimate(task_resamples(name_codes([])))
    alike = Ranking.of([1.0, 2.0], [1, 1]).estimate(task_resamples(name_codes(["a", "b"])))
    assert nothing["value"] is alike["value"] is None and nothing["pairs"] == alike["pairs"] == 0
    one_task = Ranking.of([1.0, 2.0], [0, 1]).estimate(task_resamples(name_codes(["a", "a"])))
    assert (one_task["value"], one_task["low"], one_task["high"]) == (1.0, None, None)
    assert percentile_interval(np.array([np.nan])) == (None, None)


def test_the_interval_covers_the_truth_of_clustered_runs() -> None:
    """60 tasks of 4 attempts, the true AUROC from 2 million pairs; in 150 trials a 95 % interval
    misses 7.5 times, standard error 2.7.
    """
    rng = np.random.default_rng(7)

    def drawn(tasks: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        effect = np.repeat(rng.normal(0, 1.5, tasks), 4)
        outcomes = (rng.random(tasks * 4) < 1 / (1 + np.exp(-effect))).astype(np.int64)
        return 0.8 * effect + 0.6 * outcomes + rng.normal(size=tasks * 4), outcomes

    truth, missed = auroc(*drawn(40_000)), 0
    for _ in range(150):
        runs = drawn(60)
        found = Ranking.of(*runs).estimate(task_resamples(np.repeat(np.arange(60), 4), draws=300))
        assert found["low"] is not None and found["high"] is not None
        assert found["value"] == pytest.approx(auroc(*runs))
        missed += not found["low"] <= truth <= found["high"]
    assert missed <= 7.5 + 3.5 * 2.7
