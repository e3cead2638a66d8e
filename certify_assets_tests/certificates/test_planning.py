"""Plans: the model has the facts that were given, and what it predicts comes true."""

import numpy as np
import pytest

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.certificates.auroc import auroc
from certify_assets.certificates.planning import Planner, RowModel
from certify_assets.research.populations import Clustered

SCORES = np.random.default_rng(0).normal(size=600)
TASKS = np.repeat(np.arange(100), 6)


@pytest.mark.parametrize(("rate", "area"), [(0.2, 0.9), (0.5, 0.7), (0.35, 0.5)])
def test_the_model_has_the_success_rate_and_auroc_of_the_guess(rate: float, area: float) -> None:
    model = RowModel.of(SCORES, rate, area)
    assert model.right.mean() == pytest.approx(rate, abs=1e-6)
    rng = np.random.default_rng(1)
    drawn = [auroc(np.sort(SCORES), rng.random(600) < model.right) for _ in range(100)]
    assert np.mean(drawn) == pytest.approx(area, abs=0.01)


@pytest.mark.parametrize("procedure", ["one_run", "average"])
@pytest.mark.parametrize("side", ["reject", "release"])
def test_what_is_predicted_comes_true_where_the_model_holds(procedure: str, side: str) -> None:
    scores = np.round(SCORES, 1)
    model, asked = (
        RowModel.of(scores, 0.4, 0.92),
        Settings(alpha=0.2, side=side, procedure=procedure),
    )
    found, rng = model.plan(60, asked), np.random.default_rng(2)
    tables = []
    for _ in range(200):
        rows = rng.integers(scores.size, size=60)
        outcomes = rng.random(60) < model.right[rows]
        table = observe(
            np.sort(scores)[rows], outcomes.astype(int), [str(place) for place in range(60)]
        )
        tables.append(evaluate(table, asked).chosen_coverage)
    # the standard error of a mean of 200 coverages is at most .03
    assert found.coverage == pytest.approx(np.mean(tables), abs=0.08)
    assert found.chance == pytest.approx(np.mean(np.array(tables) > 0), abs=0.1)
    assert 0 < found.labels <= 60


@pytest.mark.parametrize("procedure", ["one_run", "pseudo_task"])
def test_more_tasks_give_a_larger_chance_and_a_hopeless_judge_none(procedure: str) -> None:
    asked = Settings(alpha=0.2, procedure=procedure)
    planner = Planner.of(SCORES, TASKS, success_rate=0.3, auroc=0.85)
    plans = [planner.plan(asked, tasks=tasks) for tasks in (14, 60, 100)]
    chances = [plan.chance for plan in plans]
    assert chances == sorted(chances) and chances[0] < chances[-1]
    assert plans == [planner.plan(asked, tasks=tasks) for tasks in (14, 60, 100)]
    needed = planner.tasks_needed(asked)
    assert needed is not None and planner.plan(asked, tasks=needed).chance >= 0.8
    if procedure == "one_run":
        blind = Planner.of(SCORES, TASKS, success_rate=0.6, auroc=0.5)
        assert blind.tasks_needed(asked) is None
    else:
        assert [plan.labels for plan in plans] == [14 * 6, 60 * 6, 100 * 6]
        assert planner.plan(asked, attempts=2).labels == 200 and planner.designs == (2, 4, 6)


@pytest.mark.parametrize(("procedure", "least"), [("taskboot", True), ("task_hoeffding", False)])
def test_below_twenty_tasks_nothing_was_validated(procedure: str, least: bool) -> None:
    planner = Planner.of(SCORES, TASKS, success_rate=0.05, auroc=0.99)
    needed = planner.tasks_needed(Settings(procedure=procedure, alpha=0.5))
    assert needed is not None and (needed == 20) == least


@pytest.mark.statistics
@pytest.mark.parametrize(("separation", "alpha"), [(2.2, 0.2), (1.5, 0.3)])
def test_the_tasks_needed_certify_in_another_population(separation: float, alpha: float) -> None:
    rng, asked = np.random.default_rng(3), Settings(alpha=alpha)
    table = Clustered(tasks=400, rho=0.5, separation=separation).draw(rng)
    known = observe(*table)
    planner = Planner.of(
        table.scores,
        table.tasks,
        success_rate=float(table.outcomes.mean()),
        auroc=known.auroc or 0.5,
    )
    needed = planner.tasks_needed(asked)
    assert needed is not None
    design = Clustered(tasks=needed, rho=0.5, separation=separation)
    found = [evaluate(observe(*design.draw(rng)), asked).chosen is not None for _ in range(200)]
    # a chance of .8 is planned; the population has other task effects than the model
    assert np.mean(found) > 0.5
