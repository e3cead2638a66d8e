"""The batch certificate: golden tables, exact risk, the widening draw, giving up, both sides."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from certify_assets.certificates.batch import Batch, BatchPlan, SidePlan
from certify_assets.certificates.batch_draw import BatchDraw, SideDraw, certificate_sentence
from certify_assets.certificates.batch_planning import History, plan_batch
from certify_assets.certificates.batch_tables import SetTable, error_limit, set_table, stopping
from certify_assets.errors import InputError

DELTA = 0.05


def risk(table: SetTable, errors: int, one: Any = float) -> Any:
    """Probability that so many errors are ever certified, label by label over all orders."""
    alive, found = [one(1), *[one(0)] * errors], one(0)
    for drawn in range(1, table.runs + 1):
        left = table.runs - drawn + 1
        chances = [one(errors - k) / one(left) for k in range(errors + 1)]
        alive = [
            alive[k] * (1 - min(chances[k], one(1)))
            + (alive[k - 1] * min(chances[k - 1], one(1)) if k else 0)
            for k in range(errors + 1)
        ]
        for k in range(min(int((table.needed <= drawn).sum()), errors + 1)):
            found, alive[k] = found + alive[k], one(0)
    return found


def expected_labels(table: SetTable, errors: int) -> float:
    """Mean labels until a set is certified, or one error too many is found."""
    alive, labels = {0: 1.0}, 0.0
    for drawn in range(1, table.runs + 1):
        after: dict[int, float] = {}
        for k, chance in alive.items():
            labels += chance
            wrong = (errors - k) / (table.runs - drawn + 1)
            for more, share in ((0, 1 - wrong), (1, wrong)):
                after[k + more] = after.get(k + more, 0) + chance * share
        certain = int((table.needed <= drawn).sum())
        alive = {k: chance for k, chance in after.items() if certain <= k < table.limit}
    return labels


@pytest.mark.parametrize(
    ("runs", "alpha", "delta", "limit", "critical", "needed", "exact"),
    [
        (50, 0.1, 0.05, 6, 16.4514, [20, 34, 41, 46, 49, 50], 0.0488333),
        (200, 0.1, 0.05, 21, 16.6489, [29, 51, 68, 83, 96, 107, 118, 128, 138, 147], 0.049840),
        (200, 0.1, 0.025, 21, 34.2694, [35, 57, 74, 88], 0.023744),
        (100, 0.2, 0.05, 21, 16.6615, [14, 24, 32, 39, 45, 51, 57, 62], 0.0498006),
    ],
)
def test_golden_tables(
    runs: int,
    alpha: float,
    delta: float,
    limit: int,
    critical: float,
    needed: list[int],
    exact: float,
) -> None:
    table = set_table(runs, alpha, delta)
    assert table.limit == limit and table.critical_value == pytest.approx(critical, abs=6e-4)
    assert table.needed[: len(needed)].tolist() == needed
    assert table.risk == pytest.approx(exact, abs=6e-7)


def test_golden_labels_and_risk_in_fractions() -> None:
    small = set_table(50, 0.1, DELTA)
    assert risk(small, small.limit, Fraction) == Fraction(51733, 1059380)
    assert [expected_labels(small, k) for k in (0, 1)] == pytest.approx([20, 25.6])
    table = set_table(200, 0.1, DELTA)
    found = [expected_labels(table, k) for k in (0, 4, 10)]
    assert found == pytest.approx([29, 44.701, 88.532], abs=6e-4)


@pytest.mark.parametrize("runs", [1, 7, 50, 120, 700])
@pytest.mark.parametrize(("alpha", "delta"), [(0.05, 0.05), (0.1, 0.025), (0.2, 0.0075)])
def test_the_exact_risk_is_at_most_delta_for_every_number_of_errors(
    runs: int, alpha: float, delta: float
) -> None:
    table = set_table(runs, alpha, delta)
    if table.limit <= runs:
        worst = risk(table, table.limit)
        assert worst == pytest.approx(table.risk, abs=1e-9) and worst <= delta
    if runs <= 50:
        risks = [risk(table, errors) for errors in range(table.limit, runs + 1)]
        assert all(later <= earlier + 1e-12 for earlier, later in pairwise(risks))


def test_a_table_of_a_huge_set_ends_and_keeps_its_risk() -> None:
    table = set_table(100_000, 0.1, DELTA)
    assert table.needed[-1] <= 1600 and 0.03 < table.risk <= DELTA


def test_golden_value_and_line_of_giving_up() -> None:
    table = set_table(200, 0.1, DELTA)
    means = 0.1 * np.array([0.1, 0.3, 0.6, 1, 2, 4])
    found = stopping(table, np.full(6, 1 / 6), means)
    assert found.value == pytest.approx(63.55, abs=0.005)
    assert found.errors[[5, 10, 20, 30, 40]].tolist() == [2, 3, 3, 4, 5]


# the draw of one side


def side_plan(*thresholds: float, alpha: float = 0.1, **changes: object) -> SidePlan:
    means = [[0.02] * len(thresholds), [0.15] * len(thresholds)]
    given = {
        "side": "reject",
        "alpha": alpha,
        "delta": DELTA,
        "thresholds": thresholds,
        "weights": (0.7, 0.3),
        "means": tuple(map(tuple, means)),
        "expected_labels": 40.0,
        "expected_net_share": 0.2,
    }
    return SidePlan.model_validate(given | changes)


@pytest.fixture
def batch() -> Batch:
    names = [f"run-{number:03d}" for number in range(120)]
    return Batch.of(names, [name[:6] for name in names], np.linspace(0, 1, 120))


def drawn(batch: Batch, *thresholds: float, seed: int = 3) -> SideDraw:
    return BatchDraw(BatchPlan(sides=(side_plan(*thresholds),)), batch, seed).sides[0]


def labelled(
    side: SideDraw, wrong: frozenset[str] = frozenset(), most: int = 10**6
) -> dict[str, int]:
    """Label what is wanted, run after run, until nothing is or there are so many labels."""
    known: dict[str, int] = {}
    while len(known) < most and (now := side.progress(known)) is not None and now.wanted:
        known[now.wanted[0]] = int(now.wanted[0] in wrong)
    return known


def test_golden_chain() -> None:
    names = [f"{number:02d}" for number in range(100)]
    batch = Batch.of(names, names, np.arange(100.0))
    plan = side_plan(39.0, 69.0, 99.0, alpha=0.2)
    side = SideDraw(plan, batch, [(37 * i + 11) % 100 for i in range(100)], 0, "0" * 64)
    assert [one.table.limit for one in side.sets] == [9, 15, 21]
    assert [one.table.needed[:4].tolist() for one in side.sets] == [
        [12, 19, 25, 29],
        [13, 22, 30, 36],
        [14, 24, 32, 39],
    ]
    wrong = frozenset(names[place] for place in (30, 55, 65, 75, 80, 85, 90, 95))
    known = labelled(side, wrong)
    assert side.crossings(known) == [12, 22, 32] and len(known) == 32
    for labels, decided, errors in ((12, 40, 0), (22, 70, 1), (32, 100, 2)):
        found = side.close(labelled(side, wrong, labels))
        assert (found.decided, found.labels_used, found.errors_found) == (decided, labels, errors)
        assert found.state == "certified" and found.e_value >= found.critical_value


def test_a_draw_depends_on_seed_plan_and_batch_alone(batch: Batch) -> None:
    names = drawn(batch, 0.5).sets[0].names
    shuffled = Batch.of(batch.trajectories[::-1], batch.tasks[::-1], batch.scores[::-1])
    assert drawn(shuffled, 0.5).sets[0].names == names
    assert drawn(batch, 0.5, seed=8).sets[0].names != names
    assert drawn(batch, 0.4, 0.5).sets[1].names != names, "another plan draws another order"
    assert sorted(names) == list(batch.trajectories[:60])
    with pytest.raises(InputError, match="twice"):
        Batch.of(["a", "a"], ["t", "t"], [0.1, 0.1])


def test_sets_widen_until_labels_do_not_pay(batch: Batch) -> None:
    side = drawn(batch, 0.4, 0.8)
    right = side.close(labelled(side))
    assert (right.threshold, right.decided, right.label_next) == (0.8, 96, ())
    ring = frozenset(batch.trajectories[48:96])
    known = labelled(side, ring)
    strict = side.close(known)
    assert (strict.threshold, strict.decided, strict.errors_found) == (0.4, 48, 0)
    assert strict.labels_used == side.sets[0].table.needed[0], "labels of the ring do not count"
    assert strict.labels_used < len(known) < strict.labels_used + 10, "it gives up on the ring"
    now = side.progress(known)
    assert now is not None and now.wanted == () and "Stop:" in now.sentence()
    assert certificate_sentence(strict, now).startswith("48 runs are certified: at most 10 % of ")


def test_it_gives_up_and_goes_on_where_more_labels_come(batch: Batch) -> None:
    side = drawn(batch, 0.8)
    early = frozenset(side.sets[0].names[:3])
    known = labelled(side, early)
    stopped = side.close(known)
    assert (stopped.state, stopped.certified) == ("not_worth_it", False)
    assert stopped.labels_used == stopped.errors_found == len(known) <= 3
    for name in side.sets[0].names:
        known[name] = int(name in early)
        if (found := side.close(known)).certified:
            break
    assert found.errors_found == 3 and found.decided == 96 and found.labels_used == len(known) > 50


def test_a_tie_says_only_whether_labels_are_wanted(batch: Batch) -> None:
    side = drawn(batch, 0.8)
    first, *others = side.sets[0].names
    known, tied = dict.fromkeys(others[:3], 1), {first}
    assert side.wanted(known, tied) == set(), "not worth it even if the judge is right on the tie"
    found, open_ = side.close(known, tied), side.close(known)
    assert (found.state, found.label_next) == ("not_worth_it", ())
    assert first in open_.label_next
    same = {"state": open_.state, "label_next": open_.label_next}
    assert found.model_copy(update=same) == open_
    # one that could still certify is open until a third label
    known = dict.fromkeys(others[:39], 0)
    assert side.wanted(known, tied) == tied
    assert side.close(known, tied) == side.close(known) and not side.close(known).certified


def test_more_errors_than_the_budget_end_it(batch: Batch) -> None:
    side = drawn(batch, 0.25)
    names, table = side.sets[0].names, side.sets[0].table
    found = side.close(dict.fromkeys(names, 1))
    assert (found.state, found.labels_used) == ("to_reviewers", table.limit)
    assert found.errors_found == table.limit and found.threshold is None
    # and undo a certificate that came before
    first = int(table.needed[0])
    late = {name: int(place >= first) for place, name in enumerate(names)}
    assert side.close(dict(list(late.items())[:first])).certified
    assert not side.close(late).certified


def test_only_the_first_labels_of_a_set_count(batch: Batch) -> None:
    side = drawn(batch, 0.4, 0.8)
    names = side.sets[0].names
    gap = dict.fromkeys((*names[:3], *names[4:40], "run-x"), 0)
    found = side.close(gap)
    assert (found.labels_used, found.state) == (3, "continue") and found.label_next == (names[3],)
    whole = side.close({**gap, names[3]: 0})
    assert whole.certified and whole.labels_used == side.sets[0].table.needed[0]
    # later labels change nothing of what is certified
    assert side.close(dict.fromkeys(names, 0)) == whole


# the plan


def outcomes_of(scores: Any, rng: np.random.Generator) -> Any:
    return (rng.random(scores.size) < 1 / (1 + np.exp(-8 * scores))).astype(np.int64)


@pytest.fixture(scope="module")
def history() -> History:
    rng = np.random.default_rng(5)
    scores = rng.normal(size=800)
    return History(scores, outcomes_of(scores, rng), "h")


@pytest.fixture(scope="module")
def new() -> Batch:
    names = [f"run-{number:03d}" for number in range(240)]
    return Batch.of(names, ["t"] * 240, np.random.default_rng(6).normal(size=240))


def test_a_plan_is_chosen_by_the_history_and_survives_its_file(
    new: Batch, history: History
) -> None:
    plan = plan_batch(new, alphas={"reject": 0.1}, delta=DELTA, history=history)
    assert plan is not None and len(plan.sides) == 1 and plan.cut is None
    side = plan.sides[0]
    assert -1 < side.thresholds[0] < 0 < side.expected_labels < 60 and side.delta == DELTA
    assert 0.2 < side.expected_net_share < 0.5
    assert BatchPlan.from_dict(plan.to_dict()) == plan
    with pytest.raises(InputError, match="batch plan"):
        BatchPlan.from_dict({**plan.to_dict(), "note": "mine"})
    with pytest.raises(InputError, match="--history"):
        plan_batch(new, alphas={"reject": 0.1}, delta=DELTA)


def test_no_run_is_in_the_sets_of_both_sides(new: Batch, history: History) -> None:
    plan = plan_batch(new, alphas={"reject": 0.1, "release": 0.2}, delta=DELTA, history=history)
    assert plan is not None
    assert [(item.side, item.alpha, item.delta) for item in plan.sides] == [
        ("reject", 0.1, 0.025),
        ("release", 0.2, 0.025),
    ]
    draw = BatchDraw(plan, new, 3)
    reject, release = (set(side.names) for side in draw.sides)
    assert reject and release and not reject & release
    assert set(draw.order) == reject | release and set(draw.wanted({})) < set(draw.order)
    assert {draw.order[0] in reject, draw.order[1] in reject} == {True, False}, "sides in turns"


def test_a_side_that_saves_nothing_gives_its_risk_to_the_other(
    new: Batch, history: History
) -> None:
    alphas = {"reject": 0.1, "release": 0.2}
    failures = History(history.scores, np.zeros(history.scores.size, np.int64))
    plan = plan_batch(new, alphas=alphas, delta=DELTA, history=failures)
    assert plan is not None and plan.cut is None
    assert [(item.side, item.delta) for item in plan.sides] == [("reject", DELTA)]
    noise = History(history.scores, np.random.default_rng(1).integers(0, 2, history.scores.size))
    assert plan_batch(new, alphas=alphas, delta=DELTA, history=noise) is None


def test_thresholds_are_planned_as_they_are_given(new: Batch) -> None:
    meeting = {"reject": 0.5, "release": 0.1}
    plan = plan_batch(new, alphas=dict.fromkeys(meeting, 0.1), delta=DELTA, thresholds=meeting)
    assert plan is not None and plan.cut == pytest.approx(0.3)
    assert not set.intersection(*(set(side.names) for side in BatchDraw(plan, new, 1).sides))
    with pytest.raises(InputError, match="No run"):
        plan_batch(new, alphas={"reject": 0.1}, delta=DELTA, thresholds={"reject": -9.0})


# the promise, simulated


@pytest.mark.statistics
@pytest.mark.parametrize("where", ["every set", "the widest set"])
def test_chains_with_one_error_too_many_hold(where: str) -> None:
    """Simulated share at most δ and two standard errors (.0049) of 2,000 batches."""
    sizes, trials, violated = (40, 70, 100), 2000, 0
    names = [f"{number:03d}" for number in range(100)]
    batch = Batch.of(names, names, np.arange(100.0))
    plan = BatchPlan(sides=(side_plan(*(size - 1.0 for size in sizes), alpha=0.2),))
    wrong, start = np.zeros(100, dtype=np.int64), 0
    for size in sizes:
        if where == "every set" or size == sizes[-1]:
            missing = error_limit(0.2, size) - int(wrong[:start].sum())
            wrong[start : start + missing] = 1
        start = size
    above = [size for size in sizes if wrong[:size].sum() >= error_limit(0.2, size)]
    for seed in range(trials):
        side = BatchDraw(plan, batch, seed).sides[0]
        # labelled to the end: no rule of stopping makes it safer
        passed = side.crossings(dict(zip(names, wrong.tolist(), strict=True)))
        violated += any(size in above for size in sizes[: len(passed)])
    assert violated / trials <= DELTA + 2 * math.sqrt(DELTA * (1 - DELTA) / trials)


@pytest.mark.statistics
def test_both_sides_hold_at_once(history: History) -> None:
    """Each set of both sides has one error too many; labelled until it is not worth it."""
    rng, trials, violated = np.random.default_rng(8), 2000, 0
    names = [f"r{number:03d}" for number in range(160)]
    batch = Batch.of(names, ["t"] * 160, np.linspace(-3, 3, 160))
    thresholds = {"reject": -0.5, "release": 0.5}
    plan = plan_batch(
        batch, alphas=dict.fromkeys(thresholds, 0.2), delta=0.2, thresholds=thresholds
    )
    assert plan is not None
    for _ in range(trials):
        draw, truth = BatchDraw(plan, batch, int(rng.integers(2**62))), dict[str, int]()
        for side in draw.sides:
            error = int(side.plan.side == "reject")
            wrong = rng.choice(len(side.names), side.sets[0].table.limit, replace=False)
            truth |= dict.fromkeys(side.names, 1 - error)
            truth |= {side.names[place]: error for place in wrong.tolist()}
        known: dict[str, int] = {}
        while wanted := draw.wanted(known):
            known |= {name: truth[name] for name in wanted[:1]}
        violated += any(item.certified for item in draw.close(known))
    # promised .2; Monte-Carlo standard error of 2,000 batches at .2: .009
    assert violated / trials <= 0.2 + 2 * math.sqrt(0.2 * 0.8 / trials)
