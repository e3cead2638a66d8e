import math

import numpy as np
import pytest

from certify_assets.certificates.auroc import auroc
from certify_assets.errors import InputError
from certify_assets.judges.controls import UNCUT, AgentJudge, LengthJudge


def test_length_tells_where_episodes_stop_at_success() -> None:
    generator = np.random.default_rng(0)
    outcomes = generator.integers(0, 2, 200)
    texts = [
        "x" * int(generator.integers(50, 90) if outcome else generator.integers(80, 200))
        for outcome in outcomes
    ]
    judge = LengthJudge.train(texts, outcomes)
    assert judge.slope < 0 and auroc(judge.score(texts).score, outcomes) > 0.9
    assert judge == LengthJudge.train(texts, outcomes)


def test_length_is_read_from_uncut_texts() -> None:
    assert len(UNCUT.render("go", [{"action": "x" * 50_000, "observation": ""}] * 3).text) > 150_000
    assert LengthJudge(1.0, 0.0).provenance().renderer_sha256 == UNCUT.sha256


def test_the_agent_judge_knows_success_rates() -> None:
    judge = AgentJudge.train(["a"] * 4 + ["b"] * 4, [1, 1, 1, 0, 0, 0, 0, 0])
    assert judge.score(["a", "b", "new"]).score == pytest.approx(
        [math.log(3.5 / 1.5), math.log(0.5 / 4.5), math.log(3.5 / 5.5)]
    )
    assert (
        judge.provenance().adapter_sha256
        != AgentJudge.train(["a", "b"], [1, 0]).provenance().adapter_sha256
    )


@pytest.mark.parametrize("outcomes", [[1, 1], [0, 0], [1], [0, 2], [0, float("nan")]])
def test_runs_without_both_outcomes_teach_nothing(outcomes: list[float]) -> None:
    for train in (LengthJudge.train, AgentJudge.train):
        with pytest.raises(InputError, match="some of each"):
            train(["a", "b"], outcomes)
