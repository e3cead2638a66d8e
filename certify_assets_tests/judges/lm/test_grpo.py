"""Exact GRPO: the closed form against enumeration and finite differences, training, checkpoints."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certify_assets.errors import InputError
from certify_assets.judges.lm.grpo import GrpoConfig, GrpoRun, exact_loss
from certify_assets.judges.lm.language_model import LanguageModel, VerdictTokens
from certify_assets.judges.lm.reward import ARMS, Arm
from certify_assets_tests.judges.lm.tiny import random_rows, tiny_judge, with_adapter

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.(is_)?gradient_checkpointing. is deprecated:FutureWarning"),
]

ARM = Arm("uneven", 1.5, 3.0)
SMALL: dict[str, Any] = {
    "steps": 6,
    "learning_rate": 5e-3,
    "prompts_per_step": 4,
    "save_every": 2,
}


def _weights(judge: LanguageModel) -> dict[str, np.ndarray]:
    return {
        name: weight.detach().numpy().copy()
        for name, weight in judge.model.named_parameters()
        if weight.requires_grad
    }


def _same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


@pytest.mark.parametrize("outcome", [0, 1])
@pytest.mark.parametrize("samples", [2, 3, 5])
def test_the_loss_has_the_gradient_of_all_groups_enumerated(samples: int, outcome: int) -> None:
    import torch

    # five tokens: two verdicts and three others, so that no verdict is more than one outcome
    logits = torch.tensor([0.3, -0.4, 0.1, -1.2, 0.6], dtype=torch.float64, requires_grad=True)
    rewards = [ARM.reward(1, outcome), ARM.reward(0, outcome), *[ARM.unparsed] * 3]
    log_probs = torch.log_softmax(logits, 0)
    known = log_probs.tolist()
    expected = torch.zeros(5, dtype=torch.float64)
    for group in itertools.product(range(5), repeat=samples):
        chance = math.exp(sum(known[token] for token in group))
        mean = sum(rewards[token] for token in group) / samples
        surrogate = sum((rewards[token] - mean) * log_probs[token] for token in group) / samples
        expected += chance * torch.autograd.grad(surrogate, logits, retain_graph=True)[0]
    three = torch.stack([log_probs[0], log_probs[1], log_probs[2:].logsumexp(0)])[None]
    loss = exact_loss(three, [outcome], ARM, samples).sum()
    torch.testing.assert_close(
        -torch.autograd.grad(loss, logits)[0], expected, rtol=1e-12, atol=1e-14
    )


def test_training_raises_the_reward_and_asks_for_evaluation_when_due(tmp_path: Path) -> None:
    judge = with_adapter(tiny_judge(taught=10), started=False)
    asked: list[int] = []
    config = GrpoConfig(steps=30, learning_rate=2e-2, prompts_per_step=16, evaluate_at=(10, 30))
    rows = random_rows(32, noise=0.0)
    run = GrpoRun(judge, *rows, ARMS["reject_3"], config)
    log = run.train(tmp_path, evaluate=asked.append)
    assert asked == [10, 30] and len(log) == 30 and not judge.model.training
    # the loss is minus 7/8 of the expected reward
    assert log[-1]["loss"] < log[0]["loss"] - 0.4
    assert log[0]["learning_rate"] == 2e-2
    assert log[-1]["learning_rate"] == pytest.approx(2e-2 / 30)


def _train(folder: Path, judge: LanguageModel, arm: Arm = ARM, **settings: Any) -> Any:
    config = GrpoConfig(**SMALL)
    return GrpoRun(judge, *random_rows(10), arm, config).train(folder, **settings)


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = with_adapter(tiny_judge())
    through = _train(tmp_path / "whole", whole)

    def stop(step: int, *_: object) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, with_adapter(tiny_judge()), progress=stop)
    seen: list[int] = []
    # the second time a finished run is found finished
    for _ in range(2):
        again = with_adapter(tiny_judge())
        log = _train(tmp_path, again, progress=lambda step, *_: seen.append(step))
        assert seen == [5, 6] and log == through
        assert _same(_weights(again), _weights(whole))
    kept = {path.suffix for path in (tmp_path / "checkpoint-6").iterdir()}
    assert kept == {".json", ".safetensors"}


def test_the_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    _train(tmp_path, with_adapter(tiny_judge()))
    for judge, arm in ((tiny_judge(), ARMS["accuracy"]), (tiny_judge(seed=3), ARM)):
        with pytest.raises(InputError, match="another model, other settings or rows"):
            _train(tmp_path, with_adapter(judge, seed=1), arm)
    with pytest.raises(InputError, match="another model, other settings or rows"):
        _train(tmp_path, with_adapter(tiny_judge(), seed=2))


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    judge = with_adapter(tiny_judge())
    several = LanguageModel(judge.model, judge.tokenizer, VerdictTokens((2, 5), (3,)), "x", "y")
    with pytest.raises(InputError, match="choose words that are one"):
        _train(tmp_path, several)
    broken = tiny_judge()
    broken.model.lm_head.weight.data[2] = float("nan")
    with pytest.raises(InputError, match="loss of step 1 or its gradient is not a number"):
        _train(tmp_path, with_adapter(broken))
    assert not list(tmp_path.glob("checkpoint-*"))
