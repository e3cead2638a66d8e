"""Betting: what the pilot fixes, what is refused, and whether the promise holds."""

import numpy as np
import pytest

from certify_assets.certificates import (
    Certificate,
    Settings,
    audit_certificate,
    certify,
    evaluate,
    observe,
    verify,
)
from certify_assets.certificates.betting import make_plan, payoffs, wealth_tails
from certify_assets.certificates.counts import count_tasks
from certify_assets.research.populations import Sample
from certify_assets_tests.populations import fooled, paper_process, paper_truth

Table = tuple[np.ndarray, np.ndarray, np.ndarray]


def moved(sample: Sample) -> Table:
    """The same runs of tasks under other names."""
    return sample.scores, sample.outcomes, sample.tasks + 10**6


@pytest.fixture(scope="module")
def data() -> Sample:
    return paper_process(90, 0.5, 1)


@pytest.fixture(scope="module")
def pilot() -> Table:
    return moved(paper_process(80, 0.5, 2))


def codes(item: Certificate) -> list[str]:
    return [finding["code"] for finding in item.findings]


@pytest.mark.parametrize(("side", "alpha"), [("reject", 0.1), ("release", 0.2)])
def test_a_certificate_names_its_pilot_and_recomputes_with_it(
    data: Sample, pilot: Table, side: str, alpha: float
) -> None:
    found = certify(*data, procedure="betting", pilot=pilot, side=side, alpha=alpha)
    assert found.certified and found.level == 0.05
    assert (found.validity, found.estimand) == ("finite-sample", "task")
    named = observe(*pilot).sha256
    assert found.settings["pilot"] == named and found.settings["multiplicity"] == "fixed"
    assert found.threshold in pilot[0] and "every task weighing the same" in found.statement
    assumed = " ".join(found.assumptions)
    assert "fixed sequence" in assumed and named[:12] in assumed
    assert verify(found.to_json(), *data, pilot=pilot) is None
    assert "cannot be recomputed without it" in str(verify(found, *data))
    other = (pilot[0] + 1.0, *pilot[1:])
    assert "settings.pilot is" in str(verify(found, *data, pilot=other))
    assert audit_certificate(found, *pilot).own_coverage is None


def test_wealth_is_a_product_over_tasks_and_every_payoff_is_at_most_one() -> None:
    counts = count_tasks(observe(*fooled(30, 0.2, 0)), "reject", 10)
    table, bets = payoffs(counts, 0.1), np.linspace(0.0, 0.9, 10)
    assert table.max() <= 1.0 and table.shape == counts.covered.shape
    wealth = [np.prod([1 - bet * x for x in row]) for bet, row in zip(bets, table, strict=True)]
    assert wealth_tails(table, bets) == pytest.approx([min(1.0, 1 / each) for each in wealth])
    # every task right throughout: the payoff is −α/(1 − α)
    sure = count_tasks(observe(np.arange(29.0), np.zeros(29), np.arange(29)), "reject", 1)
    assert payoffs(sure, 0.1).min() == pytest.approx(-1 / 9)


def test_the_bet_is_the_best_one() -> None:
    pilot = observe(*paper_process(60, 0.5, 5))
    plan = make_plan(pilot, "reject", 20, 0.1)
    table, tried = payoffs(count_tasks(pilot, "reject", 20), 0.1), np.linspace(0, 0.999, 1000)
    for row, bet in zip(table, plan.bets, strict=True):
        growth = np.log1p(-tried[:, None] * row).sum(axis=1) + 0.25 * np.log1p(-tried)
        assert bet == pytest.approx(tried[growth.argmax()], abs=1.1e-3)
    assert 0 <= plan.start < 20 and plan.tasks == 60


REFERENCE = {
    (50, 0.1): 0.485, (50, 0.5): 0.116, (50, 0.8): 0.092,
    (64, 0.1): 0.675, (64, 0.5): 0.544, (64, 0.8): 0.470,
    (84, 0.1): 0.682, (84, 0.5): 0.610, (84, 0.8): 0.567,
    (100, 0.1): 0.686, (100, 0.5): 0.613, (100, 0.8): 0.570,
}  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "trials"),
    [
        ((64, 0.5), 40),
        ((100, 0.8), 40),
        *(pytest.param(cell, 200, marks=pytest.mark.statistics) for cell in REFERENCE),
    ],
)
def test_coverage_of_reference_cells(cell: tuple[int, float], trials: int) -> None:
    (tasks, rho), found, wrong = cell, [], 0
    for trial in range(trials):
        seed = [trial, tasks, int(10 * rho)]
        table = observe(*paper_process(tasks, rho, seed))
        other = paper_process(200, rho, [trial, 200, int(10 * rho), 7])
        result = evaluate(table, Settings(procedure="betting"), observe(*moved(other)))
        found.append(result.chosen_coverage)
        wrong += result.threshold is not None and paper_truth(result.threshold, rho) > 0.1
    # the reference has a standard error of about .01 of its own; at 200 trials that of a coverage
    # is at most .025
    error = np.hypot(np.std(found) / trials**0.5, 0.01)
    assert abs(np.mean(found) - REFERENCE[cell]) <= 3.5 * error
    assert wrong <= 0.05 * trials + 3 * (0.05 * 0.95 * trials) ** 0.5


@pytest.mark.statistics
@pytest.mark.parametrize(("tasks", "share"), [(50, 0.11), (100, 0.15)])
def test_betting_is_not_fooled_whatever_the_pilot_says(tasks: int, share: float) -> None:
    hits, trials = 0, 100
    for trial in range(trials):
        table = observe(*fooled(tasks, share, [trial, tasks]))
        # every second pilot is of easier tasks and bets high
        easier = share if trial % 2 else 0.03
        other = fooled(100, easier, [trial, tasks, 1])
        found = evaluate(table, Settings(procedure="betting"), observe(*moved(other)))
        # each certificate is a violation: every threshold has an error above α
        hits += found.chosen is not None
    # promised .05; standard error over 100 trials at that rate .022
    assert hits / trials <= 0.05 + 3 * 0.022
