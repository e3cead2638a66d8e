import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets.corpora.leakage import VERDICT_PHRASES, check_leaks, quoted_keys
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.schema import Step, to_frame
from certify_assets.errors import InputError
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
    assert json.loads(json.dumps(found.to_dict()))["passed"] is True


def test_an_episode_that_stops_at_success_shows() -> None:
    frame = runs(
        OUTCOMES,
        steps=lambda row, outcome: tuple(Step("go", "page") for _ in range(3 if outcome else 9)),
    )
    found = check_leaks(frame)
    assert found.step_auroc == 1.0 and not found.more_steps_succeed and not found.longer_succeeds
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
    assert check_leaks(frame, rendered=texts).length_auroc == 1.0


def test_an_agent_that_always_succeeds_shows() -> None:
    found = check_leaks(runs(OUTCOMES, agent=lambda row, outcome: "good" if outcome else "bad"))
    assert found.agent_auroc == 1.0 and "agent" in found.over


def test_one_agent_tells_nothing() -> None:
    assert check_leaks(runs(OUTCOMES, agent=lambda row, outcome: "only")).agent_auroc == 0.5


def test_the_agent_control_does_not_peek() -> None:
    # with an agent a row, its success rate on the row itself would be the outcome
    assert check_leaks(runs(OUTCOMES, agent=lambda row, outcome: f"agent{row}")).agent_auroc == 0.5


def test_outcomes_that_are_all_equal_leave_nothing_to_measure() -> None:
    found = check_leaks(runs([1] * 20))
    assert math.isnan(found.length_auroc) and math.isnan(found.agent_auroc) and found.passed
    assert found.to_dict()["length_auroc"] is None


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("correct_flag", 'answer {"correct": true}'),
        ("correct_flag", "<correct>True</correct>"),
        ("reward_value", "reward: 1.0"),
        ("resolved_flag", '"is_resolved": true'),
        ("task_verdict", "Task completed successfully"),
        ("test_summary", "=== 3 passed in 0.1s"),
        ("verdict_word", "Verdict: success"),
        ("score_value", "final score: 1.0"),
        ("success_flag", "success = true"),
    ],
)
def test_verdict_phrases_in_observations_show(phrase: str, text: str) -> None:
    assert phrase in VERDICT_PHRASES
    frame = runs(
        OUTCOMES, steps=lambda row, outcome: (Step("check", text if outcome else "nothing"),)
    )
    found = check_leaks(frame)
    assert found.phrases[phrase] == 1.0 and found.phrase_trajectories[phrase] == sum(OUTCOMES)
    assert f"phrase {phrase}" in found.over
    claimed = runs(
        OUTCOMES, steps=lambda row, outcome: (Step(text if outcome else "nothing", "ok"),)
    )
    assert check_leaks(claimed).phrases == {}


@pytest.mark.parametrize(
    ("phrase", "good", "bad"),
    [
        ("correct_flag", '{"correct": true}', '{"correct": false}'),
        ("reward_value", "task over: reward 1", "task over: reward 0"),
        ("reward_value", "reward = 0.75", "reward = 0.25"),
        ("resolved_flag", "resolved: true", "resolved: false"),
        ("score_value", '"score": 3', '"score": -3'),
        ("success_flag", "success: 1", "success: 0"),
        ("task_verdict", "the task was solved", "the task was failed"),
        ("test_summary", "4 passed, 0 failed", "1 failed, 3 passed"),
        ("verdict_word", "verdict: correct", "verdict: incorrect"),
    ],
)
def test_a_verdict_that_every_run_ends_with_shows(phrase: str, good: str, bad: str) -> None:
    """It is in all of them alike: what tells the outcome is what it says, and says last."""
    frame = runs(
        OUTCOMES,
        steps=lambda row, outcome: (
            Step("try", bad if row % 2 else good),
            Step("check", good if outcome else bad),
        ),
    )
    found = check_leaks(frame)
    assert found.phrases[phrase] == 1.0
    assert found.phrase_trajectories[phrase] == len(OUTCOMES)
    assert f"phrase {phrase}" in found.over
    (evidence,) = (item for item in found.evidence.phrases if item.name == phrase)
    (_, step, shown), (_, other_step, other) = evidence.examples
    assert (step, shown, other_step, other) == (2, good, 2, bad)


