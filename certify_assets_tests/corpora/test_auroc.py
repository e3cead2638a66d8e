from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.corpora.auroc import Ranking, auroc
from certify_assets.errors import InputError

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


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_a_strictly_increasing_map_changes_nothing(rows: list[tuple[int, int]]) -> None:
    scores, outcomes = np.array(rows, dtype=float).T
    np.testing.assert_equal(auroc(np.exp(scores) - 7, outcomes), auroc(scores, outcomes))


def test_unscored_rows_are_left_out() -> None:
    assert auroc([1.0, float("nan"), 0.0], [1, 0, 0]) == 1.0
    assert math.isnan(auroc([], []))


@pytest.mark.parametrize(
    ("scores", "outcomes"), [([1.0], [1, 0]), ([1.0, 2.0], [0, 2]), ([1.0, 2.0], [0, float("nan")])]
)
def test_what_is_no_list_of_outcomes_is_refused(scores: list[float], outcomes: list[float]) -> None:
    with pytest.raises(InputError):
        auroc(scores, outcomes)


@settings(deadline=None, max_examples=60)
@given(ROWS, st.data())
def test_a_weight_is_a_number_of_copies(rows: list[tuple[int, int]], data: st.DataObject) -> None:
    copies = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    scores, outcomes = [score for score, _ in rows], [outcome for _, outcome in rows]
    repeated = auroc(np.repeat(scores, copies), np.repeat(outcomes, copies))
    found = Ranking.of(scores, outcomes).auroc(np.array(copies, dtype=np.float64))
    assert math.isnan(found) if math.isnan(repeated) else found == pytest.approx(repeated)
