"""What task sizes say of the pseudo-task: size ratio and charge, recounted plainly."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest

from certify_assets.certificates import (
    Observations,
    Settings,
    certify,
    evaluate,
    observe,
    threshold_curve,
    verify,
)
from certify_assets.certificates.counts import count_tasks
from certify_assets.certificates.evidence import Pool, observe_pool
from certify_assets.certificates.task_sizes import (
    covered_by_size,
    covered_ratios,
    observed_ratio,
    pseudo_task,
    size_charges,
)
from certify_assets.research.populations import Design, Sample, pilot_of
from certify_assets_tests.certificates.reference import counts_of
from certify_assets_tests.populations import paper_process

CAL = paper_process(60, 0.5, 8)


def pool_of(sizes: list[int], seed: int = 9) -> Pool:
    owner = np.repeat(np.arange(len(sizes)), sizes)
    scores = np.random.default_rng(seed).normal(size=owner.size)
    return observe_pool(scores, [f"pool {task}" for task in owner])


def rows(sizes: list[int], seed: int = 0) -> Observations:
    owner = np.repeat(np.arange(len(sizes)), sizes)
    scores = np.random.default_rng(seed).normal(size=owner.size)
    return observe(scores, np.zeros(owner.size, dtype=np.int64), owner)


def widest(table: Observations, pool: Pool) -> float:
    """The charge at the widest threshold, which leaves few runs out."""
    counts = count_tasks(table, "reject", 160)
    return float(size_charges(counts, covered_by_size(counts, (table, pool)))[-1])


def test_tasks_with_errors_that_are_larger() -> None:
    # two tasks have an error, and five are asked for
    assert observed_ratio(counts_of([4] * 20 + [16] * 5, [0] * 23 + [1] * 2)) == 1.0
    # 5 larger tasks with one error each: (5·16)/5 over Σn²/Σn
    larger = counts_of([4] * 20 + [16] * 5, [0] * 20 + [1] * 5)
    assert observed_ratio(larger) == pytest.approx(16 / ((20 * 16 + 5 * 256) / 160))


def test_equal_or_nearly_equal_tasks_are_charged_nothing() -> None:
    assert widest(rows([8] * 30), pool_of([8] * 100)) == 0.0
    # half a doubling: 11² < 2·8², 12² > 2·8²
    assert widest(rows([8] * 30), pool_of([8] * 90 + [11] * 10)) == 0.0
    assert widest(rows([8] * 30), pool_of([8] * 90 + [12] * 10)) > 0.1
    # where larger ones exist, those within half a doubling may belong to them
    few = widest(rows([8] * 30), pool_of([8] * 90 + [11] * 10 + [20]))
    assert few > widest(rows([8] * 30), pool_of([8] * 100 + [20])) > 0.0


def covered(
    table: Observations, pool: Pool, side: str, limit: float
) -> Iterator[tuple[bool, int, int]]:
    """Whether it is of calibration, the size and the covered runs of every covered task."""
    for kept in (table, pool):
        inside = kept.scores <= limit if side == "reject" else kept.scores >= limit
        sizes = np.bincount(kept.tasks[: kept.scored])
        runs = np.bincount(kept.tasks[inside], minlength=sizes.size)
        yield from ((kept is table, int(m), int(n)) for m, n in zip(sizes, runs, strict=True) if n)


@pytest.mark.parametrize("side", ["reject", "release"])
def test_ratio_and_charge_recounted_plainly(side: str) -> None:
    rng = np.random.default_rng(3)
    table = rows(rng.geometric(1 / 6, 25).tolist(), 1)
    pool = pool_of(rng.geometric(1 / 6, 120).tolist(), 2)
    counts = count_tasks(table, side, 160)
    sizes = covered_by_size(counts, (table, pool))
    ratios, found = covered_ratios(sizes, Settings()), size_charges(counts, sizes)
    assert (found > 0).any()
    for place in (0, 40, 100, 159):
        tasks = [*covered(table, pool, side, counts.thresholds[place])]
        total, own = sum(n for *_, n in tasks), sum(cal for cal, *_ in tasks)
        least = next(
            size
            for size in range(1, 200)
            if sum(n for _, m, n in tasks if m > size) <= 0.05 * total + 1e-9
        )
        assert ratios[place] == pytest.approx(least / np.mean([m for _, m, _ in tasks]))
        charges = []
        for square in (1, 2):
            most = 0.0
            for size in {m for _, m, _ in tasks}:
                tail = [n for _, m, n in tasks if m >= size]
                shown = min(1.0, sum(tail) / total * (1 + 2 / len(tail)))
                standing = sum(cal and square * m * m >= size * size for cal, m, _ in tasks)
                charge = shown
                if standing:
                    charge = shown * (1 - 0.3 ** (1 / standing)) - (1 - 0.3 ** (1 / own))
                most = max(most, charge)
            charges.append(most)
        assert found[place] == pytest.approx(min(charges[0], 4 * charges[1]), rel=1e-12)


@pytest.mark.parametrize(("tasks", "charged"), [(99, False), (100, True)])
def test_only_a_pool_of_a_hundred_tasks_charges(tasks: int, charged: bool) -> None:
    sizes = np.where(np.arange(tasks) % 10, 8, 24)
    owner = [f"pool {task}" for task in np.repeat(np.arange(tasks), sizes)]
    pool = (np.random.default_rng(5).normal(size=len(owner)), owner)
    codes = [finding["code"] for finding in certify(*CAL, pool=pool).findings]
    assert ("size_charge" in codes) == charged and ("few_pool_tasks" in codes) != charged


def test_a_certificate_with_a_charge() -> None:
    rng = np.random.default_rng(5)
    sizes = 1 + rng.poisson(7, 150)
    even, uneven = (
        (rng.normal(size=each.sum()), [f"pool {task}" for task in np.repeat(np.arange(150), each)])
        for each in (sizes, sizes * np.where(np.arange(150) % 10, 1, 3))
    )
    pool, found = uneven, certify(*CAL, pool=uneven)
    assert "count as wrong" in str(found.findings) and "count as wrong" in str(found.assumptions)
    assert verify(found.to_json(), *CAL, pool=pool) is None
    assert certify(*CAL, pool=even).coverage > found.coverage
    curve = threshold_curve(*CAL, pool=pool)
    place = np.flatnonzero(curve.tail <= curve.level)[-1]
    assert curve.thresholds[place] == found.threshold and curve.tail[place] <= curve.level
    assert np.array_equal(curve.bootstrap_upper <= 0.1, curve.tail <= curve.level)


@dataclass(frozen=True)
class Hidden:
    """2 % of the tasks are wrong throughout, five times larger, amid errors that the score sees."""

    tasks: int

    def draw(self, rng: np.random.Generator) -> Sample:
        wrong_task = rng.random(self.tasks) < 0.02004
        sizes = (1 + rng.poisson(7, self.tasks)) * np.where(wrong_task, 5, 1)
        owner = np.repeat(np.arange(self.tasks), sizes)
        hidden = wrong_task[owner]
        wrong = rng.random(owner.size) < np.where(hidden, 1.0, 0.1)
        scores = np.where(wrong & ~hidden, 2.5, 0.0) + rng.normal(size=owner.size)
        return Sample(scores, wrong.astype(np.int64), owner)


def share(design: Hidden, trials: int, *, charge: bool) -> float:
    """Share of tables on which something is certified."""
    settings, found = Settings(), 0
    for trial in range(trials):
        rng = np.random.default_rng([trial, 6])
        table, other = observe(*design.draw(rng)), pilot_of(cast(Design, design), 200, rng)
        pool = observe_pool(other.scores, other.tasks)
        plain = evaluate(table, settings)
        pseudo = pseudo_task(table, plain.counts, settings, pool)
        if not charge:
            pseudo = replace(pseudo, clustered=pseudo.ratios, charges=0 * pseudo.charges)
        test = replace(plain.test, pseudo=pseudo)
        tails = settings.method.tails(plain.counts, test, plain.counts.tasks)
        found += bool((tails <= test.level).any())
    return found / trials


@pytest.mark.statistics
def test_hidden_larger_tasks_are_held_by_the_charge_alone() -> None:
    trials = 200
    design = Hidden(50)  # a true error of at least .102 at every threshold
    # measured over 300 trials: .13 and .02; standard error at most .024
    assert share(design, trials, charge=False) > 0.08
    assert share(design, trials, charge=True) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
