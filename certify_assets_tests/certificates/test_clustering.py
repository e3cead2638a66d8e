"""Numbers of the paper that follow from its own numbers, and the clustering summaries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.certificates import n_min
from certify_assets.certificates.clustering import anova_icc, design_effect, summarise_clusters
from certify_assets.certificates.procedures import clopper_pearson_upper


@pytest.mark.parametrize(
    ("errors", "covered", "level", "bound"),
    [
        (0, 29, 0.05, 0.0981446),
        (0, 28, 0.05, 0.1014657),
        (0, 64, 0.00125, 0.0991775),
        (73, 502, 0.00125, 0.1984890),
        (0, 0, 0.05, 1.0),
        (5, 5, 0.05, 1.0),
    ],
)
def test_clopper_pearson_golden_numbers(
    errors: int, covered: int, level: float, bound: float
) -> None:
    assert clopper_pearson_upper(errors, covered, level) == pytest.approx(bound, abs=5e-8)


def test_n_min_golden_numbers() -> None:
    assert [n_min(alpha, level) for alpha in (0.1, 0.2) for level in (0.05, 0.05 / 40)] == [
        29,
        64,
        14,
        30,
    ]


def test_design_effects_of_the_paper() -> None:
    assert design_effect(16, 0.80) == pytest.approx(13.0)
    assert design_effect(8, 0.81) == pytest.approx(6.67)
    sizes = np.full(32, 16, np.int64)
    assert summarise_clusters(sizes, np.where(np.arange(32) < 5, 16, 0)).deff == pytest.approx(16.0)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=2, max_size=30))
@settings(max_examples=60, deadline=None)
def test_icc_equals_the_anova_of_the_long_table(pairs: list[tuple[int, int]]) -> None:
    sizes = np.array([n for n, _ in pairs])
    successes = np.array([min(n, k) for n, k in pairs])
    groups = [np.array([1.0] * k + [0.0] * (n - k)) for n, k in zip(sizes, successes, strict=True)]
    every = np.concatenate(groups)
    total, count = every.size, len(groups)
    found = anova_icc(sizes, successes)
    if total == count or every.std() == 0:
        assert found == 0.0
        return
    between = sum(group.size * (group.mean() - every.mean()) ** 2 for group in groups) / (count - 1)
    within = sum(((group - group.mean()) ** 2).sum() for group in groups) / (total - count)
    n0 = (total - (sizes**2).sum() / total) / (count - 1)
    assert found == pytest.approx(
        min(max((between - within) / (between + (n0 - 1) * within), 0), 1), abs=1e-9
    )


def test_icc_ends() -> None:
    # no spread within or between tasks, or nothing that tells them apart, is a correlation of 0
    for sizes, successes, icc in (
        ([4, 4, 4], [4, 0, 4], 1.0),
        ([4, 4, 4], [2, 2, 2], 0.0),
        ([5], [3], 0.0),
        ([1, 1, 1], [1, 0, 1], 0.0),
        ([4, 4], [4, 4], 0.0),
    ):
        assert anova_icc(np.array(sizes), np.array(successes)) == icc