def test_a_verdict_in_the_instruction_shows() -> None:
    found = check_leaks(
        runs(OUTCOMES, instruction=lambda row, outcome: f"Do it again. Last reward: {outcome}.")
    )
    assert found.phrases == {"reward_value": 1.0}
    assert {example[1] for example in found.evidence.phrases[0].examples} == {0}


def test_every_control_has_its_own_threshold() -> None:
    frame = runs(
        OUTCOMES,
        steps=lambda row, outcome: tuple(
            Step("go", "3 passed" if outcome else "page") for _ in range(3 if outcome else 9)
        ),
    )
    assert check_leaks(frame, thresholds={"length": 1, "steps": 1, "phrases": 1}).over == (
        "length",
        "steps",
        "phrase test_summary",
    )
    found = check_leaks(corpus(tasks=60), thresholds={"agent": 0.51, "length": 0.501})
    assert found.thresholds == {"length": 0.501, "steps": 0.85, "agent": 0.51, "phrases": 0.85}
    assert ("length" in found.over) == (found.length_auroc >= 0.501)
    assert ("agent" in found.over) == (found.agent_auroc >= 0.51)


@pytest.mark.parametrize(
    "given",
    [
        {"lenght": 0.9},
        {"length": 0.5},
        {"length": 1.01},
        {"steps": "high"},
        {"agent": True},
        {"agent": math.nan},
    ],
)
def test_impossible_thresholds_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"leak.threshold"):
        check_leaks(corpus(tasks=4), thresholds=given)


@pytest.mark.statistics
def test_intervals_are_over_tasks() -> None:
    frame = corpus(tasks=40, attempts=4)
    once = check_leaks(frame)
    copied = [frame.assign(trajectory_id=frame["trajectory_id"] + f"/{copy}") for copy in range(5)]
    again = check_leaks(pd.concat(copied, ignore_index=True))
    # copies of the runs of a task are no new tasks, so they narrow nothing
    for name, bound in once.intervals.items():
        assert again.intervals[name] == pytest.approx(bound)
    for name, value in (("length", once.length_auroc), ("agent", once.agent_auroc)):
        bound = once.intervals[name]
        assert bound is not None and bound[0] < value < bound[1]
    assert check_leaks(frame).to_dict() == once.to_dict()
    wide, narrow = (
        check_leaks(corpus(tasks=15, attempts=4)).intervals["length"],
        check_leaks(corpus(tasks=240, attempts=4)).intervals["length"],
    )
    assert wide is not None
    assert narrow is not None
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_what_cannot_be_measured_has_no_interval() -> None:
    assert set(check_leaks(runs([1] * 20)).to_dict()["intervals"].values()) == {None}
    one_task = check_leaks(
        to_frame([trajectory(row, task_id="t", outcome=row % 2) for row in range(10)])
    )
    assert one_task.intervals["length"] is None


def test_the_evidence_shows_spreads_agents_and_places() -> None:
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
    assert sum(evidence.steps.successes) == sum(OUTCOMES)
    assert sum(evidence.length.failures) == 200 - sum(OUTCOMES)
    assert (
        len(evidence.length.edges)
        == len(evidence.length.successes) + 1
        == len(evidence.length.failures) + 1
    )
    assert [(agent.agent, agent.trajectories) for agent in evidence.agents] == [
        ("a0", 67),
        ("a1", 67),
        ("a2", 66),
    ]
    assert evidence.agents[0].success_rate == pytest.approx(np.mean(OUTCOMES[::3]))
    (phrase,) = evidence.phrases
    assert phrase.success_rate_with == 1.0
    assert phrase.success_rate_without is not None
    assert 0 < phrase.success_rate_without < 1
    assert phrase.trajectories == sum(outcome for row, outcome in enumerate(OUTCOMES) if row % 2)
    run, step, shown = phrase.examples[0]
    assert step == 2
    assert "3 passed" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert len(shown) < 150
    assert len(phrase.examples) == 2 and run in set(frame["trajectory_id"])


def test_keys_that_speak_of_the_outcome_are_found() -> None:
    frame = to_frame(
        [
            trajectory(0),
            trajectory(1, steps=(Step("look", 'state {"reward_info": {"x": 1}}'),)),
            trajectory(2, instruction='{\\"is_resolved\\": true}'),
            trajectory(3, steps=(Step("I hope for a reward", "rewards: 3"),)),
        ]
    )
    assert quoted_keys(frame) == {"is_resolved": ["run2"], "reward_info": ["run1"], "x": ["run1"]}
