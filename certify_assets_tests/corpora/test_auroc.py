from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.corpora.auroc import auroc
from certify_assets.errors import InputError

ROWS = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1)), min_size=2, max_size=30)


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_equals_the_count_over_pairs(rows: list[tuple[int, int]]) -> None:
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a, x in rows for b, y in rows if x == 1 and y == 0]
    area = auroc([score for score, _ in rows], [outcome for _, outcome in rows])
    assert math.isnan(area) if not wins else area == pytest.approx(np.mean(wins))


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_a_strictly_increasing_map_changes_nothing(rows: list[tuple[int, int]]) -> None:
    scores, outcomes = np.array(rows, dtype=float).T
    np.testing.assert_equal(auroc(np.exp(scores) - 7, outcomes), auroc(scores, outcomes))


def test_unscored_rows_are_left_out() -> None:
    assert auroc([1.0, float("nan"), 0.0], [1, 0, 0]) == 1.0
    assert math.isnan(auroc([], []))


@pytest.mark.parametrize(("scores", "outcomes"), [([1.0], [1, 0]), ([1.0, 2.0], [0, 2]), ([1.0, 2.0], [0, float("nan")])])
def test_what_is_no_list_of_outcomes_is_refused(scores: list[float], outcomes: list[float]) -> None:
    with pytest.raises(InputError):
        auroc(scores, outcomes)
