import numpy as np
import pytest

from certify_assets.judges.lm.reward import ARMS, Arm, completion_reward


def test_rewards_of_every_verdict_and_outcome() -> None:
    arm = Arm("x", 2.0, 3.0)
    assert arm.rewards(1) == (1.0, -3.0, -3.0)
    assert arm.rewards(0) == (-2.0, 1.0, -3.0)


@pytest.mark.parametrize("arm", ARMS.values(), ids=str)
def test_the_best_answer_changes_at_the_threshold(arm: Arm) -> None:
    threshold = (1 + arm.lam) / (2 + arm.lam + arm.mu)
    for chance in np.linspace(0.001, 0.999, 500):
        worth = [
            chance * arm.reward(verdict, 1) + (1 - chance) * arm.reward(verdict, 0)
            for verdict in (0, 1, None)
        ]
        assert int(np.argmax(worth)) == int(chance > threshold)


@pytest.mark.parametrize(
    ("completion", "outcome", "reward"),
    [((7,), 1, 1), ((8,), 1, -3), ((7, 8), 0, -1), ((9, 7), 1, -3), ((), 0, -3)],
)
def test_a_completion_counts_by_its_first_token(
    completion: tuple[int, ...], outcome: int, reward: float
) -> None:
    assert completion_reward(ARMS["reject_3"], completion, outcome, success=7, fail=8) == reward
