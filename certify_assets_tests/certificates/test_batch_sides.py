"""The batch certificate of both sides: disjoint sets, labels that count, what is asked for next."""

from __future__ import annotations

import numpy as np
import pytest

from certify_assets.certificates.batch import Batch
from certify_assets.certificates.batch_planning import History
from certify_assets.certificates.batch_sides import SidesDraw, SidesPlan, plan_sides, sides_sha256
from certify_assets.errors import InputError

RUNS = 240
ALPHAS = {"reject": 0.1, "release": 0.2}


def outcomes_of(scores: np.ndarray, rng: np.random.Generator, sharp: float = 8.0) -> np.ndarray:
    return (rng.random(scores.size) < 1 / (1 + np.exp(-sharp * scores))).astype(np.int64)


def history_of(seed: int = 5) -> History:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=800)
    return History(scores, outcomes_of(scores, rng), [f"t{n // 8}" for n in range(800)])


@pytest.fixture(scope="module")
def batch() -> Batch:
    names = [f"run-{number:03d}" for number in range(RUNS)]
    scores = np.random.default_rng(6).normal(size=RUNS)
    return Batch.of(names, [name[:6] for name in names], scores)


@pytest.fixture(scope="module")
def plan(batch: Batch) -> SidesPlan:
    return plan_sides(batch, alphas=ALPHAS, delta=0.05, history=history_of())


def test_no_run_is_in_the_sets_of_both_sides(batch: Batch, plan: SidesPlan) -> None:
    draw = SidesDraw(plan, batch, 3)
    assert [item.side for item in plan.plans] == ["reject", "release"]
    assert [item.delta for item in plan.plans] == [0.025, 0.025]
    assert [item.alpha for item in plan.plans] == [0.1, 0.2]
    first, second = map(set, draw.orders)
    assert first and second and not first & second
    assert SidesDraw(plan, batch, 4).orders != draw.orders
    other = Batch.of(batch.trajectories, batch.tasks, batch.scores + 1e-9)
    assert sides_sha256(plan, other) != sides_sha256(plan, batch)


def test_only_the_labels_of_the_first_runs_count_and_the_rest_is_asked_for(
    batch: Batch, plan: SidesPlan
) -> None:
    draw = SidesDraw(plan, batch, 3)
    reject, release = draw.orders
    assert set(draw.wanted({})) < {*reject, *release} and draw.wanted({})[0] == reject[0]
    known = dict.fromkeys(reject[:3], 0) | dict.fromkeys(reject[4:9], 1) | {"run-x": 1}
    found = draw.close(known)
    assert [item.labels_used for item in found] == [3, 0] and found[0].errors_found == 0
    wanted = draw.wanted(known)
    assert wanted[0] in (reject[3], release[0]) and not set(wanted) & set(known)


def test_a_side_that_is_settled_asks_for_nothing_more(batch: Batch, plan: SidesPlan) -> None:
    draw = SidesDraw(plan, batch, 3)
    reject, release = draw.orders
    right = dict.fromkeys(reject, 0)
    assert draw.close(right)[0].certified and set(draw.wanted(right)) <= set(release)
    # every run of the other side is wrong: it fails, and nothing is asked for
    wrong = right | dict.fromkeys(release, 0)
    assert draw.close(wrong)[1].status == "to_reviewers" and draw.wanted(wrong) == ()


@pytest.mark.slow
def test_a_side_on_which_nothing_is_saved_is_left_out(batch: Batch) -> None:
    known = history_of()
    failures = History(known.scores, np.zeros(known.scores.size, np.int64), known.tasks)
    found = plan_sides(batch, alphas=ALPHAS, delta=0.05, history=failures)
    assert [(item.side, item.delta) for item in found.plans] == [("reject", 0.05)]
    twice = Batch(("a", "a"), ("t", "t"), np.zeros(2))
    with pytest.raises(InputError, match="twice"):
        sides_sha256(found, twice)


@pytest.mark.statistics
def test_both_sides_hold_at_once_with_their_joint_confidence() -> None:
    """Batches whose every widest set has one error too many, audited until they are settled."""
    rng, trials, violated = np.random.default_rng(8), 400, 0
    scores = np.linspace(-3, 3, 160)
    frozen = Batch.of([f"r{n:03d}" for n in range(160)], ["t"] * 160, scores)
    plan = plan_sides(frozen, alphas=dict.fromkeys(ALPHAS, 0.2), delta=0.2, history=history_of())
    for _ in range(trials):
        draw = SidesDraw(plan, frozen, int(rng.integers(2**62)))
        truth: dict[str, int] = {}
        for names, side in zip(draw.orders, draw.sides, strict=True):
            wrong = rng.choice(len(names), int(0.2 * len(names)) + 1, replace=False)
            error = 1 if side.plan.side == "reject" else 0
            truth |= dict.fromkeys(names, 1 - error)
            truth |= {names[place]: error for place in wrong.tolist()}
        known: dict[str, int] = {}
        while wanted := draw.wanted(known):
            known |= {name: truth[name] for name in wanted}
        for side, found in zip(draw.sides, draw.close(known), strict=True):
            if found.certified and found.threshold is not None:
                inside = side.batch.decided(side.plan.side, found.threshold)
                error = 1 if side.plan.side == "reject" else 0
                bad = sum(
                    truth[name] == error
                    for name, mine in zip(side.batch.trajectories, inside, strict=True)
                    if mine
                )
                if bad > 0.2 * inside.sum():
                    violated += 1
                    break
    share = violated / trials
    # promised .2; Monte-Carlo standard error of 400 batches at .2: .02
    assert share <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / trials), share
