"""Agreement between reviewers: Cohen's kappa, and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from certify_assets.operations.labels import Label
from certify_assets.tables.agreement import Said, measure_agreement


def said(run: str, outcome: int | None, reviewer: str, time: int = 0) -> Label:
    stamp = f"2026-01-01T00:{time // 60:02}:{time % 60:02}.000+00:00"
    return Label(run, outcome, reviewer, "page", f"{run}:{reviewer}:{time}", time=stamp)


def both(pairs: list[tuple[int, int]]) -> list[Label]:
    return [
        said(f"r{n}", outcome, name, n)
        for n, pair in enumerate(pairs)
        for name, outcome in zip(("ann", "bob"), pair, strict=True)
    ]


def test_kappa_is_that_of_a_table_worked_by_hand() -> None:
    # 20 both yes, 15 both no, 5 and 10 one each: observed .7, expected .5
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    found = measure_agreement(both(pairs), {})
    assert found.kappa == pytest.approx(0.4) and (found.runs, found.differing) == (50, 15)
    assert found.low is not None and found.high is not None
    # Fleiss, Cohen and Everitt (1969): standard error .1296 here
    assert found.low == pytest.approx(0.4 - 1.96 * 0.13, abs=0.04)
    assert found.high == pytest.approx(0.4 + 1.96 * 0.13, abs=0.04)
    said = found.sentence()
    assert "agree on 35 of 50 pairs of labels of the same run (50 runs, 50 tasks): Cohen" in said
    assert "kappa 0.40 (95 %" in said


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=30))
def test_kappa_of_two_reviewers_is_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    found = measure_agreement(both(pairs), {}, draws=10)
    first, second = zip(*pairs, strict=True)
    if len({*first, *second}) == 1:
        assert found.kappa is None and "not defined" in found.sentence()
    else:
        assert found.kappa == pytest.approx(cohen_kappa_score(first, second))


def test_attempts_of_one_task_are_one_unit_of_the_interval() -> None:
    rng = np.random.default_rng(1)
    tasks = [tuple(rng.integers(0, 2, 2).tolist()) for _ in range(30)]
    once, four = both(tasks), both([pair for pair in tasks for _ in range(4)])
    narrow = measure_agreement(four, {})
    wide = measure_agreement(four, {f"r{n}": f"t{n // 4}" for n in range(120)})
    single = measure_agreement(once, {})
    assert (wide.low, wide.high) == (single.low, single.high) and wide.tasks == 30
    assert narrow.high is not None and wide.high is not None and single.kappa == wide.kappa
    assert narrow.high < wide.high


def test_only_valid_labels_count_and_few_tasks_give_no_interval() -> None:
    labels = [said("r", 1, "ann"), said("r", 0, "bob", 1), said("r", None, "bob", 2)]
    assert "No run was labelled by two" in measure_agreement(labels, {}).sentence()
    again = measure_agreement([*labels, said("r", 0, "bob", 3)], {})
    assert (again.pairs, again.differing, again.low) == (1, 1, None)
    assert again.sentence().endswith("(1 run, 1 task). Cohen's kappa needs 10 tasks.")
    assert measure_agreement([], {}).reviewers == ()
    perfect = measure_agreement(both([(0, 0), (1, 1)] * 20), {})
    assert perfect.kappa == 1.0 and perfect.low is None


def test_known_runs_are_counted_by_reviewer() -> None:
    gold = [(Said("bob", f"g{n}", 0), n % 2) for n in range(4)]
    ann, bob = measure_agreement(both([(0, 1)]), {}, gold=gold).reviewers
    assert (bob.gold, bob.gold_errors, ann.gold) == (4, 2, 0)


@pytest.mark.statistics
def test_the_interval_covers_the_kappa_of_many_tasks() -> None:
    rng = np.random.default_rng(7)

    def draw(tasks: int) -> tuple[list[tuple[int, int]], dict[str, str]]:
        hard, truth = rng.random(tasks) < 0.3, rng.random(tasks) < 0.5
        pairs, names = [], {}
        for task in range(tasks):
            for _ in range(2):
                flips = rng.random(2) < (0.4 if hard[task] else 0.05)
                names[f"r{len(pairs)}"] = f"t{task}"
                pairs.append((int(truth[task] ^ flips[0]), int(truth[task] ^ flips[1])))
        return pairs, names

    pairs, names = draw(20_000)
    truth = measure_agreement(both_of(pairs), names, draws=1).kappa
    covered = 0
    for _ in range(300):
        pairs, names = draw(60)
        found = measure_agreement(both_of(pairs), names, draws=400)
        assert found.low is not None and found.high is not None and truth is not None
        covered += found.low <= truth <= found.high
    # .95 less what a percentile bootstrap of 60 tasks loses
    assert 0.90 <= covered / 300 <= 0.99


def both_of(pairs: list[tuple[int, int]]) -> list[Label]:
    return [
        Label(f"r{n}", outcome, name, "page", f"{n}{name}", time="2026-01-01T00:00:00+00:00")
        for n, pair in enumerate(pairs)
        for name, outcome in zip(("ann", "bob"), pair, strict=True)
    ]
