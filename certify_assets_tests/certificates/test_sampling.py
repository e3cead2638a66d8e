"""The draw of runs to label: golden values, and what it may depend on."""

from collections import Counter

import numpy as np
import pytest

from certify_assets.certificates.sampling import Draw, reading_batches, shuffled, unit
from certify_assets.errors import InputError

SIZES = {"a": 1, "b": 3, "c": 8, "d": 16}
TASKS = [task for task, size in SIZES.items() for _ in range(size)]
RUNS = [str(run) for size in SIZES.values() for run in range(size)]
SCORES = np.linspace(0, 1, len(TASKS))


def drawn(**asked: object) -> list[int]:
    draw = Draw.of(TASKS, RUNS, SCORES, **asked)  # type: ignore[arg-type]
    return list(map(int, draw.rows(TASKS, RUNS)))


def test_golden_units_and_draws() -> None:
    units = [round(unit(42, task), 12) for task in SIZES]
    assert units == [0.844599665859, 0.600930781579, 0.753567098142, 0.480719117474]
    assert sorted(drawn(count=99, attempts=2)) == [0, 1, 2, 10, 11, 17, 22]
    assert sorted(drawn(count=4, estimand="runs", most=16)) == [11, 22]


def test_fewer_runs_are_the_beginning_of_more() -> None:
    whole = drawn(count=28)
    assert sorted(whole) == list(range(28)), "as many attempts as the count needs"
    for count in (2, 4, 7):
        assert drawn(count=count) == whole[:count]
    assert [TASKS[place] for place in whole[:2]] == ["d", "b"], "those of the smallest units"


def test_scores_and_outcomes_decide_nothing_and_the_seed_does() -> None:
    others = Draw.of(TASKS, RUNS, -SCORES, count=3)
    assert others.rows(TASKS, RUNS).tolist() == drawn(count=3)
    assert others.sha256 != Draw.of(TASKS, RUNS, SCORES, count=3).sha256
    assert drawn(count=3, seed=1) != drawn(count=3, seed=2)
    order = np.random.default_rng(0).permutation(len(TASKS))
    tasks, runs = [TASKS[place] for place in order], [RUNS[place] for place in order]
    turned = Draw.of(tasks, runs, SCORES[order], count=5)
    assert turned == Draw.of(TASKS, RUNS, SCORES, count=5)
    assert [order[place] for place in turned.rows(tasks, runs)] == drawn(count=5)


@pytest.mark.parametrize("most", [1, 4, 16])
def test_runs_of_tasks_up_to_the_cap_count_alike(most: int) -> None:
    often: Counter[str] = Counter()
    for seed in range(4_000):
        kept = Draw.of(TASKS, RUNS, SCORES, count=4, estimand="runs", most=most, seed=seed)
        rows = [TASKS[place] for place in kept.rows(TASKS, RUNS)]
        assert len(set(rows)) == len(rows), "at most one run a task"
        often.update(rows)
    for task, size in SIZES.items():
        # the standard error of a share of 4,000 is at most .008
        assert often[task] / 4_000 == pytest.approx(min(size, most) / most, abs=0.03)


def test_the_kept_task_and_its_run_are_drawn_without_regard_to_its_size() -> None:
    often = Counter(drawn(count=1, seed=seed)[0] for seed in range(4_000))
    for row, task in enumerate(TASKS):
        # the standard error of a share of 4,000 is at most .007
        assert often[row] / 4_000 == pytest.approx(1 / (4 * SIZES[task]), abs=0.025)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"estimand": "runs"}, "needs --most C"),
        ({"most": 4}, "--most is for --estimand runs"),
    ],
)
def test_a_cap_is_declared_where_every_run_counts(asked: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        drawn(count=4, **asked)


def test_batches_follow_the_score_from_both_ends() -> None:
    scores = np.array([5.0, 1.0, 2.0, 2.0, 3.0, 4.0, np.nan])
    low = reading_batches(scores, ["reject"], first=2, later=1)
    # the tied runs are read together
    assert low.tolist() == [4, 1, 1, 1, 2, 3, 0]
    both = reading_batches(scores, ["reject", "release"], first=1, later=1)
    assert both.tolist() == [1, 1, 2, 2, 3, 2, 0]
    names = [str(place) for place in range(7)]
    order = shuffled(3, names, both)
    assert (np.diff(both[order[:-1]]) >= 0).all() and order[-1] == 6
