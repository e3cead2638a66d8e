"""The choice among candidates on CAL, and what it costs."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets.certificates import Settings, certify, evaluate, observe
from certify_assets.judges.family import certify_candidates

SETTINGS = Settings(alpha=0.1, delta=0.05)
CONFIG: Any = SimpleNamespace(alphas=(0.001, 0.1, 0.2), grid=None)


def tables(**weights: float) -> dict[str, pd.DataFrame]:
    """Return scores that carry as much of the outcome as each weight says."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(80), 6)
    outcomes = (rng.random(tasks.size) < rng.beta(1, 1.5, 80)[tasks]).astype(int)
    noise = rng.normal(size=tasks.size)
    return {
        name: pd.DataFrame(
            {"score": weight * outcomes + noise, "outcome": outcomes, "task_id": tasks}
        )
        for name, weight in weights.items()
    }


def test_every_candidate_is_certified_at_a_level_that_pays_for_all() -> None:
    given = tables(sft=2.0, good=4.0, blind=0.0)
    found = {row["name"]: row for row in certify_candidates(given, CONFIG)}
    assert max(found, key=lambda name: found[name]["coverage"]) == "good"
    for name, frame in given.items():
        columns = (frame["score"], frame["outcome"], frame["task_id"].tolist())
        counted, alone = (certify(*columns, candidates=number) for number in (3, 1))
        assert found[name]["alpha"] == 0.1, "the smallest budget that certifies anything"
        assert found[name]["coverage"] == counted.coverage
        assert counted.level == pytest.approx(alone.level / 3)
        # a stricter level certifies no more
        assert counted.coverage <= alone.coverage


def covered(scores: np.ndarray, outcomes: np.ndarray, tasks: np.ndarray, asked: Settings) -> float:
    return evaluate(observe(scores, outcomes, tasks), asked).chosen_coverage


def wrong_certificates(trial: int, candidates: int) -> list[bool]:
    """Whether one candidate, the best, and the counted best are certified.

    No score knows the outcomes: every threshold errs at 1.1 α.
    """
    rng = np.random.default_rng([trial, candidates])
    tasks = np.repeat(np.arange(60), 4)
    outcomes = (rng.random(tasks.size) < 0.11).astype(np.int64)
    scores = rng.normal(size=(candidates, tasks.size))
    alone = [covered(row, outcomes, tasks, SETTINGS) for row in scores]
    counted = SETTINGS.replace(candidates=candidates)
    paid = [covered(scores[place], outcomes, tasks, counted) for place in np.flatnonzero(alone)]
    return [alone[0] > 0, max(alone) > 0, any(paid)]


@pytest.mark.statistics
def test_the_uncorrected_maximum_breaks_its_promise_and_counting_keeps_it() -> None:
    """300 trials with 12 candidates that are all wrong.

    A rate of .05 has a standard error of .013.
    """
    alone, uncorrected, counted = np.mean(
        [wrong_certificates(number, 12) for number in range(300)], axis=0
    )
    assert uncorrected > 0.05 + 3 * 0.013
    assert max(alone, counted) <= 0.05 + 2.5 * 0.013
