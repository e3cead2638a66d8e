"""Planning one labelled run a task: the model is the guess, and what it predicts comes true."""

import numpy as np
import pytest

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.certificates.auroc import auroc
from certify_assets.certificates.row_planning import RowModel
from certify_assets.errors import InputError

SCORES = np.random.default_rng(0).normal(size=600)


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


def test_more_tasks_give_a_larger_chance_and_a_hopeless_judge_none() -> None:
    asked = Settings(alpha=0.2, procedure="one_run")
    model = RowModel.of(SCORES, 0.3, 0.85)
    chances = [model.plan(tasks, asked).chance for tasks in (20, 60, 200)]
    assert chances == sorted(chances) and chances[0] < chances[-1]
    needed = model.tasks_needed(asked)
    assert needed is not None and model.plan(needed, asked).chance >= 0.8
    assert RowModel.of(SCORES, 0.6, 0.5).tasks_needed(asked) is None
    with pytest.raises(InputError, match="Score the runs first"):
        RowModel.of(np.array([np.nan]), 0.5, 0.8)
