"""The choice among candidates on CAL, and what it costs."""

from dataclasses import replace

import numpy as np
import pytest

from certify_assets.certificates import Settings, certify, evaluate, observe
from certify_assets.judges.selection import select

SETTINGS = Settings(alpha=0.1, delta=0.05)


def table(
    tasks: int = 80, attempts: int = 6, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outcomes and tasks with a signal that a score may carry."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(tasks), attempts)
    outcomes = (rng.random(owner.size) < rng.beta(1, 1.5, tasks)[owner]).astype(int)
    return outcomes, owner, rng.normal(size=owner.size)


def judges(outcomes: np.ndarray, noise: np.ndarray) -> dict[str, np.ndarray]:
    return {"sft": 2.0 * outcomes + noise, "good": 4.0 * outcomes + noise, "blind": noise}


def test_the_better_judge_is_chosen_at_a_level_that_pays_for_all() -> None:
    outcomes, tasks, noise = table()
    scores = judges(outcomes, noise)
    found = select(scores, outcomes, tasks, settings=SETTINGS, baseline="sft")
    assert found.chosen == "good" and "3 candidates (sft, good, blind)" in found.rule
    for row in found.rows:
        counted, alone = (
            certify(scores[row.name], outcomes, tasks, alpha=0.1, delta=0.05, candidates=number)
            for number in (3, 1)
        )
        assert (row.coverage, row.uncorrected) == (counted.coverage, alone.coverage)
        assert counted.level == pytest.approx(alone.level / 3)
    # a stricter level certifies no more
    assert all(row.coverage <= row.uncorrected for row in found.rows)


def test_the_baseline_is_kept_on_a_tie_and_where_nothing_certifies() -> None:
    outcomes, tasks, noise = table()
    scores = judges(outcomes, noise)
    # an increasing map leaves every certificate as it is
    alike = {"moved": 3 * scores["sft"] + 1, "sft": scores["sft"]}
    blind = {"blind": noise, "sft": noise[::-1]}
    for candidates in (alike, blind):
        found = select(candidates, outcomes, tasks, settings=SETTINGS, baseline="sft")
        assert found.chosen == "sft"
    assert not any(row.coverage for row in found.rows)


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
    counted = replace(SETTINGS, candidates=candidates)
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
