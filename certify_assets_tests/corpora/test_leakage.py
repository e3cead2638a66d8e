import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets.corpora.leakage import LeakChecks, check_leaks, quoted_keys
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.trajectory import Step
from certify_assets_tests.corpora.builders import corpus, trajectory


def runs(outcomes: list[int], **fields: Any) -> pd.DataFrame:
    """Runs of ten tasks; a callable field is given the row's number and outcome."""
    return to_frame(
        [
            trajectory(
                row,
                task_id=f"t{row % 10}",
                outcome=outcome,
                **{name: value(row, outcome) for name, value in fields.items()},
            )
            for row, outcome in enumerate(outcomes)
        ]
    )


OUTCOMES = np.random.default_rng(1).integers(0, 2, 200).tolist()


def test_a_corpus_without_leaks_passes() -> None:
    found = check_leaks(corpus(tasks=60))
    assert found.passed and not found.over and found.phrases == {}
    assert 0.5 <= found.length_auroc < 0.7 and 0.35 < found.agent_auroc < 0.65
    assert LeakChecks.from_dict(found.to_dict()) == found


def test_an_episode_that_stops_at_success_shows() -> None:
    frame = runs(
        OUTCOMES,
        steps=lambda row, outcome: tuple(Step("go", "page") for _ in range(3 if outcome else 9)),
    )
    found = check_leaks(frame)
    assert found.step_auroc == found.length_auroc == 1.0
    assert set(found.over) == {"length", "steps"} and not found.passed
    accepted = check_leaks(
        frame, accept_structural_leak="episodes stop at success; known of this benchmark"
    )
    assert accepted.passed and accepted.over == found.over and accepted.accepted


def test_length_is_that_of_the_uncut_text() -> None:
    frame = runs(
        OUTCOMES, steps=lambda row, outcome: tuple(Step("x" * 900, "") for _ in range(20 + outcome))
    )
    texts = render_frame(frame)
    assert {len(item.text) for item in texts} == {6000}
    assert check_leaks(frame).length_auroc == 1.0


@pytest.mark.parametrize(
    ("agent", "auroc"),
    [
        (lambda row, outcome: "good" if outcome else "bad", 1.0),
        (lambda row, outcome: "only", 0.5),
        # with an agent a row, its success rate on the row itself would be the outcome
        (lambda row, outcome: f"agent{row}", 0.5),
    ],
)
def test_what_an_agent_alone_tells(agent: Callable[[int, int], str], auroc: float) -> None:
    found = check_leaks(runs(OUTCOMES, agent=agent))
    assert found.agent_auroc == auroc and ("agent" in found.over) == (auroc == 1)


def test_outcomes_that_are_all_equal_leave_nothing_to_measure() -> None:
    found = check_leaks(runs([1] * 20))
    assert found.length_auroc is None and found.agent_auroc is None and found.passed


@pytest.mark.parametrize(
    ("phrase", "good", "bad"),
    [
        ("correct_flag", '{"correct": true}', '{"correct": false}'),
        ("correct_flag", "<correct>True</correct>", "<correct>False</correct>"),
        ("reward_value", "task over: reward 1", "task over: reward 0"),
        ("reward_value", "reward = 0.75", "reward = 0.25"),
        ("resolved_flag", '"is_resolved": true', '"is_resolved": false'),
        ("score_value", '"score": 3', '"score": -3'),
        ("success_flag", "success: 1", "success: 0"),
        ("task_verdict", "the task was solved", "the task was failed"),
        ("test_summary", "4 passed, 0 failed", "1 failed, 3 passed"),
        ("verdict_word", "Verdict: correct", "verdict: incorrect"),
    ],
)
def test_verdicts_show(phrase: str, good: str, bad: str) -> None:
    """Where every run ends with one, what tells the outcome is what it says last."""

    def leaks(
        success: Step, failure: Step, earlier: tuple[str, str] = ("page", "page")
    ) -> LeakChecks:
        def steps(row: int, outcome: int) -> tuple[Step, ...]:
            return (Step("try", earlier[row % 2]), success if outcome else failure)

        return check_leaks(runs(OUTCOMES, steps=steps))

    found = leaks(Step("check", good), Step("check", "nothing"))
    assert found.phrases[phrase] == 1.0
    assert [one.trajectories for one in found.evidence.phrases] == [sum(OUTCOMES)]
    assert leaks(Step(good, "ok"), Step("nothing", "ok")).phrases == {}, "agents may claim"
    found = leaks(Step("check", good), Step("check", bad), (good, bad))
    assert found.phrases[phrase] == 1.0 and f"phrase {phrase}" in found.over
    (evidence,) = (item for item in found.evidence.phrases if item.name == phrase)
    assert evidence.trajectories == len(OUTCOMES)
    assert [example[1:] for example in evidence.examples] == [(2, good), (2, bad)]


def test_a_verdict_in_the_instruction_shows() -> None:
    found = check_leaks(
        runs(OUTCOMES, instruction=lambda row, outcome: f"Do it again. Last reward: {outcome}.")
    )
    assert found.phrases == {"reward_value": 1.0}
    assert {example[1] for example in found.evidence.phrases[0].examples} == {0}


def test_the_evidence_shows_agents_and_places() -> None:
    text = "x" * 200 + " 3 passed in 0.1s " + "y" * 200
    frame = runs(
        OUTCOMES,
        steps=lambda row, outcome: (
            Step("look", "page"),
            Step("test", text if outcome and row % 2 else "nothing"),
        ),
        agent=lambda row, outcome: f"a{row % 3}",
    )
    evidence = check_leaks(frame).evidence
    assert [agent.trajectories for agent in evidence.agents] == [67, 67, 66]
    assert evidence.agents[0].success_rate == pytest.approx(np.mean(OUTCOMES[::3]))
    (phrase,) = evidence.phrases
    assert phrase.success_rate_with == 1.0 and 0 < (phrase.success_rate_without or 0) < 1
    assert phrase.trajectories == sum(OUTCOMES[1::2]) and len(phrase.examples) == 2
    run, step, shown = phrase.examples[0]
    assert step == 2 and run in set(frame["trajectory_id"])
    assert re.fullmatch("….*3 passed.*…", shown) and len(shown) < 150


def test_keys_that_speak_of_the_outcome_are_found() -> None:
    frame = to_frame(
        [
            trajectory(0),
            trajectory(1, steps=(Step("look", 'state {"reward_info": {"x": 1}}'),)),
            trajectory(2, instruction='{\\"is_resolved\\": true}'),
            trajectory(3, steps=(Step("I hope for a reward", "rewards: 3"),)),
        ]
    )
    assert quoted_keys(frame) == ["is_resolved", "reward_info", "x"]
