import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.certificates import observe
from certify_assets.certificates.counts import count_tasks
from certify_assets.errors import InputError


def table(
    seed: int, rows: int = 200, tasks: int = 20, ties: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 30, rows) / 7.0 if ties else rng.normal(size=rows)
    return scores.astype(float), rng.integers(0, 2, rows), rng.integers(0, tasks, rows)


@pytest.mark.parametrize("side", ["reject", "release"])
@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=25, deadline=None)
def test_counts_equal_a_direct_recount(side: str, seed: int, ties: bool) -> None:
    scores, outcomes, tasks = table(seed, ties=ties)
    counts = count_tasks(observe(scores, outcomes, tasks), side)
    assert counts.thresholds.size == 40
    # the labels are sorted as text
    order = sorted(set(tasks.tolist()), key=str)
    for place, threshold in enumerate(counts.thresholds):
        inside = scores <= threshold if side == "reject" else scores >= threshold
        wrong = inside & (outcomes == (side == "reject"))
        for found, kept in ((counts.covered, inside), (counts.errors, wrong)):
            assert found[place].tolist() == [np.count_nonzero(tasks[kept] == g) for g in order]


@given(st.integers(1, 3000))
@settings(max_examples=60, deadline=None)
def test_grid_is_numpys_observed_quantile(rows: int) -> None:
    scores = np.random.default_rng(rows).normal(size=rows)
    seen = observe(scores, np.zeros(rows), np.arange(rows))
    levels = np.linspace(0.02, 0.98, 40)
    for side, method, step in (("reject", "lower", 1), ("release", "higher", -1)):
        expected = np.quantile(scores, levels, method=method)[::step]
        assert np.array_equal(count_tasks(seen, side).thresholds, expected)


def test_hash_does_not_see_row_order_or_label_type() -> None:
    scores, outcomes, tasks = table(5)
    scores[:3] = np.nan
    first = observe(scores, outcomes, tasks).sha256
    order = np.random.default_rng(0).permutation(scores.size)
    names = [str(task) for task in tasks[order]]
    mixed = [int(task) if place % 2 else task for place, task in enumerate(names)]
    forms = [tasks[order], tasks[order].astype(float), tasks[order].astype(np.uint8), names, mixed]
    forms += [np.array(names), np.array(names, dtype=object)]
    assert {
        observe(scores[order], outcomes[order].astype(bool), form).sha256 for form in forms
    } == {first}
    without = [None if np.isnan(score) else score for score in scores]
    assert observe(without, outcomes, tasks).sha256 == first


def test_hash_does_not_see_the_bits_of_nan_or_the_sign_of_zero() -> None:
    odd = np.array([0x7FF8000000000001, 0x8000000000000000], dtype=np.uint64).view(np.float64)
    found = {observe(scores, [0, 1], ["a", "b"]).sha256 for scores in (odd, [np.nan, 0.0])}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (([], [], []), "no rows"),
        (([0.1], [1], ["a", "b"]), "1, 1 and 2 rows"),
        (([0.1, -np.inf], [1, 0], ["a", "b"]), r"score at row 1 \(counting from 0\) is infinite"),
        ((["high"], [1], ["a"]), "not a number"),
        (([0.1, 0.2], [1, 2], ["a", "b"]), r"outcome at row 1 \(counting from 0\) is 2"),
        (([0.1], ["yes"], ["a"]), "neither 0 nor 1"),
        (([0.1, 0.2], [1, 0], ["a", None]), r"task at row 1 \(counting from 0\) is missing"),
        (([0.1], [1], [["a"]]), "cannot name a task"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_row(
    columns: tuple[object, object, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        observe(*columns)  # type: ignore[arg-type]
