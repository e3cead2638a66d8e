"""``pseudo_task``: the values of the specification, the tail both ways, and the pool."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from certify_assets.certificates import (
    Certificate,
    Settings,
    certify,
    evaluate,
    observe,
    settings_of,
    verify,
)
from certify_assets.certificates.bootstrap import ErrorLattice
from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.error_icc import icc_upper
from certify_assets.certificates.path_limits import binomial_tails
from certify_assets.certificates.pseudo_task import (
    PseudoTask,
    clustered_share,
    exact_tail,
    exponential_sum_tail,
    joined_tails,
    pseudo_task_tails,
    saddlepoint_tails,
)
from certify_assets.errors import InputError
from certify_assets.research.populations import Fooled
from certify_assets_tests.certificates.reference import counts_of
from certify_assets_tests.populations import paper_process

SIZES = [8] * 30 + [16] * 6 + [4] * 12
ERRORS = [8] + [0] * 35 + [2] + [0] * 11
FEW_ERRORS = [10, 3, 1, 1] + [0] * 20


def of_size(ratio: float | np.ndarray) -> PseudoTask:
    """A pseudo-task that is so much larger than the mean covered task."""
    ratios = np.atleast_1d(ratio)
    return PseudoTask(1.0, ratios, ratios, 0 * ratios)


def tail(table: TaskCounts, alpha: str, size: float, level: float | None = None) -> float:
    """T(size), exact near the level and else by the saddlepoint."""
    asked = of_size(size * table.covered_tasks / table.covered_trajectories)
    budget = Fraction(alpha).as_integer_ratio()
    return float(pseudo_task_tails(table, *budget, asked, level=level)[0][0])


def test_the_values_of_the_specification() -> None:
    plain = counts_of([4] * 39, [0] * 39)
    assert tail(plain, "1/10", 4.0) == pytest.approx(0.01662538, abs=5e-9)
    assert tail(plain, "1/10", 4.0, 0.9**39) == pytest.approx(0.9**39, rel=1e-10)
    mixed = counts_of(SIZES, ERRORS)
    assert tail(mixed, "1/10", 8.0) == pytest.approx(0.05316544, abs=5e-9)
    assert tail(mixed, "1/10", 8.0, 0.053) == pytest.approx(0.05296130, abs=5e-9)
    assert tail(mixed, "1/10", 16.0) == pytest.approx(0.17250585, abs=5e-9)
    share = clustered_share(0.1, 0.5, 9.5)
    assert share == pytest.approx(0.31627695, abs=5e-9)
    assert tail(mixed, "1/10", share * 9.5) == pytest.approx(0.01614281, abs=5e-9)
    few = counts_of([10] * 24, FEW_ERRORS)
    assert tail(few, "1/5", 10.0) == pytest.approx(0.05314066, abs=5e-9)
    icc = icc_upper(few.covered[0], few.errors[0], confident=False)
    assert icc == pytest.approx(0.79705, abs=5e-6)
    share = clustered_share(0.2, icc, 10.0)
    assert share == pytest.approx(0.59273913, abs=5e-9)
    assert tail(few, "1/5", share * 10.0) == pytest.approx(0.02426344, abs=5e-9)


@pytest.mark.parametrize(("alpha", "least"), [(0.1, 39), (0.2, 19)])
def test_error_free_equal_tasks_certify_from_the_clopper_pearson_number(
    alpha: float, least: int
) -> None:
    for tasks in (least - 1, least):
        table, truth = counts_of([6] * tasks, [0] * tasks), (1 - alpha) ** tasks
        asked = table, *Fraction(str(alpha)).as_integer_ratio(), of_size(1.0)
        # the second tail is tested at three quarters of the level of the first
        for place, level in enumerate((truth, truth * 4 / 3)):
            found = pseudo_task_tails(*asked, level=level)[place]
            assert found == pytest.approx(truth, rel=1e-9)
        joined = joined_tails(*pseudo_task_tails(*asked, level=0.05 / 3))
        assert (joined <= 0.05 / 3) == (tasks == least)


def random_case(rng: np.random.Generator) -> tuple[ErrorLattice, float]:
    """Histogram of 100·(k − α·n), and the weight of the pseudo-task."""
    tasks, percent = int(rng.integers(10, 200)), int(rng.choice([5, 10, 20, 30]))
    sizes = [
        np.full(tasks, rng.integers(1, 20)),
        1 + rng.poisson(7, tasks),
        1 + np.minimum((4 * rng.pareto(1.3, tasks)).astype(int) + 1, 60),
    ][int(rng.integers(3))]
    rate, icc = rng.choice([0.005, 0.02, 0.05]), rng.choice([0.05, 0.3, 0.9])
    errors = rng.binomial(sizes, rng.beta(rate * (1 / icc - 1), (1 - rate) * (1 / icc - 1), tasks))
    values, often = np.unique(100 * errors - percent * sizes, return_counts=True)
    lattice = ErrorLattice(values, often, np.array([0, values.size]))
    return lattice, (1 - percent / 100) * rng.choice([1, 2, 5]) * float(sizes.mean())


def test_the_saddlepoint_agrees_with_the_quadrature() -> None:
    rng, near = np.random.default_rng(0), []
    for _ in range(400):
        lattice, extra = random_case(rng)
        fast = saddlepoint_tails(lattice, np.array([extra]), unit=0.01)[0]
        exact = exact_tail(lattice.values / 100, lattice.counts.astype(float), extra)
        if 1e-9 < exact < 0.3:
            # over 3,000 cases: from −.033 to .063
            assert fast == pytest.approx(exact, rel=0.08)
        if 0.005 < exact < 0.03:
            near.append(fast / exact - 1)
    # where decisions fall; "auto" takes the exact tail there
    assert len(near) > 30 and max(map(abs, near)) < 0.05


CAL = paper_process(60, 0.5, 8)


def pool_of(tasks: int = 150, seed: int = 9, times: int = 1) -> tuple[np.ndarray, list[str]]:
    scores, _, owner = paper_process(tasks, 0.5, seed)
    large = owner % 10 == 0
    scores, owner = (
        np.concatenate([column, np.repeat(column[large], times - 1)]) for column in (scores, owner)
    )
    return scores, [f"pool {task}" for task in owner]


def codes(found: Certificate) -> dict[str, str]:
    return {finding["code"]: finding["message"] for finding in found.findings}


def test_a_certificate_says_how_it_is_calibrated() -> None:
    found = certify(*CAL)
    assert found.certified and found.validity == "calibrated by simulation"
    assert (found.settings["grid"], found.settings["multiplicity"]) == (160, "calibrated")
    assert found.level == pytest.approx(0.05 / 3) and "by simulation" in found.statement
    assert "times as large" in " ".join(found.assumptions) and "pool" not in found.inputs
    assert verify(found.to_json(), *CAL) is None
    assert settings_of(found) == Settings(procedure="pseudo_task", grid=160)
    assert certify(*CAL, grid=40).settings["grid"] == 40
    assert certify(*CAL, size_ratio=5).coverage < found.coverage


def test_a_pool_is_named_and_the_certificate_verifies_with_it_alone() -> None:
    pool = pool_of(times=6)
    found = certify(*CAL, pool=pool)
    named = found.inputs["pool"]
    assert named == {**named, "rows": len(pool[1]), "origin": "given"}
    assert "pool" in " ".join(found.assumptions)
    document = found.to_json()
    assert Certificate.from_json(document) == found
    shuffled = np.random.default_rng(1).permutation(len(pool[1]))
    again = (pool[0][shuffled], [pool[1][row] for row in shuffled])
    assert verify(document, *CAL, pool=again) is None
    with pytest.raises(InputError, match="cannot be recomputed without it"):
        verify(document, *CAL)
    said = verify(document, *CAL, pool=pool_of(seed=4))
    assert "inputs.pool.sha256" in str(said)
    alone = certify(*CAL)
    assert "inputs.pool is missing" in str(verify(alone.to_json(), *CAL, pool=pool))


def test_a_pool_raises_or_lowers_the_size_of_wrong_tasks() -> None:
    up = certify(*CAL, pool=pool_of(times=6))
    rng = np.random.default_rng(2)
    sizes = np.minimum(1 + rng.poisson(7, 400), 10)
    names = [f"pool {task}" for task in np.repeat(np.arange(400), sizes)]
    scores = rng.normal(size=len(names))
    down = certify(*CAL, pool=(scores, names))
    assert down.coverage >= certify(*CAL).coverage >= up.coverage


def test_a_pool_with_other_sizes_never_lowers_the_size_ratio() -> None:
    scores = np.random.default_rng(2).normal(size=3200)
    pool = (scores, [f"pool {task}" for task in np.repeat(np.arange(400), 8)])
    found, alone = certify(*CAL, pool=pool), certify(*CAL)
    assert found.coverage <= alone.coverage


def test_pools_that_cannot_be_used() -> None:
    scores, tasks = pool_of()
    for pool, words in (
        ((scores, ["3", *tasks[1:]]), r"shares 1 task\(s\)"),
        ((np.full(len(tasks), np.nan), tasks), "No row of the pool has a score"),
        ((scores[1:], tasks), r"scores and .* tasks"),
    ):
        with pytest.raises(InputError, match=words):
            certify(*CAL, pool=pool)


@pytest.mark.statistics
def test_wrong_tasks_that_are_larger_are_held_where_the_guard_is_not() -> None:
    larger = Fooled(tasks=50, share=0.102, size_ratio=5)
    trials, wrong = 200, {"guarded_taskboot": 0, "pseudo_task": 0}
    for trial in range(trials):
        # wrong tasks five times larger, true error 1.02 α at every threshold
        table = observe(*larger.draw(np.random.default_rng([trial, 5])))
        for name in wrong:
            wrong[name] += evaluate(table, Settings(procedure=name)).chosen is not None
    # measured over 300 trials: .32 and at most .05; standard error at most .035
    assert wrong["guarded_taskboot"] / trials > 0.2
    assert wrong["pseudo_task"] / trials < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


@bounded(max_examples=60, deadline=None)
@given(st.sampled_from([0.001, 0.01, 0.1, 0.2, 0.5]), st.integers(1, 3000), st.data())
def test_tasks_of_one_give_clopper_pearson(alpha: float, covered: int, data: st.DataObject) -> None:
    errors = data.draw(st.integers(0, covered - 1) | st.integers(0, min(3, covered - 1)))
    tail = exponential_sum_tail(
        np.array([-alpha / (1 - alpha), 1.0]), np.array([covered - errors, errors + 1.0])
    )
    exact = binomial_tails(np.array([float(errors)]), np.array([float(covered)]), alpha)[0]
    assert tail == pytest.approx(exact, rel=1e-9, abs=1e-13)


def test_the_exact_tail_is_that_of_drawn_exponentials() -> None:
    rng = np.random.default_rng(1)
    for values in (
        [-0.1, -0.1, -0.05, 0.4, -0.08, -0.02, -0.11, 0.0],
        [-0.11] * 30 + [0.2, -0.03],
        [0.5, 0.5, -0.1],
        [-0.02],
    ):
        drawn = rng.standard_exponential((200_000, len(values) + 1)) @ np.append(values, 1.0) >= 0
        tail = exact_tail(np.array(values), np.ones(len(values)), 1.0)
        assert abs(drawn.mean() - tail) <= 4 * (tail * (1 - tail) / drawn.size) ** 0.5 + 1e-9
