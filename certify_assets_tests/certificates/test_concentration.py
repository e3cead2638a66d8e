import numpy as np
import pytest

from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.guard import (
    apply_guard,
    concentrated,
    factor_needed,
    largest_shares,
    least_effective,
)


def counts(*rows: list[int]) -> TaskCounts:
    covered = np.array(rows, np.int32)
    sizes = covered.max(axis=0).astype(np.int64)
    return TaskCounts(
        "reject", np.arange(float(len(rows))), covered, np.zeros_like(covered), sizes, sizes // 2
    )


def alone(row: list[int], alpha: float = 0.1, delta: float = 0.05) -> bool:
    return bool(concentrated(counts(row), alpha, delta)[0])


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.05, 0.1, 0.2, 0.5])
@pytest.mark.parametrize("delta", [0.2, 0.05, 0.05 / 1000])
@pytest.mark.parametrize("tasks", [20, 21, 57, 200])
def test_twenty_equal_tasks_are_never_refused(alpha: float, delta: float, tasks: int) -> None:
    assert not alone([8] * tasks, alpha, delta)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2])
def test_one_task_of_more_than_twice_alpha_is_refused(alpha: float) -> None:
    rest = 1000
    for share, refused in ((2 * alpha - 0.01, False), (2 * alpha + 0.01, True)):
        assert alone([round(rest * share / (1 - share)), *[1] * rest], alpha) is refused


def test_even_odds_by_hand() -> None:
    # five tasks hold W of all: (1 - .1/W)^5 is above one half where W exceeds .1/(1 - .5^(1/5)) =
    # .7725
    for light, refused in ((590, False), (587, True)):
        found = [400] * 5 + [1] * light
        share = 2000 / (2000 + light)
        assert ((1 - 0.1 / share) ** 5 > 0.5) is refused and alone(found) is refused


def test_resamples_must_be_able_to_look_away() -> None:
    assert least_effective(0.05) == pytest.approx(np.log(0.05) / np.log(1 - np.exp(-1)))
    assert 6.5 < least_effective(0.05) < 6.6 and least_effective(1e-9) == 20.0
    # at a budget of one half even odds ask for nothing beyond a single task
    assert [alone([8] * tasks, 0.5) for tasks in (6, 7)] == [True, False]


def test_shares_and_thresholds_that_cover_nothing() -> None:
    table = counts([0, 0, 0], [3, 1, 0])
    assert largest_shares(table).tolist() == [0.0, 0.75]
    assert concentrated(table, 0.1, 0.05).tolist() == [True, True]


@pytest.mark.parametrize("guard", ["floor", "none"])
def test_guards_refuse_what_is_concentrated(guard: str) -> None:
    found = apply_guard(
        counts([40_000] + [5] * 400, [5] + [5] * 400), guard=guard, alpha=0.1, delta=0.05
    )
    assert found.passed.tolist() == [guard == "none", True]
    assert found.concentrated.tolist() == [guard != "none", False]


@pytest.mark.parametrize("row", [[100] + [5] * 60, [400] * 3 + [1] * 100, [50] * 4])
def test_so_many_copies_pass(row: list[int]) -> None:
    factor = factor_needed(counts(row), 0, 0.1, 0.05)
    assert factor > 1 and not alone(row * int(np.ceil(factor)))
    assert factor_needed(counts([8] * 30), 0, 0.1, 0.05) == 1.0
