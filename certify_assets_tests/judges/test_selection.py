"""The choice among candidates on CAL, and what it costs."""

import numpy as np
import pytest

from certify_assets.certificates import Settings, audit_certificate
from certify_assets.errors import InputError, LedgerError
from certify_assets.judges.selection import Selection, bracket, choosing_half, select
from certify_assets_tests.paths import benchmark

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


@pytest.mark.parametrize("rule", ["counted", "halves"])
def test_the_better_judge_is_chosen_and_certified(rule: str) -> None:
    outcomes, tasks, noise = table()
    found = select(
        judges(outcomes, noise), outcomes, tasks, settings=SETTINGS, baseline="sft", rule=rule
    )
    assert found.chosen == "good"
    assert found.chosen != found.baseline
    assert found.best_and_worst() == ("good", "blind")
    assert found.certificate.certified
    assert found.certificate.candidates == (3 if rule == "counted" else 1)
    assert found.certificate.selection is not None
    assert "3 candidates (sft, good, blind)" in found.certificate.selection
    by_name = {row.name: row for row in found.rows}
    assert by_name["good"].certified_coverage == found.certificate.coverage
    assert by_name["good"].uncorrected == found.uncorrected.coverage
    assert (found.choosing_tasks, found.certifying_tasks) == (
        (80, 80) if rule == "counted" else (40, 40)
    )
    if rule == "counted":
        # a stricter level certifies no more
        assert by_name["good"].coverage <= by_name["good"].uncorrected
        assert found.certificate.level == pytest.approx(found.uncorrected.level / 3)


@pytest.mark.parametrize("rule", ["counted", "halves"])
def test_the_baseline_is_kept_on_a_tie_and_where_nothing_certifies(rule: str) -> None:
    outcomes, tasks, noise = table()
    scores = judges(outcomes, noise)
    # an increasing map leaves every certificate as it is
    tie = select(
        {"moved": 3 * scores["sft"] + 1, "sft": scores["sft"]},
        outcomes,
        tasks,
        settings=SETTINGS,
        baseline="sft",
        rule=rule,
    )
    assert tie.chosen == tie.baseline
    nothing = select(
        {"blind": noise, "sft": noise[::-1]},
        outcomes,
        tasks,
        settings=SETTINGS,
        baseline="sft",
        rule=rule,
    )
    assert nothing.chosen == "sft"
    assert not nothing.certificate.certified


def test_halves_hold_whole_tasks_and_follow_the_seed_alone() -> None:
    tasks = [f"t{place % 31}" for place in range(200)]
    half = choosing_half(tasks, 42)
    assert len({task for task, inside in zip(tasks, half, strict=True) if inside}) == 15
    assert not {task for task, inside in zip(tasks, half, strict=True) if inside} & {
        task for task, inside in zip(tasks, half, strict=True) if not inside
    }
    order = np.random.default_rng(0).permutation(200)
    assert choosing_half([tasks[place] for place in order], 42).tolist() == half[order].tolist()
    assert choosing_half(tasks, 43).tolist() != half.tolist()
    with pytest.raises(InputError, match="CAL has 1 task"):
        choosing_half(["a", "a"], 1)


def test_what_cannot_be_chosen_from_is_refused() -> None:
    outcomes, tasks, noise = table(20)
    with pytest.raises(InputError, match="baseline 'sft' is none of the candidates a"):
        select({"a": noise}, outcomes, tasks, settings=SETTINGS, baseline="sft")
    with pytest.raises(InputError, match="rule is 'best'; give one of counted, halves"):
        select({"a": noise}, outcomes, tasks, settings=SETTINGS, baseline="a", rule="best")
    with pytest.raises(InputError, match="candidate 'b' has 5 scores for 120 rows"):
        select({"a": noise, "b": noise[:5]}, outcomes, tasks, settings=SETTINGS, baseline="a")
    with pytest.raises(InputError, match="settings count 2 candidates"):
        select({"a": noise}, outcomes, tasks, settings=Settings(candidates=2), baseline="a")


def _audits(found: Selection) -> dict[str, dict[str, object]]:
    outcomes, tasks, noise = table(seed=1)
    scores = judges(outcomes, noise)
    return {
        name: audit_certificate(item, scores[name], outcomes, tasks).to_dict()
        for name, item in found.certificates.items()
    }


def test_the_choice_is_bracketed_on_test_by_what_was_registered() -> None:
    outcomes, tasks, noise = table()
    found = select(judges(outcomes, noise), outcomes, tasks, settings=SETTINGS, baseline="sft")
    audits = _audits(found)
    seen = bracket(found.plan(), audits)
    roles = (seen["chosen"], seen["oracle"], seen["worst"], seen["baseline"])
    assert tuple(arm["name"] for arm in roles) == ("good", "good", "blind", "sft")
    assert seen["regret"] == 0
    good, sft = (float(str(audits[name]["coverage"])) for name in ("good", "sft"))
    assert seen["gain"] == pytest.approx(good - sft)
    assert [arm["name"] for arm in seen["arms"]] == ["sft", "good", "blind"]
    with pytest.raises(LedgerError, match="not those of the registered candidates: blind"):
        bracket(found.plan(), {name: audits[name] for name in ("sft", "good")})
    with pytest.raises(LedgerError, match="audit of good is of another certificate"):
        bracket(found.plan(), {**audits, "good": audits["sft"]})


@pytest.mark.slow
def test_the_uncorrected_maximum_breaks_its_promise_and_the_rules_keep_it() -> None:
    """300 trials with 12 candidates that are all wrong.

    A rate of .05 has a standard error of .013.
    """
    trial = benchmark("selection").trial
    alone, uncorrected, counted, halves = np.mean(
        [trial(number, 12, SETTINGS) for number in range(300)], axis=0
    )
    assert uncorrected > 0.05 + 3 * 0.013
    assert max(alone, counted, halves) <= 0.05 + 2.5 * 0.013
