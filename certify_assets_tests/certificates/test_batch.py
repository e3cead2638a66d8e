"""The batch certificate: golden label counts, exact risk, the draw, nested sets, refusals."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from certify_assets.certificates.batch import (
    Batch,
    BatchDraw,
    BatchPlan,
    RiskCurve,
    SequentialTest,
    error_limit,
    uniform_test,
    weighted_test,
)
from certify_assets.certificates.batch_planning import History, plan_batch
from certify_assets.certificates.wealth import weighted_wealth
from certify_assets.errors import InputError


def uniform(errors: list[int], decided: int, alpha: float = 0.1) -> SequentialTest:
    return uniform_test(errors, decided, alpha=alpha, delta=0.05, predicted_error=0.03)


@pytest.mark.parametrize(
    ("decided", "alpha", "labels"), [(150, 0.1, 29), (400, 0.1, 32), (150, 0.2, 14), (400, 0.2, 15)]
)
def test_labels_without_an_error_are_those_of_the_design_page(
    decided: int, alpha: float, labels: int
) -> None:
    found = uniform_test([0] * decided, decided, alpha=alpha, delta=0.05, predicted_error=0.03)
    assert found.certified and found.labels == labels and found.errors == 0
    before = uniform_test(
        [0] * (labels - 1), decided, alpha=alpha, delta=0.05, predicted_error=0.03
    )
    assert not before.certified and before.e_value < 20 <= found.e_value


def test_the_budget_is_an_integer_ratio() -> None:
    assert [error_limit(0.1, size) for size in (9, 10, 30, 70)] == [1, 2, 4, 8]
    assert error_limit(0.07, 100) == 8, (
        "7 errors of 100 are within .07; 100 · .07 is 7.000000000000001"
    )


def test_too_many_errors_fail_and_a_full_draw_settles_it() -> None:
    failed = uniform([1, 1, 1, 0], 20)
    assert (failed.failed, failed.certified, failed.labels, failed.errors) == (True, False, 3, 3)
    full = uniform([0] * 18 + [1, 1], 20)
    assert full.certified, "2 of 20 are the budget"


def test_the_risk_of_a_uniform_draw_is_exactly_below_delta() -> None:
    decided, limit = 9, error_limit(0.2, 9)
    errors = [1] * limit + [0] * (decided - limit)
    orders = set(permutations(errors))
    certified = [
        uniform_test(list(order), decided, alpha=0.2, delta=0.3, predicted_error=0.05).certified
        for order in orders
    ]
    assert 0 < np.mean(certified) <= 0.3


def test_wealth_of_a_weighted_draw_does_not_grow_with_one_error_too_many() -> None:
    weights, risks = np.array([0.2, 0.5, 1.0, 1.5, 0.3]), np.array([0.02, 0.1, 0.3, 0.4, 0.05])
    for wrong in permutations([1, 1, 0, 0, 0]):
        expected = np.zeros(3)
        for order in permutations(range(5), 3):
            left, chance = weights.sum(), 1.0
            for run in order:
                chance *= weights[run] / left
                left -= weights[run]
            errors = np.array([wrong[run] for run in order], dtype=np.int64)
            wealth = weighted_wealth(errors, np.array(order), weights, risks, limit=2, strength=0.5)
            expected += chance * np.exp(wealth)
        assert (expected <= 1 + 1e-9).all()


def test_a_weighted_test_certifies_by_safe_draws_and_refuses_no_weight() -> None:
    weights, risks = np.ones(100), np.full(100, 0.03)
    found = weighted_test(np.zeros(100, int), np.arange(100), weights, risks, alpha=0.1, delta=0.05)
    assert found.certified and 22 <= found.labels <= 30
    with pytest.raises(InputError, match="not positive"):
        weighted_test([0], [0], [0.0, 1.0], [0.1, 0.1], alpha=0.1, delta=0.05)


@pytest.fixture
def batch() -> Batch:
    names = [f"run-{number:03d}" for number in range(120)]
    return Batch.of(names, [name[:6] for name in names], np.linspace(0, 1, 120))


def plan_of(*thresholds: float, risk: RiskCurve | None = None) -> BatchPlan:
    return BatchPlan("reject", 0.1, 0.05, thresholds, (0.03,) * len(thresholds), risk=risk)


def labels(draw: BatchDraw, number: int, wrong: frozenset[str] = frozenset()) -> dict[str, int]:
    names = [draw.batch.trajectories[place] for place in draw.order[:number].tolist()]
    return {name: int(name in wrong) for name in names}


def test_a_draw_depends_on_seed_plan_and_batch_alone(batch: Batch) -> None:
    draw = BatchDraw(plan_of(0.5), batch, 7)
    shuffled = Batch.of(batch.trajectories[::-1], batch.tasks[::-1], batch.scores[::-1])
    assert BatchDraw(plan_of(0.5), shuffled, 7).order.tolist() == draw.order.tolist()
    assert BatchDraw(plan_of(0.5), batch, 8).order.tolist() != draw.order.tolist()
    assert BatchDraw(plan_of(0.4, 0.5), batch, 7).batch_sha256 != draw.batch_sha256
    assert sorted(draw.order.tolist()) == list(range(60))


def test_every_run_is_drawn_first_as_often_as_its_weight(batch: Batch) -> None:
    risk = RiskCurve((0.25, 1.0), (0.04, 0.36))
    draws = [BatchDraw(plan_of(0.502, risk=risk), batch, seed).order[0] for seed in range(2000)]
    share = np.mean(np.array(draws) < 30)
    # weights .2 and .6, thirty runs of each: 1/4, standard error .0097
    assert abs(share - 0.25) < 0.03


def test_nested_sets_are_certified_from_the_strictest_outward(batch: Batch) -> None:
    draw = BatchDraw(plan_of(0.25, 0.8), batch, 3)
    wide = frozenset(batch.trajectories[40:96])
    found = draw.close(labels(draw, 90, wide))
    assert (found.certified, found.threshold, found.decided) == (True, 0.25, 30)
    used = sum(draw.levels[place] == 0 for place in draw.order[: found.labels_used].tolist())
    assert found.net_share == pytest.approx((30 - used) / 120) and found.errors_found == 0
    both = draw.close(labels(draw, 80))
    assert (both.threshold, both.decided) == (0.8, 96)
    assert both.net_share == (96 - both.labels_used) / 120
    lost = draw.close(labels(draw, 30, frozenset(batch.trajectories)))
    assert (lost.certified, lost.status, lost.threshold) == (False, "to_reviewers", None)
    assert draw.close({}).status == "open"


@pytest.mark.slow
def test_the_risk_of_nested_sets_together_is_exactly_below_delta() -> None:
    names = [f"r{number}" for number in range(7)]
    batch = Batch.of(names, names, np.arange(7))
    plan = BatchPlan("reject", 0.3, 0.3, (3.0, 6.0), (0.05, 0.05))
    wrong = np.array([1, 1, 0, 0, 1, 0, 0])
    certified = []
    for order in permutations(range(7)):
        draw = BatchDraw(plan, batch, 0)
        draw.__dict__["order"] = np.array(order)
        trace = draw.trace(wrong[list(order)].tolist())
        certified.append(trace.certified.any())
    # 2 of 4 and 3 of 7 are one error too many in each
    assert trace.limits.tolist() == [2, 3] and 0 < np.mean(certified) <= 0.3


def test_drawing_goes_on_while_a_wider_set_is_likely_to_save_more(batch: Batch) -> None:
    draw = BatchDraw(plan_of(0.4, 0.8), batch, 3)
    stop = int(draw.trace([0] * draw.order.size).stops)
    found = draw.close(labels(draw, stop))
    assert (found.threshold, found.worth_more) == (0.8, False) and found.net_share > 0.4
    ring = frozenset(batch.trajectories[48:96])
    wrong = [int(batch.trajectories[place] in ring) for place in draw.order]
    early = int(draw.trace(wrong).stops)
    strict = draw.close(labels(draw, early, ring))
    assert (strict.threshold, strict.worth_more) == (0.4, False)
    before = draw.close(labels(draw, early - 1, ring))
    assert (before.certified, before.status) == (False, "open"), "it stops at once"
    assert draw.close(labels(draw, 60, frozenset(batch.trajectories))).status == "to_reviewers"


def test_a_set_with_more_errors_than_its_budget_is_not_certified_any_more(batch: Batch) -> None:
    draw = BatchDraw(plan_of(0.5), batch, 3)
    names = [batch.trajectories[place] for place in draw.order]
    late = frozenset(names[45:])
    assert draw.close(labels(draw, 45, late)).certified
    assert not draw.close(labels(draw, 60, late)).certified


def test_labels_beyond_those_that_settled_it_change_no_figure(batch: Batch) -> None:
    draw = BatchDraw(plan_of(0.25, 0.8), batch, 3)
    lost = frozenset(batch.trajectories)
    for settled, wrong in (("certified", frozenset()), ("to_reviewers", lost)):
        found = [draw.close(labels(draw, number, wrong)) for number in range(97)]
        first = next(item for item in found if item.status == settled and item.decided in (0, 96))
        assert first.labels_used == found.index(first) < 96
        for later in found[first.labels_used :]:
            kept = ("status", "threshold", "labels_used", "errors_found", "net_share")
            assert all(getattr(later, name) == getattr(first, name) for name in kept)


def test_agents_that_differ_make_a_plan_expect_less(batch: Batch) -> None:
    rng = np.random.default_rng(0)
    scores, agents = rng.random(800), np.arange(800) % 8
    base = np.clip(2 * scores - 0.6, 0.02, 1)
    expected = []
    for factor in (1.0, 8.0):
        odds = base / (1.0001 - base) * np.where(agents % 2, factor, 1 / factor)
        outcomes = (rng.random(800) < odds / (1 + odds)).astype(np.int64)
        history = History(scores, outcomes, list("t") * 800, agents=[f"a{code}" for code in agents])
        plan = plan_batch(batch, side="reject", alpha=0.1, delta=0.05, history=history)
        expected.append(plan.expected_net_share or 0.0)
    assert expected[1] < expected[0]


def test_labels_out_of_order_or_of_other_runs_are_refused(batch: Batch) -> None:
    draw = BatchDraw(plan_of(0.5), batch, 7)
    with pytest.raises(InputError, match="was not drawn"):
        draw.close({"run-110": 1})
    some = labels(draw, 10)
    del some[batch.trajectories[draw.order[4]]]
    with pytest.raises(InputError, match="has no label and later ones have"):
        draw.close(some)


def test_risk_is_isotonic_and_smoothed() -> None:
    scores = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    curve = RiskCurve.fit("reject", scores, np.array([0, 1, 0, 0, 1]))
    assert curve.scores == (0.1, 0.4, 0.5)
    assert curve.errors == pytest.approx((0.25, 1.5 / 4, 0.75))
    assert curve.at(np.array([0.0, 0.35, 9.0])) == pytest.approx([0.25, 1.5 / 4, 0.75])
    falling = RiskCurve.fit("release", scores, np.array([1, 0, 1, 0, 0]))
    assert list(falling.errors) == sorted(falling.errors, reverse=True)


def test_a_plan_chooses_by_what_it_saves_and_survives_its_file(batch: Batch) -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(600)
    outcomes = (rng.random(600) < np.clip(2 * scores - 0.6, 0.01, 1)).astype(np.int64)
    history = History(scores, outcomes, [f"t{number // 4}" for number in range(600)], "h")
    asked: dict[str, Any] = {"side": "reject", "alpha": 0.1, "delta": 0.05}
    plan = plan_batch(batch, **asked, history=history)
    assert 0.2 < plan.thresholds[-1] < 0.6 and plan.expected_labels is not None
    assert plan.expected_net_share is not None and plan.expected_net_share > 0.1
    assert plan_batch(batch, **asked, history=history) == plan
    assert BatchPlan.from_dict(plan.to_dict()) == plan
    with pytest.raises(InputError, match="not a batch plan"):
        BatchPlan.from_dict({**plan.to_dict(), "note": "mine"})
    with pytest.raises(InputError, match="--history"):
        plan_batch(batch, **asked)
    one = plan_batch(batch, **asked, threshold=0.3)
    assert one.thresholds == (0.3,) and one.risk is None
    assert math.isclose(one.predicted_errors[0], 0.03)


def test_unscored_runs_are_in_no_set() -> None:
    batch = Batch.of(["a", "b", "c"], ["t", "t", "t"], [0.1, math.nan, 0.9])
    assert BatchDraw(plan_of(0.5), batch, 1).order.tolist() == [0]
